"""Runs one command from start to end, and holds its result.

Law: no process outlives `run_command`, not even one that the command put into the background.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from agent_magics.exec.output import (
    clean_output,
    cut_middle,
    fold_lines,
    join_ends,
    omission_marker,
)
from agent_magics.exec.process import Process
from agent_magics.exec.spool import Spool
from agent_magics.protocol.tools import ToolOutput

if TYPE_CHECKING:
    from agent_magics.exec.processes import ProcessManager

_REPR_BUDGET = 10_000
_HEADER_ROOM = 400  # characters reserved for the lines around the output


@dataclass(frozen=True, slots=True, repr=False)
class CommandResult:
    """The result of a command, or its state so far.

    Attributes:
        exit_code: as in a shell: 128 + n where signal n ended it; None where we killed it, and
            while it runs.
        duration: seconds.
        output: stdout and stderr in order of arrival; a long one is its beginning and its end with
            a marker line between.
        stdout: stdout alone; for a part of a session's output, both streams.
        stderr: stderr alone.
        killed_for: "time", "cancel" or "kill" where we killed it; else "".
        total_chars: characters printed on both streams, whether kept or not.
        omitted_chars: characters missing from `output`.
        timeout: its time limit in seconds.
        leftovers: number of its background processes that were ended with it.
        refused: operations that the supervisor denied, such as "connect 127.0.0.1:22".
        lost: one sentence on why its end was not observed; else "".
        session_id: of the session under which it is kept, or None.
        spool: all of the output, as long as the result exists; None for a result made by hand.
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
    head_chars: int = field(default=0, kw_only=True)
    spool: Spool | None = field(default=None, kw_only=True, compare=False)

    def __repr__(self) -> str:
        shown, _, _ = self._shorten(_REPR_BUDGET)
        if shown and not shown.endswith("\n"):
            shown += "\n"
        return f"{shown}[{self._ending()}, {self.duration:.2f} s]"

    @property
    def timed_out(self) -> bool:
        """Whether it was killed because its time limit was reached."""
        return self.killed_for == "time"

    @property
    def cancelled(self) -> bool:
        """Whether it was killed because of an interrupt."""
        return self.killed_for == "cancel"

    @property
    def running(self) -> bool:
        """Whether it continues as a session."""
        return (
            self.session_id is not None
            and self.exit_code is None
            and not (self.killed_for or self.lost)
        )

    def to_output(self, budget: int, name_whole: Callable[[], str] = str) -> ToolOutput:
        """Return the output for the model: exit code, duration, true counts, output.

        Args:
            budget: maximal characters of the whole text.
            name_whole: returns where the whole output is (a handle or a path), else ""; called
                where something is left out.
        """
        shown, total, omitted = self._shorten(max(budget - _HEADER_ROOM, budget // 2))
        where = name_whole() if omitted else ""
        body = shown or "(no output)"
        if notes := self._notes():
            body += ("" if body.endswith("\n") else "\n") + f"[{notes}]"
        details = {"exit_code": self.exit_code, "output": shown, "duration": self.duration}
        if self.timed_out or self.lost:
            details["note"] = self._ending()
        if self.session_id is not None:
            details["session_id"] = self.session_id
        return ToolOutput(
            self._header(total, omitted, where) + body,
            success=self.exit_code == 0 or self.running,
            details=details,
            value=self,
        )

    def _header(self, total: int, omitted: int, where: str) -> str:
        counts = self._counts(total, omitted, where)
        killed = {
            "time": f"{self._time_out()}; the process tree was killed.",
            "cancel": "Cancelled; the process tree was killed.",
            "kill": "Killed, with everything it had started.",
        }.get(self.killed_for, self.lost)
        if killed:
            # 124 as in timeout(1).
            code = "Exit code: 124\n" if self.killed_for == "time" else ""
            return f"{code}{killed} {counts}What came until then:\n"
        ending = f"Exit code: {self.exit_code}"
        if self.running:
            ending = f"Session {self.session_id} is running."
        return (
            f"{ending}\nWall time: {self.duration:.3f} seconds\n"
            f"Original token count: {total // 4}\n{counts}Output:\n"
        )

    def _time_out(self) -> str:
        return f"Timed out after {self.timeout:.1f} s" if self.timeout else "Timed out"

    def _counts(self, total: int, omitted: int, where: str) -> str:
        if not omitted:
            return ""
        whole = f"; the whole output: {where}" if where else ""
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
        """Return the cleaned output within `budget`, its true length, and the characters
        omitted.
        """
        if not self.omitted_chars:
            cleaned = clean_output(self.output)
            shown, omitted = cut_middle(fold_lines(cleaned), budget)
            return shown, len(cleaned), omitted
        marker = omission_marker(self.omitted_chars, self.output[: self.head_chars])
        head = clean_output(self.output[: self.head_chars])
        tail = clean_output(self.output[self.head_chars + len(marker) :])
        shown, omitted = join_ends(fold_lines(head), fold_lines(tail), self.omitted_chars, budget)
        return shown, len(head) + len(tail) + self.omitted_chars, omitted


def run_command(
    argv: Sequence[str],
    *,
    cwd: str | Path,
    env: Mapping[str, str],
    timeout: float,
    manager: "ProcessManager",
) -> CommandResult:
    """Run a command without a shell and wait for it.

    Args:
        argv: program and arguments, passed on unchanged.
        cwd: the folder it runs in.
        env: its whole environment.
        timeout: seconds until it is killed, with every process it started.
        manager: the conversation it belongs to, which ends it when it is closed.

    Returns:
        The result, also where the command failed or timed out.

    Raises:
        RespondToModel: it could not be started.
        FatalError: commands cannot run on this machine.
    """
    process = manager.start(argv, cwd=cwd, env=env)
    try:
        if not process.wait(timeout):
            process.end("time")
    except BaseException:
        process.end("cancel")
        raise
    return collect(process, timeout=timeout)[0]


def collect(
    process: Process, position: int = 0, *, timeout: float = 0.0, session_id: int | None = None
) -> tuple[CommandResult, int]:
    """Return a process's result since `position`, and the position to continue from.

    Args:
        process: running or ended.
        position: byte position in its output; 0 is the start.
        timeout: its time limit in seconds.
        session_id: of the session under which it is kept, if any.
    """
    # before the output is read: then the output of an ended process is complete
    ended = process.ended
    spool = process.output
    head, tail, omitted, end = spool.window(position)
    output = head + omission_marker(omitted, head) + tail if omitted else head + tail
    is_stdout = position or spool.only == "stdout"  # not decoded again: it may be a megabyte
    result = CommandResult(
        argv=process.argv,
        exit_code=process.exit_code if ended else None,
        duration=process.duration,
        output=output,
        stdout=output if is_stdout else spool.text("stdout"),
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
