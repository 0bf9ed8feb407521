"""How a call's commands are confined, and how a refusal of the sandbox is recognised and told.

Law: a refusal is told only on evidence: the supervisor says so, or the program's own message
names something that this confinement forbids and that the person could touch without it.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from agent_magics.backends.beneath import real_path
from agent_magics.backends.exec.confinement import build_confinement
from agent_magics.backends.exec.environment import confined_environment
from agent_magics.backends.exec.launcher import shared_launcher
from agent_magics.backends.exec.put_back import Finding
from agent_magics.backends.exec.tripwire import shared_tripwire
from agent_magics.backends.launcher.wire import Confinement
from agent_magics.backends.own_places import is_below, make_own_places
from agent_magics.backends.paths import open_notebook, resolve_path, shown_path
from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.exec_git import READ_ONLY_ENVIRONMENT
from agent_magics.protocol.config import SandboxPolicy
from agent_magics.protocol.errors import SandboxDenial
from agent_magics.protocol.events import Warned

_MOST_READ = 20_000  # characters of a result's end in which a refusal is looked for
_NOT_EXECUTABLE = 126  # as POSIX has shells say it
_MOST_TOLD = 10  # protected files named in one message
_MOST_LINES = 40  # with a refusal's words, from the end


class Outcome(Protocol):
    """What is looked at of a command that has ended."""

    @property
    def exit_code(self) -> int | None:
        """As a shell counts; None where it was killed."""
        ...

    @property
    def output(self) -> str:
        """What it printed on both streams."""
        ...

    @property
    def refused(self) -> tuple[str, ...]:
        """What the supervisor refused, such as "connect 10.0.0.1:22"."""
        ...


def current_tier() -> int:
    """Return how well commands can be confined here: 0 is not at all; see `Confinement`.

    ``AGENT_MAGICS_TIER`` lowers it, for tests.
    """
    tier = shared_launcher().capabilities().tier
    lowered = os.environ.get("AGENT_MAGICS_TIER", "")
    return min(tier, int(lowered)) if lowered.isdecimal() else tier


def confinement_for(
    ctx: ToolContext, sandbox_permissions: str | Mapping[str, Any] = "use_default"
) -> Confinement | None:
    """Return what a command of this call is confined to; None lets it run free.

    It runs free where that was approved, under "danger-full-access", and where the machine cannot
    confine it; approval knows the last two and has asked.

    Args:
        ctx: the call; what it asks for has been approved.
        sandbox_permissions: as the model gave it: a word, or {"write": [paths]}.
    """
    config = ctx.config
    if ctx.bypass_sandbox or config.sandbox is SandboxPolicy.DANGER_FULL_ACCESS:
        return None
    tier = current_tier()
    if not tier:
        return None
    wanted = sandbox_permissions
    more = wanted.get("write", ()) if isinstance(wanted, Mapping) else ()
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
        network=config.network or wanted == "require_network",
        extra_writable=[resolve_path(path, config.cwd) for path in more],
        notebook=open_notebook(),
    )


def environment_for(ctx: ToolContext, confinement: Confinement | None) -> dict[str, str]:
    """Return the environment of a command of this call: with its own folder for temporary files."""
    if confinement is None:
        return dict(ctx.env)
    more = READ_ONLY_ENVIRONMENT if ctx.read_only else {}
    return confined_environment(ctx.env, str(ctx.processes.tmpdir)) | more


# -- refusals ------------------------------------------------------------------------------------


def explain_denial(
    result: Outcome, confinement: Confinement | None, cwd: str | os.PathLike[str]
) -> SandboxDenial | None:
    """Return what the sandbox refused a command, or None where it is not known to be the cause.

    Args:
        result: the command's result.
        confinement: what it ran in; None means free.
        cwd: the folder it ran in, where the relative paths of its messages start.
    """
    if confinement is None or result.exit_code in (0, None):
        return None
    if result.refused:
        return _of_supervisor(result.refused[0], confinement)
    if result.exit_code == _NOT_EXECUTABLE:
        return None
    for line in _telling_lines(result.output):
        denial = (
            _of_paths(_paths_in(line), line, confinement, cwd)
            or _of_network(line, confinement)
            or _of_paths(_names_in(line), line, confinement, cwd)
        )
        if denial:
            return denial
    return None


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
_WITH_SLASH = re.compile(r"[^\s:;,'\"()\[\]<>=]*/[^\s:;,'\"()\[\]<>]+")
_PLAIN_NAME = re.compile(r"[\w.@%+-]+")


def _telling_lines(output: str) -> Iterator[str]:
    """Yield the lines with a refusal's words, the last one first: it is the likeliest cause."""
    lines = output[-_MOST_READ:].splitlines()
    telling = [line for line in lines if _REFUSALS.search(line) or _NETWORK_WORDS.search(line)]
    yield from reversed(telling[-_MOST_LINES:])


