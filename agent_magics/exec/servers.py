"""Starts a server program, keeps the end of its log, limits its restarts, says how it ended."""

import asyncio
import os
import signal
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress

from agent_magics.exec.process import Process
from agent_magics.protocol.errors import clause

MOST_KEPT = 256 * 1024  # bytes of one server's log
_LONGEST_LINE = 2_000  # characters of a line added by us
_OURS = "\0"  # begins such a line; no server's
_BACK_OFF = 0.2  # seconds before the first restart; each further one waits twice as long
_MOST = 3  # unexpected ends within the time below; after one more there is no restart
_WITHIN = 60.0  # seconds
_MODES = ("wb", "rb", "rb")  # of the pipes to its stdin, from its stdout and its stderr


class LogRing:
    """A ring buffer of what one server wrote, with the number of dropped bytes.

    Decoding and redacting are done only when the log is read, so that a flood costs little.
    """

    def __init__(self, redact: Callable[[str], str]) -> None:
        self.redact = redact
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._at_line_start = True
        self.dropped = 0

    def feed(self, data: bytes) -> None:
        """Append bytes of the server."""
        self._add(data.replace(_OURS.encode(), b""))

    def _add(self, data: bytes) -> None:
        if not data:
            return
        self._at_line_start = data.endswith(b"\n")
        self._pieces.append(data)
        self._size += len(data)
        while self._size > MOST_KEPT:
            oldest = self._pieces.popleft()
            surplus = self._size - MOST_KEPT
            if len(oldest) > surplus:
                self._pieces.appendleft(oldest[surplus:])
                oldest = oldest[:surplus]
            self._size -= len(oldest)
            self.dropped += len(oldest)

    def note(self, text: str) -> None:
        """Append a line of our own."""
        line = " ".join(text[:_LONGEST_LINE].splitlines())
        start = "" if self._at_line_start else "\n"
        self._add(f"{start}{_OURS}[{line}]\n".encode("utf-8", "replace"))

    def text(self) -> str:
        """Return the kept text, without secrets, and the number of dropped bytes if any."""
        return self._marked().replace(_OURS, "")

    def _marked(self) -> str:
        """Return the same with the mark of each line of ours."""
        kept = b"".join(self._pieces)
        dropped = self.dropped
        if dropped:  # a truncated line could begin with half a secret
            cut = kept.find(b"\n") + 1 or len(kept)
            dropped += cut
            kept = kept[cut:]
        text = self.redact(kept.decode("utf-8", "replace"))
        said = f"{_OURS}[{dropped:,} bytes before this were dropped]\n"
        return said + text if dropped else text

    def last_words(self) -> str:
        """Return the server's last line, as the end of a sentence; "" without one."""
        for line in reversed(self._marked().splitlines()):
            text = " ".join(line.split())
            if text and not text.startswith(_OURS):
                return f"; it said: {text[:300]}"
        return ""


class Deaths:
    """Counts the recent unexpected ends of a server."""

    def __init__(self) -> None:
        self._times: deque[float] = deque()

    @property
    def number(self) -> int:
        """Number of them within a minute."""
        return len(self._times)

    def count(self) -> float | None:
        """Count one more; return the seconds to wait before a restart, None for no restart."""
        now = time.monotonic()
        self._times.append(now)
        while self._times[0] < now - _WITHIN:
            self._times.popleft()
        return None if self.number > _MOST else _BACK_OFF * 2 ** (self.number - 1)


async def started(start: Callable[[], Process]) -> Process:
    """Start a server in a thread; where this task is cancelled meanwhile, end it again."""
    starting = asyncio.get_running_loop().run_in_executor(None, start)
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        starting.add_done_callback(_end_unwanted)
        raise


def _end_unwanted(starting: "asyncio.Future[Process]") -> None:
    if not starting.cancelled() and starting.exception() is None:
        process = starting.result()
        process.kill(at_once=True)
        for descriptor in process.pipes:
            os.close(descriptor)


Transports = tuple[asyncio.WriteTransport, asyncio.ReadTransport, asyncio.ReadTransport]


async def connect_pipes(
    process: Process,
    stdin: asyncio.BaseProtocol,
    stdout: asyncio.BaseProtocol,
    stderr: asyncio.BaseProtocol,
) -> Transports:
    """Let protocols use a server's pipes; where this task is cancelled meanwhile, close those.

    Args:
        process: the server's; it holds its pipes.
        stdin, stdout, stderr: what writes to the first pipe and hears of the other two.

    Returns:
        The transports, in the same order.
    """
    loop = asyncio.get_running_loop()
    with ExitStack() as failing:
        files = [os.fdopen(pipe, mode, 0) for pipe, mode in zip(process.pipes, _MODES, strict=True)]
        for file in files:
            failing.callback(file.close)
        # The transports are closed first: one that is still watched while its pipe is closed takes
        # what comes through the next pipe of that number.
        writing, _ = await loop.connect_write_pipe(lambda: stdin, files[0])
        failing.callback(writing.close)
        output, _ = await loop.connect_read_pipe(lambda: stdout, files[1])
        failing.callback(output.close)
        errors, _ = await loop.connect_read_pipe(lambda: stderr, files[2])
        failing.pop_all()
    return writing, output, errors


def describe_exit(process: Process) -> str:
    """Describe how a server ended, in a few words."""
    code = process.exit_code
    if code is None:
        return clause(process.lost) or "its output was closed, and it was ended"
    if code > 128:
        with suppress(ValueError):
            return f"signal {signal.Signals(code - 128).name}"
    return f"exit code {code}"
