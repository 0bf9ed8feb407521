"""JSON schemas as providers other than OpenAI take them: one table of rules for each, with reasons.

A schema that a provider refuses takes the whole request with it. So whatever it cannot say is said
in words in the description, and checked when the call arrives: a form is looser than the schema,
never tighter.
"""

import json
import types
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Schema: TypeAlias = dict[str, Any]
Rule: TypeAlias = Callable[[Schema], Schema]

# Deeper than this a reference is not followed: a schema may refer to itself.
DEEPEST = 4

SUBSCHEMAS = ("items", "additionalProperties", "not")
LISTS_OF_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
MAPS_OF_SCHEMAS = ("properties", "$defs", "definitions", "patternProperties")

# Keywords that belong to one type only.
OBJECT_WORDS = ("properties", "required", "additionalProperties")
SCALARS = ("string", "number", "integer", "boolean")


def apply_rules(schema: Any, rules: tuple[Rule, ...]) -> Any:
    """Return `schema` with each rule applied to each of its parts, inner ones first."""
    if not isinstance(schema, Mapping):
        return schema
    result = {word: _apply_inside(word, value, rules) for word, value in schema.items()}
    for rule in rules:
        result = rule(result)
    return result


def _apply_inside(word: str, value: Any, rules: tuple[Rule, ...]) -> Any:
    if word in MAPS_OF_SCHEMAS and isinstance(value, Mapping):
        return {name: apply_rules(part, rules) for name, part in value.items()}
    if word in LISTS_OF_SCHEMAS and isinstance(value, list):
        return [apply_rules(part, rules) for part in value]
    if word == "items" and isinstance(value, list):
        return [apply_rules(part, rules) for part in value]
    if word in SUBSCHEMAS:
        return apply_rules(value, rules)
    return value


def note(schema: Schema, words: str) -> Schema:
    """Return `schema` with `words` at the end of its description."""
    said = schema.get("description", "")
    return {**schema, "description": f"{said} ({words})".strip()}


def told(schema: Schema, words: tuple[str, ...]) -> Schema:
    """Return `schema` with these keywords moved into its description."""
    result = {word: value for word, value in schema.items() if word not in words}
    for word in words:
        if word in schema and not (word == "default" and schema[word] is None):
            value = json.dumps(schema[word], ensure_ascii=False, default=str)
            result = note(result, f"{word}: {value}")
    return result


def without(schema: Schema, words: tuple[str, ...]) -> Schema:
    """Return `schema` without these keywords."""
    return {word: value for word, value in schema.items() if word not in words}


def resolve_references(schema: Mapping[str, Any]) -> Schema:
    """Return `schema` with what its local references lead to in their place."""
    definitions = {**schema.get("definitions", {}), **schema.get("$defs", {})}
    return without(_resolve(dict(schema), definitions, 0), ("$defs", "definitions"))


def _resolve(part: Any, definitions: Mapping[str, Any], depth: int) -> Any:
    if isinstance(part, list):
        return [_resolve(each, definitions, depth) for each in part]
    if not isinstance(part, Mapping):
        return part
    if isinstance(part.get("$ref"), str):
        beside = without(dict(part), ("$ref",))
        target = definitions.get(part["$ref"].rpartition("/")[2])
        if target is None or depth >= DEEPEST:
            return {"type": "object", **beside}
        return {**_resolve(target, definitions, depth + 1), **beside}
    # What stands under these words is data, not schemas.
    data = ("enum", "const", "default", "examples", "required", "$defs", "definitions")
    return {
        word: value if word in data else _resolve(value, definitions, depth)
        for word, value in part.items()
    }


# -- Gemini: an OpenAPI 3.0 subset ---------------------------------------------------------------


def gemini_composition(schema: Schema) -> Schema:
    """Only anyOf is known: oneOf is said as anyOf, allOf as one schema that has all of them."""
    if "oneOf" in schema:
        options = [*schema.get("anyOf", []), *schema["oneOf"]]
        schema = {**without(schema, ("oneOf",)), "anyOf": options}
    for part in schema.get("allOf", []):
        merged = {**part.get("properties", {}), **schema.get("properties", {})}
        required = list(dict.fromkeys([*schema.get("required", []), *part.get("required", [])]))
        schema = {**part, **schema}
        if merged:
            schema = {**schema, "properties": merged, "required": required}
    return without(schema, ("allOf",))


