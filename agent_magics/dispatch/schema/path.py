"""Looks up the schema of a place (a path of keys and indexes) in arguments."""

from collections.abc import Sequence

from agent_magics.dispatch.schema.annotations import Schema


def follow_reference(schema: Schema, root: Schema) -> Schema:
    """Return the target of a local reference, any other schema as it is."""
    reference = schema.get("$ref", "")
    found: Schema = root.get("$defs", {}).get(reference.removeprefix("#/$defs/"), schema)
    return found


def schema_at(root: Schema, place: Sequence[object]) -> Schema | None:
    """Return the schema of the value at `place`; the first that fits in a union."""
    candidates = [root]
    for part in place:
        opened = [follow_reference(each, root) for each in candidates]
        opened += [follow_reference(each, root) for one in opened for each in one.get("anyOf", ())]
        candidates = [step for each in opened if (step := _step(each, part)) is not None]
    return follow_reference(candidates[0], root) if candidates else None


def _step(schema: Schema, part: object) -> Schema | None:
    if isinstance(part, int):
        heads = schema.get("prefixItems", ())
        return heads[part] if part < len(heads) else schema.get("items")
    inner = schema.get("properties", {}).get(part, schema.get("additionalProperties"))
    return inner if isinstance(inner, dict) else None
