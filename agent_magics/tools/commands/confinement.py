"""Confines a call's commands to the sandbox, and recognises and reports its refusals.

Law: a refusal is stated as a fact only where the sandbox itself reports it. What a command prints
is no evidence: it gives a hint at most, which contains nothing but this confinement's own rules,
and no printed path is looked up.
"""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from agent_magics.approval.commands.git import READ_ONLY_ENVIRONMENT
from agent_magics.dispatch.context import ToolContext
from agent_magics.exec.command import CommandResult
from agent_magics.exec.environment import confined_environment
from agent_magics.exec.launcher.wire import Confinement
from agent_magics.exec.launcher_client import current_tier
from agent_magics.exec.protected.installed import installed_below
from agent_magics.exec.protected.put_back import Finding
from agent_magics.exec.protected.tripwire import shared_tripwire
from agent_magics.exec.sandbox.plan import build_confinement
from agent_magics.files.beneath import is_below, real_path
from agent_magics.files.own_places import make_own_places
from agent_magics.files.paths import open_notebook
from agent_magics.protocol.config import SandboxPolicy
from agent_magics.protocol.errors import SandboxDenial
from agent_magics.protocol.events import Warned
from agent_magics.text.brief import first_of
from agent_magics.tools.commands.unreadable import find_unreadable

_MOST_READ = 20_000  # characters at a result's end that are searched for a refusal
_NOT_EXECUTABLE = 126  # exit code of a command that could not be executed (POSIX shells)
_MOST_NAMED = 10  # protected files named in one message
_MOST_LINES = 40  # with a refusal's words, from the end


def confinement_for(
    ctx: ToolContext, sandbox_permissions: str | Mapping[str, Any] = "use_default"
) -> Confinement | None:
    """Return the confinement of a call's command; None runs it without a sandbox.

    It is None where that was approved, under "danger-full-access", and where the machine cannot
    confine commands; approval knows the last two and has asked.

    Args:
        ctx: the call, whose requested rights have been approved; what it may write besides was
            judged.
        sandbox_permissions: as the model gave it.
    """
    config = ctx.config
    if ctx.bypass_sandbox or config.sandbox is SandboxPolicy.DANGER_FULL_ACCESS:
        return None
    tier = current_tier()
    if not tier:
        return None
    # A command that is known to only read runs without a question: it gets nothing to write.
    read_only = config.sandbox is SandboxPolicy.READ_ONLY or ctx.read_only
    if not read_only:
        make_own_places([real_path(root) for root in config.roots])
    return build_confinement(
        tier=tier,
        policy="read-only" if read_only else "workspace-write",
        roots=config.roots,
        cwd=config.cwd,
        tmp=ctx.processes.tmpdir,
        network=config.network or sandbox_permissions == "require_network",
        extra_writable=ctx.writes,
        notebook=open_notebook(),
        unreadable=find_unreadable(ctx.turn.read_rules()).places,
    )


def rights_of(ctx: ToolContext) -> list[object]:
    """Return what the settings let a call's commands do, as JSON values."""
    config = ctx.config
    return [config.sandbox.value, config.network, [real_path(root) for root in config.roots]]


def environment_for(ctx: ToolContext, confinement: Confinement | None) -> dict[str, str]:
    """Return the environment variables of a call's command, with a temporary folder of its own."""
    if confinement is None:
        return dict(ctx.env)
    more = dict(READ_ONLY_ENVIRONMENT) if ctx.read_only else {}
    if confinement.tier < 2 and installed_below(confinement.writable):
        more["PYTHONDONTWRITEBYTECODE"] = "1"  # what is compiled there later is not Python's own
    return confined_environment(ctx.env, str(ctx.processes.tmpdir)) | more


# -- refusals ------------------------------------------------------------------------------------


