"""Builds the approval actions of a command, with fingerprints."""

import hashlib
import json
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from agent_magics.approval.actions import NOT_BOUND, Action, ActionKind
from agent_magics.approval.commands.classification import (
    CommandRisk,
    CommandVerdict,
    classify_command,
    place_of,
)
from agent_magics.approval.commands.danger import loose_commands_of
from agent_magics.approval.commands.destructive import expanded, without_braces
from agent_magics.approval.commands.identity import (
    find_program,
    folders_of,
    identity_of_command,
    names_in,
    reaches_what_is_kept,
    runs_only_itself,
)
from agent_magics.approval.commands.place import Effort, TooLongToJudge
from agent_magics.approval.commands.prefixes import may_be_offered, propose_prefix
from agent_magics.approval.commands.safe import programs_of, reading_commands
from agent_magics.approval.commands.script import commands_of, is_shell
from agent_magics.approval.commands.words import program_of
from agent_magics.approval.rules import ProposedRule
from agent_magics.dispatch.context import ToolContext, status_of
from agent_magics.exec.launcher_client import current_tier
from agent_magics.exec.protected.put_back import Finding
from agent_magics.exec.protected.tripwire import shared_tripwire
from agent_magics.files.beneath import is_below, real_path
from agent_magics.files.paths import resolve_path, shown_path, write_kind
from agent_magics.protocol.config import SandboxPolicy
from agent_magics.protocol.errors import RespondToModel
from agent_magics.tools.commands.confinement import confinement_for, rights_of
from agent_magics.tools.files.access import ReadJudge, judge_of

# MAX_ARG_STRLEN of linux/binfmts.h: 32 pages for one word. Of the whole, what a person can look at.
_LONGEST_WORD = 131_071
_LONGEST_COMMAND = 512 * 1024
# What may name a file in a command, however a shell parses it.
_WORD = re.compile(r"[^\s'\"<>|;&()=,:`$]+")
# Erases, moves in the line, takes the next key as it is, or brings back what was typed before.
_EDITING_KEY = re.compile(r"[\x01\x02\x05-\x08\x0b\x0e-\x10\x12\x14\x16-\x19\x1b\x1d-\x1f\x7f]")
_MOST_NAMES = 5_000  # some 30 ms
_MOST_LISTED = 1_000  # steps for lists in braces, some 300 names
_MOST_STEPS = 50_000  # some 60 ms
_NO_PATH = "\0"  # no rule can allow it

Permissions = str | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RequestedRights:
    """The rights that a command requests beyond the sandbox's default.

    Attributes:
        outside: to run outside the sandbox.
        network: to use the network.
        write: more paths to write, as the model wrote them.
    """

    outside: bool = False
    network: bool = False
    write: tuple[str, ...] = ()

    @property
    def any(self) -> bool:
        """Whether any right is requested."""
        return self.outside or self.network or bool(self.write)


_RIGHTS = {
    "use_default": RequestedRights(),
    "require_network": RequestedRights(network=True),
    "require_escalated": RequestedRights(outside=True),
}


def requested_rights(permissions: Permissions) -> RequestedRights:
    """Parse the argument `sandbox_permissions`.

    Raises:
        RespondToModel: the value has none of the accepted forms.
    """
    if isinstance(permissions, str) and permissions in _RIGHTS:
        return _RIGHTS[permissions]
    if isinstance(permissions, Mapping):
        paths = permissions.get("write")
        is_list = isinstance(paths, (list, tuple)) and all(isinstance(p, str) for p in paths)
        if len(permissions) == 1 and is_list and paths:
            return RequestedRights(write=tuple(paths))
    raise RespondToModel(
        f"sandbox_permissions={permissions!r} is not one of: {', '.join(map(repr, _RIGHTS))}, or "
        '{"write": ["a path", …]}.'
    )


