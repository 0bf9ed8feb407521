"""``exec_command`` and the tools for its sessions: commands that may outlive their call."""

import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

from agent_magics.approval.actions import NOT_BOUND, Action, ActionKind, fingerprint_of
from agent_magics.approval.commands.script import may_read_script
from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.results.output_guard import require
from agent_magics.dispatch.tool import tool
from agent_magics.exec.command import CommandResult, collect
from agent_magics.exec.processes import CommandSession
from agent_magics.files.beneath import real_path
from agent_magics.files.locks import thread_lock
from agent_magics.patch.plan import PatchResult
from agent_magics.protocol.config import SandboxPolicy
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.tools import ToolOutput
from agent_magics.tools.commands.approval import Permissions, assess_typing
from agent_magics.tools.commands.run import (
    CommandReport,
    RunningCommand,
    budget_of,
    own_processes,
    processes_of,
    start_confined,
)
from agent_magics.tools.commands.scripted_patch import apply_found, find_patch
from agent_magics.tools.commands.shell import (
    SandboxPermissions,
    assess_argv,
    check_timeout,
    folder,
    in_own_words,
    shell_argv,
)

SHORTEST_YIELD, LONGEST_YIELD = 250, 300_000  # milliseconds
_CTRL_C = "\x03"
# After Enter, but behind a backslash, and after Ctrl-C a shell reads something else.
_LINE_END = re.compile(r"(?<!\\)(?:\\\\)*[\n\r]|\x03")
_ERASED = re.compile(r"^[^\n]*\x15", re.MULTILINE)  # by Ctrl-U
# What puts nothing into a line, to one that edits it or to all; a program may end with it (Ctrl-D).
_NO_TEXT = re.compile(r"[\0\t\x04\x0c\x11\x13\x1a\x1c]")
_STARTS_ANEW = re.compile(r"[\x03\x04\x15\x1a\x1c]")
_NEXT = (
    "[write_stdin with this session_id waits for more or types into it, kill_session ends it; you "
    "are told when it ends.]"
)

# What confines the sessions that run, by session id.
_running: "WeakValueDictionary[int, RunningCommand]" = WeakValueDictionary()
# Two concurrent calls about one session must not both return the same output.
_reading = thread_lock()


# -- exec_command ----------------------------------------------------------------------------------


def assess_exec_command(arguments: Mapping[str, Any], ctx: ToolContext) -> list[Action]:
    """Return the approval actions of a call of `exec_command`."""
    login = arguments.get("login", False)
    argv = shell_argv(arguments["cmd"], login, ctx, arguments.get("shell"))
    return assess_argv(argv, arguments, ctx)


@tool(
    name="exec_command",
    parallel=True,
    mutating=True,
    assess=assess_exec_command,
    in_own_words=in_own_words,
)
def exec_command(
    cmd: str,
    workdir: str | None = None,
    shell: str | None = None,
    login: bool = False,
    tty: bool = False,
    yield_time_ms: int = 10_000,
    timeout_ms: int | None = None,
    max_output_tokens: int | None = None,
    sandbox_permissions: SandboxPermissions = "use_default",
    justification: str = "",
    prefix_rule: list[str] | None = None,
    *,
    ctx: ToolContext | None = None,
) -> "CommandResult | CommandReport | PatchResult":
    """Run a script in a shell; after yield_time_ms it goes on as a session.

    You get its id and what came so far, and are told when it ends; see write_stdin.

    Args:
        tty: give it a terminal, which typing needs.
        yield_time_ms: 250 to 300000.
        timeout_ms: then all of it is killed.
        sandbox_permissions: more only where needed.
        justification: why more, for the person.
        prefix_rule: first words, which the person may allow for good.
    """
    require(bool, tty=tty)
    if timeout_ms is not None:
        check_timeout(timeout_ms)
    argv = shell_argv(cmd, login, ctx, shell)
    patch = find_patch(argv, workdir, os.environ if ctx is None else ctx.env)
    if patch is not None:
        return apply_found(patch, ctx)
    wait_ms, note = _clamped(yield_time_ms)
    deadline = None if timeout_ms is None else timeout_ms / 1000
    if ctx is None:
        return _run_by_hand(argv, cmd, workdir, tty, wait_ms / 1000, deadline)
    budget, capped = budget_of(max_output_tokens, ctx)
    report = _run(ctx, argv, cmd, workdir, tty, sandbox_permissions, wait_ms / 1000, deadline)
    return replace(report.with_notes(note, capped), output_budget=budget)