def gemini_types(schema: Schema) -> Schema:
    """One type per schema: a list of types becomes anyOf, "null" becomes ``nullable``."""
    kinds = schema.get("type")
    if isinstance(kinds, list):
        others = [kind for kind in kinds if kind != "null"]
        schema = without(schema, ("type",))
        if len(others) == 1:
            schema["type"] = others[0]
        elif others and "anyOf" not in schema:
            schema["anyOf"] = [_only_words_of(schema, kind) for kind in others]
            schema = without(schema, ("items", "enum", *OBJECT_WORDS))
        if "null" in kinds:
            schema["nullable"] = True
    if schema.get("type") == "null":
        schema = {**schema, "type": "string", "nullable": True}
    return schema


def _only_words_of(schema: Schema, kind: str) -> Schema:
    """One option for a type out of several, with the keywords that are that type's."""
    option: Schema = {"type": kind}
    if kind == "array":
        option["items"] = schema.get("items", {"type": "string"})
    if kind == "object":
        option |= {word: schema[word] for word in OBJECT_WORDS if word in schema}
    if kind == "string" and "enum" in schema:
        option["enum"] = schema["enum"]
    return option


def gemini_null_options(schema: Schema) -> Schema:
    """An option "null" becomes ``nullable``; one option alone stands for itself."""
    options = schema.get("anyOf")
    if not isinstance(options, list):
        return schema
    is_null = [
        part.get("type") == "string" and len(part) == 2 and "nullable" in part for part in options
    ]  # what `gemini_types` made of {"type": "null"}
    rest = [part for part, null in zip(options, is_null, strict=True) if not null]
    if len(rest) == len(options) or not rest:
        return schema
    result = {**without(schema, ("anyOf",)), "nullable": True}
    if len(rest) == 1:
        return {**rest[0], **result}
    return {**result, "anyOf": rest}


def gemini_enum(schema: Schema) -> Schema:
    """An enum holds only strings, and only a string may have one."""
    if "const" in schema:
        schema = {**without(schema, ("const",)), "enum": [schema["const"]]}
    if "enum" not in schema:
        return schema
    values = [value for value in schema["enum"] if value is not None]
    if len(values) < len(schema["enum"]):
        schema = {**schema, "nullable": True}
    if not values:
        return {**without(schema, ("enum",)), "type": "string"}
    return {**schema, "type": "string", "enum": [enum_text(value) for value in values]}


def enum_text(value: Any) -> str:
    """Return a member of an enum as the string that stands for it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def gemini_shapes(schema: Schema) -> Schema:
    """Arrays say what they hold, required names exist, and scalars have no properties."""
    kind = schema.get("type")
    if "prefixItems" in schema or isinstance(schema.get("items"), list):
        options = schema.get("prefixItems") or schema["items"]
        schema = without(schema, ("prefixItems",))
        schema["items"] = options[0] if len(options) == 1 else {"anyOf": options}
    if kind == "array" and not says_something(schema.get("items")):
        schema = {**schema, "items": {"type": "string"}}
    if kind != "array":
        schema = without(schema, ("items", "minItems", "maxItems"))
    if kind != "object":
        return without(schema, OBJECT_WORDS)
    properties = schema.get("properties", {})
    required = [name for name in schema.get("required", []) if name in properties]
    schema = without(schema, ("required", "additionalProperties"))
    return {**schema, "required": required} if required else schema


def says_something(schema: Any) -> bool:
    """Return whether `schema` has a type or options."""
    return isinstance(schema, Mapping) and ("type" in schema or "anyOf" in schema)


def gemini_untyped(schema: Schema) -> Schema:
    """Everything has a type: what may be anything is written as text."""
    if says_something(schema):
        return schema
    if "properties" in schema:
        return {**schema, "type": "object"}
    if "items" in schema or "prefixItems" in schema:
        return {**schema, "type": "array"}
    return {**schema, "type": "string"}


GEMINI_KNOWN = frozenset(
    (
        "type", "format", "description", "nullable", "enum", "items", "properties", "required",
        "anyOf", "minItems", "maxItems", "minimum", "maximum", "minLength", "maxLength", "pattern",
    )
)  # fmt: skip
GEMINI_FORMATS = {
    "string": ("enum", "date-time"),
    "integer": ("int32", "int64"),
    "number": ("float", "double"),
}


def gemini_words(schema: Schema) -> Schema:
    """Unknown keywords refuse the request: constraints are told, the rest is left out."""
    if schema.get("format") not in GEMINI_FORMATS.get(str(schema.get("type")), ()):
        schema = told(schema, ("format",))
    schema = told(schema, ("default", "multipleOf", "exclusiveMinimum", "exclusiveMaximum"))
    return {word: value for word, value in schema.items() if word in GEMINI_KNOWN}


# -- Kimi: Moonshot's own subset -----------------------------------------------------------------


def kimi_references(schema: Schema) -> Schema:
    """A ``$ref`` stands alone; whatever is beside it refuses the request."""
    return {"$ref": schema["$ref"]} if "$ref" in schema else schema


def kimi_tuples(schema: Schema) -> Schema:
    """There are no tuples: an array holds what the tuple's first place holds."""
    items = schema.get("prefixItems") or schema.get("items")
    if not isinstance(items, list):
        return schema
    result = without(schema, ("prefixItems", "items"))
    return {**result, "items": items[0]} if items else result


