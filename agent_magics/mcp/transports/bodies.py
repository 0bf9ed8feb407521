"""Limits the size of an HTTP answer, so that no server exhausts the memory; names its status.

Errors of the protocol stand in for answers that were lost, or are none.
"""

import json
import secrets
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import mcp_types as types
from pydantic import ValidationError

from agent_magics.mcp.transports.nesting import shallow_events, shallow_listing
from agent_magics.protocol.errors import clause

MOST_OF_ONE = 64 * 1024 * 1024  # bytes of one answer
HTTP_STATUS = "HTTP status"  # how an error begins that stands in for the body of an HTTP error
UNAUTHORIZED = f"{HTTP_STATUS} 401"  # how one begins whose request needs a (new) login
UNREACHED = "it cannot be reached"  # how an error begins whose request was certainly not sent
SESSION_GONE = "it has forgotten the session"
# The data of errors that stand in for an answer: no server knows it, so none can say it.
STAND_IN = f"agent-magics: said in place of the server {secrets.token_hex(16)}"
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
# Asked for, since some kilobytes that are compressed, once or several times, unpack to gigabytes.
PLAIN = {"Accept-Encoding": "identity"}


async def limit_body(response: httpx2.Response) -> None:
    """Limit the size of an answer, or of a line of an event stream, and the depth of lists in it.

    Raises:
        DecodingError: it is compressed.
    """
    if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise httpx2.DecodingError("the answer is compressed, which was not asked for")
    if response.headers.get("content-type", "").lower().startswith("text/event-stream"):
        response.encoding = "utf-8"  # as such streams are, whatever the server says
        response.stream = _BoundedEvents(response.stream)
    else:
        response.stream = _BoundedBody(response.stream)


def name_status(response: httpx2.Response, reason: str = "") -> None:
    """Give an HTTP error a body that says its status, where its own is no error of the protocol.

    The SDK would report all of them as "Server returned an error response". A 401 is always named:
    what it means is told by the status.

    Args:
        response: any; only that of an error is changed.
        reason: said beside the status, and in place of any other body.
    """
    status = response.status_code
    if status < 400:
        return
    code = types.METHOD_NOT_FOUND if status == 404 else types.INTERNAL_ERROR  # as the SDK has it
    after = response.headers.get("retry-after", "")[:40]
    message = f"{HTTP_STATUS} {status}" + (f", Retry-After: {after}" if after else "")
    if status == 404 and "mcp-session-id" in response.request.headers:
        code, reason = types.INVALID_REQUEST, SESSION_GONE
    if reason:
        message = f"{message}: {reason}"
    given = response.headers.get("content-type", "").lower()
    is_json = not reason and status != 401 and given.startswith("application/json")
    response.headers["content-type"] = "application/json"
    response.stream = _ErrorBody(response.stream, _error(code, message), is_json=is_json)


def lost_answer(request: httpx2.Request, error: Exception) -> httpx2.Response:
    """Return an answer in place of one that was lost.

    The SDK would end the connection, and with it all other requests.
    """
    message = clause(error)
    if isinstance(error, _NOT_SENT):
        message = f"{UNREACHED}: {message}"
    body, headers = _error(types.INTERNAL_ERROR, message), {"content-type": "application/json"}
    return httpx2.Response(502, headers=headers, content=body, request=request)


def _error(code: int, message: str) -> bytes:
    details = {"code": code, "message": message, "data": STAND_IN}
    return json.dumps({"jsonrpc": "2.0", "id": None, "error": details}).encode()


class _BoundedBody(httpx2.AsyncByteStream):
    """The body of an answer, of limited size."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the body, whole.

        Raises:
            StreamError: it is too long, or was lost on the way.
        """
        body = bytearray()
        try:
            async for piece in self._stream:
                body += piece
                if len(body) > MOST_OF_ONE:
                    raise httpx2.StreamError(f"the answer has more than {MOST_OF_ONE:,} bytes")
        except httpx2.TransportError as error:  # for which the SDK would end the connection
            raise httpx2.StreamError(clause(error)) from None
        yield shallow_listing(bytes(body))

    async def aclose(self) -> None:
        """Close the body."""
        await self._stream.aclose()


class _BoundedEvents(_BoundedBody):
    """The body of an event stream, whose events are of limited size."""

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