def _paths_in(line: str) -> Iterator[str]:
    """Yield what a program's message quotes or writes as a path, the likeliest first."""
    if _REFUSALS.search(line):
        for groups in _QUOTED.findall(line):
            yield from filter(None, groups)
        # Reversed, since a message begins with the program's own path.
        yield from map(os.path.expanduser, reversed(_WITH_SLASH.findall(line)))


def _names_in(line: str) -> Iterator[str]:
    """Yield a plain name before the refusal: ``bash: x: Permission denied``."""
    if refusal := _REFUSALS.search(line):
        last = line[: refusal.start()].rstrip(" :(").rpartition(": ")[2]
        if _PLAIN_NAME.fullmatch(name := last.rpartition(" ")[2]):
            yield name


def _of_paths(
    names: Iterator[str], line: str, confinement: Confinement, cwd: str | os.PathLike[str]
) -> SandboxDenial | None:
    for name in names:
        path = real_path(os.path.join(cwd, name.replace("\0", "")))
        if denial := _of_path(path, line, confinement, Path(cwd)):
            return denial
    return None


def _of_path(path: str, line: str, confinement: Confinement, cwd: Path) -> SandboxDenial | None:
    shown = shown_path(Path(path), cwd)
    hidden = is_below(path, confinement.hidden) and (
        confinement.tier >= 2 or not is_below(path, confinement.writable)
    )
    if hidden and os.access(path, os.R_OK):
        sentence = f"The sandbox refused reading {shown}: only the person may read it; {_ask()}"
        return SandboxDenial("read", path, sentence)
    if confinement.tier >= 2 and is_below(path, confinement.protected) and _is_writable(path):
        sentence = f"The sandbox refused writing {shown}: it is protected; {_ask()}"
        return SandboxDenial("write", path, sentence)
    if is_below(path, confinement.writable) or not _is_writable(path) or "busy" in line:
        return None
    sentence = (
        f"The sandbox refused writing {shown} ({_what_may_be_written(confinement)}); {_ask()}"
    )
    return SandboxDenial("write", path, sentence)


def _is_writable(path: str) -> bool:
    """Tell whether this user could write `path`, or make it where it is not there yet."""
    while not os.path.lexists(path) and path != "/":
        path = os.path.dirname(path)
    return os.access(path, os.W_OK)


def _of_network(line: str, confinement: Confinement) -> SandboxDenial | None:
    if confinement.network or not _NETWORK_WORDS.search(line):
        return None
    return _network_denial("the network", "", confinement)


def _network_denial(what: str, target: str, confinement: Confinement) -> SandboxDenial:
    if confinement.network:
        sentence = (
            f"The sandbox refused {what}: with network, only ports 80 and 443 of other machines "
            f"may be reached; {_ask()}"
        )
        return SandboxDenial("network", target, sentence)
    sentence = f"The sandbox refused {what}: network is off; {_ask('require_network')}"
    return SandboxDenial("network", target, sentence, "require_network")


def _what_may_be_written(confinement: Confinement) -> str:
    *folders, _ = confinement.writable
    if not folders:
        return "read-only: nothing but the temporary folder may be written"
    return f"workspace-write: only {', '.join(folders)} and the temporary folder may be written"


def _ask(permission: str = "require_escalated") -> str:
    return (
        f'if it is needed, call again with sandbox_permissions="{permission}" and a justification.'
    )


# -- what is compared afterwards -----------------------------------------------------------------


def _may_write_workspace(ctx: ToolContext, confinement: Confinement | None) -> bool:
    if confinement is None:  # let out, or not to be confined here: what only reads is known
        return not ctx.read_only
    return len(confinement.writable) > 1  # the last one is for temporary files


class ProtectedFiles:
    """The workspace while one command runs: what is protected is put back, other changes noted.

    Args:
        ctx: the call that starts the command; its person and its model are told.
        confinement: what the command is confined to, None where it was let out.
    """

    def __init__(self, ctx: ToolContext, confinement: Confinement | None) -> None:
        self._ctx = ctx
        self._watch = shared_tripwire().arm(confinement)
        self._changes = None
        if ctx.diff_tracker is not None and _may_write_workspace(ctx, confinement):
            self._changes = ctx.diff_tracker.watch()

    def check(self) -> str:
        """Put back what changed until now; return what to add to the call's answer, or ""."""
        told = self._tell(self._watch.check())
        if self._changes is not None:
            self._changes.hand_over()
        return told

    def finish(self) -> str:
        """The same for the last time, when the command has ended; a second call returns ""."""
        told = self._tell(self._watch.finish())
        if self._changes is not None:
            self._changes.finish()
        return told

    def _tell(self, findings: list[Finding]) -> str:
        if not findings:
            return ""
        what = "; ".join(str(finding) for finding in findings[:_MOST_TOLD])
        if len(findings) > _MOST_TOLD:
            what += f"; and {len(findings) - _MOST_TOLD} more"
        told = f"Protected files: {what}."
        self._ctx.turn.emit(Warned, message=told)
        if any(finding.done for finding in findings):
            told += f" If that change is needed, {_ask().removeprefix('if it is needed, ')}"
        return f"[{told}]"
