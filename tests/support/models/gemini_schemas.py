"""Says which JSON a schema in Gemini's form allows."""

from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator


def gemini_allows(schema: Mapping[str, Any], value: object) -> bool:
    """Return whether `value` fits a schema of OpenAPI 3.0, as Gemini reads it."""
    return bool(Draft202012Validator(_plain(schema)).is_valid(value))


def _plain(part: Any) -> Any:
    """Return a schema with ``nullable``, which JSON Schema does not know, as a choice."""
    if isinstance(part, list):
        return [_plain(each) for each in part]
    if not isinstance(part, Mapping):
        return part
    result = {word: _plain(value) for word, value in part.items() if word != "nullable"}
    return {"anyOf": [result, {"type": "null"}]} if part.get("nullable") is True else result
