"""Who is asked: rules, the table of policy x action, what was already granted, and the verdict.

A tool says what a call would do as `Action`s. Rules come first; what they leave open the table
decides: run, ask or refuse; grants given earlier ("always for this session") turn an ask into a
run. Nothing here talks to a person.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from typing import Any, TypeAlias

from agent_magics.dispatch.glob import matches_glob
from agent_magics.dispatch.rules import ProposedRule, RuleBook, RuleDecision
from agent_magics.protocol.config import ApprovalPolicy


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
    LIVE_PYTHON = "Python in your kernel"
    GUARD_RAIL = "guard rail hit by live code"
    SCRATCH_PYTHON = "Python in the sandbox"
    TOOL_REQUEST = "what your tool asks for"


_COMMANDS = frozenset(
    {
        ActionKind.COMMAND_SAFE,
        ActionKind.COMMAND_SANDBOXED,
        ActionKind.COMMAND_UNSANDBOXED,
        ActionKind.COMMAND_FULL_ACCESS,
        ActionKind.COMMAND_ESCALATED,
        ActionKind.COMMAND_DANGEROUS,
    }
)
# Which rules are about an action; none are about the rest.
_PERMISSIONS: dict[ActionKind, str] = {
    **dict.fromkeys(_COMMANDS, "command"),
    ActionKind.COMMAND_NETWORK: "network",
    ActionKind.WRITE_INSIDE: "write",
    ActionKind.WRITE_OUTSIDE: "write",
    ActionKind.READ: "read",
    ActionKind.READ_DENIED: "read",
    ActionKind.OWN_TOOL_READING: "tool",
    ActionKind.OWN_TOOL_MUTATING: "tool",
    ActionKind.DYNAMIC_TOOL: "tool",
    ActionKind.LIVE_PYTHON: "tool",
    ActionKind.SCRATCH_PYTHON: "tool",
    ActionKind.MCP_READING: "mcp",
    ActionKind.MCP_OTHER: "mcp",
}
_READING = frozenset({ActionKind.READ, ActionKind.OWN_TOOL_READING})


class Verdict(Enum):
    """What the table says."""

    RUN = "run"
    ASK = "ask"
    REFUSE = "refuse"


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
        leaves_sandbox: once it is approved, the command runs outside the sandbox.
        may_leave: tells whether a rule may let it run outside the sandbox.
        sandboxed: it is a command, and there is a sandbox that it runs in.
        proposed_rule: the rule that "always for this project" would write.
        always: globs that a lasting answer allows, beside the fingerprint.
        is_safe: tells of one command of a script that it needs no rule.
        is_danger: tells whether some words alone are what is dangerous about a command.
    """

    kind: ActionKind
    target: str
    reason: str = ""
    fingerprint: str = ""
    identity: str = ""
    subject: str | tuple[str, ...] | None = None
    permission: str = ""
    leaves_sandbox: bool = False
    may_leave: Callable[[], bool] = field(default=_always, compare=False)
    sandboxed: bool = False
    proposed_rule: ProposedRule | None = None
    always: tuple[str, ...] = ()
    is_safe: Callable[[Sequence[str]], bool] = field(default=_never, compare=False)
    is_danger: Callable[[Sequence[str]], bool] = field(default=_never, compare=False)

    @property
    def is_command(self) -> bool:
        """Whether a program is started."""
        return self.kind in _COMMANDS or self.kind is ActionKind.COMMAND_NETWORK


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

_RUN, _ASK, _REFUSE = Verdict.RUN, Verdict.ASK, Verdict.REFUSE