def explain_denial(
    result: CommandResult, confinement: Confinement | None, cwd: str | os.PathLike[str]
) -> SandboxDenial | None:
    """Return the operation that the sandbox refused a command, or None where none is known.

    Args:
        result: the command's result.
        confinement: the command's confinement; None means no sandbox.
        cwd: the folder it ran in, against which relative paths in its messages are resolved.
    """
    if confinement is None or result.exit_code in (0, None):
        return None
    if result.refused:
        return _of_supervisor(result.refused[0], confinement)
    if result.exit_code == _NOT_EXECUTABLE:
        return None
    return explain_output(result.output, confinement, cwd)


def explain_output(
    output: str, confinement: Confinement, cwd: str | os.PathLike[str]
) -> SandboxDenial | None:
    """Return what the sandbox may have refused, by the text of what failed under it."""
    for line in _refusal_lines(output):
        if _REFUSALS.search(line) and _names_something_held(line, confinement, cwd):
            return _hint("write", _what_may_be_touched(confinement))
        if _NETWORK_WORDS.search(line) and not confinement.network:
            return _hint("network", "network is off", "require_network")
    return None


def _hint(action: str, rule: str, permission: str = "require_escalated") -> SandboxDenial:
    sentence = f"The sandbox may have refused it something: {rule}; {_ask(permission)}"
    return SandboxDenial(action, "", sentence, permission, reported=False)


def _of_supervisor(refused: str, confinement: Confinement) -> SandboxDenial:
    what, _, target = refused.partition(" ")
    if what == "connect":
        return _network_denial(f"the connection to {target}", target, confinement)
    action = "write" if target.startswith("/") else "other"
    return SandboxDenial(action, target, f"The sandbox refused {refused}; {_ask()}")


_REFUSALS = re.compile(
    r"permission denied|read-only file system|operation not permitted|\bE(?:ACCES|PERM|ROFS)\b"
    r"|device or resource busy",  # what is mounted read-only over a file, when it is replaced
    re.IGNORECASE,
)
_NETWORK_WORDS = re.compile(
    r"could not resolve|couldn't resolve|temporary failure in name resolution"
    r"|name or service not known|nodename nor servname|network is unreachable|getaddrinfo"
    r"|\bEAI_AGAIN\b|\bENETUNREACH\b|failed to establish a new connection|name resolution"
    r"|(?:socket|connect|connection)\b.*(?:operation not permitted|permission denied)"
    r"|failed to connect|no route to host",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"'([^']+)'|\"([^\"]+)\"|‘([^’]+)’|`([^'`]+)['`]")  # noqa: RUF001
_WITH_SLASH = re.compile(r"(?<![^\s:;,'\"()\[\]<>=])[^\s:;,'\"()\[\]<>=]*/[^\s:;,'\"()\[\]<>]+")
_PLAIN_NAME = re.compile(r"[\w.@%+-]+")


def _refusal_lines(output: str) -> Iterator[str]:
    """Yield the lines that contain the words of a refusal, the last (and likeliest cause) first."""
    lines = output[-_MOST_READ:].splitlines()
    telling = [line for line in lines if _REFUSALS.search(line) or _NETWORK_WORDS.search(line)]
    yield from reversed(telling[-_MOST_LINES:])


def _paths_in(line: str) -> Iterator[str]:
    """Yield the paths in a line of a program's message, quoted ones first."""
    if _REFUSALS.search(line):
        for groups in _QUOTED.findall(line):
            yield from filter(None, groups)
        # Reversed, since a message begins with the program's own path.
        yield from reversed(_WITH_SLASH.findall(line))


def _names_in(line: str) -> Iterator[str]:
    """Yield the plain name before the words of a refusal: ``bash: x: Permission denied``."""
    if refusal := _REFUSALS.search(line):
        last = line[: refusal.start()].rstrip(" :(").rpartition(": ")[2]
        if _PLAIN_NAME.fullmatch(name := last.rpartition(" ")[2]):
            yield name


