"""Manages the processes of one conversation: running commands, and sessions beyond their call."""

import os
import random
import shlex
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_magics.exec.temporary_files import remove_own, scratch_folder
from agent_magics.protocol.checked import check
from agent_magics.protocol.errors import FatalError, RespondToModel, short_message
from agent_magics.text.brief import brief_line

if TYPE_CHECKING:  # which only those agents need that run commands
    from agent_magics.exec.launcher.wire import Confinement
    from agent_magics.exec.process import Process

MOST_SESSIONS = 64  # simultaneously open; the same number of ended ones stays readable

_CLOSE_LIMIT = 1.0  # seconds until `close` returns, whatever the processes do
_SHOWN_COMMAND = 60  # characters of a command in a list of sessions
_FIRST_IDS = range(10_000, 100_000)

_random = random.SystemRandom()
_given: set[int] = set()  # ids used in this kernel; none is reused
_given_lock = threading.Lock()


@dataclass(eq=False, slots=True)
class CommandSession:
    """A process that is kept beyond the call that started it.

    Attributes:
        id: a random number by which the model refers to it.
        process: the process.
        command: its command line, for the model and people to recognise it.
        position: byte position in its output, up to which the model has seen it. The caller moves
            it.
        is_reported: whether the model was informed of its end.
    """

    id: int
    process: "Process"
    command: str
    position: int = 0
    is_reported: bool = False

    @property
    def ended(self) -> bool:
        """Whether its process has ended."""
        return self.process.ended

    @property
    def exit_code(self) -> int | None:
        """The exit code, None while it runs and where we killed it."""
        return self.process.exit_code

    @property
    def seconds(self) -> float:
        """Seconds it ran, or has run so far."""
        return self.process.duration