def assess_command(
    command: Sequence[str],
    cwd: Path,
    sandbox_permissions: Permissions,
    justification: str,
    ctx: ToolContext,
    prefix_rule: Sequence[str] = (),
) -> list[Action]:
    """Return the approval actions of running `command`.

    Args:
        command: program and arguments.
        cwd: the folder it would run in, without symlinks.
        sandbox_permissions: requested rights beyond the default; see `requested_rights`.
        justification: the model's reason for them.
        ctx: the call.
        prefix_rule: the command prefix that the model asks to have allowed for good.

    Raises:
        RespondToModel: rights are requested without a justification, or to write what the sandbox
            cannot open alone, or the command is longer than the operating system accepts.
    """
    _check_length(command)
    rights = requested_rights(sandbox_permissions)
    if rights.any and not justification.strip():
        raise RespondToModel(
            f"sandbox_permissions={sandbox_permissions!r} needs a justification: say in one "
            "sentence why the command cannot do without."
        )
    status_of(ctx).writes = ()
    writes = tuple(str(resolve_path(path, ctx.cwd)) for path in rights.write)
    if writes:
        _check_writes(writes, ctx)
    status_of(ctx).writes = writes
    actions = _Assessment(command, cwd, rights, justification.strip(), ctx, prefix_rule).actions()
    return [*actions, *_forbidden_reads(command, cwd, ctx)]


def assess_typing(
    scripts: Sequence[str], target: str, cwd: Path, ctx: ToolContext, *, is_script: bool
) -> list[Action]:
    """Return the approval actions of what a text does that is typed into a session.

    Only what is dangerous and rules that ask or forbid count: what will follow is not known.

    Args:
        scripts: what may be read of the text, and of the line so far that it continues.
        target: description for the person.
        cwd: the folder in which the session began.
        ctx: the call.
        is_script: whether a shell may read it.
    """
    command = ("sh", "-c", *scripts)
    reads = list(_forbidden_reads(command, cwd, ctx))
    if not is_script:
        return reads
    verdict = classify_command(command, roots=ctx.config.roots, cwd=cwd)
    reason = verdict.reason if verdict.risk is CommandRisk.DANGEROUS else ""
    if not reason and any(map(_EDITING_KEY.search, scripts)):
        reason = "its keys edit the line, so it is not known what a shell will read"
    kind = ActionKind.COMMAND_DANGEROUS if reason else ActionKind.COMMAND_SAFE
    return [Action(kind, target, reason, subject=command, may_leave=lambda: False), *reads]


def _forbidden_reads(command: Sequence[str], cwd: Path, ctx: ToolContext) -> Iterator[Action]:
    """Yield a read action for each file named in the command that a rule forbids to read.

    The sandbox enforces the rule where it can; this reports it beforehand, and where the sandbox
    cannot. With too many words to look at, it asks.
    """
    commands, is_whole = [command], True
    try:
        commands += loose_commands_of(command, Effort(_MOST_STEPS))
    except TooLongToJudge:
        is_whole = False
    words = dict.fromkeys((*_WORD.findall(" ".join(command)), *chain(*commands)))
    effort = Effort(_MOST_LISTED)
    with suppress(TooLongToJudge):  # as data of other programs may; no reason to ask
        for word in [each for each in words if "{" in each]:
            words |= dict.fromkeys(without_braces(word, effort))
    names = (form for word in words for name in names_in(word) for form in {name, expanded(name)})
    folders = folders_of(commands, str(cwd))
    found = (os.path.join(folder, name) for name in names for folder in folders)
    paths = dict.fromkeys(map(os.path.normpath, islice(found, _MOST_NAMES)))
    named = [path for path in paths if os.path.exists(path)]
    real = list(map(real_path, named))
    status_of(ctx).note_reads(real_path(ctx.cwd), real_path(cwd), *real)  # a glob names no file
    judge = judge_of(ctx)
    for path in dict.fromkeys((*named, *real)):
        if judge.is_withheld(path):
            yield Action(ActionKind.READ, shown_path(path, ctx.cwd), subject=path)
    if judge.forbids_any and not (is_whole and next(found, None) is None):
        reason = "it has too many words to see whether one names a file that a rule forbids to read"
        yield Action(
            ActionKind.READ_DENIED, "a command of very many words", reason, subject=_NO_PATH
        )


