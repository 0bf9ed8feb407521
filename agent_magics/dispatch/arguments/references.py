"""Names of kept results in arguments, and the objects that they stand for."""

from collections.abc import Callable
from typing import Any

from agent_magics.dispatch.annotations import Schema
from agent_magics.dispatch.handles import is_handle
from agent_magics.dispatch.schema import HANDLE
from agent_magics.dispatch.schema_path import follow_reference, schema_at
from agent_magics.protocol.errors import RespondToModel


class KeptArguments:
    """Arguments in which names of kept results are replaced by the objects they stand for.

    Attributes:
        given: the arguments.
        names: id of a kept object in them -> its name.
    """

    def __init__(self, schema: Schema, value_of: Callable[[str], Any]) -> None:
        self._schema = schema
        self._value_of = value_of
        self.given: dict[str, Any] = {}
        self.names: dict[int, str] = {}

    def put_into(self, parsed: Any) -> "KeptArguments":
        """Take the arguments as the model wrote them."""
        if isinstance(parsed, dict):
            self.given = self._replace(parsed, ())
        return self

    def _replace(self, value: Any, place: tuple[Any, ...]) -> Any:
        if isinstance(value, dict):
            return {key: self._replace(each, (*place, key)) for key, each in value.items()}
        if isinstance(value, list):
            return [self._replace(each, (*place, n)) for n, each in enumerate(value)]
        if not (isinstance(value, str) and is_handle(value)):
            return value
        wanted = self._wanted(place, value)
        if wanted == "text":  # a path, say: the tool itself knows what to do with a name
            return value
        try:
            kept = self._value_of(value)
        except RespondToModel:
            if wanted == HANDLE:
                raise
            return value  # text that only looks like a name
        self.names[id(kept)] = value
        return kept

    def _wanted(self, place: tuple[Any, ...], name: str) -> str:
        """Return "handle" where an object is wanted, "text" where the name itself is, else ""."""
        found = schema_at(self._schema, place)
        if found is None:
            return ""
        members = [follow_reference(each, self._schema) for each in found.get("anyOf", [found])]
        if any(each.get("format") == HANDLE for each in members):
            return HANDLE
        return "text" if any(_takes_text(each, name) for each in members) else ""


def _takes_text(schema: Schema, name: str) -> bool:
    """Tell whether the name itself would do: for a text or a path, not for a date."""
    if "enum" in schema:
        return name in schema["enum"]
    return schema.get("type") == "string" and schema.get("format", "path") == "path"
