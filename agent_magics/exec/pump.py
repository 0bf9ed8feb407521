"""Reads the output of all commands, writes their input and detects their end, on one thread."""

import contextlib
import fcntl
import logging
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from agent_magics.exec.launcher.wire import Ended, decode_reply, receive_message
from agent_magics.exec.process import Process

_READ_SIZE = 64 * 1024  # default capacity of a pipe
_FLOOD_SIZE = 256 * 1024  # capacity of a pipe of a command that fills it
_READS = 8  # reads from one process before the next one's turn
_DRAIN = 0.25  # seconds of reading after the end, if another process still holds the output
_CLOSED = "The launcher was closed, and everything that ran under it was ended."
_NOT_CONFIRMED = "It was killed, but whether all of it has ended could not be seen."
_LOG = logging.getLogger("agent_magics")

SUPERVISOR_GONE = "The launcher was killed, and everything that ran under it ended with it."

Job = Callable[[], object]


class Pump:
    """Reads processes until each has ended; one thread, which starts at once."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_out, self._wake_in = os.pipe()
        os.set_blocking(self._wake_in, False)
        os.set_blocking(self._wake_out, False)
        self._selector.register(self._wake_out, selectors.EVENT_READ, self._empty_wake_pipe)
        self._lock = threading.Lock()  # guards the two below and the wake pipe
        self._jobs: deque[Job] = deque()
        self._ended = False
        self._stopping = False
        self._feeds: dict[Process, _Feed] = {}
        self._thread = threading.Thread(target=self._run, name="agent-exec", daemon=True)
        self._thread.start()

    # -- from any thread -----------------------------------------------------------------------

    def adopt(self, process: Process) -> None:
        """Start reading `process`."""
        if not self._call(partial(self._adopt, process)):
            process.channels.close()
            process.finish(None, _CLOSED)

    def watch(self, connection: socket.socket, on_readable: Job) -> None:
        """Call `on_readable()` on the pump's thread whenever `connection` is readable."""
        self._call(partial(self._selector.register, connection, selectors.EVENT_READ, on_readable))

    def ignore(self, connection: socket.socket) -> None:
        """Stop watching `connection`; on the pump's thread only."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection)

    def release(self, connection: socket.socket, close: Job) -> None:
        """Stop watching `connection`, then call `close()`.

        The order matters: another file could get its descriptor number while it is still watched.
        """
        if not (self._call(partial(self.ignore, connection)) and self._call(close)):
            close()

    def wake(self) -> None:
        """Make the pump check for work."""
        with self._lock:
            self._wake()

    def stop(self, timeout: float) -> None:
        """Stop the thread, killing what still runs; waits at most `timeout` seconds."""
        self._stopping = True
        self.wake()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def forget(self) -> None:
        """In a forked child: close the copies of the parent's descriptors."""
        self._lock = threading.Lock()
        if not self._ended:
            self._ended = True
            self._close()

    def _call(self, job: Job) -> bool:
        """Queue `job()` for the pump's thread; return False if the pump has ended."""
        with self._lock:
            if not self._ended:
                self._jobs.append(job)
                self._wake()
            return not self._ended

    def _wake(self) -> None:
        if not self._ended:
            with contextlib.suppress(BlockingIOError):  # it is going to wake anyway
                os.write(self._wake_in, b"w")

    # -- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping:
            for key, _ in self._selector.select(self._patience()):
                self._do(key.data)
            while self._jobs:
                self._do(self._jobs.popleft())
            now = time.monotonic()
            for feed in list(self._feeds.values()):
                self._do(partial(feed.look_after, now))
        self._end()

    def _end(self) -> None:
        with self._lock:
            self._ended = True
        while self._jobs:  # adopt queued processes, so that nobody waits for them in vain
            self._do(self._jobs.popleft())
        for feed in list(self._feeds.values()):
            self._do(partial(feed.complete, None, _CLOSED))
        self._close()

    def _close(self) -> None:
        with contextlib.suppress(OSError):
            self._selector.close()
        os.close(self._wake_in)
        os.close(self._wake_out)

    def _do(self, job: Job) -> None:
        """Run a job; an exception must not keep other processes from being read."""
        try:
            job()
        except Exception:
            _LOG.exception("reading the output of commands failed")

    def _patience(self) -> float | None:
        """Return the seconds until the next deadline, or None."""
        due = [when for feed in self._feeds.values() if (when := feed.due()) is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _empty_wake_pipe(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_out, 4096)

    def _adopt(self, process: Process) -> None:
        self._feeds[process] = _Feed(process, self._selector, partial(self._feeds.pop, process))


class _Feed:
    """Reads one process, on the pump's thread."""

    def __init__(
        self, process: Process, selector: selectors.BaseSelector, on_complete: Job
    ) -> None:
        self._process = process
        self._selector = selector
        self._on_complete = on_complete
        self._channels = process.channels
        self._open = dict(self._channels.outputs)
        self._read_size = _READ_SIZE
        self._typing = False  # whether it waits for the input to become writable
        self._end: Ended | None = None
        self._lost = ""
        self._drained_at: float | None = None
        for fd in self._open:
            selector.register(fd, selectors.EVENT_READ, partial(self._read, fd))
        selector.register(self._channels.control, selectors.EVENT_READ, self._on_reply)

    def due(self) -> float | None:
        """Return the next deadline (monotonic), or None."""
        times = (self._process.telling_due(), self._drained_at)
        return min((when for when in times if when is not None), default=None)

    def look_after(self, now: float) -> None:
        """Do what is due: write input, call listeners, finish."""
        if not self._typing and self._process.has_input:
            self._type()
        telling = self._process.telling_due()
        if telling is not None and telling <= now:
            self._process.tell()
        if self._drained_at is not None and (not self._open or self._drained_at <= now):
            self.complete(self._end, self._lost)
        elif self._process.given_up:
            self.complete(None, _NOT_CONFIRMED)

    def complete(self, end: Ended | None, lost: str) -> None:
        """Close everything and finish the process."""
        self._on_complete()
        for fd in list(self._open):
            self._close_output(fd)
        self._stop_typing()
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(self._channels.control)
        self._channels.close()
        self._process.finish(end, lost)

    # -- output --------------------------------------------------------------------------------

    def _read(self, fd: int) -> None:
        """Read available output, a few times at most, to be fair to other processes."""
        for _ in range(_READS):
            try:
                data = os.read(fd, self._read_size)
            except BlockingIOError:
                return
            except OSError:  # EIO: nobody holds the other side of the terminal any more
                data = b""
            if not data:
                self._close_output(fd)
                return
            self._process.take(self._open[fd], data)
            if len(data) < _READ_SIZE:
                return
            if self._read_size == _READ_SIZE:
                self._widen(fd)

    def _widen(self, fd: int) -> None:
        """Enlarge the pipe and the reads, because the pipe was full."""
        self._read_size = _FLOOD_SIZE
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with contextlib.suppress(OSError):  # this user's share of pipe memory is used up
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _FLOOD_SIZE)

    def _close_output(self, fd: int) -> None:
        self._selector.unregister(fd)
        del self._open[fd]
        if self._channels.outputs.pop(fd, None) is not None:
            os.close(fd)

    # -- the supervisor's reply -----------------------------------------------------------------

    def _on_reply(self) -> None:
        self._selector.unregister(self._channels.control)
        try:
            data, _ = receive_message(self._channels.control)
            reply = decode_reply(data) if data else None
        except (OSError, ValueError):
            reply = None
        self._end = reply if isinstance(reply, Ended) else None
        self._lost = "" if self._end else SUPERVISOR_GONE
        self._drained_at = time.monotonic() + _DRAIN

    # -- input ---------------------------------------------------------------------------------

    def _type(self) -> None:
        """Write waiting input, as far as possible without blocking."""
        fd = self._channels.input
        if fd is None:
            return
        data, ends = self._process.waiting_input()
        if data:
            try:
                self._process.wrote(os.write(fd, data))
            except BlockingIOError:
                pass
            except OSError:  # EPIPE, EIO: nobody reads it any more
                self._process.refuse_input()
            data, ends = self._process.waiting_input()
        if data and not self._typing:
            self._selector.register(fd, selectors.EVENT_WRITE, self._type)
            self._typing = True
        elif not data:
            self._stop_typing()
            if ends:
                self._channels.input = None
                os.close(fd)

    def _stop_typing(self) -> None:
        if self._typing and self._channels.input is not None:
            self._selector.unregister(self._channels.input)
            self._typing = False