def _names_something_held(line: str, confinement: Confinement, cwd: str | os.PathLike[str]) -> bool:
    """Return whether a line's text names a path that this confinement protects."""
    held = (*confinement.hidden, *(confinement.protected if confinement.tier >= 2 else ()))
    for name in (*_paths_in(line), *_names_in(line)):
        path = os.path.normpath(os.path.join(cwd, name))
        # A busy file may be another's mount, too.
        if is_below(path, held) or not (is_below(path, confinement.writable) or "busy" in line):
            return True
    return False


def _network_denial(what: str, target: str, confinement: Confinement) -> SandboxDenial:
    if confinement.network:
        sentence = (
            f"The sandbox refused {what}: with network, only ports 80 and 443 of other machines "
            f"may be reached; {_ask()}"
        )
        return SandboxDenial("network", target, sentence)
    sentence = f"The sandbox refused {what}: network is off; {_ask('require_network')}"
    return SandboxDenial("network", target, sentence, "require_network")


def _what_may_be_touched(confinement: Confinement) -> str:
    *folders, _ = confinement.writable
    which = f"workspace-write: {', '.join(folders)} and" if folders else "read-only:"
    return f"{which} the temporary folder may be written, but for protected files, keys not read"


def _ask(permission: str = "require_escalated") -> str:
    return (
        f'if it is needed, call again with sandbox_permissions="{permission}" and a justification.'
    )


# -- what is compared afterwards -----------------------------------------------------------------


def _may_write_workspace(ctx: ToolContext, confinement: Confinement | None) -> bool:
    if confinement is None:  # no sandbox: only commands known to read skip the check
        return not ctx.read_only
    return len(confinement.writable) > 1  # the last one is for temporary files


class ProtectedFiles:
    """Checks the workspace around one command: restores protected files, records other changes.

    Args:
        ctx: the call that starts the command; gets the reports.
        confinement: the command's confinement, None where it runs outside the sandbox.
    """

    def __init__(self, ctx: ToolContext, confinement: Confinement | None) -> None:
        self._ctx = ctx
        self._earlier: list[str] = []  # while it ran, to the person only
        self._is_over = False
        self._watch = shared_tripwire().arm(confinement, self._tell)
        self._changes = None
        try:
            if ctx.diff_tracker is not None and _may_write_workspace(ctx, confinement):
                self._changes = ctx.diff_tracker.watch()
        except BaseException:
            self._watch.finish()
            raise

    def enter_call(self) -> None:
        """Record that a call sends something to the command, until the next `check`."""
        self._watch.enter_call()
        if self._changes is not None:
            self._changes.take_back()

    def check(self) -> str:
        """Restore protected files that have changed; return a report for the answer, or ""."""
        report = self._report(self._watch.check())
        if self._changes is not None:
            self._changes.hand_over()
        return self._with_earlier(report)

    def finish(self) -> str:
        """Do the same as `check` after the command's end; a second call returns ""."""
        report = self._report(self._watch.finish())
        self._is_over = True
        if self._changes is not None:
            self._changes.finish()
        return self._with_earlier(report)

    def look(self) -> str:
        """Return pending reports while the command runs on as a session."""
        self._watch.look()
        return self._with_earlier("")

    def _tell(self, found: list[Finding]) -> None:
        self._earlier.append(self._report(found))
        if self._is_over and (report := self._with_earlier("")):
            self._ctx.turn.tell_later(report)

    def _with_earlier(self, report: str) -> str:
        earlier, self._earlier = self._earlier, []
        return "\n".join(filter(None, (*earlier, report)))

    def _report(self, findings: list[Finding]) -> str:
        if not findings:
            return ""
        report = f"Protected files: {first_of(list(map(str, findings)), _MOST_NAMED, '; ')}."
        self._ctx.turn.emit(Warned, message=report)
        if any(finding.done for finding in findings):
            report += f" If that change is needed, {_ask().removeprefix('if it is needed, ')}"
        return f"[{report}]"
