"""Limits the size of an HTTP answer, so that no server exhausts the memory."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2

from agent_magics.mcp.transports.nesting import shallow_events, shallow_listing

MOST_OF_ONE = 64 * 1024 * 1024  # bytes of one answer
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
