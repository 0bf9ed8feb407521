"""Writes messages to a server program's standard input, with back-pressure."""

import asyncio

import anyio
import mcp_types as types
from anyio.abc import ObjectSendStream
from mcp.shared.message import SessionMessage

from agent_magics.mcp.transports.asked import Unanswered


class Outgoing(asyncio.BaseProtocol, ObjectSendStream[SessionMessage]):
    """The stream of messages to a server's standard input."""

    def __init__(self, open_ids: set[object], unanswered: Unanswered) -> None:
        self._open = open_ids
        self._unanswered = unanswered
        self._transport: asyncio.WriteTransport | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the pipe's transport."""
        self._transport = transport  # type: ignore[assignment] # the loop makes it for a pipe

    def pause_writing(self) -> None:
        """Block `send`, because the server does not read."""
        self._room.clear()

    def resume_writing(self) -> None:
        """Unblock `send`."""
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Mark the stream as closed."""
        self._closed = True
        self._transport = None
        self._room.set()

    def close(self) -> None:
        """Close the server's input after writing what is queued."""
        self._closed = True
        self._room.set()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()

    def abort(self) -> None:
        """Close the server's input and drop what is queued."""
        self.close()
        if self._transport is not None:
            self._transport.abort()

    async def send(self, item: SessionMessage) -> None:
        """Send one message; waits while the server does not read.

        Raises:
            ClosedResourceError: the server's input is closed.
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
        self._unanswered.answered(message)
        self._transport.write(text.encode("utf-8", "replace") + b"\n")

    def _forget_cancelled(self, message: types.JSONRPCNotification) -> None:
        if message.method == "notifications/cancelled" and message.params:
            self._open.discard(message.params.get("requestId"))

    async def aclose(self) -> None:
        """Close the server's input."""
        self.close()
