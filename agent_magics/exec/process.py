"""Represents one running command in the kernel: its output, its end, its input."""

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from agent_magics.exec.launcher.wire import INTERRUPT, KILL, TERMINATE, Ended
from agent_magics.exec.spool import Spool
from agent_magics.protocol.errors import RespondToModel

LIVE_LIMIT = 256 * 1024  # bytes that listeners get while it runs, since the last one was added
LIVE_GAP = 0.05  # seconds between two messages to the listeners of one process, at least

_NOT_SHOWN = b"\n\xe2\x80\xa6 more output is coming; it is not shown live \xe2\x80\xa6\n"
_KILL_LIMIT = 5.0  # seconds that a killed process may take to be gone
_TICK = 0.05  # seconds: polling interval for a cancellation
_MOST_INPUT = 1 << 20  # bytes that wait for a command to read them
_END_OF_INPUT = "\x04"  # what Ctrl-D types
_CTRL_C = "\x03"
_LOG = logging.getLogger("agent_magics")

Listener = Callable[[str, str], None]


@dataclass(eq=False, slots=True)
class Channels:
    """The kernel's ends of the connections to one command.

    Attributes:
        control: socket to the supervisor.
        outputs: descriptor -> "stdout" or "stderr"; one descriptor for a terminal.
        input: the descriptor to write to: the terminal, a pipe, or None.
        tty: whether the command has a terminal.
        made_at: time of creation (monotonic), from which the command's duration counts.
    """

    control: socket.socket
    outputs: dict[int, str] = field(default_factory=dict)
    input: int | None = None
    tty: bool = False
    made_at: float = field(default_factory=time.monotonic)

    def close(self) -> None:
        """Close all open descriptors; the supervisor then kills the command."""
        self.control.close()
        fds = {*self.outputs, *([] if self.input is None else [self.input])}
        self.outputs, self.input = {}, None
        for fd in fds:
            with contextlib.suppress(OSError):
                os.close(fd)


