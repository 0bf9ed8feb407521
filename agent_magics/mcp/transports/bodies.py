"""Limits the size of an HTTP answer, so that no server exhausts the memory."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2

MOST_OF_ONE = 64 * 1024 * 1024  # bytes of one answer
# Asked for, since some kilobytes that are compressed, once or several times, unpack to gigabytes.
PLAIN = {"Accept-Encoding": "identity"}


async def limit_body(response: httpx2.Response) -> None:
    """Limit what is read of an answer that is not an event stream.

    Raises:
        DecodingError: it is compressed.
    """
    if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise httpx2.DecodingError("the answer is compressed, which was not asked for")
    if not response.headers.get("content-type", "").startswith("text/event-stream"):
        response.stream = _BoundedBody(response.stream)


class _BoundedBody(httpx2.AsyncByteStream):
    """The body of an answer, of limited size."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the body piece by piece.

        Raises:
            StreamError: it is too long.
        """
        size = 0
        async for piece in self._stream:
            size += len(piece)
            if size > MOST_OF_ONE:
                raise httpx2.StreamError(f"the answer has more than {MOST_OF_ONE:,} bytes")
            yield piece

    async def aclose(self) -> None:
        """Close the body."""
        await self._stream.aclose()