# Columns: untrusted, on-request, on-failure, never.
_TABLE: dict[ActionKind, tuple[Verdict, Verdict, Verdict, Verdict]] = {
    ActionKind.COMMAND_SAFE: (_RUN, _RUN, _RUN, _RUN),
    ActionKind.COMMAND_SANDBOXED: (_ASK, _RUN, _RUN, _RUN),
    ActionKind.COMMAND_UNSANDBOXED: (_ASK, _ASK, _ASK, _REFUSE),
    ActionKind.COMMAND_FULL_ACCESS: (_ASK, _RUN, _RUN, _RUN),
    ActionKind.COMMAND_ESCALATED: (_ASK, _ASK, _ASK, _REFUSE),
    ActionKind.COMMAND_NETWORK: (_ASK, _ASK, _ASK, _REFUSE),
    ActionKind.COMMAND_DANGEROUS: (_ASK, _ASK, _ASK, _REFUSE),
    ActionKind.WRITE_INSIDE: (_ASK, _RUN, _RUN, _RUN),
    ActionKind.WRITE_OUTSIDE: (_ASK, _ASK, _ASK, _REFUSE),
    ActionKind.READ: (_RUN, _RUN, _RUN, _RUN),
    ActionKind.READ_DENIED: (_ASK, _ASK, _ASK, _REFUSE),
    ActionKind.OWN_TOOL_READING: (_RUN, _RUN, _RUN, _RUN),
    ActionKind.OWN_TOOL_MUTATING: (_ASK, _RUN, _RUN, _RUN),
    ActionKind.DYNAMIC_TOOL: (_ASK, _ASK, _RUN, _RUN),
    ActionKind.MCP_READING: (_ASK, _RUN, _RUN, _RUN),
    ActionKind.MCP_OTHER: (_ASK, _ASK, _ASK, _RUN),
    ActionKind.LIVE_PYTHON: (_ASK, _ASK, _ASK, _RUN),
    ActionKind.GUARD_RAIL: (_ASK, _ASK, _ASK, _RUN),
    ActionKind.SCRATCH_PYTHON: (_ASK, _RUN, _RUN, _RUN),
    ActionKind.TOOL_REQUEST: (_ASK, _ASK, _ASK, _REFUSE),
}
_VERDICTS = {
    (kind, policy): verdict
    for kind, row in _TABLE.items()
    for policy, verdict in zip(ApprovalPolicy, row, strict=True)
}


def fingerprint_of(tool: str, *bound: Any) -> str:
    """Return what only an equal call has again.

    Args:
        tool: the tool's name.
        bound: JSON values that an equal call shares: its arguments, and what they lead to.
    """
    text = json.dumps((tool, *bound), sort_keys=True)
    return f"{tool}:{hashlib.sha256(text.encode()).hexdigest()}"


def decide(kind: ActionKind, policy: ApprovalPolicy, *, allow_dangerous: bool = False) -> Verdict:
    """Return what `policy` says about an action of this kind; one cell of the table."""
    if kind is ActionKind.COMMAND_DANGEROUS and policy is ApprovalPolicy.NEVER and allow_dangerous:
        return Verdict.RUN
    return _VERDICTS[kind, policy]


@dataclass(frozen=True, slots=True)
class Grant:
    """A lasting answer.

    Attributes:
        target: what it was given for, as the person read it.
        scope: "cell" or "session".
        permission, pattern: what else it covers; "" where it is bound to the fingerprint alone.
    """

    fingerprint: str
    target: str
    scope: str
    permission: str = ""
    pattern: str = ""


_SCOPES = {
    "approve_for_cell": "cell",
    "approve_for_session": "session",
    # Where no rule can say it, the longest answer that there is.
    "approve_for_project": "session",
}


class ApprovalStore:
    """What the person granted for longer than one call: fingerprints, by how long they hold.

    A cell's grants end with its turn; a session's with the session.

    Attributes:
        denied_in_a_row: questions of this turn that were denied since the last approval.
    """

    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}
        self.denied_in_a_row = 0

    def grant(self, action: Action, decision: str) -> None:
        """Remember `action` as allowed, for as long as `decision` says."""
        scope = _SCOPES.get(decision)
        if scope is None:
            return
        if action.fingerprint:
            self._keep(Grant(action.fingerprint, action.target, scope))
        for pattern in action.always:
            key = f"{action.permission}:{pattern}"
            self._keep(Grant(key, pattern, scope, action.permission, pattern))

    def _keep(self, grant: Grant) -> None:
        known = self._grants.get(grant.fingerprint)
        if known is None or known.scope == "cell":
            self._grants[grant.fingerprint] = grant

    def allows(self, action: Action) -> bool:
        """Tell whether an equal action was granted and the grant still holds."""
        if action.fingerprint and action.fingerprint in self._grants:
            return True
        if action.kind is not ActionKind.TOOL_REQUEST:
            return False
        return any(
            grant.permission == action.permission and matches_glob(grant.pattern, action.target)
            for grant in self._grants.values()
            if grant.pattern
        )

    def end_cell(self) -> None:
        """Drop the grants that were for one cell."""
        self.denied_in_a_row = 0
        held = self._grants.items()
        self._grants = {key: grant for key, grant in held if grant.scope != "cell"}

    @property
    def grants(self) -> tuple[Grant, ...]:
        """All that holds, the oldest first."""
        return tuple(self._grants.values())

    @property
    def session_grants(self) -> dict[str, str]:
        """Fingerprint -> target of what is allowed for this session."""
        return {
            key: grant.target for key, grant in self._grants.items() if grant.scope == "session"
        }

    def revoke(self, fingerprint: str) -> bool:
        """Take a grant back; False when there is none."""
        return self._grants.pop(fingerprint, None) is not None


