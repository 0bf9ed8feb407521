"""Runs a command of a call, from its start to the report that the model reads.

Law: no command of the model runs but through `start_confined`.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Any

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.pool import POOL
from agent_magics.exec.command import CommandResult, collect
from agent_magics.exec.launcher.wire import Confinement
from agent_magics.exec.output import clean_output, colour_output, cut_middle
from agent_magics.exec.process import Process
from agent_magics.exec.processes import CommandSession, ProcessManager
from agent_magics.exec.spawn import PlacesMoved
from agent_magics.exec.spool import END_LIMIT, Spool, last_whole
from agent_magics.protocol.config import ApprovalPolicy
from agent_magics.protocol.errors import RespondToModel, SandboxDenied
from agent_magics.protocol.events import ExecCommandBegin, ExecCommandEnd, ExecCommandOutputDelta
from agent_magics.protocol.tools import ToolOutput
from agent_magics.text.brief import number_of
from agent_magics.tools.commands.approval import Permissions
from agent_magics.tools.commands.confinement import (
    ProtectedFiles,
    confinement_for,
    environment_for,
    explain_denial,
)
from agent_magics.tools.commands.unreadable import rules_not_kept

CHARACTERS_A_TOKEN = 4
MOST_BUDGETS = 4  # of these, `max_output_tokens` may ask for one result
# What a session may show live: so much at once, and so much a second for as long as it runs. All
# of it is written to the session's record, too.
LIVE_BURST = 256 * 1024
LIVE_RATE = 4 * 1024
LIVE_MESSAGE = 64 * 1024
_READ_SIZE = 1 << 20
_MOST_STARTS = 10  # while other commands move what must be hidden


@cache
def own_processes() -> ProcessManager:
    """Return the process manager of calls made by hand, without an agent."""
    return ProcessManager()


def processes_of(ctx: ToolContext | None) -> ProcessManager:
    """Return the conversation's process manager, or that of calls made by hand."""
    return own_processes() if ctx is None else ctx.processes


# -- starting and ending ---------------------------------------------------------------------------


