"""Rewrites JSON schemas into OpenAI's strict form, and call ids into the forms of providers.

In strict mode every argument must be required, and only part of JSON Schema is supported (OpenAI's
guide, "Structured model outputs: supported schemas"). The forms of schemas at other providers are
in `schema_forms`.
"""

import hashlib
import json
import re
import string
from collections.abc import Mapping
from typing import Any, TypeAlias

from agent_magics.models.wires.bodies import json_text
from agent_magics.protocol.items import JsonMapping, JsonObject

Schema: TypeAlias = JsonObject

# Constraints that strict mode does not support. They are still checked when the call arrives, and
# appended to the description.
TO_DESCRIPTION = {
    "default": "every argument is required there; null stands for leaving it out",
    "minLength": "not in the supported part of string",
    "maxLength": "not in the supported part of string",
    "pattern": "its regular expressions know no lookaround, and refuse the whole schema",
    "uniqueItems": "not in the supported part of array",
    "contains": "not in the supported part of array",
    "minContains": "not in the supported part of array",
    "maxContains": "not in the supported part of array",
    "minProperties": "objects are closed, so this says nothing",
    "maxProperties": "objects are closed, so this says nothing",
    "examples": "annotation",
}

# The string formats that it supports; any other one causes refusal of the whole schema.
FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
)

# Keywords that are for readers of the schema, not for the model.
DROPPED = {
    "title": "repeats the name",
    "discriminator": "OpenAPI only; anyOf is enough",
    "$schema": "the dialect is fixed",
    "$id": "references are local",
    "$comment": "not for the model",
    "deprecated": "annotation",
    "readOnly": "annotation",
    "writeOnly": "annotation",
}

# A schema with one of these has no strict form and is sent unchanged, not enforced.
NO_STRICT_FORM = {
    "allOf": "composition is not supported",
    "not": "composition is not supported",
    "if": "conditions are not supported",
    "then": "conditions are not supported",
    "else": "conditions are not supported",
    "prefixItems": "tuples are not supported",
    "patternProperties": "names must be known",
    "propertyNames": "names must be known",
    "unevaluatedProperties": "names must be known",
    "unevaluatedItems": "tuples are not supported",
    "dependentRequired": "conditions are not supported",
    "dependentSchemas": "conditions are not supported",
}

# Every schema needs one of these; otherwise it allows anything, which cannot be enforced.
SAYS_WHAT = ("type", "anyOf", "oneOf", "$ref", "enum", "const")


class _NoStrictForm(Exception):
    """Some part of the schema cannot be expressed in strict mode."""


def strict_form(schema: JsonMapping) -> Schema | None:
    """Return `schema` (of an object) in OpenAI's strict form, or None if it has none.

    Every property becomes required; those that were optional may be null, which the receiver
    must treat as missing. Unsupported constraints move into the description.
    """
    if schema.get("type") != "object":
        return None
    try:
        return _strict(schema)
    except _NoStrictForm:
        return None


def _strict(schema: Any) -> Schema:
    _require_strict_form(schema)
    result: Schema = {}
    notes = []
    for keyword, value in schema.items():
        if keyword in TO_DESCRIPTION or (keyword == "format" and value not in FORMATS):
            notes.append(_note(keyword, value))
        elif keyword not in DROPPED:
            result["anyOf" if keyword == "oneOf" else keyword] = _strict_value(keyword, value)
    if schema.get("type") == "object":
        _close_object(result, schema)
    _describe(result, [note for note in notes if note])
    return _reference_alone(_one_type(result))


def _require_strict_form(schema: object) -> None:
    if not isinstance(schema, Mapping) or not any(word in schema for word in SAYS_WHAT):
        raise _NoStrictForm
    if any(word in schema for word in NO_STRICT_FORM):
        raise _NoStrictForm
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if "array" in kinds and "items" not in schema:
        raise _NoStrictForm
    if "object" in kinds:
        # A mapping has arbitrary names, and so has an object without properties.
        if kinds != ["object"] or schema.get("additionalProperties") not in (None, False):
            raise _NoStrictForm
        if "properties" not in schema and schema.get("additionalProperties") is None:
            raise _NoStrictForm


def _strict_value(keyword: str, value: Any) -> Any:
    if keyword in ("properties", "$defs", "definitions"):
        return {name: _strict(part) for name, part in value.items()}
    if keyword in ("anyOf", "oneOf"):
        return [_strict(part) for part in value]
    return _strict(value) if keyword == "items" else value


