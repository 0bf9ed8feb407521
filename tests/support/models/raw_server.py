"""A server on the loopback interface that says what a function writes, in the test's own loop.

async def serve(reader, writer):
    writer.write(b"no HTTP")

async with RawServer(serve) as server:
    address = f"http://{server.place}/v1"
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType


class RawServer:
    """Gives each connection to `serve`, and closes it afterwards; all end with the block."""

    def __init__(
        self, serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
    ) -> None:
        self._serve = serve
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def place(self) -> str:
        """Its host and port."""
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> "RawServer":
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for each in self._tasks:
            each.cancel()
        await asyncio.gather(*self._tasks)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._serve(reader, writer)
        writer.close()
        with suppress(ConnectionError, asyncio.CancelledError):
            await writer.wait_closed()
