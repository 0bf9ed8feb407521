"""Converts an argument of a tool call in live code to the JSON value that stands for it."""

import datetime
import decimal
import functools
import os
import uuid
from collections.abc import Callable
from typing import Any

from agent_magics.dispatch.arguments.references import PATH, TEXT, wanted_at
from agent_magics.dispatch.results.numpy_values import python_value
from agent_magics.dispatch.results.stored import HandleStore
from agent_magics.dispatch.results.values import Types, library_class, made_by, type_name
from agent_magics.dispatch.schema.annotations import Schema
from agent_magics.dispatch.schema.generation import describe
from agent_magics.dispatch.tool import is_tool

_LARGEST_SENT = 1_000  # elements of plain data that a call carries; more goes by reference
_WRITTEN = Types(datetime.date, datetime.datetime, datetime.time, decimal.Decimal, uuid.UUID)
_TIMESTAMP = ("pandas", "Timestamp")


class ToolFailedError(RuntimeError):
    """A tool call of live code failed; the message is what a model would read."""


class Sender:
    """Converts the arguments of the calls of one tool.

    Args:
        name: the tool's name, for messages.
        fn: the tool.
        handles: where objects are stored that JSON cannot hold.
    """

    def __init__(self, name: str, fn: Callable[..., Any], handles: HandleStore) -> None:
        self._name = name
        self._fn = fn
        self._handles = handles

    @functools.cached_property
    def _schema(self) -> Schema:
        return describe(self._fn)[1]

    def sent(self, parameter: str, value: Any) -> Any:
        """Return the JSON value for an argument: itself where small and plain.

        Raises:
            ToolFailedError: the parameter takes text, and the value is none.
        """
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if library_class(value) == ("numpy", "generic"):
            value = python_value(value)
        if _is_plain(value, [_LARGEST_SENT]):
            return value
        text = _text_of(value)
        wanted = self._wanted(parameter, text or "")
        if text is not None and wanted in (TEXT, PATH):
            return text
        if wanted == TEXT:
            raise ToolFailedError(
                f"{self._name}: {parameter} takes text, and this is a {type_name(value)}; pass "
                "the text that is meant, or plain data where it takes that, too."
            )
        return self._handles.keep_value(value)

    def _wanted(self, parameter: str, text: str) -> str:
        """Return what a parameter takes, as `wanted_at` does; a server takes JSON alone."""
        if not is_tool(self._fn):
            return PATH
        wanted = wanted_at(self._schema, (parameter,), text)
        # Our own tools read a stored object as a file where they take a path.
        is_read = self._fn.tool_options.own and parameter == "path"
        return PATH if wanted == TEXT and is_read else wanted


def _text_of(value: Any) -> str | None:
    """Return the text that says all of a value; None where there is none."""
    kind = type(value)
    if issubclass(kind, str):
        return str.__str__(value)
    return str(value) if kind in _WRITTEN or made_by(kind) == _TIMESTAMP else None


def _is_plain(value: Any, left: list[int]) -> bool:
    """Return whether `value` is plain JSON data of at most `left` elements."""
    left[0] -= 1
    kind = type(value)
    if kind in (str, int, float, bool) or value is None:
        return True
    if left[0] < 0:
        return False
    if kind is list:
        return all(_is_plain(each, left) for each in value)
    if kind is dict:
        return all(type(k) is str and _is_plain(each, left) for k, each in value.items())
    return False
