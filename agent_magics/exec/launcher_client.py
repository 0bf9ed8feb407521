"""Starts commands without forking the kernel: requests them from the launcher process.

Law: a command inherits nothing of the kernel except what its request contains.
"""

import atexit
import contextlib
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_magics.exec.launcher.wire import Confinement, SpawnRequest, send_message
from agent_magics.exec.launcher_process import LauncherProcess
from agent_magics.exec.process import Channels, Process, end_all
from agent_magics.exec.pump import Pump
from agent_magics.exec.spawn import encode, make_channels, wait_for_start
from agent_magics.protocol.errors import FatalError, short_message

_CLOSE_LIMIT = 1.0  # seconds before running commands get SIGKILL on closing

# Descriptors are created and sent under this lock, and a fork waits for it: a child forked in
# between would keep them open, and a command's end would not be noticed.
_fork_lock = threading.RLock()
_launchers: "set[Launcher]" = set()
_shared: "Launcher | None" = None


# Resource limits of a confined command; there is no quota of total disk space.
CONFINED_LIMITS = {"RLIMIT_FSIZE": 16 << 30}  # bytes of one file
MOST_PROCESSES = 1_000  # of one command at once


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The means of this machine to confine a command.

    Attributes:
        tier: 0 nothing; 1 Landlock, seccomp and user notification; 2 namespaces as well.
        abi: the Landlock ABI, 0 where there is none.
        reason: why the tier is not higher, as a sentence; "" where it is the highest.
    """

    tier: int
    abi: int
    reason: str = ""


class Launcher:
    """Client of the launcher process, which it starts when needed and restarts when it has died.

    All methods may be called from any thread. In a forked child a launcher is closed; the child
    gets its own from `shared_launcher`.
    """

    def __init__(self) -> None:
        self._zygote: LauncherProcess | None = None
        self._pump: Pump | None = None
        self._starting: set[Channels] = set()
        self._running: set[Process] = set()
        self._capabilities: Capabilities | None = None
        self._probing = threading.Lock()
        self.closed = False
        with _fork_lock:
            _launchers.add(self)

    def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: str | Path,
        env: Mapping[str, str],
        tty: bool = False,
        stdin: bool = False,
        held: bool = False,
        confinement: Confinement | None = None,
        limits: Mapping[str, int] | None = None,
        rows: int = 24,
        cols: int = 80,
    ) -> Process:
        """Start a command; returns when its program runs.

        Args:
            argv: program and arguments, passed on unchanged; looked up in PATH of `env`.
            cwd: the folder it runs in.
            env: its whole environment.
            tty: give it a terminal, of `rows` and `cols`.
            stdin: without a terminal: a pipe to write to; else its stdin is empty.
            held: without a terminal: the caller reads and writes its pipes itself; they are
                `Process.pipes`. Its end is still detected.
            confinement: what it may access; None for everything that this user may.
            limits: RLIMIT name -> value; a confined command has CONFINED_LIMITS besides.
            rows: lines of its terminal.
            cols: characters of a line of its terminal.

        Raises:
            RespondToModel: it could not be started.
            FatalError: the launcher could not be started.
        """
        request = SpawnRequest(
            *(tuple(argv), str(cwd), dict(env), tty, confinement),
            limits={**(CONFINED_LIMITS if confinement else {}), **(limits or {})},
            most_processes=MOST_PROCESSES if confinement else 0,
        )
        message = encode(request)
        with _fork_lock:
            channels = self._send_request(request, message, (rows, cols), stdin)
            self._starting.add(channels)
        try:
            pid = wait_for_start(request, channels)
            assert self._pump is not None  # made before the launcher is started
            process = Process(pid, request.argv, channels, self._pump.wake)
            if held:
                process.hold_pipes()
            self._running.add(process)
        except BaseException:  # KeyboardInterrupt too: closing kills what may have been started
            channels.close()
            raise
        finally:
            self._starting.discard(channels)
        process.on_end(self._running.discard)
        self._pump.adopt(process)
        return process

    @property
    def pid(self) -> int | None:
        """The process id of the launcher, None where none runs."""
        zygote = self._zygote
        return None if zygote is None or zygote.dead else zygote.pid

    def capabilities(self) -> Capabilities:
        """Return the means of this machine to confine a command; tested once, in the launcher."""
        with self._probing:
            if self._capabilities is None:
                try:
                    self._capabilities = self._probe()
                except FatalError as error:
                    return Capabilities(0, 0, short_message(error))
            return self._capabilities

    def close(self) -> None:
        """Kill all running commands and end the launcher; takes at most about 2 seconds."""
        with _fork_lock:
            if self.closed:
                return
            self.closed = True
            _launchers.discard(self)
            zygote, self._zygote = self._zygote, None
            pump, running = self._pump, list(self._running)
        end_all(running, _CLOSE_LIMIT)
        if pump is not None:
            pump.stop(_CLOSE_LIMIT)
        if zygote is not None:
            zygote.end(_CLOSE_LIMIT)
            zygote.close()

    def _send_request(
        self, request: SpawnRequest, message: bytes, size: tuple[int, int], stdin: bool
    ) -> Channels:
        """Create the channels and send the request; a launcher that has died is replaced once."""
        for _ in range(2):
            zygote = self._living_zygote()
            with contextlib.ExitStack() as sent_ends:
                channels, fds = make_channels(request, size, stdin, sent_ends)
                try:
                    send_message(zygote.connection, message, fds)
                except BaseException as error:  # KeyboardInterrupt too: a part may have been sent
                    channels.close()
                    zygote.dead = True
                    if not isinstance(error, OSError):
                        raise
                else:
                    return channels
        raise FatalError(
            "The launcher of commands ended twice before it took one" + zygote.last_words() + "."
        )

    def _living_zygote(self) -> "LauncherProcess":
        if self.closed:
            raise FatalError("Commands cannot run any more: the kernel is shutting down.")
        if self._pump is None:
            self._pump = Pump()
        if self._zygote is not None and self._zygote.dead:
            self._zygote.end(_CLOSE_LIMIT)
            self._pump.release(self._zygote.connection, self._zygote.close)
            self._zygote = None
        if self._zygote is None:
            self._zygote = zygote = LauncherProcess()
            self._pump.watch(zygote.connection, lambda: self._on_answer(zygote))
        return self._zygote

    def _on_answer(self, zygote: "LauncherProcess") -> None:
        """On the pump's thread: receive an answer of the launcher, or its end."""
        if not zygote.hear() and self._pump is not None:
            self._pump.ignore(zygote.connection)

    def _probe(self) -> Capabilities:
        with _fork_lock:
            zygote = self._living_zygote()
            with contextlib.suppress(OSError):  # dead: there will be no answer
                send_message(zygote.connection, b'{"probe": true}')
        answer = zygote.next_answer()
        if answer is None:
            raise FatalError(
                "What this machine can do to confine commands could not be found out: the launcher "
                "did not answer" + zygote.last_words() + "."
            )
        found = answer["probe"]
        return Capabilities(found["tier"], found["abi"], found["reason"])

    def _disown(self) -> None:
        """In a forked child: close the copies of the parent's descriptors."""
        self.closed = True
        for channels in self._starting:
            channels.close()
        for process in self._running:
            process.disown("It belongs to the process that this one was forked from.")
        if self._pump is not None:
            self._pump.forget()
        if self._zygote is not None:
            self._zygote.disown()


def shared_launcher() -> Launcher:
    """Return the launcher of this process."""
    global _shared
    with _fork_lock:
        if _shared is None or _shared.closed:
            _shared = Launcher()
        return _shared


def current_tier() -> int:
    """Return how strictly commands can be confined here, 0 meaning not at all; see `Confinement`.

    ``AGENT_MAGICS_TIER`` lowers it, for tests.
    """
    tier = shared_launcher().capabilities().tier
    lowered = os.environ.get("AGENT_MAGICS_TIER", "")
    return min(tier, int(lowered)) if lowered.isdecimal() else tier


# -- the end of this process, and its forks -----------------------------------------------------


def _after_fork_in_child() -> None:
    global _shared
    for launcher in _launchers:
        launcher._disown()
    _launchers.clear()
    _shared = None
    _fork_lock.release()


def _close_all() -> None:
    for launcher in list(_launchers):
        launcher.close()


os.register_at_fork(
    before=_fork_lock.acquire,
    after_in_parent=_fork_lock.release,
    after_in_child=_after_fork_in_child,
)
atexit.register(_close_all)
