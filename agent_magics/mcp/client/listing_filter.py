"""Takes malformed tools out of a listing before the SDK reads it, which would refuse them all."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mcp_types as types
from mcp.shared.message import SessionMessage
from mcp_types.methods import validate_server_result
from pydantic import ValidationError

_LISTING = "tools/list"


class ListingSieve:
    """Looks at the messages of a server while a listing of its tools is awaited."""

    def __init__(self) -> None:
        self._version: str | None = None  # while a listing is awaited
        self._left_out: dict[str, str] = {}

    @contextmanager
    def at_work(self, version: str | None) -> Iterator[None]:
        """Sift what comes meanwhile, which speaks this version of the protocol."""
        self._version = version
        try:
            yield
        finally:
            self._version = None

    def take(self) -> dict[str, str]:
        """Return each malformed tool by name (or place in the list), and what is wrong with it."""
        taken, self._left_out = self._left_out, {}
        return taken

    def __call__(self, item: Any) -> None:
        """Sift a message, in place."""
        if self._version is None or not isinstance(item, SessionMessage):
            return
        message = item.message
        if isinstance(message, types.JSONRPCResponse) and isinstance(
            message.result.get("tools"), list
        ):
            self._sift(message.result)

    def _sift(self, result: dict[str, Any]) -> None:
        wrong = self._find_wrong(result)
        for number, why in wrong.items():
            self._left_out[_name_of(result["tools"][number], number)] = why
        if wrong:
            tools = enumerate(result["tools"])
            result["tools"] = [each for number, each in tools if number not in wrong]

    def _find_wrong(self, result: dict[str, Any]) -> dict[int, str]:
        """Return which tools are malformed, and how; none where the rest of the answer is, too."""
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
            return {}  # a version that the SDK does not know: it will say so
        return wrong


def _name_of(tool: Any, number: int) -> str:
    name = tool.get("name") if isinstance(tool, dict) else None
    return name[:100] if isinstance(name, str) and name else f"number {number + 1} in its list"