def _check_writes(paths: Sequence[str], ctx: ToolContext) -> None:
    """Check that the sandbox can open each path that a call asks to write, and no more than it."""
    if (confinement := confinement_for(ctx)) is None:
        return
    for path in paths:
        shown = shown_path(path, ctx.cwd)
        around = next((p for p in confinement.protected if is_below(path, (p,)) and p != path), "")
        if around:
            raise RespondToModel(
                f"{shown} is protected together with all of {shown_path(around, ctx.cwd)}: ask "
                "to write that folder."
            )
        if not os.path.exists(path):
            ask = f"ask to write the folder {shown_path(os.path.dirname(path), ctx.cwd)}"
            if path in confinement.protected:
                ask = (
                    'write it with apply_patch, or ask with sandbox_permissions="require_escalated"'
                )
            raise RespondToModel(
                f"{shown} is not there, so the sandbox cannot open it for writing: {ask}, or make "
                "it first."
            )


def _check_length(command: Sequence[str]) -> None:
    longest = max((len(os.fsencode(_without_surrogates(word))) for word in command), default=0)
    if longest > _LONGEST_WORD or sum(map(len, command)) > _LONGEST_COMMAND:
        raise RespondToModel(
            f"The command is too long to be run (one word may have {_LONGEST_WORD} bytes, all "
            f"together {_LONGEST_COMMAND}): write the text to a file, and run that."
        )


def _without_surrogates(word: str) -> str:
    return word.encode("utf-8", "replace").decode("utf-8")


