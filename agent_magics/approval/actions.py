"""Defines the types of approval: what a call would do, and what must happen before it runs."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from agent_magics.approval.rules import ProposedRule


class ActionKind(StrEnum):
    """Kinds of actions that the approval policy distinguishes; the rows of its table."""

    COMMAND_SAFE = "command known to be safe"
    COMMAND_SANDBOXED = "command in the sandbox"
    COMMAND_UNSANDBOXED = "command without a sandbox"
    COMMAND_FULL_ACCESS = "command with full access"
    COMMAND_ESCALATED = "command asking for more than the sandbox allows"
    COMMAND_NETWORK = "command asking for the network"
    COMMAND_DANGEROUS = "dangerous command"
    WRITE_INSIDE = "write inside the workspace"
    WRITE_OUTSIDE = "write outside the workspace or to a protected file"
    READ = "read"
    READ_DENIED = "read of a protected file"
    OWN_TOOL_READING = "your tool, which changes nothing"
    OWN_TOOL_MUTATING = "your tool"
    DYNAMIC_TOOL = "tool registered by a client"
    MCP_READING = "MCP tool that only reads"
    MCP_OTHER = "MCP tool"
    MCP_ASKING = "MCP tool that you want to be asked about"
    MCP_ALLOWED = "MCP tool that you allow"
    LIVE_PYTHON = "Python in your kernel"
    NOTEBOOK_CHANGE = "change of the open notebook"
    GUARD_RAIL = "guard rail hit by live code"
    SCRATCH_PYTHON = "Python in the sandbox"
    MEMORY = "change of a note that agents keep"
    TOOL_REQUEST = "what your tool asks for"


COMMANDS = frozenset(
    {
        ActionKind.COMMAND_SAFE,
        ActionKind.COMMAND_SANDBOXED,
        ActionKind.COMMAND_UNSANDBOXED,
        ActionKind.COMMAND_FULL_ACCESS,
        ActionKind.COMMAND_ESCALATED,
        ActionKind.COMMAND_DANGEROUS,
    }
)


# Part of the question about a command that may run programs beyond those on its command line.
NOT_BOUND = "what it runs may change, so your answer is for this one run and not bound to content"


def _never(words: Sequence[str]) -> bool:
    return False


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Action:
    """One effect that a call would have.

    Attributes:
        target: description for the person: the command line, the path, the tool's name.
        reason: why it may need approval, in a few words.
        fingerprint: digest that a lasting answer ("always") is bound to; an equal action needs no
            new question. "" offers no lasting answer.
        identity: digest that the approval of this one call is bound to, if not the fingerprint.
        subject: what the patterns of rules are matched against: the words of a command, a path, a
            name; None means the tool's name for rules about tools, else `target`.
        written: the path as it was written, if `subject` is where it led: what is forbidden is so
            by either, and what is allowed by both.
        permission: the kind of rules that apply; "" means those for its kind of action.
        family: the tool, server or absolute path that a grant for its kind covers; "" where none
            may be given. "NAME@HASH" binds it to what a server describes, or to a sandbox.
        pinned: "NAME@HASH" of a server's description of a tool, which rules may name instead of the
            subject: such a rule holds until the description changes.
        leaves_sandbox: whether the command runs outside the sandbox once it is approved.
        may_leave: tells whether a rule may let it run outside the sandbox.
        is_bound: tells whether all programs that the command will run are known: only then may a
            lasting answer let it run outside the sandbox.
        identify: computes, now, the digest that an answer for one run of a command is bound to.
        sandboxed: whether it is a command that runs in a sandbox.
        proposed_rule: the rule that the answer "always for this project" would write.
        always: globs that a lasting answer allows besides the fingerprint.
        folder: where relative ones start, if these and `target` are paths.
        is_safe: tells whether one command of a script needs no rule.
        is_danger: tells whether some words alone make a command dangerous.
        shown: text for the person instead of the arguments, such as a diff.
        show: computes `shown` lazily, once a question is asked; "" keeps the arguments. Actions of
            one call that share this function are shown once.
    """

    kind: ActionKind
    target: str
    reason: str = ""
    fingerprint: str = ""
    identity: str = ""
    subject: str | tuple[str, ...] | None = None
    written: str = ""
    permission: str = ""
    family: str = ""
    pinned: str = ""
    leaves_sandbox: bool = False
    may_leave: Callable[[], bool] = field(default=_always, compare=False)
    is_bound: Callable[[], bool] = field(default=_always, compare=False)
    identify: Callable[[], str] = field(default=str, compare=False)
    sandboxed: bool = False
    proposed_rule: ProposedRule | None = None
    always: tuple[str, ...] = ()
    folder: str = ""
    is_safe: Callable[[Sequence[str]], bool] = field(default=_never, compare=False)
    is_danger: Callable[[Sequence[str]], bool] = field(default=_never, compare=False)
    shown: str = ""
    show: Callable[[], str] | None = field(default=None, compare=False)

    @property
    def is_command(self) -> bool:
        """Whether it starts a program."""
        return self.kind in COMMANDS or self.kind is ActionKind.COMMAND_NETWORK


@dataclass(frozen=True, slots=True)
class Skip:
    """The call runs without a question.

    Attributes:
        bypass_sandbox: whether it runs outside the sandbox; only after an approved escalation or by
            a rule.
        proposed_rule: the rule that an answer may write if the sandbox then denies something.
        by: "policy", "rule" or "grant".
        basis: the policy's name, or the place of the rule.
    """

    bypass_sandbox: bool = False
    proposed_rule: ProposedRule | None = None
    by: str = field(default="policy", compare=False)
    basis: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class NeedsApproval:
    """The person has to approve `actions`: all of the call's actions that need it.

    Attributes:
        reason: all reasons to ask.
        proposed_rule: the rule that the answer "always for this project" would write; None offers
            none.
        bypass_sandbox: whether it runs outside the sandbox once it is approved.
        by: "policy" or "rule".
        basis: the policy's name, or the place of the rule.
    """

    reason: str
    proposed_rule: ProposedRule | None = None
    actions: tuple[Action, ...] = ()
    bypass_sandbox: bool = False
    by: str = field(default="policy", compare=False)
    basis: str = field(default="", compare=False)

    @property
    def target(self) -> str:
        """The targets of all its actions."""
        return ", ".join(dict.fromkeys(action.target for action in self.actions))

    @property
    def is_dangerous(self) -> bool:
        """Whether a mistaken approval would destroy something."""
        return any(action.kind is ActionKind.COMMAND_DANGEROUS for action in self.actions)


@dataclass(frozen=True, slots=True)
class Forbidden:
    """The call does not run; `reason` is for the model."""

    reason: str
    by: str = field(default="policy", compare=False)
    basis: str = field(default="", compare=False)


ExecApprovalRequirement: TypeAlias = Skip | NeedsApproval | Forbidden


def fingerprint_of(tool: str, *bound: object) -> str:
    """Return a digest of a call, equal only for equal calls.

    Args:
        tool: the tool's name.
        bound: JSON values that identify the call: its arguments, and what they resolve to.
    """
    text = json.dumps((tool, *bound), sort_keys=True)
    return f"{tool}:{hashlib.sha256(text.encode()).hexdigest()}"
