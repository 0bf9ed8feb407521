"""What a provider wants otherwise than we write it: its rules as tables, each with its reason.

Here are the strict form of a function's JSON schema at OpenAI, where every argument must be
required and only part of JSON Schema may be said, and the ids of calls. The forms of schemas at
other providers are in `schema_forms`.
"""

import hashlib
import json
import re
import string
from collections.abc import Mapping
from typing import Any, TypeAlias

Schema: TypeAlias = dict[str, Any]

# Constraints strict mode does not know. They are still checked when the call arrives; the model
# reads them in the description.
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

# The formats of strings it enforces; any other one refuses the whole schema.
FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
)

# Words that are for readers of the schema, not for the model.
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

# A schema with one of these has no strict form at all and is sent as it is, unenforced.
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

# One of these must stand in every schema, or it allows anything, which cannot be enforced.
SAYS_WHAT = ("type", "anyOf", "oneOf", "$ref", "enum", "const")


class _NoStrictForm(Exception):
    """Some part of the schema cannot be said in strict mode."""


def strict_form(schema: Mapping[str, Any]) -> Schema | None:
    """Return `schema` (of an object) in OpenAI's strict form, or None where it has none.

    Every property becomes required; those that were optional may be null, which the receiver
    must read as "left out". Other constraints move into the description.
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
    return _reference_alone(result)


def _require_strict_form(schema: Any) -> None:
    if not isinstance(schema, Mapping) or not any(word in schema for word in SAYS_WHAT):
        raise _NoStrictForm
    if any(word in schema for word in NO_STRICT_FORM):
        raise _NoStrictForm
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if "array" in kinds and "items" not in schema:
        raise _NoStrictForm
    if "object" in kinds:
        # A mapping has names that nobody knows beforehand; an object without names is one too.
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


def _close_object(result: Schema, schema: Mapping[str, Any]) -> None:
    properties = result.setdefault("properties", {})
    required = schema.get("required", ())
    for name, part in properties.items():
        if name not in required:
            properties[name] = _nullable(part)
    result["required"] = list(properties)
    result["additionalProperties"] = False


def _nullable(schema: Schema) -> Schema:
    """Let null through; where it already goes through, nothing changes."""
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


def _note(keyword: str, value: Any) -> str:
    if keyword == "default" and value is None:
        return ""
    return f"{keyword}: {json.dumps(value, ensure_ascii=False, default=str)}"


def _describe(result: Schema, notes: list[str]) -> None:
    if notes:
        said = result.get("description", "")
        result["description"] = f"{said} ({'; '.join(notes)})".strip()


def _reference_alone(schema: Schema) -> Schema:
    """A ``$ref`` may have no other keyword beside it."""
    if "$ref" not in schema or len(schema) == 1:
        return schema
    beside = {word: value for word, value in schema.items() if word != "$ref"}
    return {"anyOf": [{"$ref": schema["$ref"]}], **beside}


# -- ids of calls -------------------------------------------------------------------------------

# Form -> what an id must look like, the length of one made anew, and why.
CALL_ID_FORMS = {
    "openai": (re.compile(r".{1,40}", re.DOTALL), 24, "tool_calls[].id has at most 40 characters"),
    "anthropic": (re.compile(r"[a-zA-Z0-9_-]{1,64}"), 24, "tool_use.id has this pattern"),
    "mistral": (re.compile(r"[a-zA-Z0-9]{9}"), 9, "its template takes nine letters and digits"),
}
LETTERS_AND_DIGITS = string.digits + string.ascii_letters


def fit_call_id(call_id: str, form: str) -> str:
    """Return `call_id` as `form` (a name of `CALL_ID_FORMS`) takes it.

    One that does not fit is made anew from the old one: the same for the call and for its output,
    in this request and in the next.
    """
    pattern, length, _ = CALL_ID_FORMS[form]
    if pattern.fullmatch(call_id):
        return call_id
    digest = hashlib.sha256(call_id.encode("utf-8", "replace")).digest()
    return "".join(LETTERS_AND_DIGITS[byte % 62] for byte in digest[:length])
