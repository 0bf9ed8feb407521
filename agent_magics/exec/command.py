"""One command from its start to its end, and what it gave back.

Law: nothing outlives `run_command`, not even what the command put into the background.
"""

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from agent_magics.backends.exec.launcher import shared_launcher
from agent_magics.backends.exec.output import (
    clean_output,
    cut_middle,
    join_ends,
    omission_marker,
)
from agent_magics.backends.exec.process import Process
from agent_magics.backends.exec.spool import Spool
from agent_magics.backends.launcher.wire import Confinement
from agent_magics.protocol.tools import ToolOutput

if TYPE_CHECKING:
    from agent_magics.backends.exec.processes import ProcessManager

OnOutput = Callable[[str, str], None]

_TICK = 0.05  # seconds: how late a cancellation is seen
_LONGEST_WAIT = 3600.0  # seconds in one go; the system's own waits have a limit
_KILL_LIMIT = 5.0  # seconds a killed command may take to be gone
_REPR_BUDGET = 10_000
_HEADER_ROOM = 400  # characters of the lines around the output that a model reads


@dataclass(frozen=True, slots=True, repr=False)
class CommandResult:
    """What a command did, or has done so far.

    Attributes:
        exit_code: as a shell counts: 128 + n where signal n ended it; None where we killed it,
            and while it runs.
        duration: seconds.
        output: stdout and stderr in the order in which they arrived, undecorated; a long one is
            its beginning and its end with a marker line between.
        stdout: as `output`, of this stream alone; of a part of a session's output, all of it.
        stderr: as `output`, of this stream alone.
        killed_for: "time", "cancel" or "kill" where we killed it; else "".
        total_chars: characters printed on both streams, whether kept or not.
        omitted_chars: characters that `output` lacks.
        timeout: seconds it was given.
        leftovers: processes it had left in the background, which were ended with it.
        refused: what the supervisor refused it, such as "connect 127.0.0.1:22".
        lost: why its end was not seen, as a sentence; else "".
        session_id: of the session as which it is kept; None where it is not.
        where: where the whole output is, a handle or a path, for the model to read; else "".
        spool: all of the output, as long as the result lives; None for a result made by hand.
    """

    argv: tuple[str, ...]
    exit_code: int | None
    duration: float
    output: str
    stdout: str
    stderr: str
    killed_for: str = ""
    total_chars: int = 0
    omitted_chars: int = 0
    timeout: float = 0.0
    leftovers: int = 0
    refused: tuple[str, ...] = ()
    lost: str = ""
    session_id: int | None = None
    where: str = ""
    head_chars: int = field(default=0, kw_only=True)
    spool: Spool | None = field(default=None, kw_only=True, compare=False)

    def __repr__(self) -> str:
        shown, _, _ = self._shorten(_REPR_BUDGET)
        if shown and not shown.endswith("\n"):
            shown += "\n"
        return f"{shown}[{self._ending()}, {self.duration:.2f} s]"

    @property
    def timed_out(self) -> bool:
        """Whether it was killed because its time was over."""
        return self.killed_for == "time"

    @property
    def cancelled(self) -> bool:
        """Whether it was killed because somebody interrupted."""
        return self.killed_for == "cancel"

    @property
    def running(self) -> bool:
        """Whether it goes on as a session."""
        return (
            self.session_id is not None
            and self.exit_code is None
            and not (self.killed_for or self.lost)
        )

    @property
    def original_tokens(self) -> int:
        """About how many tokens all of the output has, a token being four characters."""
        return self.total_chars // 4

    def is_cut(self, budget: int) -> bool:
        """Tell whether `to_output` leaves something out within `budget`."""
        return bool(self.omitted_chars) or self._shorten(_room_for_output(budget))[2] > 0

    def to_output(self, budget: int) -> ToolOutput:
        """Return what the model reads: exit code, duration, true counts, output.

        Args:
            budget: characters the whole text may have.
        """
        shown, total, omitted = self._shorten(_room_for_output(budget))
        body = shown or "(no output)"
        if notes := self._notes():
            body += ("" if body.endswith("\n") else "\n") + f"[{notes}]"
        details = {"exit_code": self.exit_code, "output": shown, "duration": self.duration}
        if self.session_id is not None:
            details["session_id"] = self.session_id
        return ToolOutput(
            self._header(total, omitted) + body,
            success=self.exit_code == 0 or self.running,
            details=details,
            value=self,
        )

    def _header(self, total: int, omitted: int) -> str:
        counts = self._counts(total, omitted)
        killed = {
            "time": f"{self._time_out()}; the process tree was killed.",
            "cancel": "Cancelled; the process tree was killed.",
            "kill": "Killed, with everything it had started.",
        }.get(self.killed_for, self.lost)
        if killed:
            return f"{killed} {counts}What came until then:\n"
        ending = f"Exit code: {self.exit_code}"
        if self.running:
            ending = f"Session {self.session_id} is running."
        return (
            f"{ending}\nWall time: {self.duration:.3f} seconds\n"
            f"Original token count: {total // 4}\n{counts}Output:\n"
        )

    def _time_out(self) -> str:
        return f"Timed out after {self.timeout:.1f} s" if self.timeout else "Timed out"

    def _counts(self, total: int, omitted: int) -> str:
        if not omitted:
            return ""
        whole = f"; the whole output: {self.where}" if self.where else ""
        if self.spool is not None and self.spool.lost:
            whole = f"; what lies between was not kept: {self.spool.lost}"
        return f"Total output: {total} characters, {omitted} left out{whole}\n"

    def _notes(self) -> str:
        notes = []
        if self.timed_out:
            notes.append(
                "A larger timeout_ms gives it more time; exec_command keeps a long command running "
                "as a session."
            )
        if self.killed_for and self.lost:
            notes.append(self.lost)
        if self.leftovers:
            left = "1 process" if self.leftovers == 1 else f"{self.leftovers} processes"
            verb = "was" if self.leftovers == 1 else "were"
            notes.append(
                f"{left} it left in the background {verb} ended; use exec_command for a server."
            )
        return " ".join(notes)

    def _ending(self) -> str:
        if self.killed_for or self.lost:
            return {
                "time": f"{self._time_out().lower()}, killed",
                "cancel": "cancelled, killed",
                "kill": "killed",
            }.get(self.killed_for, self.lost)
        if self.running:
            return f"running as session {self.session_id}"
        return f"exit code {self.exit_code}"

    def _shorten(self, budget: int) -> tuple[str, int, int]:
        """The cleaned output within `budget`, the characters there were, those left out."""
        if not self.omitted_chars:
            cleaned = clean_output(self.output)
            shown, omitted = cut_middle(cleaned, budget)
            return shown, len(cleaned), omitted
        marker = omission_marker(self.omitted_chars, self.output[: self.head_chars])
        head = clean_output(self.output[: self.head_chars])
        tail = clean_output(self.output[self.head_chars + len(marker) :])
        shown, omitted = join_ends(head, tail, self.omitted_chars, budget)
        return shown, len(head) + len(tail) + self.omitted_chars, omitted


