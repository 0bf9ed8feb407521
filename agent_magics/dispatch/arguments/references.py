"""Replaces names of stored results (``@r7``) in arguments by the stored objects."""

from collections.abc import Callable
from typing import Any

from agent_magics.dispatch.results.stored import is_handle
from agent_magics.dispatch.schema.annotations import Schema
from agent_magics.dispatch.schema.generation import HANDLE
from agent_magics.dispatch.schema.path import follow_reference, schema_at
from agent_magics.protocol.errors import RespondToModel

TEXT, PATH = "text", "path"


class KeptArguments:
    """Arguments in which names of stored results are replaced by the stored objects.

    Attributes:
        given: the arguments.
        names: id of a stored object in them -> its name.
    """

    def __init__(self, schema: Schema, value_of: Callable[[str], Any]) -> None:
        self._schema = schema
        self._value_of = value_of
        self.given: dict[str, object] = {}
        self.names: dict[int, str] = {}

    def put_into(self, parsed: object) -> "KeptArguments":
        """Replace the names in the parsed arguments; return self."""
        if isinstance(parsed, dict):
            self.given = self._replace(parsed, ())
        return self

    def _replace(self, value: object, place: tuple[Any, ...]) -> Any:
        if isinstance(value, dict):
            return {key: self._replace(each, (*place, key)) for key, each in value.items()}
        if isinstance(value, list):
            return [self._replace(each, (*place, n)) for n, each in enumerate(value)]
        if not (isinstance(value, str) and is_handle(value)):
            return value
        wanted = wanted_at(self._schema, place, value)
        if wanted in (TEXT, PATH):  # the tool itself resolves the name
            return value
        try:
            kept = self._value_of(value)
        except RespondToModel:
            if wanted == HANDLE:
                raise
            return value  # text that only looks like a name
        self.names[id(kept)] = value
        return kept


def wanted_at(schema: Schema, place: tuple[object, ...], text: str) -> str:
    """Return what a place in arguments accepts: HANDLE for an object, `TEXT` or `PATH` for `text`
    itself, else "".
    """
    found = schema_at(schema, place)
    if found is None:
        return ""
    members = [follow_reference(each, schema) for each in found.get("anyOf", [found])]
    if any(each.get("format") == HANDLE for each in members):
        return HANDLE
    taking = [each for each in members if _takes_text(each, text)]
    is_path = any(each.get("format") == PATH for each in taking)
    return PATH if is_path else TEXT if taking else ""


def _takes_text(schema: Schema, name: str) -> bool:
    """Return whether a schema accepts the name itself: as a text or a path, not as a date."""
    if "enum" in schema:
        return name in schema["enum"]
    return schema.get("type") == "string" and schema.get("format", PATH) == PATH
