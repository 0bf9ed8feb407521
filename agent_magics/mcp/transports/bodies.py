"""Limits the size of an HTTP answer, so that no server exhausts the memory; names its status."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import mcp_types as types
from pydantic import ValidationError

from agent_magics.mcp.transports.nesting import shallow_events, shallow_listing

MOST_OF_ONE = 64 * 1024 * 1024  # bytes of one answer
HTTP_STATUS = "HTTP status"  # how an error begins that stands in for the body of an HTTP error
# The data of errors that stand in for an answer: a server's own words never say so.
STAND_IN = "agent-magics: said in place of the server"
# Asked for, since some kilobytes that are compressed, once or several times, unpack to gigabytes.
PLAIN = {"Accept-Encoding": "identity"}


async def limit_body(response: httpx2.Response) -> None:
    """Limit the size of an answer, or of a line of an event stream, and the depth of lists in it.

    Raises:
        DecodingError: it is compressed.
    """
    if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise httpx2.DecodingError("the answer is compressed, which was not asked for")
    is_event_stream = response.headers.get("content-type", "").startswith("text/event-stream")
    response.stream = (_BoundedEvents if is_event_stream else _BoundedBody)(response.stream)


def name_status(response: httpx2.Response, reason: str = "") -> None:
    """Give an HTTP error a body that says its status, where its own is no error of the protocol.

    The SDK would report all of them as "Server returned an error response".

    Args:
        response: any; only that of an error is changed.
        reason: said beside the status, and in place of any other body.
    """
    status = response.status_code
    if status < 400 or (status == 404 and "mcp-session-id" in response.request.headers):
        return  # the SDK knows that 404: the server has forgotten the session
    code = types.METHOD_NOT_FOUND if status == 404 else types.INTERNAL_ERROR  # as the SDK has it
    after = response.headers.get("retry-after", "")[:40]
    message = f"{HTTP_STATUS} {status}" + (f", Retry-After: {after}" if after else "")
    message = f"{message}: {reason}" if reason else message
    details = {"code": code, "message": message, "data": STAND_IN}
    error = {"jsonrpc": "2.0", "id": None, "error": details}
    is_json = not reason and response.headers.get("content-type", "").lower().startswith(
        "application/json"
    )
    response.headers["content-type"] = "application/json"
    response.stream = _ErrorBody(response.stream, json.dumps(error).encode(), is_json=is_json)


class _BoundedBody(httpx2.AsyncByteStream):
    """The body of an answer, of limited size."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the body, whole.

        Raises:
            StreamError: it is too long.
        """
        body = bytearray()
        async for piece in self._stream:
            body += piece
            if len(body) > MOST_OF_ONE:
                raise httpx2.StreamError(f"the answer has more than {MOST_OF_ONE:,} bytes")
        yield shallow_listing(bytes(body))

    async def aclose(self) -> None:
        """Close the body."""
        await self._stream.aclose()


class _BoundedEvents(_BoundedBody):
    """The body of an event stream, whose lines are of limited size."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the lines.

        Raises:
            StreamError: one is too long.
        """
        async for line in shallow_events(self._stream, MOST_OF_ONE):
            yield line


class _ErrorBody(_BoundedBody):
    """The body of an HTTP error, replaced where it is no error of the protocol; then not read."""

    def __init__(self, stream: Any, replacement: bytes, *, is_json: bool) -> None:
        super().__init__(stream)
        self._replacement = replacement
        self._is_json = is_json

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the body, whole; raises as a body that is too long."""
        body = self._replacement
        if self._is_json:
            given = b"".join([piece async for piece in super().__aiter__()])
            body = given if _is_error(given) else body
        yield body


def _is_error(body: bytes) -> bool:
    try:
        message = types.jsonrpc_message_adapter.validate_json(body, by_name=False)
    except ValidationError:
        return False
    return isinstance(message, types.JSONRPCError)
