"""Removes malformed tools from a listing, and surplus parts from a result, before it is parsed.

The SDK would reject a listing as a whole, take long for many parts, and end the connection for a
progress that is no float.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mcp_types as types
from mcp.shared.message import SessionMessage
from mcp_types.methods import validate_server_result
from pydantic import ValidationError

from agent_magics.mcp.client.faults import mark_own_words
from agent_magics.mcp.client.schemas import MOST_TOOLS, why_too_large

_MOST_PARTS = 2_000  # of a result's content
_LISTING = "tools/list"
_READ = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")


class ListingFilter:
    """Filters the messages of a server: results, and listings of its tools while one is awaited.

    Args:
        is_wanted: tells by name which tools are wanted; the first `MOST_TOOLS` of them are
            examined.
    """

    def __init__(self, is_wanted: Callable[[str], bool] = bool) -> None:
        self._is_wanted = is_wanted
        self._version: str | None = None  # while a listing is awaited
        self._left_out: dict[str, str] = {}

    @contextmanager
    def at_work(self, version: str | None) -> Iterator[None]:
        """Filter messages within this context, by this version of the protocol."""
        self._version = version
        try:
            yield
        finally:
            self._version = None

    def take(self) -> dict[str, str]:
        """Return and clear the malformed tools: name (or index in the list) -> the error."""
        taken, self._left_out = self._left_out, {}
        return taken

    def __call__(self, item: object) -> None:
        """Filter a message, in place."""
        message = item.message if isinstance(item, SessionMessage) else None
        mark_own_words(message)
        if isinstance(message, types.JSONRPCNotification):
            _drop_endless_progress(message)
        if not isinstance(message, types.JSONRPCResponse):
            return
        if self._version is not None and isinstance(message.result.get("tools"), list):
            self._sift(message.result)
        _shorten_content(message.result)

    def _sift(self, result: dict[str, Any]) -> None:
        wanted = [each for each in result["tools"] if self._is_wanted(_name_in(each) or "?")]
        if len(wanted) > MOST_TOOLS:
            surplus = f"{len(wanted) - MOST_TOOLS:,} more tools"
            self._left_out[surplus] = f"the server has more than {MOST_TOOLS} tools"
        result["tools"] = wanted[:MOST_TOOLS]
        # Those that are too large first: looking for what else is wrong takes long.
        sizes = enumerate(why_too_large(_read(tool)) for tool in result["tools"])
        self._leave_out(result, {number: why for number, why in sizes if why})
        self._leave_out(result, self._find_wrong(result))

    def _leave_out(self, result: dict[str, Any], wrong: dict[int, str]) -> None:
        for number, why in wrong.items():
            self._left_out[_name_of(result["tools"][number], number)] = why
        if wrong:
            tools = enumerate(result["tools"])
            result["tools"] = [each for number, each in tools if number not in wrong]

    def _find_wrong(self, result: dict[str, Any]) -> dict[int, str]:
        """Return index -> error of malformed tools; {} if other parts are malformed too."""
        wrong: dict[int, str] = {}
        try:
            validate_server_result(_LISTING, self._version or "", result)
            types.ListToolsResult.model_validate(result, by_name=False)
        except ValidationError as error:
            for each in error.errors(include_url=False, include_input=False):
                match each["loc"]:
                    case ("tools", int(number), *place):
                        where = ".".join(map(str, place)) or "the tool"
                        why = f"it is not as the protocol wants it ({where}: {each['msg']})"
                        wrong.setdefault(number, why)
                    case _:
                        return {}
        except (KeyError, ValueError):
            return {}  # a version unknown to the SDK, which will report it
        return wrong


def _drop_endless_progress(message: types.JSONRPCNotification) -> None:
    params = message.params or {}
    for key in ("progress", "total") if message.method == "notifications/progress" else ():
        if isinstance(number := params.get(key), int) and abs(number) > sys.float_info.max:
            del params[key]  # without its progress nothing is told


def _shorten_content(result: dict[str, Any]) -> None:
    """Cut the content of a tool's result to the parts that are read, and say so in it."""
    content = result.get("content")
    if isinstance(content, list) and len(content) > _MOST_PARTS:
        surplus = f"[{len(content) - _MOST_PARTS:,} more parts are left out]"
        result["content"] = [*content[:_MOST_PARTS], {"type": "text", "text": surplus}]


def _read(tool: object) -> object:
    """Return what is read of a listed tool: not its icons, nor what is the client's own."""
    return {key: tool.get(key) for key in _READ} if isinstance(tool, dict) else tool


def _name_of(tool: object, number: int) -> str:
    return _name_in(tool)[:100] or f"number {number + 1} in its list"


def _name_in(tool: object) -> str:
    name = tool.get("name") if isinstance(tool, dict) else None
    return name if isinstance(name, str) else ""
