"""Rewrites JSON schemas for providers other than OpenAI, by one list of rules for each.

A provider that does not accept a schema refuses the whole request. So constraints that it does not
support are put into the description as text, and checked when the call arrives: a rewritten schema
is looser than the original, never stricter.
"""

import json
import re
import types
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from agent_magics.protocol.items import JsonMapping, JsonObject

Schema: TypeAlias = JsonObject
Rule: TypeAlias = Callable[[Schema], Schema]

# Nesting depth up to which references are resolved, since a schema may be recursive.
DEEPEST = 4
# Parts of the targets that take the place of references.
MOST_PARTS = 2_000

SUBSCHEMAS = ("items", "additionalProperties", "not")
LISTS_OF_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
MAPS_OF_SCHEMAS = ("properties", "$defs", "definitions", "patternProperties")

# Keywords that belong to one type only.
OBJECT_WORDS = ("properties", "required", "additionalProperties")


def apply_rules(schema: object, rules: tuple[Rule, ...]) -> Any:
    """Apply each rule to each part of `schema`, inner parts first."""
    if not isinstance(schema, Mapping):
        return schema
    result = {word: _apply_inside(word, value, rules) for word, value in schema.items()}
    for rule in rules:
        result = rule(result)
    return result


def _apply_inside(word: str, value: object, rules: tuple[Rule, ...]) -> Any:
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
    """Return `schema` with `words` appended to its description."""
    description = schema.get("description", "")
    return {**schema, "description": f"{description} ({words})".strip()}


def described(schema: Schema, words: tuple[str, ...]) -> Schema:
    """Return `schema` with the keywords `words` moved into its description."""
    result = {word: value for word, value in schema.items() if word not in words}
    for word in words:
        if word in schema and not (word == "default" and schema[word] is None):
            value = json.dumps(schema[word], ensure_ascii=False, default=str)
            result = note(result, f"{word}: {value}")
    return result


def without(schema: Schema, words: tuple[str, ...]) -> Schema:
    """Return `schema` without the keywords `words`."""
    return {word: value for word, value in schema.items() if word not in words}


def resolve_references(schema: JsonMapping) -> Schema:
    """Return `schema` with its local references replaced by their targets, less deep where that
    would make it too large.
    """
    definitions = {**schema.get("definitions", {}), **schema.get("$defs", {})}
    for deepest in range(DEEPEST, -1, -1):
        with suppress(_TooManyParts):
            resolved = _Resolver(definitions, deepest).resolve(dict(schema), 0)
            return without(resolved, ("$defs", "definitions"))
    raise AssertionError("without a target there is no part of one")


class _TooManyParts(Exception):
    """The targets of references have more parts than a schema may have."""


class _Resolver:
    """Replaces the references in one schema.

    Args:
        definitions: their targets, by name.
        deepest: the level of targets in targets up to which they are replaced.
    """

    def __init__(self, definitions: JsonMapping, deepest: int) -> None:
        self._definitions = definitions
        self._deepest = deepest
        self._parts = 0  # of targets

    def resolve(self, part: object, depth: int) -> Any:
        """Return a part of the schema.

        Raises:
            _TooManyParts: it has too many.
        """
        if isinstance(part, list):
            return [self.resolve(each, depth) for each in part]
        if not isinstance(part, Mapping):
            return part
        self._parts += depth > 0
        if self._parts > MOST_PARTS:
            raise _TooManyParts
        if isinstance(part.get("$ref"), str):
            beside = without(dict(part), ("$ref",))
            target = self._definitions.get(part["$ref"].rpartition("/")[2])
            if target is None or depth >= self._deepest:
                return {"type": "object", **beside}
            return {**self.resolve(target, depth + 1), **beside}
        return {word: self._resolve_word(word, value, depth) for word, value in part.items()}

    def _resolve_word(self, word: str, value: object, depth: int) -> Any:
        if word in ("properties", "patternProperties") and isinstance(value, Mapping):
            return {name: self.resolve(each, depth) for name, each in value.items()}
        return value if word in _DATA else self.resolve(value, depth)


# Keywords whose values are data, not schemas.
_DATA = ("enum", "const", "default", "examples", "required", "$defs", "definitions")


# -- Gemini: an OpenAPI 3.0 subset ---------------------------------------------------------------


def gemini_composition(schema: Schema) -> Schema:
    """Rewrite oneOf as anyOf and merge allOf into one schema; only anyOf is supported."""
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
    """Rewrite a list of types as anyOf, and "null" as ``nullable``; a schema has one type."""
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
    """Return the option for one type of several, with the keywords of that type."""
    option: Schema = {"type": kind}
    if kind == "array":
        option["items"] = schema.get("items", {"type": "string"})
    if kind == "object":
        option |= {word: schema[word] for word in OBJECT_WORDS if word in schema}
    if kind == "string" and "enum" in schema:
        option["enum"] = schema["enum"]
    return option


def gemini_null_options(schema: Schema) -> Schema:
    """Rewrite an option "null" as ``nullable``; a single remaining option replaces the anyOf."""
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


# Class of a value -> its type in a schema; bool stands before int, which it is, too.
KINDS: tuple[tuple[type, str], ...] = (
    (types.NoneType, "null"),
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
)


def choices_of(schema: JsonMapping) -> list[Any]:
    """Return the members of the enum or const of `schema`; [] where it has neither."""
    members = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return members if isinstance(members, list) else []