def _run(
    ctx: ToolContext,
    argv: Sequence[str],
    cmd: str,
    workdir: str | None,
    tty: bool,
    permissions: Permissions,
    wait: float,
    deadline: float | None,
) -> CommandReport:
    cwd = folder(workdir, ctx)
    command = start_confined(ctx, argv, cwd, permissions, tty=tty, session=cmd)
    assert command.session is not None
    session = command.session
    try:
        if not command.wait(wait if deadline is None else min(wait, deadline)):
            if deadline is None or deadline > wait:
                result, position = collect(command.process, session_id=session.id)
                if result.running:
                    return _go_on(ctx, command, result, position, deadline)
            else:
                command.process.end("time")
        ctx.processes.drop(session.id)
        return command.finish(deadline or 0.0)
    except BaseException:
        if session.id not in _running:
            command.abandon()
            ctx.processes.drop(session.id)
        raise


def _go_on(
    ctx: ToolContext,
    command: RunningCommand,
    result: CommandResult,
    position: int,
    deadline: float | None,
) -> CommandReport:
    session = command.session
    assert session is not None
    session.position = position
    _running[session.id] = command
    report_on_files = command.hand_over(position)
    _set_deadline(session, deadline)
    return CommandReport(result, ctx, command.process, (report_on_files, _NEXT))


def _set_deadline(session: CommandSession, deadline: float | None) -> None:
    """Kill a session when its deadline has passed."""
    if deadline is None:
        return
    left = max(0.0, deadline - session.seconds)
    timer = threading.Timer(left, session.process.kill, ("time",))
    timer.daemon = True
    timer.start()
    session.process.on_end(lambda _: timer.cancel())


def _run_by_hand(
    argv: Sequence[str],
    cmd: str,
    workdir: str | None,
    tty: bool,
    wait: float,
    deadline: float | None,
) -> CommandResult:
    manager = own_processes()
    env, cwd = os.environ, folder(workdir, None)
    session = manager.start_session(argv, command=cmd, cwd=cwd, env=env, tty=tty)
    try:
        ended = session.process.wait(wait if deadline is None else min(wait, deadline))
    except BaseException:
        session.process.end("cancel")
        manager.drop(session.id)
        raise
    if not ended and deadline is not None and deadline <= wait:
        session.process.end("time")
        ended = True
    if not ended:
        _set_deadline(session, deadline)
        result, session.position = collect(session.process, session_id=session.id)
        return result
    manager.drop(session.id)
    return collect(session.process, timeout=deadline or 0.0)[0]


def _clamped(yield_time_ms: int) -> tuple[int, str]:
    """Return the milliseconds to wait within the limits, and a note where that differs."""
    require(int, yield_time_ms=yield_time_ms)
    taken = min(max(yield_time_ms, SHORTEST_YIELD), LONGEST_YIELD)
    if taken == yield_time_ms:
        return taken, ""
    which = "least" if taken == SHORTEST_YIELD else "most"
    return taken, f"[yield_time_ms={yield_time_ms} was taken as {taken}, the {which}.]"


# -- sessions --------------------------------------------------------------------------------------


def assess_write_stdin(arguments: Mapping[str, Any], ctx: ToolContext) -> list[Action]:
    """Return the approval actions of typing into a session: all that the session may do."""
    session = ctx.processes.get(arguments["session_id"])
    chars = arguments.get("chars", "")
    target = f"typing {chars!r} into the session {session.command}"
    if not chars.strip(_CTRL_C) or session.ended:
        return [Action(ActionKind.COMMAND_SAFE, target)]
    command = _running.get(session.id)
    subject = ("write_stdin", session.command)
    actions = [
        Action(kind, target, f"{reason}; {NOT_BOUND}", subject=subject)
        for kind, reason in _rights_beyond(command, ctx)
    ]
    if command is not None and command.confinement is not None:
        fingerprint = fingerprint_of("write_stdin", {"session": session.id})
        kind = ActionKind.COMMAND_SANDBOXED
        actions.append(Action(kind, target, fingerprint=fingerprint, subject=subject))
    line, cwd = (command.line, command.cwd) if command is not None else ("", ctx.cwd)
    scripts = _scripts_in(line + chars)
    is_script = may_read_script(session.process.argv)
    return [*actions, *assess_typing(scripts, target, cwd, ctx, is_script=is_script)]


def _scripts_in(typed: str) -> list[str]:
    """Return what a shell may read of what is typed: as it stands, and as a terminal leaves it."""
    text = typed.replace("\r", "\n")
    left = _NO_TEXT.sub("", _ERASED.sub("", text))
    return list(dict.fromkeys((*left.split(_CTRL_C), *_STARTS_ANEW.split(text))))