class _Assessment:
    """Determines the approval actions of one command of one call."""

    def __init__(
        self,
        command: Sequence[str],
        cwd: Path,
        rights: RequestedRights,
        justification: str,
        ctx: ToolContext,
        prefix_rule: Sequence[str],
    ) -> None:
        self._command = tuple(command)
        self._cwd = cwd
        self._rights = rights
        self._justification = justification
        self._ctx = ctx
        self._prefix_rule = prefix_rule
        self._is_free = ctx.config.sandbox is SandboxPolicy.DANGER_FULL_ACCESS
        self._confined = not self._is_free and current_tier() >= 1
        self._denied = _denied_from(cwd, judge_of(ctx))
        search = ctx.env.get("PATH", "")
        self._is_found_outside = cache(partial(_is_found_outside, self._writable, search))
        verdict = self._classify(self._command)
        if verdict.risk is CommandRisk.SAFE and not self._runs_what_it_names(self._command):
            verdict = CommandVerdict(CommandRisk.OTHER, "its program is not one of the system")
        self._verdict = verdict

    def _classify(self, command: Sequence[str]) -> CommandVerdict:
        return classify_command(
            command,
            roots=self._ctx.config.roots,
            cwd=self._cwd,
            denied=self._denied,
            confined=self._reads_confined,
        )

    @property
    def _reads_confined(self) -> bool:
        """Whether the sandbox will limit a command that was found safe to reading."""
        return self._confined and not self._rights.any

    def actions(self) -> list[Action]:
        """Return one action per row of the approval table that applies to the command."""
        rights, actions = self._rights, []
        if self._verdict.risk is CommandRisk.DANGEROUS:  # no lasting approval is offered
            actions.append(
                self._action(ActionKind.COMMAND_DANGEROUS, self._verdict.reason, lasting=False)
            )
        if rights.outside:
            reason = f"asks for escalated rights: {self._justification}"
            if planted := self._planted_for_git():
                reason = f"{reason}; {planted[0]}"
            escalated = self._action(ActionKind.COMMAND_ESCALATED, reason, leaves=True)
            return [*actions, escalated]
        if rights.write:
            actions.append(self._action(ActionKind.COMMAND_ESCALATED, self._reason_to_write()))
        if rights.network and not self._ctx.config.network:
            reason = f"asks for network rights: {self._justification}"
            actions.append(self._action(ActionKind.COMMAND_NETWORK, reason))
        if self._verdict.risk is CommandRisk.DANGEROUS:
            return actions
        return [*actions, self._ordinary()]

    def _ordinary(self) -> Action:
        reason = self._verdict.reason
        if self._verdict.risk is CommandRisk.SAFE:
            return self._action(ActionKind.COMMAND_SAFE, reason)
        if self._is_free:
            return self._action(ActionKind.COMMAND_FULL_ACCESS, reason)
        if self._confined:
            return self._action(ActionKind.COMMAND_SANDBOXED, reason)
        return self._action(ActionKind.COMMAND_UNSANDBOXED, "no sandbox is available here")

    def _action(
        self, kind: ActionKind, reason: str, *, leaves: bool = False, lasting: bool = True
    ) -> Action:
        is_default = self._confined and not leaves and kind not in _OWN_QUESTIONS
        may_last = is_default or kind is ActionKind.COMMAND_SAFE or self._is_bound
        if lasting and not may_last:
            lasting, reason = False, f"{reason} ({NOT_BOUND})"
        return Action(
            kind,
            self._target(),
            reason,
            self._fingerprint(kind) if lasting else "",
            identity="" if lasting else self._fingerprint(kind, once=True),
            subject=self._command,
            leaves_sandbox=leaves,
            may_leave=self._may_leave,
            is_bound=lambda: self._is_bound,
            identify=lambda: self._fingerprint(kind, once=True),
            sandboxed=self._confined,
            proposed_rule=self._proposed(kind, leaves) if lasting else None,
            is_safe=lambda words: tuple(words) in self._safe,
            is_danger=lambda words: self._classify(words).risk is CommandRisk.DANGEROUS,
        )

    def _target(self) -> str:
        target = shlex.join(self._command)
        if self._cwd != Path(real_path(self._ctx.cwd)):
            target += f" (in {self._cwd})"
        return target

    def _reason_to_write(self) -> str:
        named = (shown_path(path, self._ctx.cwd) for path in self._ctx.writes)
        return f"asks to write {', '.join(named)}: {self._justification}"

    # -- what an approval is bound to -------------------------------------------------------------

    def _fingerprint(self, kind: ActionKind, *, once: bool = False) -> str:
        """Hash what would run and its rights: "always" in the sandbox is not "always" outside."""
        mode = kind.value if kind in _OWN_QUESTIONS else "inside" if self._confined else "free"
        identity = identity_of_command(
            *(self._command, str(self._cwd), self._ctx.env, self._writable), once=once
        )
        bound_to = json.dumps([identity, mode, self._ctx.writes, rights_of(self._ctx)])
        return f"command:{hashlib.sha256(bound_to.encode()).hexdigest()}"

    @cached_property
    def _is_bound(self) -> bool:
        """Whether all programs that the command runs are known and stand where none may write."""
        return runs_only_itself(self._command) and self._is_out_of_reach()

    @cached_property
    def _writable(self) -> list[str]:
        return [real_path(root) for root in self._ctx.config.roots]

    # -- what is known to be safe -----------------------------------------------------------------

    @cached_property
    def _safe(self) -> set[tuple[str, ...]]:
        """The commands of a script that need no rule, because they only read."""
        commands = commands_of(self._command) if is_shell(self._command[0]) else None
        if not commands:
            return set()
        roots = self._ctx.config.roots
        place = place_of(roots, self._cwd, self._denied, confined=self._reads_confined)
        try:
            reading = reading_commands(commands, place)
        except TooLongToJudge:
            return set()
        unsafe = {tuple(w) for w, reads in zip(commands, reading, strict=True) if not reads}
        return {
            words
            for words in map(tuple, commands)
            if words not in unsafe and (words[0] == "cd" or self._runs_what_it_names(words))
        }

    def _runs_what_it_names(self, command: Sequence[str]) -> bool:
        """Return whether every program of a command is found outside writable folders."""
        return all(map(self._is_found_outside, set(programs_of(command))))

    def _may_leave(self) -> bool:
        """Return whether a rule may let this command leave the sandbox.

        It says nothing of other folders than the workspace, in which its words mean other files.
        """
        return self._is_in_workspace and self._is_out_of_reach()

    @property
    def _is_in_workspace(self) -> bool:
        return is_below(str(self._cwd), self._writable)

    def _is_out_of_reach(self) -> bool:
        """Return whether nothing that would run, or that it acts on, can be changed from inside.

        That can be a program in the workspace, the settings of a login shell, a link that leads out
        of the workspace, a repository that makes git run a program.
        """
        commands = commands_of(self._command)
        if commands is None or (is_shell(self._command[0]) and self._command[1:2] != ("-c",)):
            return False
        if self._planted_for_git():
            return False
        names = {self._command[0], *(words[0] for words in commands)} - {"cd"}
        found = all(map(self._is_found_outside, names))
        return found and not reaches_what_is_kept(
            self._command, str(self._cwd), self._writable, self._is_kept
        )

    def _planted_for_git(self) -> list[Finding]:
        """Return what commands have planted for git to run, if this one may run git."""
        commands = commands_of(self._command) or [list(self._command)]
        runs_git = any(_RUNS_GIT.fullmatch(program_of(word)) for each in commands for word in each)
        return shared_tripwire().repositories.others_in(self._writable) if runs_git else []

    def _is_kept(self, path: str) -> bool:
        """Return whether the sandbox keeps `path` (absolute) from commands, or a rule does."""
        allowed, _ = write_kind(Path(path), self._ctx.config.roots, read_only=False)
        return not allowed or self._denied(path)

    # -- what may be offered ----------------------------------------------------------------------

    @cached_property
    def _offer(self) -> ProposedRule | None:
        """The rule that an approval may create for the one command not known to be safe."""
        commands = commands_of(self._command)
        if commands is None or self._verdict.risk is not CommandRisk.OTHER:
            return None
        others = {tuple(w) for w in commands if w[0] != "cd"} - self._safe
        prefixes = {propose_prefix(words, self._prefix_rule) for words in others}
        command = next(iter(others)) if len(others) == 1 and may_be_offered(*others) else ()
        prefix = prefixes.pop() if len(prefixes) == 1 else ()
        if not prefix and not command:
            return None
        return ProposedRule(
            "command", prefix or command, command=command if prefix else (), exact=not prefix
        )

    def _proposed(self, kind: ActionKind, leaves: bool) -> ProposedRule | None:
        if self._offer is None or self._rights.write or (leaves and not self._is_in_workspace):
            return None
        if kind is ActionKind.COMMAND_NETWORK:
            return replace(self._offer, permission="network")
        return replace(self._offer, sandbox="bypass" if leaves else "")


_RUNS_GIT = re.compile(r"git(?:-.*)?|gh|glab|hub|tig|jj", re.DOTALL)
_OWN_QUESTIONS = (ActionKind.COMMAND_ESCALATED, ActionKind.COMMAND_NETWORK)


def _is_found_outside(roots: Sequence[str], search: str, program: str) -> bool:
    """Return whether a program is found, along a PATH, in a folder that no command may write."""
    if "/" in program and not os.path.isabs(program):
        return False
    for folder in search.split(os.pathsep):
        if not os.path.isabs(folder):  # the search starts where the command runs
            return False
        if found := find_program(program, folder):
            # The link's own path, too: a link in the workspace can give a program another's name.
            link = os.path.join(real_path(os.path.dirname(found)), os.path.basename(found))
            return not any(is_below(path, roots) for path in (link, real_path(found)))
    return False


def _denied_from(cwd: Path, judge: ReadJudge) -> Callable[[str], bool]:
    """Return a function that tests whether an operand names a file only the person may read."""

    def denied(operand: str) -> bool:
        path = os.path.join(cwd, operand)
        return any(map(judge, {real_path(path), os.path.normpath(path)}))

    return denied