@dataclass(slots=True)
class _Judged:
    """One action and what rules, table and grants say about it."""

    action: Action
    verdict: Verdict
    by: str
    basis: str
    bypass: bool = False
    reason: str = ""


def requirement_of(
    actions: Iterable[Action],
    policy: ApprovalPolicy,
    store: ApprovalStore,
    *,
    allow_dangerous: bool = False,
    rules: RuleBook | None = None,
    agent: str = "default",
    tool: str = "",
) -> ExecApprovalRequirement:
    """Return what must happen before a call with these `actions` runs; the strictest one wins.

    Args:
        actions: what the call would do.
        policy: what the table says where no rule does.
        store: what was granted earlier.
        allow_dangerous: lets dangerous commands run under "never".
        rules: the rules that hold; None where there are none.
        agent: the agent's name, which rules may go by.
        tool: the tool's name, which rules of tools go by.
    """
    judged = []
    for action in actions:
        decision = _rule_decision(action, rules, agent, tool)
        one = _judge(action, decision, policy, allow_dangerous=allow_dangerous)
        if one.verdict is Verdict.REFUSE:
            return Forbidden(one.reason, one.by, one.basis)
        if one.verdict is Verdict.ASK and store.allows(action):
            one.verdict, one.by, one.basis = Verdict.RUN, "grant", action.target
        judged.append(one)
    return _combined(judged, policy)


def _rule_decision(
    action: Action, rules: RuleBook | None, agent: str, tool: str
) -> RuleDecision | None:
    """Return what the rules say about one action, if anything."""
    if rules is None:
        return None
    permission = action.permission or _PERMISSIONS.get(action.kind, "")
    if not permission:
        return None
    subject: str | tuple[str, ...] | None = action.subject
    if subject is None:
        subject = tool if permission in ("tool", "mcp") and tool else action.target
    found = rules.decide(permission, subject, agent, safe=action.is_safe)
    if found is not None and found.sandbox == "bypass" and not action.may_leave():
        found = replace(found, sandbox="default")
    if found is None and action.kind is ActionKind.COMMAND_NETWORK and action.may_leave():
        # Who may leave the sandbox may use the network.
        found = rules.decide("command", subject, agent, safe=action.is_safe)
        leaves = found is not None and (found.decision, found.sandbox) == ("allow", "bypass")
        found = found if leaves else None
    return found


def _judge(
    action: Action, rule: RuleDecision | None, policy: ApprovalPolicy, *, allow_dangerous: bool
) -> _Judged:
    """Judge one action: by the rule that is about it, else by the table."""
    if rule is not None and _applies(rule, action):
        return _judge_by_rule(action, rule, policy)
    verdict = decide(action.kind, policy, allow_dangerous=allow_dangerous)
    reason = ""
    if verdict is not Verdict.RUN:
        refused = verdict is Verdict.REFUSE
        reason = refusal(action, policy) if refused else _reason_to_ask(action)
    return _Judged(action, verdict, "policy", str(policy), action.leaves_sandbox, reason)


def _applies(rule: RuleDecision, action: Action) -> bool:
    """Tell whether what a rule allows covers this action; what it forbids always does."""
    if rule.decision != "allow":
        return True
    if action.kind is ActionKind.COMMAND_DANGEROUS:
        # "git push" is allowed; that "--force" is, the rule must say itself.
        return any(map(action.is_danger, rule.prefixes))
    if action.kind is ActionKind.COMMAND_ESCALATED:
        return rule.sandbox == "bypass"
    return True


