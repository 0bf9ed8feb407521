"""Defines the keywords and types of JSON Schema, and which keyword implies which type."""

from collections.abc import Sequence
from typing import Any

from agent_magics.protocol.items import JsonMapping

TYPES = frozenset(("boolean", "string", "number", "integer", "array", "object", "null"))

# Names of types in Python and OpenAPI, by their names in JSON Schema.
_ALIASES = {
    **dict.fromkeys(("str", "text", "date", "datetime", "date-time", "uuid", "file"), "string"),
    **dict.fromkeys(("int", "int32", "int64", "long"), "integer"),
    **dict.fromkeys(("float", "double", "decimal"), "number"),
    "bool": "boolean",
    **dict.fromkeys(("dict", "map", "mapping"), "object"),
    **dict.fromkeys(("list", "tuple", "set"), "array"),
    **dict.fromkeys(("none", "nil"), "null"),
}

# Keywords that imply a type where none is given; the first that is there decides.
_IMPLIED = (
    (
        (
            *("properties", "required", "additionalProperties", "patternProperties"),
            *("minProperties", "maxProperties", "propertyNames"),
        ),
        "object",
    ),
    (("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"), "array"),
    (("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), "number"),
)

# Keywords outside the subset that are written into the description.
LEFT_OUT = (
    *("default", "format", "pattern", "minLength", "maxLength"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "examples"),
)


def types_of(schema: JsonMapping) -> list[str]:
    """Return the JSON Schema types that a schema names; [] where it names none."""
    given = schema.get("type")
    names = given if isinstance(given, (list, tuple)) else [given]
    known = [_ALIASES.get(n.lower(), n.lower()) for n in names if isinstance(n, str)]
    return list(dict.fromkeys(name for name in known if name in TYPES))


def inferred_type(schema: JsonMapping) -> str:
    """Return the type that the other keywords imply; "string" where none does."""
    for keywords, kind in _IMPLIED:
        if any(keyword in schema for keyword in keywords):
            return kind
    for name in ("const", "default"):
        if schema.get(name) is not None:
            return type_of_value(schema[name])
    values = schema.get("enum")
    if isinstance(values, (list, tuple)) and values:
        return type_of_value(values[0])
    return "string"


def type_of_value(value: object) -> str:
    """Return the type of a JSON value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    for kinds, name in ((str, "string"), (int, "integer"), (float, "number")):
        if isinstance(value, kinds):
            return name
    return "array" if isinstance(value, (list, tuple)) else "object"


def values_of(schema: JsonMapping) -> list[object]:
    """Return the plain values that an enum or a const allows, without repeats."""
    given = schema.get("enum")
    if "const" in schema:
        given = [schema["const"]]
    if not isinstance(given, (list, tuple)):
        return []
    plain = [v for v in given if v is None or isinstance(v, (str, int, float, bool))]
    # 1, 1.0 and True are equal, and not the same.
    return list({(type(value), value): value for value in plain}.values())


def fits(value: object, kind: str) -> bool:
    """Return whether a plain value is of a JSON Schema type."""
    found = type_of_value(value)
    return found == kind or (kind == "number" and found == "integer")


def kinds_of(values: Sequence[Any]) -> list[str]:
    """Return the types of plain values; integers beside other numbers count as numbers."""
    kinds = list(dict.fromkeys(map(type_of_value, values)))
    if "number" in kinds and "integer" in kinds:
        kinds.remove("integer")
    return kinds