def _room_for_output(budget: int) -> int:
    return max(budget - _HEADER_ROOM, budget // 2)


def run_command(
    argv: Sequence[str],
    *,
    cwd: str | Path,
    env: Mapping[str, str],
    timeout: float,
    cancelled: threading.Event | None = None,
    on_output: OnOutput | None = None,
    confinement: Confinement | None = None,
    manager: "ProcessManager | None" = None,
) -> CommandResult:
    """Run a command without a shell and wait for it.

    Args:
        argv: program and arguments, passed on as they are.
        cwd: the folder it runs in.
        env: its whole environment.
        timeout: seconds until it is killed, with every process it started.
        cancelled: when set, the same happens at once (within 50 ms).
        on_output: told what comes, `("stdout" or "stderr", text)`, at most 20 times a second and
            256 KB in all, on the calling thread; escape sequences are still in the text.
        confinement: what it may touch; None for all that this user may.
        manager: the conversation it belongs to, which ends it when it is closed.

    Returns:
        What happened, also where the command failed, timed out or was cancelled.

    Raises:
        RespondToModel: it could not be started.
        FatalError: commands cannot run on this machine.
    """
    start = shared_launcher().spawn if manager is None else manager.start
    process = start(argv, cwd=cwd, env=env, confinement=confinement)
    try:
        _follow(process, time.monotonic() + timeout, cancelled, on_output)
    except BaseException:
        process.kill("cancel", at_once=True)
        process.wait(_KILL_LIMIT)
        raise
    return collect(process, timeout=timeout)[0]


def collect(
    process: Process, position: int = 0, *, timeout: float = 0.0, session_id: int | None = None
) -> tuple[CommandResult, int]:
    """Return what a process has done since `position`, and the position to go on from.

    Args:
        process: running or ended.
        position: of its output; 0 is the start.
        timeout: seconds it was given.
        session_id: of the session as which it is kept, if it is.
    """
    ended = process.ended  # before the output is read: what ended has said everything
    spool = process.output
    head, tail, omitted, end = spool.window(position)
    output = head + omission_marker(omitted, head) + tail if omitted else head + tail
    result = CommandResult(
        argv=process.argv,
        exit_code=process.exit_code if ended else None,
        duration=process.duration,
        output=output,
        stdout=output if position else spool.text("stdout"),
        stderr="" if position else spool.text("stderr"),
        killed_for=process.killed_for if ended else "",
        total_chars=len(head) + len(tail) + omitted,
        omitted_chars=omitted,
        timeout=timeout,
        leftovers=process.leftovers,
        refused=process.refused,
        lost=process.lost,
        session_id=session_id,
        head_chars=len(head),
        spool=spool,
    )
    return result, end


def _follow(
    process: Process,
    deadline: float,
    cancelled: threading.Event | None,
    on_output: OnOutput | None,
) -> None:
    """Wait until the process has ended; kill it at the deadline or when cancelled."""
    news: _News = queue.SimpleQueue()
    if on_output is not None:
        process.add_listener(lambda stream, text: news.put((stream, text)))
    process.on_end(lambda _: news.put(None))
    if _hear_until_end(news, deadline, cancelled, on_output):
        return
    process.kill("time" if cancelled is None or not cancelled.is_set() else "cancel")
    if not _hear_until_end(news, time.monotonic() + _KILL_LIMIT, None, on_output):
        process.give_up()
        process.wait(_KILL_LIMIT)


_News = queue.SimpleQueue  # of (stream, text), then None


def _hear_until_end(
    news: _News, deadline: float, cancelled: threading.Event | None, on_output: OnOutput | None
) -> bool:
    """Pass on what is told until the process ends; False at the deadline or when cancelled."""
    longest = _LONGEST_WAIT if cancelled is None else _TICK
    while (left := deadline - time.monotonic()) > 0:
        if cancelled is not None and cancelled.is_set():
            break
        try:
            said = news.get(timeout=min(left, longest))
        except queue.Empty:
            continue
        if said is None:
            return True
        on_output(*said)
    return False