def _rights_beyond(
    command: RunningCommand | None, ctx: ToolContext
) -> Iterator[tuple[ActionKind, str]]:
    """Yield what a session may do that the sandbox does not allow to all now: (kind, in words)."""
    if command is None or command.confinement is None:
        is_free = ctx.config.sandbox is SandboxPolicy.DANGER_FULL_ACCESS
        kind = ActionKind.COMMAND_FULL_ACCESS if is_free else ActionKind.COMMAND_UNSANDBOXED
        yield kind, "the session runs outside the sandbox"
        return
    is_read_only = ctx.config.sandbox is SandboxPolicy.READ_ONLY
    allowed = list(map(real_path, () if is_read_only else ctx.config.roots))
    *folders, _ = command.confinement.writable  # without that of temporary files
    if more := [folder for folder in folders if folder not in allowed]:
        yield ActionKind.COMMAND_ESCALATED, f"the session may write {', '.join(more)}"
    if command.confinement.network and not ctx.config.network:
        yield ActionKind.COMMAND_NETWORK, "the session may use the network"


@tool(name="write_stdin", parallel=True, mutating=True, assess=assess_write_stdin)
def write_stdin(
    session_id: int,
    chars: str = "",
    yield_time_ms: int = 1_000,
    max_output_tokens: int | None = None,
    *,
    ctx: ToolContext | None = None,
) -> "CommandResult | CommandReport":
    r"""Type into a session, or only wait; return what it printed since the last time.

    Returns when it has ended, else after yield_time_ms.

    Args:
        chars: lines end with "\n"; "\u0003" is Ctrl-C; empty only waits.
        yield_time_ms: 250 to 300000.
    """
    session = processes_of(ctx).get(session_id)
    wait_ms, note = _clamped(yield_time_ms)
    budget, capped = (0, "") if ctx is None else budget_of(max_output_tokens, ctx)
    command = _running.get(session_id)
    if chars:
        session.process.write(chars)
        if command is not None:
            command.line = _LINE_END.split(command.line + chars)[-1]
    session.process.wait(wait_ms / 1000, None if ctx is None else ctx.cancelled)
    result = _collect_new(session)
    if ctx is None:
        return result
    report_on_files = command.look() if command is not None else ""
    notes = (report_on_files, note, capped)
    report = CommandReport(result, ctx, session.process, notes, session=session.command)
    return replace(report, output_budget=budget)


def _collect_new(session: CommandSession) -> CommandResult:
    """Return a session's output since the last report, and its end, which is reported once."""
    with _reading:
        result, session.position = collect(session.process, session.position, session_id=session.id)
        session.is_reported |= not result.running
    return result


@tool(name="list_sessions", parallel=True, mutating=False)
def list_sessions(*, ctx: ToolContext | None = None) -> "SessionList":
    """List the sessions, running and ended."""
    return SessionList(processes_of(ctx).sessions())


class SessionList(list[CommandSession]):
    """The sessions, oldest first; its `repr` has one line for each."""

    def __repr__(self) -> str:
        return "\n".join(map(_line, self)) or "There are no sessions."

    def to_output(self, budget: int) -> ToolOutput:
        """Return the sessions as lines; people see them without ids and times, which vary."""
        shown = "\n".join(f"{session.command}: {_state(session)}" for session in self)
        return ToolOutput(repr(self), details={"output": shown or "There are no sessions."})


def _line(session: CommandSession) -> str:
    time = "running for" if not session.ended else f"{_state(session)} after"
    return f"Session {session.id}: {session.command}, {time} {session.seconds:.1f} s"


def _state(session: CommandSession) -> str:
    if not session.ended:
        return "running"
    if session.process.killed_for:
        return "killed"
    return f"ended with exit code {session.exit_code}"


@tool(name="kill_session", parallel=True, mutating=True)
def kill_session(
    session_id: int, *, ctx: ToolContext | None = None
) -> "CommandResult | CommandReport":
    """End a session and all it has started; return what it printed since."""
    session = processes_of(ctx).get(session_id)
    if session.ended and session.is_reported:
        raise RespondToModel(f"Session {session_id} is not running any more: {_state(session)}.")
    session.process.end("kill")
    result = _collect_new(session)
    if ctx is None:
        return result
    return KilledReport(result, ctx, session.process, session=session.command)


class KilledReport(CommandReport):
    """The report on a session that was killed by `kill_session`."""

    def to_output(self, budget: int) -> ToolOutput:
        """Return the report as a success, whatever the exit code."""
        return replace(super().to_output(budget), success=True)