def kimi_options(schema: Schema) -> Schema:
    """Beside anyOf there is no type: each option has its own."""
    if "anyOf" not in schema or "type" not in schema:
        return schema
    kind = schema["type"]
    options = [
        part if says_something(part) or "$ref" in part else {"type": kind, **part}
        for part in schema["anyOf"]
    ]
    return {**without(schema, ("type",)), "anyOf": options}


# -- Anthropic -----------------------------------------------------------------------------------


def anthropic_tuples(schema: Schema) -> Schema:
    """Schemas are those of draft 2020-12, where a tuple is ``prefixItems``."""
    if not isinstance(schema.get("items"), list):
        return schema
    return {**without(schema, ("items",)), "prefixItems": schema["items"]}


def anthropic_top(schema: Schema) -> Schema:
    """The outermost schema is an object without composition: all options' properties in one."""
    options = [part for word in ("anyOf", "oneOf", "allOf") for part in schema.get(word, [])]
    result = without(schema, ("anyOf", "oneOf", "allOf"))
    properties: Schema = {}
    for part in options:
        properties |= part.get("properties", {})
    properties |= schema.get("properties", {})
    return {**result, "type": "object", "properties": properties}


# -- the table -----------------------------------------------------------------------------------

# Form -> rules in order; each rule's own docstring gives its reason.
RULES: dict[str, tuple[Rule, ...]] = {
    "plain": (),
    "gemini": (
        gemini_composition,
        gemini_types,
        gemini_null_options,
        gemini_enum,
        gemini_untyped,
        gemini_shapes,
        gemini_words,
    ),
    "kimi": (kimi_references, kimi_tuples, kimi_options),
    "anthropic": (anthropic_tuples,),
}


def fit_schema(schema: Mapping[str, Any], form: str) -> Schema:
    """Return `schema` (of a tool's arguments, an object) in `form`, a name of `RULES`."""
    result = dict(schema)
    if form == "gemini":  # it knows no references
        result = resolve_references(result)
    result = apply_rules(result, RULES[form])
    return anthropic_top(result) if form == "anthropic" else result


def restore_enums(schema: Any, value: Any) -> Any:
    """Return arguments with the members of enums that Gemini's form had made strings of.

    Args:
        schema: the schema as the tool has it, references resolved.
        value: the arguments as the model wrote them.
    """
    if not isinstance(schema, Mapping):
        return value
    members = schema.get("enum", [schema["const"]] if "const" in schema else ())
    if isinstance(value, str) and members and value not in members:
        return next((member for member in members if enum_text(member) == value), value)
    if isinstance(value, dict):
        parts = schema.get("properties", {})
        value = {name: restore_enums(parts.get(name), part) for name, part in value.items()}
    elif isinstance(value, list):
        value = [restore_enums(schema.get("items"), part) for part in value]
    for word in ("anyOf", "oneOf", "allOf"):
        for option in schema.get(word, ()):
            value = restore_enums(option, value)
    return value


def has_other_enums(schema: Any) -> bool:
    """Return whether some enum in `schema` has a member that is no string."""
    if isinstance(schema, list):
        return any(map(has_other_enums, schema))
    if not isinstance(schema, Mapping):
        return False
    members = schema.get("enum", [schema["const"]] if "const" in schema else ())
    if isinstance(members, list) and any(
        not isinstance(member, str | types.NoneType) for member in members
    ):
        return True
    return any(has_other_enums(part) for part in schema.values())
