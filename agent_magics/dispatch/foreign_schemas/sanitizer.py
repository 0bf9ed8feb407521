"""Reduces JSON schemas written by others to the subset that models and providers share.

MCP servers and clients write any dialect of JSON Schema; the result is always of the subset that is
sent: typed values, objects, arrays, enum, anyOf and references into `$defs`. Constraints that the
subset cannot express are dropped and described in words; the server that answers the call checks
them anyway. One rule a function; the same input gives the same output, and a schema of the subset
stays as it is.
"""

import json
import re
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from agent_magics.dispatch.foreign_schemas.vocabulary import (
    LEFT_OUT,
    fits,
    inferred_type,
    kinds_of,
    types_of,
    values_of,
)
from agent_magics.protocol.items import JsonMapping, JsonObject, at_pointer
from agent_magics.text.invisible import clean_text

Schema = JsonObject

# Deeper parts are reduced to their type.
DEEPEST = 10
# A schema with more parts than this is cut; references may multiply parts without end.
MOST_PARTS = 5_000
MOST_ALTERNATIVES = 100
# Characters of JSON; about 5,000 tokens for one tool, in every request.
MOST_CHARACTERS = 20_000
_CHARACTERS_OF_A_PART = 40  # as which a member of an allOf counts
_MOST_MERGED = 200  # members of an allOf; without the rest a schema is looser
_LONGEST_NAME = 64
_MOST_PASSES = 5

# Tried in this order until the schema is short enough: (deepest part, longest description).
_CUTS = ((DEEPEST, 2_000), (DEEPEST, 300), (DEEPEST, 80), (6, 80), (4, 0), (3, 0), (2, 0), (1, 0))
_FREE_OBJECT: Schema = {
    "type": "object",
    "properties": {},
    "required": [],
    "additionalProperties": True,
}
_STRUCTURE = ("type", "properties", "items", "enum", "const", "$ref", "prefixItems")


def sanitize_json_schema(schema: object) -> Schema:
    """Return a schema reduced to the subset that is sent; never raises.

    Args:
        schema: a JSON schema of any dialect, or any other value.
    """
    return _settled(schema, is_root_object=False)


def sanitize_parameters(schema: object) -> Schema:
    """Do the same as `sanitize_json_schema` for a tool's parameters: always an object."""
    return _settled(schema, is_root_object=True)


def _settled(schema: object, *, is_root_object: bool) -> Schema:
    """Clean repeatedly until nothing changes, since each pass may shorten the schema further."""
    clean = _shortest(schema, is_root_object=is_root_object)
    for _ in range(_MOST_PASSES):
        again = _shortest(clean, is_root_object=is_root_object)
        if again == clean:
            return clean
        clean = again
    return dict(_FREE_OBJECT)


def _shortest(schema: object, *, is_root_object: bool) -> Schema:
    for deepest, longest in _CUTS:
        clean = _Cleaner(schema, deepest, longest).run(is_root_object=is_root_object)
        if len(json.dumps(clean, ensure_ascii=False)) <= MOST_CHARACTERS:
            return clean
    return dict(_FREE_OBJECT)


