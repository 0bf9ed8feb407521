"""What a call would do, and what must happen before it runs: the nouns of approval."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from agent_magics.dispatch.rules import ProposedRule


class ActionKind(StrEnum):
    """What a call would do, as far as asking goes; the rows of the table."""

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


def _never(words: Sequence[str]) -> bool:
    return False


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Action:
    """One thing a call would do.

    Attributes:
        target: what a person reads: the command line, the path, the tool's name.
        reason: why this needs a look, in a few words.
        fingerprint: what "always" binds to; an equal one later needs no new question. "" offers
            no lasting answer.
        identity: what an approval of this one call binds to, where it is not the fingerprint.
        subject: what rules compare their patterns with: the words of a command, a path, a name;
            None: the tool's name where rules of tools look at it, else `target`.
        permission: the rules that look at it; "" those that go with its kind.
        pinned: "NAME@HASH" of what a server describes, which rules may name instead of the subject:
            such a rule holds as long as the description does.
        leaves_sandbox: once it is approved, the command runs outside the sandbox.
        may_leave: tells whether a rule may let it run outside the sandbox.
        sandboxed: it is a command, and there is a sandbox that it runs in.
        proposed_rule: the rule that "always for this project" would write.
        always: globs that a lasting answer allows, beside the fingerprint.
        is_safe: tells of one command of a script that it needs no rule.
        is_danger: tells whether some words alone are what is dangerous about a command.
        shown: what a person reads in place of the arguments, such as a diff.
        show: works that out where it takes time, once somebody is asked; "" leaves the arguments.
            Actions of one call that share it are shown once.
    """

    kind: ActionKind
    target: str
    reason: str = ""
    fingerprint: str = ""
    identity: str = ""
    subject: str | tuple[str, ...] | None = None
    permission: str = ""
    pinned: str = ""
    leaves_sandbox: bool = False
    may_leave: Callable[[], bool] = field(default=_always, compare=False)
    sandboxed: bool = False
    proposed_rule: ProposedRule | None = None
    always: tuple[str, ...] = ()
    is_safe: Callable[[Sequence[str]], bool] = field(default=_never, compare=False)
    is_danger: Callable[[Sequence[str]], bool] = field(default=_never, compare=False)
    shown: str = ""
    show: Callable[[], str] | None = field(default=None, compare=False)

    @property
    def is_command(self) -> bool:
        """Whether a program is started."""
        return self.kind in COMMANDS or self.kind is ActionKind.COMMAND_NETWORK


@dataclass(frozen=True, slots=True)
class Skip:
    """Run without asking; `bypass_sandbox` only after an approved escalation or by a rule.

    Attributes:
        proposed_rule: the rule that an answer may write where the sandbox then refuses something.
        by: "policy", "rule" or "grant".
        basis: the policy's name, or where the rule stands.
    """

    bypass_sandbox: bool = False
    proposed_rule: ProposedRule | None = None
    by: str = field(default="policy", compare=False)
    basis: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class NeedsApproval:
    """Ask first, about `actions`: all of the call's that need it, so that none goes unnamed.

    Attributes:
        reason: every reason to ask.
        proposed_rule: the rule that "always for this project" would write; None offers none.
        bypass_sandbox: once approved, it runs outside the sandbox.
    """

    reason: str
    proposed_rule: ProposedRule | None = None
    actions: tuple[Action, ...] = ()
    bypass_sandbox: bool = False
    by: str = field(default="policy", compare=False)
    basis: str = field(default="", compare=False)

    @property
    def target(self) -> str:
        """Every target that is asked about."""
        return ", ".join(dict.fromkeys(action.target for action in self.actions))


@dataclass(frozen=True, slots=True)
class Forbidden:
    """Do not run; `reason` goes to the model."""

    reason: str
    by: str = field(default="policy", compare=False)
    basis: str = field(default="", compare=False)


ExecApprovalRequirement: TypeAlias = Skip | NeedsApproval | Forbidden


def fingerprint_of(tool: str, *bound: Any) -> str:
    """Return what only an equal call has again.

    Args:
        tool: the tool's name.
        bound: JSON values that an equal call shares: its arguments, and what they lead to.
    """
    text = json.dumps((tool, *bound), sort_keys=True)
    return f"{tool}:{hashlib.sha256(text.encode()).hexdigest()}"
