"""Encodes the bodies of requests: compact JSON, and what surrounds a history, which is kept."""

import json
from collections.abc import Callable
from typing import Generic, TypeVar

from agent_magics.models.base import ModelRequest

Frame = TypeVar("Frame")


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def json_text(value: object) -> str:
    """Return `value` as JSON without spaces."""
    return _ENCODER.encode(value)


def compact(value: object) -> bytes:
    """Return `value` as JSON without spaces, in UTF-8."""
    # "replace": a lone surrogate, as in a program's output, has no UTF-8 form.
    return json_text(value).encode("utf-8", "replace")


class FrameCache(Generic[Frame]):
    """Keeps what surrounds the history in a body, since it is the same for a whole session.

    Args:
        encode: makes it from a request and the server's address.
    """

    def __init__(self, encode: Callable[[ModelRequest, str], Frame]) -> None:
        self._encode = encode
        self._made_for: tuple[object, ...] = ()
        self._kept: tuple[object, ...] = ()
        self._frame: Frame | None = None

    def of(self, request: ModelRequest, address: str) -> Frame:
        """Return the frame of a request."""
        wanted = (
            address,
            request.model,
            request.instructions,
            request.conversation,
            request.parallel_tool_calls,
            request.tool_choice,
            request.service_tier,
            request.reasoning_summary,
            request.stream,
            id(request.tools),
            id(request.output_schema),
        )
        if self._frame is None or self._made_for != wanted:
            self._frame = self._encode(request, address)
            self._made_for = wanted
            # Kept alive with their ids, which could otherwise be reused.
            self._kept = (request.tools, request.output_schema)
        return self._frame