def gemini_choices(schema: Schema) -> Schema:
    """Move enums with members of other types than string into the description, and keep the type.

    As strings, which is all that an enum may have there, they would be no members of the original.
    """
    members = choices_of(schema)
    if all(isinstance(member, str | types.NoneType) for member in members):
        return schema
    kinds = [next(kind for of, kind in KINDS if isinstance(member, of)) for member in members]
    return {"type": list(dict.fromkeys(kinds)), **described(schema, ("enum", "const"))}


def gemini_enum(schema: Schema) -> Schema:
    """Convert enums to strings; enums of other types are not supported."""
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


def enum_text(value: object) -> str:
    """Return a member of an enum as a string."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def gemini_shapes(schema: Schema) -> Schema:
    """Give arrays an item type, and remove required names without property and properties of
    scalars.
    """
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


def says_something(schema: object) -> bool:
    """Tell whether `schema` has a type or options."""
    return isinstance(schema, Mapping) and ("type" in schema or "anyOf" in schema)


def gemini_untyped(schema: Schema) -> Schema:
    """Add a type to schemas without one, which is required; anything becomes a string."""
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
    """Move unsupported constraints into the description and drop other unknown keywords, which
    cause refusal.
    """
    if schema.get("format") not in GEMINI_FORMATS.get(str(schema.get("type")), ()):
        schema = described(schema, ("format",))
    schema = described(schema, ("default", "multipleOf", "exclusiveMinimum", "exclusiveMaximum"))
    return {word: value for word, value in schema.items() if word in GEMINI_KNOWN}


# -- Kimi: Moonshot's own subset -----------------------------------------------------------------


def kimi_references(schema: Schema) -> Schema:
    """Remove keywords beside a ``$ref``, which cause refusal."""
    return {"$ref": schema["$ref"]} if "$ref" in schema else schema


def kimi_tuples(schema: Schema) -> Schema:
    """Replace a tuple by an array of its first element's schema; tuples are not supported."""
    items = schema.get("prefixItems") or schema.get("items")
    if not isinstance(items, list):
        return schema
    result = without(schema, ("prefixItems", "items"))
    return {**result, "items": items[0]} if items else result


def kimi_options(schema: Schema) -> Schema:
    """Move the type beside anyOf into each option."""
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
    """Rewrite tuples as ``prefixItems``; schemas are those of draft 2020-12."""
    if not isinstance(schema.get("items"), list):
        return schema
    return {**without(schema, ("items",)), "prefixItems": schema["items"]}


def anthropic_top(schema: Schema) -> Schema:
    """Merge the options of the outermost schema into one object; composition is not allowed
    there.
    """
    options = [part for word in ("anyOf", "oneOf", "allOf") for part in schema.get(word, [])]
    result = without(schema, ("anyOf", "oneOf", "allOf"))
    properties: Schema = {}
    for part in options:
        properties |= part.get("properties", {})
    properties |= schema.get("properties", {})
    return {**result, "type": "object", "properties": properties}


# -- the table -----------------------------------------------------------------------------------

# Form -> rules in order; each rule's docstring gives its reason.
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


def lean_form(schema: JsonMapping) -> Schema:
    """Return the schema of a tool's arguments in fewer tokens, for a tool that is not strict.

    A default of null, false or nothing is not written, since a model leaves such an argument out.
    That no other arguments exist is not written either: a call with one is answered with an error.
    Definitions that are used once stand where they are used.
    """
    used = re.findall(r'"\$ref": "([^"]*)', json.dumps(schema))
    known = {f"#/$defs/{name}" for name in schema.get("$defs", ())}
    if 0 < len(used) == len(set(used)) <= DEEPEST and known.issuperset(used):
        schema = resolve_references(schema)
    return dict(apply_rules(schema, (_lean_default, _lean_object)))


def _lean_default(schema: Schema) -> Schema:
    if schema.get("default", "?") not in (None, False, "", []):
        return schema
    options = [part for part in schema.get("anyOf", ()) if part != {"type": "null"}]
    if schema["default"] is None and options:
        alone = options[0] if len(options) == 1 else {"anyOf": options}
        schema = {**alone, **without(schema, ("anyOf",))}
    return without(schema, ("default",))


def _lean_object(schema: Schema) -> Schema:
    empty = {"additionalProperties": False, "required": []}
    said = [word for word, value in empty.items() if schema.get(word) == value]
    return without(schema, tuple(said)) if "properties" in schema else schema


def fit_schema(schema: JsonMapping, form: str, *, restored: bool = True) -> Schema:
    """Rewrite the schema of a tool's arguments or of an answer (an object) in `form`.

    Args:
        schema: the schema.
        form: a name of `RULES`.
        restored: whether `restore_enums` is called with what the model writes, as it is with
            arguments but not with answers.
    """
    result, rules = dict(schema), RULES[form]
    if form == "gemini":  # references are not supported
        result = resolve_references(result)
        rules = rules if restored else (gemini_choices, *rules)
    result = apply_rules(result, rules)
    return anthropic_top(result) if form == "anthropic" else result


def restore_enums(schema: object, value: object) -> Any:
    """Return arguments with enum strings converted back to members of the original enums.

    Args:
        schema: the tool's original schema, references resolved.
        value: the arguments as the model wrote them.
    """
    if not isinstance(schema, Mapping):
        return value
    members = choices_of(schema)
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


def has_other_enums(schema: object) -> bool:
    """Tell whether any enum in `schema` has a member that is not a string."""
    if isinstance(schema, list):
        return any(map(has_other_enums, schema))
    if not isinstance(schema, Mapping):
        return False
    if any(not isinstance(member, str | types.NoneType) for member in choices_of(schema)):
        return True
    return any(has_other_enums(part) for part in schema.values())
