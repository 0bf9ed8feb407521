"""Parses a server program's output into messages, and separates lines that are none.

Every complete message is received, however the output is split; other output is counted and logged.
Neither can exhaust the memory nor block the event loop.
"""

import asyncio
import gc
import re
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import mcp_types as types
from anyio.abc import ObjectReceiveStream
from mcp.shared.message import SessionMessage
from pydantic_core import from_json

from agent_magics.exec.servers import LogRing
from agent_magics.mcp.transports.asked import Unanswered
from agent_magics.mcp.transports.bodies import STAND_IN
from agent_magics.mcp.transports.nesting import shallow_listing, why_refused

MOST_OF_ONE = 64 * 1024 * 1024  # bytes of one message
_MOST_WAITING = 1024 * 1024  # bytes of queued messages before reading pauses
_LINES = 64  # lines processed at once
_MOST_NOTED = 8  # invalid lines logged out of those; the others are counted
_BREATH = 16  # messages before other tasks run
_EDGE = 512  # bytes at both ends of an overlong message that are searched for its id
# bytes of invalid output before reading pauses, so that the server blocks on its pipe
_BURST = 1024 * 1024
_REST = 0.02  # seconds
_ID = re.compile(rb'"id"\s*:\s*(\d{1,18})')


class Incoming(asyncio.Protocol, ObjectReceiveStream[SessionMessage]):
    """The stream of messages from a server's standard output; `sift` filters each message.

    Attributes:
        noise: number of lines that were not messages.
        over: whether the output has ended.
    """

    def __init__(
        self,
        log: LogRing,
        open_ids: set[Any],
        on_over: Callable[[], None],
        unanswered: Unanswered | None = None,
        sift: Callable[[SessionMessage], None] = lambda message: None,
    ) -> None:
        self._log = log
        self._open = open_ids
        self._unanswered = unanswered or Unanswered(log)
        self._on_over = on_over
        self._sift = sift
        self._transport: asyncio.ReadTransport | None = None
        self._line = bytearray()  # bytes after the last complete line
        self._lines: deque[bytes] = deque()
        self._too_long = 0  # bytes so far of an overlong message that is discarded
        self._tail = b""  # the beginning and end of that message
        self._messages: deque[tuple[SessionMessage, int]] = deque()
        self._waiting = 0
        self._taken = 0
        self._waiter: asyncio.Future[None] | None = None
        self._rate_limiter = RateLimiter()
        self._working = self._paused = self._resting = self._lost = False
        self.noise = 0
        self.over = False

    # -- from the pipe -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport of the pipe, to pause and close it."""
        self._transport = transport  # type: ignore[assignment] # the loop makes it for a pipe

    def data_received(self, data: bytes) -> None:
        """Split data into lines; each is a message, or noise."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            if self._too_long:
                self._end_too_long(line)
            elif self._line:
                self._lines.append(bytes(self._line) + line)
                self._line.clear()
            elif line:
                self._lines.append(line)
        if self._too_long:
            self._too_long += len(rest)
            self._tail = self._tail[:_EDGE] + (self._tail[_EDGE:] + rest)[-_EDGE:]
        else:
            self._line += rest
            if len(self._line) > MOST_OF_ONE:
                self._too_long = len(self._line)
                self._tail = bytes(self._line[:_EDGE] + self._line[-_EDGE:])
                self._line = bytearray()
        if not self._working:
            self._work()

    def connection_lost(self, exc: Exception | None) -> None:
        """Process the rest, and end the stream."""
        self._lost = True
        if self._line:
            self._lines.append(bytes(self._line))
            self._line.clear()
        if not self._working:
            self._work()

    def close(self) -> None:
        """Stop reading."""
        if self._transport is not None:
            self._transport.close()
        self.end()

    def end(self) -> None:
        """End the stream for its reader."""
        if not self.over:
            self.over = True
            self._wake()
            self._on_over()

    def _work(self) -> None:
        """Process some of the queued lines; the rest after other tasks have run."""
        unlogged = 0
        for number in range(min(_LINES, len(self._lines))):
            line = self._lines.popleft()
            if not self._take(line):
                if number - unlogged < _MOST_NOTED:
                    self._note(line)
                else:
                    unlogged += 1
        if unlogged:
            self._log.note(f"stdout: {unlogged} more lines that are no messages")
        self._working = bool(self._lines)
        if self._working:
            asyncio.get_running_loop().call_soon(self._work)
        elif self._lost:
            self.end()
        self._look_at_room()

    def _take(self, line: bytes) -> bool:
        """Process a line; return whether it is a message."""
        if line[:1] == b"{" or line.lstrip()[:1] == b"{":
            with suppress(ValueError):
                message = _message_of(line)
                if self._is_expected(message) and self._unanswered.admits(message):
                    self._messages.append((SessionMessage(message), len(line)))
                    self._waiting += len(line)
                    self._wake()
                return True
            edges = line[:_EDGE] + line[-_EDGE:]
            if b'"jsonrpc"' in edges:
                self._answer(edges, why_refused(line) or "the answer is not valid JSON-RPC")
        self.noise += 1
        if rest := self._rate_limiter.delay_after(len(line)):
            self._resting = True
            asyncio.get_running_loop().call_later(rest, self._rested)
        return not line.strip()

    def _note(self, line: bytes) -> None:
        shown = line[:200].decode("utf-8", "replace")
        self._log.note(f"stdout, no message of the protocol: {shown}")

    def _rested(self) -> None:
        self._resting = False
        self._look_at_room()

    def _look_at_room(self) -> None:
        """Pause or resume reading, depending on the queued amount."""
        if self._transport is None or self._transport.is_closing():
            return
        full = self._working or self._resting or self._waiting > _MOST_WAITING
        if full and not self._paused:
            self._transport.pause_reading()
        elif self._paused and not full:
            self._transport.resume_reading()
        self._paused = full

    def _is_expected(self, message: object) -> bool:
        """Tell whether a message is not an answer, or answers an open request."""
        if not isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            return True
        number = message.id
        if isinstance(number, str) and number.isdecimal():
            number = int(number)
        if number in self._open:
            self._open.discard(number)
            return True
        self._log.note(f"an answer to request {message.id!r}, which waits for none, was ignored")
        return False

    def _end_too_long(self, last: bytes) -> None:
        size = self._too_long + len(last)
        edges = self._tail + last[-_EDGE:]
        self._too_long, self._tail = 0, b""
        self._log.note(f"stdout: a message of {size:,} bytes was thrown away")
        self._answer(
            edges,
            f"the answer has {size:,} bytes; more than {MOST_OF_ONE:,} are not read",
        )

    def _answer(self, edges: bytes, why: str) -> None:
        """Answer an open request with an error in place of the server, if its id can be found."""
        found = [int(each) for each in _ID.findall(edges)]
        number = next((each for each in found if each in self._open), None)
        if number is not None:
            self._open.discard(number)
            error = types.ErrorData(code=types.PARSE_ERROR, message=why, data=STAND_IN)
            reply = types.JSONRPCError(jsonrpc="2.0", id=number, error=error)
            self._messages.append((SessionMessage(reply), 0))
            self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # -- for the SDK ---------------------------------------------------------------------------

    async def receive(self) -> SessionMessage:
        """Return the next message.

        Raises:
            EndOfStream: there are no more.
        """
        self._taken += 1
        if not self._taken % _BREATH:
            await asyncio.sleep(0)
        while not self._messages:
            if self.over:
                raise anyio.EndOfStream
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        message, size = self._messages.popleft()
        self._waiting -= size
        if self._paused:
            self._look_at_room()
        self._sift(message)
        return message

    async def aclose(self) -> None:
        """Drop the queued messages."""
        self._messages.clear()


class Noise(asyncio.Protocol):
    """Reads a server's standard error into its log."""

    def __init__(self, log: LogRing) -> None:
        self._log = log
        self._rate_limiter = RateLimiter()
        self._transport: asyncio.ReadTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport of the pipe, to pause and close it."""
        self._transport = transport  # type: ignore[assignment] # the loop makes it for a pipe

    def data_received(self, data: bytes) -> None:
        """Log the data; a flood is read slowly, so that the server blocks on its pipe."""
        self._log.feed(data)
        rest = self._rate_limiter.delay_after(len(data))
        if rest and self._transport is not None:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(rest, self._go_on)

    def close(self) -> None:
        """Stop reading."""
        if self._transport is not None:
            self._transport.close()

    def _go_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()


class RateLimiter:
    """Limits the rate at which unrequested output of a server is read."""

    def __init__(self) -> None:
        self._size = 0

    def delay_after(self, size: int) -> float:
        """Count `size` bytes; return how many seconds to pause reading, mostly 0."""
        self._size += size
        if self._size < _BURST:
            return 0.0
        self._size = 0
        return _REST


def _message_of(line: bytes) -> Any:
    """Parse a line as a message.

    Garbage collection is disabled meanwhile: it would traverse the objects of a long line
    repeatedly, which takes four times as long as parsing (measured with 50,000 tools).

    Raises:
        ValueError: it is not a message.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return types.jsonrpc_message_adapter.validate_python(_parsed(line), by_name=False)
    finally:
        if collects:
            gc.enable()


def _parsed(line: bytes) -> Any:
    if why := why_refused(line):
        raise ValueError(why)
    try:
        return from_json(line)
    except ValueError:
        return from_json(shallow_listing(line))
