"""One running command as the kernel sees it: its output, its end, and the ways to speak to it."""

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from agent_magics.backends.exec.spool import Spool
from agent_magics.backends.launcher.wire import INTERRUPT, KILL, TERMINATE, Ended
from agent_magics.protocol.errors import RespondToModel

LIVE_LIMIT = 256 * 1024  # bytes that are told while it runs, since the last listener was added
LIVE_GAP = 0.05  # seconds between two messages to the listeners of one process, at least

_NOT_SHOWN = b"\n\xe2\x80\xa6 more output is coming; it is not shown live \xe2\x80\xa6\n"
_TICK = 0.05  # seconds: how late a cancellation is seen
_MOST_INPUT = 1 << 20  # bytes that wait for a command to read them
_END_OF_INPUT = "\x04"  # what Ctrl-D types
_CTRL_C = "\x03"
_LOG = logging.getLogger("agent_magics")

Listener = Callable[[str, str], None]


@dataclass(eq=False, slots=True)
class Channels:
    """The kernel's ends of what connects it with one command.

    Attributes:
        control: to the supervisor.
        outputs: descriptor -> "stdout" or "stderr"; of a terminal the one descriptor.
        input: the descriptor to write to: the terminal, a pipe, or None.
        tty: whether the command has a terminal.
        made_at: when (monotonic): the command's time counts from here.
    """

    control: socket.socket
    outputs: dict[int, str] = field(default_factory=dict)
    input: int | None = None
    tty: bool = False
    made_at: float = field(default_factory=time.monotonic)

    def close(self) -> None:
        """Close all that is still open; the supervisor then kills what still runs."""
        self.control.close()
        fds = {*self.outputs, *([] if self.input is None else [self.input])}
        self.outputs, self.input = {}, None
        for fd in fds:
            with contextlib.suppress(OSError):
                os.close(fd)