def _judge_by_rule(action: Action, rule: RuleDecision, policy: ApprovalPolicy) -> _Judged:
    where = f"{rule.rule.text} ({rule.rule.place})"
    why = f": {rule.rule.justification}" if rule.rule.justification else ""
    bypass = rule.sandbox == "bypass" or action.leaves_sandbox
    if rule.decision == "allow":
        return _Judged(action, Verdict.RUN, "rule", where, bypass)
    if rule.decision == "forbid":
        reason = (
            f"Refused: a rule forbids {rule.rule.text}{why}. The call was: {action.target}. "
            "Do not look for a way round it; find another way, or tell the person what you need."
        )
        return _Judged(action, Verdict.REFUSE, "rule", where, reason=reason)
    if policy is ApprovalPolicy.NEVER:
        reason = (
            f"Refused: a rule asks about {rule.rule.text}{why}, and approval policy 'never' asks "
            f"nobody. The call was: {action.target}. Find another way."
        )
        return _Judged(action, Verdict.REFUSE, "rule", where, reason=reason)
    reason = f"a rule asks about {rule.rule.text}{why}"
    if action.kind in (ActionKind.COMMAND_DANGEROUS, ActionKind.COMMAND_ESCALATED):
        reason = f"{_reason_to_ask(action)}; {reason}"
    if bypass:
        reason += "; it runs outside the sandbox"
    return _Judged(action, Verdict.ASK, "rule", where, bypass, reason)


def _reason_to_ask(action: Action) -> str:
    return action.reason or action.kind.value


def _combined(judged: Sequence[_Judged], policy: ApprovalPolicy) -> Skip | NeedsApproval:
    if len(judged) == 1 and _is_plain(judged[0]):  # nearly every call
        return _PLAIN[policy]
    needed = [one for one in judged if one.verdict is Verdict.ASK]
    # Together they are one call: it leaves the sandbox if what lets it do so is approved.
    bypass = any(one.bypass for one in judged)
    proposed = next((one.action.proposed_rule for one in judged if one.action.proposed_rule), None)
    if needed:
        reasons = "; ".join(dict.fromkeys(one.reason for one in needed))
        actions = tuple(one.action for one in needed)
        offered = _rule_for(needed)
        return NeedsApproval(reasons, offered, actions, bypass, needed[0].by, needed[0].basis)
    decisive = next((one for one in judged if one.by != "policy"), None)
    by, basis = (decisive.by, decisive.basis) if decisive else ("policy", policy.value)
    return Skip(bypass, proposed, by, basis)


def _is_plain(one: _Judged) -> bool:
    """Tell whether the table lets an action run, and there is no more to say."""
    runs = one.verdict is Verdict.RUN and one.by == "policy" and not one.bypass
    return runs and one.action.proposed_rule is None


_PLAIN = {policy: Skip(by="policy", basis=policy.value) for policy in ApprovalPolicy}


def _rule_for(needed: Sequence[_Judged]) -> ProposedRule | None:
    """Return the rule that would make this question needless, if one rule can.

    Not where a rule asks: of two rules the stricter wins, and it would be asked again.
    """
    rules = {one.action.proposed_rule for one in needed}
    if len(rules) != 1 or any(one.by == "rule" for one in needed):
        return None
    return rules.pop()


def is_worth_recording(actions: Sequence[Action], requirement: ExecApprovalRequirement) -> bool:
    """Tell whether the decision about a call belongs into the audit.

    Reading that needs no question is no decision, and there is a lot of it.
    """
    plain = isinstance(requirement, Skip) and requirement.by == "policy"
    return not (plain and all(action.kind in _READING for action in actions))


def refusal(action: Action, policy: ApprovalPolicy) -> str:
    """Say why `action` was not even asked about."""
    because = f" ({action.reason})" if action.reason else ""
    return (
        f"Refused: {action.kind.value}{because}: {action.target}. Approval policy "
        f"{policy.value!r} asks nobody, and this needs an approval. Find another way, or tell the "
        "person what you would need."
    )