class RunningCommand:
    """A command that a call has started.

    Attributes:
        session: its entry among the sessions; None for a command that ends with its call.
        confinement: its confinement; None means no sandbox.
        cwd: the folder in which it began.
        line: what was typed into it since the last line end.
    """

    def __init__(
        self,
        ctx: ToolContext,
        process: Process,
        session: CommandSession | None,
        confinement: Confinement | None,
        protected: ProtectedFiles,
        cwd: Path,
    ) -> None:
        self.process = process
        self.session = session
        self.confinement = confinement
        self._ctx = ctx
        self._protected = protected
        self.cwd = cwd
        self.line = ""
        self._feed = LiveFeed(process, ctx)

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` for the command's end; an interrupt of the turn kills it.

        Returns:
            Whether it has ended.
        """
        ended = self.process.wait(seconds, self._ctx.cancelled)
        if not ended and self._ctx.cancelled.is_set():
            self.process.end("cancel")
            return True
        return ended

    def finish(self, timeout: float = 0.0) -> "CommandReport":
        """Return the report on a command that has ended within its call.

        Raises:
            SandboxDenied: the sandbox refused it something, and it may be repeated outside.
        """
        self._feed.end()
        result, _ = collect(self.process, timeout=timeout)
        notes = (self._protected.finish(), rules_not_kept(self._ctx, self.confinement))
        report = CommandReport(result, self._ctx, self.process, notes)
        denial = explain_denial(result, self.confinement, self.cwd)
        if denial is None:
            return report
        report = replace(report, seen=f"[{denial.seen}]")
        if self._ctx.config.approval is ApprovalPolicy.ON_FAILURE:
            output = report.to_output(self._ctx.output_budget)
            raise SandboxDenied(denial, output.text)
        return report.with_notes(f"[{denial.sentence}]")

    def abandon(self) -> None:
        """Kill the command because of an error on our side."""
        self.process.end("cancel")
        self._feed.end()
        self._protected.finish()

    def hand_over(self, position: int) -> str:
        """Let the command go on as a session; return the reports on protected files until now.

        Args:
            position: bytes of its output that belong to the call; the session reports the rest.
        """
        assert self.session is not None
        self._feed.hand_over(self.session, str(self.cwd), position)
        self.process.on_end(lambda _: POOL.submit(self._after_end))
        notes = (self._protected.check(), rules_not_kept(self._ctx, self.confinement))
        return "\n".join(filter(None, notes))

    def look(self) -> str:
        """Return the reports on protected files since the last call."""
        return self._protected.look()

    def _after_end(self) -> None:
        """Queue notes about the end of a session for the model's next request."""
        denial = explain_denial(collect(self.process)[0], self.confinement, self.cwd)
        for note in (self._protected.finish(), denial and f"[{denial.sentence}]"):
            if note and self.session is not None:
                self._ctx.turn.tell_later(f"Session {self.session.id}: {note}")


def start_confined(
    ctx: ToolContext,
    argv: Sequence[str],
    cwd: Path,
    permissions: Permissions,
    *,
    tty: bool = False,
    session: str = "",
) -> RunningCommand:
    """Start a command of the model in the sandbox of its call.

    Args:
        ctx: the call, whose requested rights have been approved.
        argv: program and arguments.
        cwd: the folder to run in.
        permissions: requested rights beyond the sandbox's default.
        tty: whether to give it a terminal.
        session: the title under which to keep it as a session; "" for one that ends with its call.

    Raises:
        RespondToModel: it cannot be started, or there is no room for another session.
    """
    ctx.emit(ExecCommandBegin, command=tuple(argv), cwd=str(cwd))
    try:
        for _ in range(_MOST_STARTS - 1):
            with suppress(PlacesMoved):
                return _start(ctx, argv, cwd, permissions, tty, session)
        return _start(ctx, argv, cwd, permissions, tty, session)
    except BaseException:
        ctx.emit(ExecCommandEnd, exit_code=None, duration=0.0)
        raise


def _start(
    ctx: ToolContext,
    argv: Sequence[str],
    cwd: Path,
    permissions: Permissions,
    tty: bool,
    session: str,
) -> RunningCommand:
    confinement = confinement_for(ctx, permissions)
    options: dict[str, Any] = {
        "cwd": cwd,
        "env": environment_for(ctx, confinement),
        "tty": tty,
        "confinement": confinement,
    }
    protected = ProtectedFiles(ctx, confinement)
    try:
        if session:
            kept = ctx.processes.start_session(argv, command=session, **options)
            process = kept.process
        else:
            kept, process = None, ctx.processes.start(argv, **options)
    except BaseException:
        if report := protected.finish():
            ctx.turn.tell_later(report)
        raise
    return RunningCommand(ctx, process, kept, confinement, protected, cwd)


# -- what people see while it runs -----------------------------------------------------------------


def _live_part(text: str, missed: int = 0) -> str:
    """Return the end of a text, at most one message long; before it, how much is left out."""
    shown = text[-LIVE_MESSAGE:]
    missed += len(text) - len(shown)
    return f"\n… {missed} characters are not shown live …\n{shown}" if missed else shown


class LiveFeed:
    """Sends a command's output as events: of its call at first, of its session later.

    A session's output is read by byte position, so that each part is sent once: what the call has
    returned belongs to the call, the rest to the session.
    """

    def __init__(self, process: Process, ctx: ToolContext) -> None:
        self._process = process
        self._ctx = ctx
        self._session_id = ""
        self._position = 0
        self._paid_until = 0.0
        self._timer: threading.Timer | None = None
        self._has_sent = False
        self._lock = threading.Lock()
        process.add_listener(self._send_for_call)

    def _send_for_call(self, stream: str, text: str) -> None:
        self._has_sent = True
        self._ctx.emit(ExecCommandOutputDelta, text=text, stream=stream)

    def end(self) -> None:
        """Send the remaining output and the end of a command that ended within its call."""
        process = self._process
        if not self._has_sent:  # it had ended before anybody could listen
            for stream in ("stdout", "stderr"):
                head, tail, missed = process.output.ends(stream)
                if text := head + tail:
                    self._send_for_call(stream, _live_part(text, missed))
        self._ctx.emit(ExecCommandEnd, exit_code=process.exit_code, duration=process.duration)

    def hand_over(self, session: CommandSession, cwd: str, position: int) -> None:
        """Send the session's begin event, and from now on its output."""
        self._process.remove_listener(self._send_for_call)
        self._session_id, self._position = str(session.id), position
        self._ctx.emit(
            ExecCommandBegin, command=self._process.argv, cwd=cwd, session_id=self._session_id
        )
        self._process.add_listener(self._on_output)
        self._process.on_end(self._on_end)

    def _on_output(self, *_: str) -> None:
        # The bytes per listener are limited, and a new one resets that. Our own limit is below.
        self._process.remove_listener(self._on_output)
        self._process.add_listener(self._on_output)
        self._send_for_session()

    def _send_for_session(self) -> None:
        with self._lock:
            self._timer = None if self._timer is threading.current_thread() else self._timer
            wait = self._paid_until - monotonic()
            if wait <= 0:
                self._send()
            elif self._timer is None:  # else the last part of a burst would wait for the next one
                self._timer = threading.Timer(wait, self._send_for_session)
                self._timer.daemon = True
                self._timer.start()

    def _send(self) -> None:
        head, tail, missed, self._position = self._process.output.window(self._position)
        if shown := _live_part(head + tail, missed):
            began = max(self._paid_until, monotonic() - LIVE_BURST / LIVE_RATE)
            self._paid_until = began + len(shown) / LIVE_RATE
            self._ctx.emit(ExecCommandOutputDelta, text=shown, session_id=self._session_id)

    def _on_end(self, process: Process) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._send()
            self._ctx.emit(
                ExecCommandEnd,
                exit_code=process.exit_code,
                duration=process.duration,
                session_id=self._session_id,
            )


# -- what the model reads --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WholeOutput:
    """The cleaned output of a process as a stored result; equal for equal processes."""

    process: Process

    @property
    def size(self) -> int:
        """The bytes received so far."""
        return self.process.output.size

    @property
    def in_memory(self) -> int:
        """The most bytes of it that the spool keeps in memory."""
        return min(self.size, 2 * END_LIMIT)

    def grows(self) -> bool:
        """Return whether the process still runs."""
        return not self.process.ended

    def pieces(self) -> Iterator[str]:
        """Yield the whole output as cleaned text."""
        spool = self.process.output
        if spool.size <= 2 * END_LIMIT or spool.lost:
            yield clean_output(spool.text())
            return
        partial_line = b""
        for data in _read_file(spool):
            *lines, partial_line = (partial_line + data).split(b"\n")
            if lines:
                yield clean_output(b"\n".join(lines).decode("utf-8", "replace")) + "\n"
            elif len(partial_line) > END_LIMIT:  # one huge line
                end = last_whole(partial_line)
                yield clean_output(partial_line[:end].decode("utf-8", "replace"))
                partial_line = partial_line[end:]
        yield clean_output(partial_line.decode("utf-8", "replace"))

    def extent(self) -> str:
        """Return how long it is, in lines; in characters where all of a file would be counted."""
        spool = self.process.output
        if spool.size > self.in_memory:
            return f"{spool.total:,} characters"
        return number_of(len("".join(self.pieces()).removesuffix("\n").split("\n")), "line")


def _read_file(spool: Spool) -> Iterator[bytes]:
    with spool.path().open("rb") as file:
        while data := file.read(_READ_SIZE):
            yield data


@dataclass(frozen=True, slots=True, repr=False)
class CommandReport:
    """The model's view of a command's result, or of its output since the last report.

    Attributes:
        notes: sentences below the output.
        seen: the line that people read below it, "" for none.
        output_budget: the most characters of this result; 0 means the common limit.
        session: the command's title, where this is about a session.
    """

    result: CommandResult
    ctx: ToolContext
    process: Process
    notes: tuple[str, ...] = ()
    seen: str = ""
    output_budget: int = 0
    session: str = ""

    def __repr__(self) -> str:
        return repr(self.result)

    def with_notes(self, *notes: str) -> "CommandReport":
        """Return a copy with more notes; empty ones are left out."""
        return replace(self, notes=(*self.notes, *filter(None, notes)))

    def to_output(self, budget: int) -> ToolOutput:
        """Return the result within `budget` characters; longer output becomes a stored result."""
        notes = "\n".join(filter(None, self.notes))
        whole = self.output_budget or budget
        budget = max(whole - len(notes) - 1, whole // 2)
        result = self.result
        output = result.to_output(budget, self._where)
        details = {**output.details, **({"session": self.session} if self.session else {})}
        if "\x1b" in result.output:  # people see the colours
            details["output"] = cut_middle(colour_output(result.output), budget)[0]
        if self.seen:
            details["output"] = _below(str(details["output"]), self.seen)
        text = _below(output.text, notes)
        return ToolOutput(text, output.success, details, output.value, is_fitted=True)

    def _where(self) -> str:
        whole = WholeOutput(self.process)
        name = self.ctx.handles.keep(whole)
        return f"{name} ({whole.extent()}; read_file and grep_files take it as a path)"


def _below(text: str, notes: str) -> str:
    return text + ("" if text.endswith("\n") or not (text and notes) else "\n") + notes


def budget_of(max_output_tokens: int | None, ctx: ToolContext) -> tuple[int, str]:
    """Return the most characters of a result, and a note where the request was reduced.

    Raises:
        RespondToModel: `max_output_tokens` is not a positive number.
    """
    if max_output_tokens is None:
        return 0, ""
    if max_output_tokens < 1:
        raise RespondToModel(f"max_output_tokens is {max_output_tokens}; it must be at least 1.")
    wanted, most = max_output_tokens * CHARACTERS_A_TOKEN, ctx.output_budget * MOST_BUDGETS
    if wanted <= most:
        return wanted, ""
    tokens = most // CHARACTERS_A_TOKEN
    return most, f"[max_output_tokens={max_output_tokens} was taken as {tokens}, the most.]"