class Process:
    """A command that was started. Its methods may be called from any thread.

    Attributes:
        pid: of the program itself.
        argv: program and arguments.
        tty: whether it has a terminal; then all its output counts as stdout.
        output: what it has printed so far.
        exit_code: as a shell counts: 128 + n where signal n ended it; None while it runs, where
            we killed it, and where its end was not seen.
        killed_for: "time", "cancel" or "kill" where we killed it; else "".
        leftovers: processes it had left in the background, which were ended with it.
        refused: what the supervisor refused, such as "connect 127.0.0.1:22".
        lost: why its end was not seen, as a sentence; else "".
        given_up: nobody waits for its end any more.
        pipes: descriptors of its stdin, stdout and stderr where its starter holds them; else ().
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
        self._at_end: list[Callable[[Process], None]] = []
        self._listeners: list[Listener] = []
        self._untold: list[tuple[str, bytes]] = []
        self._room = LIVE_LIMIT
        self._next_telling = 0.0
        self._input = bytearray()
        self._input_ends = channels.input is None

    def __repr__(self) -> str:
        state = f"exit code {self.exit_code}" if self.ended else "running"
        return f"<Process {self.pid} {self.argv[0]!r}, {state}>"

    def hold_pipes(self) -> None:
        """Take the pipes away from whoever would read them; to be called before it is read."""
        outputs = {name: fd for fd, name in self.channels.outputs.items()}
        self.pipes = (self.channels.input, outputs["stdout"], outputs["stderr"])
        self.channels.outputs, self.channels.input = {}, None

    # -- its end -------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """Whether it has ended, everything it started too, and all output is there."""
        return self._done.is_set()

    @property
    def duration(self) -> float:
        """Seconds it ran, or has run so far."""
        ended_at = self.ended_at if self.ended_at is not None else time.monotonic()
        return ended_at - self.channels.made_at

    def wait(self, timeout: float | None, cancelled: threading.Event | None = None) -> bool:
        """Wait until it has ended.

        Args:
            timeout: seconds to wait at most; None waits for ever.
            cancelled: when set, waiting stops within 50 ms. The process goes on.

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
        """End it with all it has started; returns before that is done (see `wait`).

        Args:
            reason: "time", "cancel" or "kill"; the first one counts.
            at_once: without asking it to end first, which takes 0.2 s where it does not listen.
        """
        with self._lock:
            if not self._done.is_set():
                self.killed_for = self.killed_for or reason
                self._say(KILL if at_once else TERMINATE)

    def give_up(self) -> None:
        """Wait no longer for the end of a process that was killed: it counts as ended."""
        self.given_up = True
        self._wake()

    def interrupt(self) -> None:
        """Send SIGINT to what runs in the foreground, as Ctrl-C does."""
        with self._lock:
            self._say(INTERRUPT)

    def on_end(self, callback: "Callable[[Process], None]") -> None:
        """Have `callback(process)` called once when it has ended, on the thread that reads it.

        Where it has ended already, that happens now, on this thread.
        """
        with self._lock:
            if not self._done.is_set():
                self._at_end.append(callback)
                return
        callback(self)

    def _say(self, word: bytes) -> None:
        with contextlib.suppress(OSError):  # it is gone; its end is being read
            self.channels.control.send(word)

    # -- its input -----------------------------------------------------------------------------

    def write(self, text: str) -> None:
        r"""Type `text`; returns before it is read.

        A terminal makes of control characters what it is set to. A pipe knows none, so that here
        "\x03" (Ctrl-C) interrupts and "\x04" (Ctrl-D) closes the input, wherever they stand.

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
        """Tell it that no more input comes, once it has what was written before."""
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

    # -- those who listen ----------------------------------------------------------------------

    def add_listener(self, listener: Listener) -> None:
        """Have `listener(stream, text)` called with what comes, at most 20 times a second.

        It is called on the thread that reads all processes, so it must be quick. The first one
        hears everything from the start. After 256 KB one sentence says that no more is told;
        each new listener makes that bound begin anew. One that raises is told nothing more.
        """
        with self._lock:
            if self._listeners or not self._untold:
                self._room = LIVE_LIMIT
            self._listeners.append(listener)
        self._wake()

    def remove_listener(self, listener: Listener) -> None:
        """Tell `listener` nothing more."""
        with self._lock, contextlib.suppress(ValueError):
            self._listeners.remove(listener)

    # -- for the pump, on its thread -----------------------------------------------------------

    def take(self, stream: str, data: bytes) -> None:
        """Take in bytes that were read."""
        data = self.output.add(stream, data)
        if data and self._room >= 0:
            self._prepare(stream, data)

    def _prepare(self, stream: str, data: bytes) -> None:
        """Put aside what listeners shall be told, as far as there is room."""
        with self._lock:
            if len(data) > self._room:
                data = data[: self._room].decode("utf-8", "ignore").encode() + _NOT_SHOWN
                self._room = -1  # that no more is told has been said
            else:
                self._room -= len(data)
            self._untold.append((stream, data))

    def telling_due(self) -> float | None:
        """When the listeners shall be told something (monotonic), None where there is nothing."""
        return self._next_telling if self._untold and self._listeners else None

    def tell(self) -> None:
        """Tell the listeners what has come, one message for each stream."""
        with self._lock:
            if not self._listeners:
                return
            untold, self._untold = self._untold, []
            listeners = tuple(self._listeners)
        streams: dict[str, list[bytes]] = {}
        for stream, data in untold:
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
        """Whether something waits to be written, or the input to be closed."""
        return bool(self._input) or self._input_ends

    def waiting_input(self) -> tuple[bytes, bool]:
        """Return what shall be written, and whether the input is to be closed after that."""
        with self._lock:
            return bytes(self._input), self._input_ends

    def wrote(self, count: int) -> None:
        """Take note that `count` bytes of the waiting input have been written."""
        with self._lock:
            del self._input[:count]

    def refuse_input(self) -> None:
        """Take note that nobody can read the input any more."""
        with self._lock:
            self._input.clear()
            self._input_ends = True

    def finish(self, end: Ended | None, lost: str = "") -> None:
        """Take note that it has ended and all output was read; tell everybody."""
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
            self._listeners, self._untold = [], []
        for callback in callbacks:
            try:
                callback(self)
            except Exception:
                _LOG.exception("what was to be done after the end of %r failed", self)

    def disown(self, lost: str) -> None:
        """In a forked child: it is the parent's process; what the parent's threads held is anew."""
        self.channels.close()
        self.output.renew_lock()
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._done.set()
        self.lost = lost


def end_all(processes: Iterable[Process], limit: float) -> None:
    """Kill processes side by side and wait for their end, at most `limit` seconds for them all.

    Each is asked to end; who has not by half of the time is no longer asked.
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