class Process:
    """A started command. Its methods may be called from any thread.

    Attributes:
        pid: of the program itself.
        argv: program and arguments.
        tty: whether it has a terminal; then all its output counts as stdout.
        output: its output so far.
        exit_code: as in a shell: 128 + n where signal n ended it; None while it runs, where
            we killed it, and where its end was not observed.
        killed_for: "time", "cancel" or "kill" where we killed it; else "".
        leftovers: number of its background processes that were ended with it.
        refused: operations that the supervisor denied, such as "connect 127.0.0.1:22".
        lost: one sentence on why its end was not observed; else "".
        given_up: whether its end is no longer awaited.
        pipes: descriptors of its stdin, stdout and stderr if its starter holds them; else ().
        ended_at: when it ended (monotonic), None while it runs.
    """

    def __init__(
        self, pid: int, argv: tuple[str, ...], channels: Channels, wake: Callable[[], None]
    ) -> None:
        self.pid = pid
        self.argv = argv
        self.tty = channels.tty
        self.output = Spool()
        self.exit_code: int | None = None
        self.killed_for = ""
        self.leftovers = 0
        self.refused: tuple[str, ...] = ()
        self.lost = ""
        self.given_up = False
        self.pipes: tuple[int, ...] = ()
        self.ended_at: float | None = None
        self.channels = channels
        self._wake = wake
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._at_end: list[Callable[[Process], object]] = []
        self._listeners: list[Listener] = []
        self._queued: list[tuple[str, bytes]] = []
        self._room = LIVE_LIMIT
        self._next_telling = 0.0
        self._input = bytearray()
        self._input_ends = channels.input is None

    def __repr__(self) -> str:
        state = f"exit code {self.exit_code}" if self.ended else "running"
        return f"<Process {self.pid} {self.argv[0]!r}, {state}>"

    def hold_pipes(self) -> None:
        """Move the pipes to `pipes`, for the caller to use; to be called before the pump reads
        it.
        """
        outputs = {name: fd for fd, name in self.channels.outputs.items()}
        assert self.channels.input is not None  # closed only by the pump
        self.pipes = (self.channels.input, outputs["stdout"], outputs["stderr"])
        self.channels.outputs, self.channels.input = {}, None

    # -- its end -------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """Whether it and everything it started have ended, and all output was read."""
        return self._done.is_set()

    @property
    def duration(self) -> float:
        """Seconds it ran, or has run so far."""
        ended_at = self.ended_at if self.ended_at is not None else time.monotonic()
        return ended_at - self.channels.made_at

    def wait(self, timeout: float | None, cancelled: threading.Event | None = None) -> bool:
        """Wait until it has ended.

        Args:
            timeout: maximal seconds to wait; None waits forever.
            cancelled: when set, waiting stops within 50 ms. The process continues.

        Returns:
            Whether it has ended.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._done.is_set():
            if cancelled is not None and cancelled.is_set():
                return False
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            if cancelled is not None:
                left = _TICK if left is None else min(left, _TICK)
            self._done.wait(left)
        return True

    def kill(self, reason: str = "kill", *, at_once: bool = False) -> None:
        """Kill it with all it has started; returns before that is done (see `wait`).

        Args:
            reason: "time", "cancel" or "kill"; the first one counts.
            at_once: without SIGTERM first, which adds 0.2 s if it is ignored.
        """
        with self._lock:
            if not self._done.is_set():
                self.killed_for = self.killed_for or reason
                self._request(KILL if at_once else TERMINATE)

    def end(self, reason: str) -> None:
        """Kill it with all it has started, and wait until it is gone, or given up.

        Args:
            reason: as for `kill`.
        """
        self.kill(reason)
        if not self.wait(_KILL_LIMIT):
            self.give_up()
            self.wait(_KILL_LIMIT)

    def give_up(self) -> None:
        """Stop waiting for the end of a killed process, and treat it as ended."""
        self.given_up = True
        self._wake()

    def interrupt(self) -> None:
        """Send SIGINT to its foreground group, as Ctrl-C does."""
        with self._lock:
            self._request(INTERRUPT)

    def on_end(self, callback: "Callable[[Process], object]") -> None:
        """Call `callback(process)` once when it has ended, on the pump's thread.

        If it has ended already, the callback runs now, on this thread.
        """
        with self._lock:
            if not self._done.is_set():
                self._at_end.append(callback)
                return
        callback(self)

    def _request(self, word: bytes) -> None:
        with contextlib.suppress(OSError):  # it has ended
            self.channels.control.send(word)

    # -- its input -----------------------------------------------------------------------------

    def write(self, text: str) -> None:
        r"""Send `text` to its input; returns before it is read.

        A terminal handles control characters as it is configured. A pipe does not, so there
        "\x03" (Ctrl-C) interrupts and "\x04" (Ctrl-D) closes the input, wherever they occur.

        Raises:
            RespondToModel: it takes no input, no longer does, or does not read what it has.
        """
        if self.tty:
            self._type(text)
            return
        for number, part in enumerate(text.split(_CTRL_C)):
            if number:
                self.interrupt()
            typed, ends, _ = part.partition(_END_OF_INPUT)
            if typed:
                self._type(typed)
            if ends:
                self.close_stdin()

    def close_stdin(self) -> None:
        """Close its input after what was written before."""
        if self.tty:
            self._type(_END_OF_INPUT)
            return
        with self._lock:
            self._input_ends = True
        self._wake()

    def _type(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        with self._lock:
            if self._done.is_set():
                raise RespondToModel("The process has ended; it takes no input any more.")
            if self._input_ends:
                raise RespondToModel(
                    "The input of this process is closed; start it with a terminal (tty) or "
                    "anew where it must be typed to."
                )
            if len(self._input) + len(data) > _MOST_INPUT:
                raise RespondToModel(
                    f"The process does not read its input: {len(self._input)} bytes are waiting."
                )
            self._input += data
        self._wake()

    # -- listeners -----------------------------------------------------------------------------

    def add_listener(self, listener: Listener) -> None:
        """Call `listener(stream, text)` with its output, at most 20 times a second.

        It runs on the thread that reads all processes, so it must be quick. The first one gets all
        output from the start. After 256 KB one sentence says that further output is not shown live;
        each new listener restarts that limit. A listener that raises is removed.
        """
        with self._lock:
            if self._listeners or not self._queued:
                self._room = LIVE_LIMIT
            self._listeners.append(listener)
        self._wake()

    def remove_listener(self, listener: Listener) -> None:
        """Stop calling `listener`."""
        with self._lock, contextlib.suppress(ValueError):
            self._listeners.remove(listener)

    # -- for the pump, on its thread -----------------------------------------------------------

    def take(self, stream: str, data: bytes) -> None:
        """Store bytes that were read."""
        data = self.output.add(stream, data)
        if data and self._room >= 0:
            self._prepare(stream, data)

    def _prepare(self, stream: str, data: bytes) -> None:
        """Queue output for listeners, up to the limit."""
        with self._lock:
            if len(data) > self._room:
                data = data[: self._room].decode("utf-8", "ignore").encode() + _NOT_SHOWN
                self._room = -1  # the sentence about further output was sent
            else:
                self._room -= len(data)
            self._queued.append((stream, data))

    def telling_due(self) -> float | None:
        """Return when listeners are next called (monotonic), None where nothing is queued."""
        return self._next_telling if self._queued and self._listeners else None

    def tell(self) -> None:
        """Call the listeners with the queued output, once per stream."""
        with self._lock:
            if not self._listeners:
                return
            queued, self._queued = self._queued, []
            listeners = tuple(self._listeners)
        streams: dict[str, list[bytes]] = {}
        for stream, data in queued:
            streams.setdefault(stream, []).append(data)
        for stream, pieces in streams.items():
            text = b"".join(pieces).decode("utf-8", "replace")
            for listener in listeners:
                self._tell(listener, stream, text)
        self._next_telling = time.monotonic() + LIVE_GAP * len(streams)

    def _tell(self, listener: Listener, stream: str, text: str) -> None:
        try:
            listener(stream, text)
        except Exception:
            _LOG.exception("a listener of %r failed; it is told nothing more", self)
            self.remove_listener(listener)

    @property
    def has_input(self) -> bool:
        """Whether input waits to be written, or is to be closed."""
        return bool(self._input) or self._input_ends

    def waiting_input(self) -> tuple[bytes, bool]:
        """Return the input to write, and whether to close it afterwards."""
        with self._lock:
            return bytes(self._input), self._input_ends

    def wrote(self, count: int) -> None:
        """Record that `count` bytes of the waiting input have been written."""
        with self._lock:
            del self._input[:count]

    def refuse_input(self) -> None:
        """Record that the input can no longer be read."""
        with self._lock:
            self._input.clear()
            self._input_ends = True

    def finish(self, end: Ended | None, lost: str = "") -> None:
        """Record that it has ended and all output was read; run the callbacks."""
        for stream, data in self.output.finish():
            if self._room >= 0:
                self._prepare(stream, data)
        self.tell()
        with self._lock:
            self.ended_at = time.monotonic()
            self.lost = lost
            if end is not None:
                self.leftovers, self.refused = end.leftovers, end.refused
                if not self.killed_for:
                    self.exit_code = end.status if end.status >= 0 else 128 - end.status
            self._done.set()
            callbacks, self._at_end = self._at_end, []
            self._listeners, self._queued = [], []
        for callback in callbacks:
            try:
                callback(self)
            except Exception:
                _LOG.exception("what was to be done after the end of %r failed", self)

    def disown(self, lost: str) -> None:
        """In a forked child: close the copies of the parent's descriptors, and renew the locks."""
        self.channels.close()
        self.output.renew_lock()
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._done.set()
        self.lost = lost


def end_all(processes: Iterable[Process], limit: float) -> None:
    """Kill processes concurrently and wait for their end, at most `limit` seconds in all.

    Each gets SIGTERM first; those that have not ended by half of the time get SIGKILL.
    """
    processes = list(processes)
    deadline = time.monotonic() + limit
    for process in processes:
        process.kill()
    for process in processes:
        if not process.wait(max(0.0, deadline - limit / 2 - time.monotonic())):
            process.kill(at_once=True)
    for process in processes:
        process.wait(max(0.0, deadline - time.monotonic()))
