"""What goes into a program that is a server: whole messages, as fast as it reads them."""

import asyncio
from typing import Any, Self

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage


class Outgoing(asyncio.BaseProtocol):
    """Messages to a server, on their way into its standard input."""

    def __init__(self, open_ids: set[Any]) -> None:
        self._open = open_ids
        self._transport: asyncio.WriteTransport | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take note of the pipe."""
        self._transport = transport  # type: ignore[assignment]

    def pause_writing(self) -> None:
        """The server does not read what it has."""
        self._room.clear()

    def resume_writing(self) -> None:
        """It reads again."""
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody reads any more."""
        self._closed = True
        self._transport = None
        self._room.set()

    def close(self) -> None:
        """Close its input; what waits is still written."""
        self._closed = True
        self._room.set()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()

    def abort(self) -> None:
        """Give up what waits."""
        self.close()
        if self._transport is not None:
            self._transport.abort()

    async def send(self, item: SessionMessage) -> None:
        """Send one message; waits while the server does not read.

        Raises:
            ClosedResourceError: its input is closed.
        """
        if not self._room.is_set():
            await self._room.wait()
        if self._closed or self._transport is None:
            raise anyio.ClosedResourceError
        message = item.message
        text = message.model_dump_json(by_alias=True, exclude_unset=True)
        if isinstance(message, types.JSONRPCRequest):
            self._open.add(message.id)
        elif isinstance(message, types.JSONRPCNotification):
            self._forget_cancelled(message)
        self._transport.write(text.encode("utf-8", "replace") + b"\n")

    def _forget_cancelled(self, message: types.JSONRPCNotification) -> None:
        if message.method == "notifications/cancelled" and message.params:
            self._open.discard(message.params.get("requestId"))

    async def aclose(self) -> None:
        """Close its input."""
        self.close()

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close its input."""
        self.close()
