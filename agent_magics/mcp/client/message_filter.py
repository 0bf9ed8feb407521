"""Removes malformed tools from a listing, and surplus parts from a result, before it is parsed.

The SDK would reject a listing as a whole, take long for many parts, and end the connection for a
progress that is no float.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mcp_types as types
from mcp_types.methods import validate_server_result
from pydantic import ValidationError

from agent_magics.mcp.client.faults import CLOSED
from agent_magics.mcp.client.schemas import MOST_TOOLS, why_too_large

_MOST_PARTS = 2_000  # of a result's content
_LISTING = "tools/list"
_READ = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")


class MessageFilter:
    """Filters the messages of a server: results, and listings of its tools while one is awaited.

    Args:
        is_wanted: tells by name ("" for none) which tools are wanted; the first `MOST_TOOLS` of
            them are examined.
    """

    def __init__(self, is_wanted: Callable[[str], bool] = lambda name: True) -> None:
        self._is_wanted = is_wanted
        self._version: str | None = None  # while a listing is awaited
        self._left_out: dict[str, str] = {}
        self._listed = 0

    @contextmanager
    def listing(self, version: str | None) -> Iterator[dict[str, str]]:
        """Take malformed tools out of what comes within this context, and yield the reasons.

        Args:
            version: of the protocol.

        Yields:
            Name of such a tool (or its number in the list) -> the error; filled meanwhile.
        """
        self._version, self._left_out, self._listed = version, {}, 0
        try:
            yield self._left_out
        finally:
            self._version = None

    def __call__(self, item: object) -> None:
        """Filter a message, in place."""
        match getattr(item, "message", None):
            case types.JSONRPCError(error=error) if error.message == CLOSED:
                error.message += "."  # the server's own words; the SDK has these for a lost one
            case types.JSONRPCNotification() as message:
                _drop_endless_progress(message)
            case types.JSONRPCResponse(result=result):
                if self._version is not None and isinstance(result.get("tools"), list):
                    self._sift(result)
                _shorten_content(result)

    def _sift(self, result: dict[str, Any]) -> None:
        listed = enumerate(result["tools"], self._listed + 1)
        self._listed += len(result["tools"])
        wanted = ((at, tool) for at, tool in listed if self._is_wanted(_name_in(tool)))
        tools = [(_name_of(tool, at), tool) for at, tool in wanted]
        if len(tools) > MOST_TOOLS:
            surplus = f"{len(tools) - MOST_TOOLS:,} more tools"
            self._left_out[surplus] = f"the server has more than {MOST_TOOLS} tools"
        # Those that are too large first: looking for what else is wrong takes long.
        sizes = enumerate(why_too_large(_read(tool)) for _, tool in tools[:MOST_TOOLS])
        tools = self._without(tools[:MOST_TOOLS], {at: why for at, why in sizes if why})
        result["tools"] = [tool for _, tool in tools]
        result["tools"] = [tool for _, tool in self._without(tools, self._find_wrong(result))]

    def _without(
        self, tools: list[tuple[str, Any]], wrong: dict[int, str]
    ) -> list[tuple[str, Any]]:
        self._left_out |= {tools[at][0]: why for at, why in wrong.items()}
        return [each for at, each in enumerate(tools) if at not in wrong]

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
    return _name_in(tool)[:100] or f"number {number} in its list"


def _name_in(tool: object) -> str:
    name = tool.get("name") if isinstance(tool, dict) else None
    return name if isinstance(name, str) else ""