class _Cleaner:
    """One pass over one schema.

    Args:
        root: the schema, which references point into.
        deepest: the depth below which parts are cut.
        longest: the most characters of a description; 0 drops descriptions.
    """

    def __init__(self, root: object, deepest: int, longest: int) -> None:
        self._root = root
        self._deepest = deepest
        self._longest = longest
        self._parts = 0
        self._first_pointers: dict[int, str] = {}  # id of a definition -> the first pointer to it
        self._names: dict[str, str] = {}  # pointer -> name in $defs
        self._pointers: dict[str, str] = {}  # the other way round
        self._numbers: dict[str, int] = {}  # of names with the same beginning
        self._defs: Schema = {}

    def run(self, *, is_root_object: bool) -> Schema:
        root = self._followed(self._root)
        clean = self._object_root(root) if is_root_object else self._clean(root, 0)
        waiting = list(self._names)
        while waiting:  # definitions may refer to further ones
            for pointer in waiting:
                name = self._names[pointer]
                self._defs[name] = self._clean(at_pointer(self._root, pointer), 1)
            waiting = [p for p in self._names if self._names[p] not in self._defs]
        if self._defs:
            clean = {**clean, "$defs": self._defs}
        return clean

    def _object_root(self, root: object) -> Schema:
        """Return the root as an object; alternatives become one object's optional properties."""
        if not isinstance(root, Mapping):
            return dict(_FREE_OBJECT)
        clean = self._clean({**root, "type": "object"} if "properties" in root else root, 0)
        if clean.get("type") == "object":
            return clean
        merged: Schema = {}
        for each in clean.get("anyOf", ()):
            inner = self._clean(self._followed(self._target(each)), 0) if "$ref" in each else each
            merged = {**inner.get("properties", {}), **merged}
        if not merged:
            return dict(_FREE_OBJECT)
        described = {"description": clean["description"]} if "description" in clean else {}
        return {
            "type": "object",
            "properties": merged,
            "required": [],
            "additionalProperties": False,
            **described,
        }

    # -- one part ----------------------------------------------------------------------------------

    def _clean(self, schema: object, depth: int) -> Schema:
        self._parts += 1
        if not isinstance(schema, Mapping) or self._parts > MOST_PARTS:
            return {"type": "string"}  # true, false, or not a schema: any value, as text
        if "allOf" in schema:
            schema = self._merged(schema)
        if isinstance(schema.get("$ref"), str):
            return self._reference(schema, depth)
        alternatives = self._alternatives(schema)
        if alternatives is not None and depth >= self._deepest:
            return self._described({"type": "string"}, schema)
        if alternatives is not None:
            return self._any_of(alternatives, schema, depth)
        kind = (types_of(schema) or kinds_of(values_of(schema)) or [inferred_type(schema)])[0]
        if depth >= self._deepest and kind in ("object", "array"):
            return self._described(_closed_form(kind), schema)
        if kind == "object":
            return self._described(self._object(schema, depth), schema)
        if kind == "array":
            return self._described(self._array(schema, depth), schema)
        clean: Schema = {"type": kind}
        values = [v for v in values_of(schema) if fits(v, kind)]
        if values and kind != "null":
            clean["enum"] = values
        return self._described(clean, schema)

    def _described(self, clean: Schema, schema: JsonMapping) -> Schema:
        """Add the description, and in words the constraints that the subset cannot express."""
        given = schema.get("description")
        text = clean_text(given) if isinstance(given, str) else ""
        left_out = [f"{name}: {_json_text(schema[name])}" for name in LEFT_OUT if name in schema]
        if left_out:
            text = f"{text} ({', '.join(left_out)})".strip()
        if len(text) > self._longest:
            text = text[: max(self._longest - 1, 0)].rstrip() + "…" if self._longest else ""
        return {**clean, "description": text} if text else clean

    def _object(self, schema: JsonMapping, depth: int) -> Schema:
        given = schema.get("properties")
        given = given if isinstance(given, Mapping) else {}
        properties = {
            str(name): self._clean(each, depth + 1)
            for name, each in given.items()
            if each is not False  # no value fits it
        }
        required = schema.get("required")
        names = required if isinstance(required, (list, tuple)) else ()
        known = (name for name in names if isinstance(name, str) and name in properties)
        return {
            "type": "object",
            "properties": properties,
            "required": list(dict.fromkeys(known)),
            "additionalProperties": self._additional(schema, bool(given), depth),
        }

    def _additional(self, schema: JsonMapping, has_names: bool, depth: int) -> bool | Schema:
        """Return `additionalProperties`: as given, or free keys where no property is named."""
        rest = schema.get("additionalProperties")
        patterns = schema.get("patternProperties")
        if rest is None and isinstance(patterns, Mapping) and patterns:
            rest = next(iter(patterns.values()))
        if isinstance(rest, Mapping):
            return self._clean(rest, depth + 1) if rest else True
        return rest if isinstance(rest, bool) else not has_names

    def _array(self, schema: JsonMapping, depth: int) -> Schema:
        """Return an array with one schema for all items; a tuple's schemas become alternatives."""
        items = schema.get("prefixItems", schema.get("items"))
        if not isinstance(items, (list, tuple)):
            return {"type": "array", "items": self._clean(items, depth + 1)}
        heads = [each for each in items if isinstance(each, (Mapping, bool))]
        rest = schema.get("items") if "prefixItems" in schema else None
        heads += [rest] if isinstance(rest, Mapping) else []
        clean = self._any_of(heads, {}, depth + 1) if heads else {"type": "string"}
        return {"type": "array", "items": clean}

    # -- alternatives ------------------------------------------------------------------------------

    def _alternatives(self, schema: JsonMapping) -> list[object] | None:
        """Return a schema's alternatives; None where it has none."""
        given = schema.get("anyOf", schema.get("oneOf"))
        rest = {k: v for k, v in schema.items() if k not in ("anyOf", "oneOf", "nullable")}
        bare = {k: v for k, v in rest.items() if k not in ("description", *LEFT_OUT)}
        if isinstance(given, (list, tuple)) and given:
            if not any(key in bare for key in _STRUCTURE):
                return [*given, *([{"type": "null"}] if schema.get("nullable") is True else [])]
            if any(_has_structure(each) for each in given):
                return [{"allOf": [bare, each]} for each in given]
        if schema.get("nullable") is True and types_of(schema) != ["null"]:
            return [bare, {"type": "null"}]
        values = values_of(schema)
        kinds = types_of(schema) or kinds_of(values)
        fitting = [k for k in kinds if not values or any(fits(value, k) for value in values)]
        if not fitting and kinds:  # none of the values is of the type: the values are right
            fitting = kinds_of(values)
        if len(fitting) > 1 or (fitting and types_of(schema) not in ([], fitting)):
            return [{**bare, "type": kind} for kind in fitting]
        return None

    def _any_of(self, given: Sequence[object], schema: JsonMapping, depth: int) -> Schema:
        found: dict[str, Schema] = {}  # by their text: comparing all with all takes too long
        for each in given:
            if each is False:
                continue
            clean = self._clean(each, depth + 1)
            inner = clean.get("anyOf") if "description" not in clean else None
            found |= {json.dumps(m, sort_keys=True): m for m in inner or [clean]}
            if len(found) >= MOST_ALTERNATIVES:
                break
        members = list(found.values())[:MOST_ALTERNATIVES]
        if not members:
            return self._described({"type": "string"}, schema)
        if len(members) > 1:
            return self._described({"anyOf": members}, schema)
        only = members[0]
        texts = [part for part in (schema.get("description"), only.get("description")) if part]
        merged = {"description": " ".join(texts)} if all(isinstance(s, str) for s in texts) else {}
        left_out = {name: schema[name] for name in LEFT_OUT if name in schema}
        plain = {key: value for key, value in only.items() if key != "description"}
        return self._described(plain, {**merged, **left_out})

    # -- references --------------------------------------------------------------------------------

    def _reference(self, schema: JsonMapping, depth: int) -> Schema:
        target, pointer = self._resolved(schema["$ref"])
        if target is None:
            return self._described({"type": "string"}, schema)
        if not isinstance(target, Mapping):
            return self._clean(target, depth)
        # One schema has one name, in however many ways it is pointed at.
        pointer = self._first_pointers.setdefault(id(target), pointer)
        if pointer not in self._names:
            name = self._names[pointer] = self._name_for(pointer)
            self._pointers[name] = pointer
        return self._described({"$ref": f"#/$defs/{self._names[pointer]}"}, schema)

    def _name_for(self, pointer: str) -> str:
        last = unquote(pointer).rpartition("/")[2].lstrip("#") or "root"
        base = re.sub(r"[^A-Za-z0-9_.-]", "_", last)[:_LONGEST_NAME]
        name = base
        while name in self._pointers:
            self._numbers[base] = self._numbers.get(base, 1) + 1
            name = f"{base}_{self._numbers[base]}"
        return name

    def _resolved(self, pointer: str) -> tuple[Any, str]:
        """Follow a chain of references to a schema; (None, "") where it leads nowhere."""
        seen = set()
        while pointer not in seen:
            seen.add(pointer)
            target = at_pointer(self._root, pointer)
            if not isinstance(target, Mapping) or not isinstance(target.get("$ref"), str):
                return target, pointer
            pointer = target["$ref"]
        return None, ""

    def _target(self, clean: JsonMapping) -> object:
        """Return the original schema behind one of the references written by this class."""
        name = str(clean["$ref"]).removeprefix("#/$defs/")
        return at_pointer(self._root, self._pointers[name])

    def _followed(self, schema: object) -> object:
        """Return the target of a schema that is only a reference; else the schema itself."""
        if isinstance(schema, Mapping) and isinstance(schema.get("$ref"), str):
            return self._resolved(schema["$ref"])[0]
        return schema

    def _merged(self, schema: JsonMapping) -> Schema:
        """Merge a schema with the members of its `allOf`."""
        merged = {key: value for key, value in schema.items() if key != "allOf"}
        waiting = deque(_parts_of(schema))
        is_bare = not any(key in merged for key in _STRUCTURE)
        if is_bare and len(waiting) == 1 and isinstance(waiting[0].get("$ref"), str):
            return {**waiting[0], **merged}  # a reference with a description of its own
        seen = {id(schema): merged}  # skips cycles and repeated parts
        while waiting and len(seen) <= _MOST_MERGED and self._parts <= MOST_PARTS:
            each = self._followed(waiting.popleft())
            if isinstance(each, Mapping) and id(each) not in seen:
                # All that stands in it is looked at again, in each place that refers to it.
                self._parts += len(_json_text(each)) // _CHARACTERS_OF_A_PART
                waiting.extendleft(reversed(_parts_of(each)))
                seen[id(each)] = {key: value for key, value in each.items() if key != "allOf"}
        return _all_of(list(seen.values()))


def _parts_of(schema: JsonMapping) -> list[JsonMapping]:
    given = schema.get("allOf")
    parts = given if isinstance(given, (list, tuple)) else ()
    return [part for part in parts if isinstance(part, Mapping)]


def _all_of(members: Sequence[JsonMapping]) -> Schema:
    """Merge schemas that must all hold; the keywords of the first ones win."""
    merged = {key: value for member in reversed(members) for key, value in member.items()}
    maps = [m["properties"] for m in members if isinstance(m.get("properties"), Mapping)]
    if maps:
        merged["properties"] = {name: each for m in reversed(maps) for name, each in m.items()}
    lists = [m["required"] for m in members if isinstance(m.get("required"), list)]
    if lists:
        merged["required"] = [name for names in lists for name in names]
    return merged


def _json_text(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, TypeError, RecursionError):
        return "…"


def _has_structure(schema: object) -> bool:
    return isinstance(schema, Mapping) and any(key in schema for key in (*_STRUCTURE, "allOf"))


def _closed_form(kind: str) -> Schema:
    if kind == "object":
        return dict(_FREE_OBJECT)
    return {"type": "array", "items": {"type": "string"}}