def _close_object(result: Schema, schema: JsonMapping) -> None:
    properties = result.setdefault("properties", {})
    required = schema.get("required", ())
    for name, part in properties.items():
        if name not in required:
            properties[name] = _nullable(part)
    result["required"] = list(properties)
    result["additionalProperties"] = False


def _one_type(schema: Schema) -> Schema:
    """Return "a scalar, or null" as one type instead of an anyOf: the same in half the tokens."""
    match schema.get("anyOf"):
        case [{"type": "string" | "integer" | "number" | "boolean"} as option, {"type": "null"}]:
            beside = {word: value for word, value in schema.items() if word != "anyOf"}
            if option.keys().isdisjoint(beside):
                return {**_nullable(option), **beside}
    return schema


def _nullable(schema: Schema) -> Schema:
    """Return `schema` extended to allow null."""
    if "anyOf" in schema:
        if any(part.get("type") == "null" for part in schema["anyOf"]):
            return schema
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    kinds = schema.get("type")
    if kinds in (None, "object", "array") or "const" in schema:
        outside = {word: schema[word] for word in ("description",) if word in schema}
        inside = {word: value for word, value in schema.items() if word not in outside}
        return {"anyOf": [inside, {"type": "null"}], **outside}
    kinds = kinds if isinstance(kinds, list) else [kinds]
    result = {**schema, "type": kinds if "null" in kinds else [*kinds, "null"]}
    if "enum" in schema and None not in schema["enum"]:
        result["enum"] = [*schema["enum"], None]
    return result


def _note(keyword: str, value: object) -> str:
    if keyword == "default" and value in (None, False, ""):  # null says the same (as it does for 0)
        return ""
    return f"{keyword}: {json.dumps(value, ensure_ascii=False, default=str)}"


def _describe(result: Schema, notes: list[str]) -> None:
    if notes:
        description = result.get("description", "")
        result["description"] = f"{description} ({'; '.join(notes)})".strip()


def _reference_alone(schema: Schema) -> Schema:
    """Move a ``$ref`` with other keywords beside it into an anyOf, since it must be alone."""
    if "$ref" not in schema or len(schema) == 1:
        return schema
    beside = {word: value for word, value in schema.items() if word != "$ref"}
    return {"anyOf": [{"$ref": schema["$ref"]}], **beside}


# -- calls that are sent back -------------------------------------------------------------------


def fit_name(name: str) -> str:
    """Return the name of a called tool in the form that servers accept: a model may write any."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "unknown"


def fit_arguments(arguments: str) -> str:
    """Return the arguments of a call, in a JSON object if they are none.

    Servers parse those of earlier calls (vLLM's and Ollama's templates do), and refuse the whole
    conversation if one is malformed; the model was told so by an error.
    """
    text = arguments if arguments.strip() else "{}"
    try:
        is_object = isinstance(json.loads(text, parse_constant=_refuse), dict)
    except (ValueError, RecursionError):
        is_object = False
    return text if is_object else json_text({"invalid_json": arguments})


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON, though Python reads it")


# Form -> pattern of a valid id, length of a generated one, reason.
CALL_ID_FORMS = {
    "responses": (re.compile(r".{1,64}", re.DOTALL), 24, "call_id has at most 64 characters"),
    "openai": (re.compile(r".{1,40}", re.DOTALL), 24, "tool_calls[].id has at most 40 characters"),
    "anthropic": (re.compile(r"[a-zA-Z0-9_-]{1,64}"), 24, "tool_use.id has this pattern"),
    "mistral": (re.compile(r"[a-zA-Z0-9]{9}"), 9, "its template takes nine letters and digits"),
}
LETTERS_AND_DIGITS = string.digits + string.ascii_letters


def fit_call_id(call_id: str, form: str) -> str:
    """Return `call_id`, or a replacement of the same form, in the `form` of `CALL_ID_FORMS`.

    A replacement is derived by a hash: it is the same for the call and for its output, in this
    request and in the next.
    """
    pattern, length, _ = CALL_ID_FORMS[form]
    if pattern.fullmatch(call_id):
        return call_id
    digest = hashlib.sha256(call_id.encode("utf-8", "replace")).digest()
    return "".join(LETTERS_AND_DIGITS[byte % 62] for byte in digest[:length])