class ProcessManager:
    """Starts the processes of one conversation and ends them with it; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._running: set[Process] = set()
        self._sessions: dict[int, CommandSession] = {}
        self._starting = 0  # sessions whose place is taken before they run
        self._tmpdir: Path | None = None
        self._remove_tmpdir: Callable[[], object] = _nothing
        self._closed = False
        _managers.add(self)

    @property
    def tmpdir(self) -> Path:
        """The folder for temporary files of this conversation's confined commands (0700).

        Created on first access, removed by `close`.

        Raises:
            FatalError: it cannot be created.
        """
        with self._lock:
            if self._tmpdir is None or not self._tmpdir.is_dir():
                try:
                    self._tmpdir = Path(tempfile.mkdtemp(prefix="tmp-", dir=scratch_folder()))
                except OSError as error:
                    raise FatalError(
                        f"No folder for temporary files can be made: {short_message(error)}."
                    ) from None
                self._remove_tmpdir = weakref.finalize(self, remove_own, self._tmpdir, os.getpid())
                self._remove_tmpdir.atexit = False  # the folder around it goes at exit
            return self._tmpdir

    @property
    def running(self) -> int:
        """The number of running processes, including sessions."""
        return sum(not process.ended for process in list(self._running))

    def start(
        self,
        argv: Sequence[str],
        *,
        cwd: str | Path,
        env: Mapping[str, str],
        tty: bool = False,
        stdin: bool = False,
        confinement: "Confinement | None" = None,
        limits: Mapping[str, int] | None = None,
    ) -> "Process":
        """Start a command that ends with this conversation at the latest.

        Args:
            argv: program and arguments, passed on unchanged.
            cwd: the folder it runs in.
            env: its whole environment; a confined command gets its own TMPDIR.
            tty: give it a terminal.
            stdin: without a terminal: a pipe to write to; else its stdin is empty.
            confinement: what it may access, to which the TMPDIR is added; None for everything that
                this user may.
            limits: RLIMIT name -> value.

        Raises:
            RespondToModel: it could not be started.
            FatalError: commands cannot run, or the conversation is closed.
        """
        from agent_magics.exec.launcher_client import shared_launcher  # noqa: PLC0415 - if needed

        self._check_open()
        if confinement is not None:
            confinement = _with_writable(confinement, str(self.tmpdir))
            env = {**env, "TMPDIR": str(self.tmpdir)}
        process = shared_launcher().spawn(
            argv, cwd=cwd, env=env, tty=tty, stdin=stdin, confinement=confinement, limits=limits
        )
        with self._lock:
            self._running.add(process)
        process.on_end(self._running.discard)
        try:
            self._check_open()
        except FatalError:  # closed while it started
            process.kill(at_once=True)
            raise
        return process

    def _check_open(self) -> None:
        if self._closed:
            raise FatalError("This conversation is closed; commands need a new one.")

    # -- sessions ------------------------------------------------------------------------------

    def start_session(
        self, argv: Sequence[str], *, command: str = "", **options: Any
    ) -> CommandSession:
        """Start a command and keep it as a session; its place is reserved before it runs.

        Args:
            argv: program and arguments.
            command: its name; the words of `argv` if not given.
            options: as in `start`.

        Raises:
            RespondToModel: too many sessions are open, or it could not be started.
            FatalError: commands cannot run, or the conversation is closed.
        """
        with self._lock:
            self._check_room()
            self._starting += 1
        try:
            process = self.start(argv, **options)
        except BaseException:
            with self._lock:
                self._starting -= 1
            raise
        with self._lock:
            self._starting -= 1
            return self._sessions[self.keep(process, command)]

    def keep(self, process: "Process", command: str = "") -> int:
        """Keep a process as a session and return its id, which no other session ever had.

        Raises:
            RespondToModel: too many sessions are open; the process continues.
        """
        with self._lock:
            if not process.ended:
                self._check_room()
            session = CommandSession(_new_id(), process, command or shlex.join(process.argv))
            self._sessions[session.id] = session
            self._drop_oldest()
            return session.id

    def drop(self, session_id: int) -> None:
        """Forget a session that ended within its call; its id is not reused."""
        with self._lock:
            self._sessions.pop(session_id, None)

    def get(self, session_id: int) -> CommandSession:
        """Return a session of this conversation.

        Raises:
            RespondToModel: there is none with this id.
        """
        check("session_id", session_id, int, RespondToModel)
        with self._lock:
            session = self._sessions.get(session_id)
            if session is not None:
                return session
            known = _names(self._sessions.values())
        raise RespondToModel(
            f"There is no session {session_id} in this conversation; "
            + (f"there are {known}." if known else "no session was started.")
        )

    def sessions(self) -> list[CommandSession]:
        """Return the sessions, oldest first, including ended ones."""
        with self._lock:
            return list(self._sessions.values())

    def take_ended(self) -> list[CommandSession]:
        """Return the ended sessions that were not reported yet, and mark them as reported."""
        with self._lock:
            ended = [s for s in self._sessions.values() if s.ended and not s.is_reported]
            for session in ended:
                session.is_reported = True
            return ended

    def close(self) -> None:
        """Kill all running processes and remove the TMPDIR; takes about a second at most."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        if running:
            from agent_magics.exec.process import end_all  # noqa: PLC0415 - it is there now

            end_all(running, _CLOSE_LIMIT)
        for process in running:
            if not process.ended:
                process.give_up()
        self._remove_tmpdir()

    def _check_room(self) -> None:
        running = [s for s in self._sessions.values() if not s.ended]
        if len(running) + self._starting >= MOST_SESSIONS:
            raise RespondToModel(
                f"{MOST_SESSIONS} sessions are open, and more cannot be. End one with "
                f"kill_session first: {_names(running)}."
            )

    def _drop_oldest(self) -> None:
        """Forget ended sessions beyond the limit: first reported ones, of these the oldest."""
        ended = sorted((s for s in self._sessions.values() if s.ended), key=_age)
        for session in ended[: max(0, len(ended) - MOST_SESSIONS)]:
            del self._sessions[session.id]


def _age(session: CommandSession) -> tuple[bool, float]:
    return not session.is_reported, session.process.ended_at or 0.0


def _names(sessions: Iterable[CommandSession]) -> str:
    """Return the sessions as a list within a sentence."""
    return ", ".join(
        f"{session.id} ({brief_line(session.command, _SHOWN_COMMAND)}"
        f"{', ended' if session.ended else ''})"
        for session in sessions
    )


def _new_id() -> int:
    """Return a random unused id; six digits and more when half of the five-digit ones are used."""
    with _given_lock:
        ids = _FIRST_IDS
        while len(_given) > len(ids) // 2:
            ids = range(ids.stop, ids.stop * 10)
        number = _random.choice(ids)
        while number in _given:
            number = _random.choice(ids)
        _given.add(number)
        return number


def _with_writable(confinement: "Confinement", folder: str) -> "Confinement":
    if folder in confinement.writable:
        return confinement
    return replace(confinement, writable=(*confinement.writable, folder))


def _nothing() -> None:
    """Do nothing, because there is no folder to remove."""


def _after_fork_in_child() -> None:
    """Replace locks that threads of the parent may hold; the processes belong to the parent."""
    global _given_lock
    _given_lock = threading.Lock()
    for manager in list(_managers):
        manager._lock = threading.RLock()


_managers: "weakref.WeakSet[ProcessManager]" = weakref.WeakSet()
os.register_at_fork(after_in_child=_after_fork_in_child)
