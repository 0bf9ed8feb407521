"""Looks up the schema of a place (a path of keys and indexes) in arguments."""

from collections.abc import Iterable, Sequence

from agent_magics.dispatch.schema.annotations import Schema

# Keywords of a type with named fields; a named tuple, whose fields also an object can name, is an
# array.
_NAMED = frozenset(("properties", "prefixItems"))


def follow_reference(schema: Schema, root: Schema) -> Schema:
    """Return the target of a local reference, any other schema as it is."""
    reference = schema.get("$ref", "")
    found: Schema = root.get("$defs", {}).get(reference.removeprefix("#/$defs/"), schema)
    return found


def schema_at(root: Schema, place: Sequence[object]) -> Schema | None:
    """Return the schema of the value at `place`; the first that fits in a union."""
    found = _schemas_at(root, place)
    return follow_reference(found[0], root) if found else None


def may_be_left_out(root: Schema, place: Sequence[object]) -> bool:
    """Tell whether a null at `place` says nothing: the object around it has names of its own, and
    takes no value under any other, as a dict does.
    """
    *around, name = place
    holders = _opened(_schemas_at(root, around), root)
    others = [each for each in holders if name not in each.get("properties", ())]
    is_free = any(each.get("additionalProperties", False) is not False for each in others)
    return not is_free and any(not _NAMED.isdisjoint(each) for each in holders)


def _schemas_at(root: Schema, place: Sequence[object]) -> list[Schema]:
    candidates = [root]
    for part in place:
        opened = _opened(candidates, root)
        candidates = [step for each in opened if (step := _step(each, part)) is not None]
    return candidates


def _opened(candidates: Iterable[Schema], root: Schema) -> list[Schema]:
    """Return schemas with references followed, and behind them the members of unions; each once,
    since the unions of a recursive type would multiply with every level.
    """
    opened, waiting = dict[int, Schema](), list(candidates)
    for each in waiting:  # also the members of unions in unions, which are added meanwhile
        found = follow_reference(each, root)
        if id(found) not in opened:
            opened[id(found)] = found
            waiting += found.get("anyOf", ())
    return list(opened.values())


def _step(schema: Schema, part: object) -> Schema | None:
    if isinstance(part, int):
        heads = schema.get("prefixItems", ())
        return heads[part] if part < len(heads) else schema.get("items")
    inner = schema.get("properties", {}).get(part, schema.get("additionalProperties"))
    return inner if isinstance(inner, dict) else None
