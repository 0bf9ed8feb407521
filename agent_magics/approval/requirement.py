"""Decides from rules, policy and actions whether a call runs, needs approval or is refused.

A tool describes the effects of a call as `Action`s. Rules come first; where none matches, the table
decides; earlier grants ("always for this session") replace a question. Asking the person is not
done here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from agent_magics.approval.actions import (
    Action,
    ActionKind,
    ExecApprovalRequirement,
    Forbidden,
    NeedsApproval,
    Skip,
)
from agent_magics.approval.grants import ApprovalStore
from agent_magics.approval.rules import ProposedRule, RuleBook
from agent_magics.protocol.config import ApprovalPolicy

if TYPE_CHECKING:
    from agent_magics.approval.decisions import RuleDecision

_STRICTNESS = ("allow", "", "prompt", "forbid")  # "" is without a rule
_READING = frozenset({ActionKind.READ, ActionKind.OWN_TOOL_READING})


class Verdict(Enum):
    """A cell of the table: run, ask or refuse."""

    RUN = "run"
    ASK = "ask"
    REFUSE = "refuse"


_RUN, _ASK, _REFUSE = Verdict.RUN, Verdict.ASK, Verdict.REFUSE

# For each kind the rules that apply to it ("" for none), then the verdicts under the policies
# untrusted, on-request, on-failure and never.
_TABLE: dict[ActionKind, tuple[str, Verdict, Verdict, Verdict, Verdict]] = {
    ActionKind.COMMAND_SAFE: ("command", _RUN, _RUN, _RUN, _RUN),
    ActionKind.COMMAND_SANDBOXED: ("command", _ASK, _RUN, _RUN, _RUN),
    ActionKind.COMMAND_UNSANDBOXED: ("command", _ASK, _ASK, _ASK, _REFUSE),
    ActionKind.COMMAND_FULL_ACCESS: ("command", _ASK, _RUN, _RUN, _RUN),
    ActionKind.COMMAND_ESCALATED: ("command", _ASK, _ASK, _ASK, _REFUSE),
    ActionKind.COMMAND_NETWORK: ("network", _ASK, _ASK, _ASK, _REFUSE),
    ActionKind.COMMAND_DANGEROUS: ("command", _ASK, _ASK, _ASK, _REFUSE),
    ActionKind.WRITE_INSIDE: ("write", _ASK, _RUN, _RUN, _RUN),
    ActionKind.WRITE_OUTSIDE: ("write", _ASK, _ASK, _ASK, _REFUSE),
    ActionKind.READ: ("read", _RUN, _RUN, _RUN, _RUN),
    ActionKind.READ_DENIED: ("read", _ASK, _ASK, _ASK, _REFUSE),
    ActionKind.OWN_TOOL_READING: ("tool", _RUN, _RUN, _RUN, _RUN),
    ActionKind.OWN_TOOL_MUTATING: ("tool", _ASK, _RUN, _RUN, _RUN),
    ActionKind.DYNAMIC_TOOL: ("tool", _ASK, _ASK, _RUN, _RUN),
    ActionKind.MCP_READING: ("mcp", _ASK, _RUN, _RUN, _RUN),
    ActionKind.MCP_OTHER: ("mcp", _ASK, _ASK, _ASK, _RUN),
    ActionKind.MCP_ASKING: ("mcp", _ASK, _ASK, _ASK, _REFUSE),
    ActionKind.MCP_ALLOWED: ("mcp", _RUN, _RUN, _RUN, _RUN),
    ActionKind.LIVE_PYTHON: ("tool", _ASK, _ASK, _ASK, _RUN),
    ActionKind.NOTEBOOK_CHANGE: ("tool", _ASK, _ASK, _ASK, _RUN),
    ActionKind.GUARD_RAIL: ("", _ASK, _ASK, _ASK, _RUN),
    ActionKind.SCRATCH_PYTHON: ("tool", _ASK, _RUN, _RUN, _RUN),
    ActionKind.MEMORY: ("tool", _ASK, _RUN, _RUN, _RUN),
    ActionKind.TOOL_REQUEST: ("", _ASK, _ASK, _ASK, _REFUSE),
}
_VERDICTS = {
    (kind, policy): verdict
    for kind, (_, *row) in _TABLE.items()
    for policy, verdict in zip(ApprovalPolicy, row, strict=True)
}


def decide(kind: ActionKind, policy: ApprovalPolicy, *, allow_dangerous: bool = False) -> Verdict:
    """Return the table's verdict on a kind of action under `policy`."""
    if kind is ActionKind.COMMAND_DANGEROUS and policy is ApprovalPolicy.NEVER and allow_dangerous:
        return Verdict.RUN
    return _VERDICTS[kind, policy]


@dataclass(slots=True)
class _Judged:
    """One action with the verdict of rules, table and grants."""

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
    """Return what must happen before a call with these `actions` runs; the strictest verdict wins.

    Args:
        actions: the effects of the call.
        policy: selects the table's column for actions without a rule.
        store: the earlier grants.
        allow_dangerous: whether dangerous commands run under "never".
        rules: the applicable rules; None where there are none.
        agent: the agent's name, which rules may select.
        tool: the tool's name, which rules about tools match.
    """
    judged = []
    for action in actions:
        decision = _rule_decision(action, rules, agent, tool)
        one = _judge(action, decision, policy, allow_dangerous=allow_dangerous)
        if one.verdict is Verdict.REFUSE:
            return Forbidden(one.reason, one.by, one.basis)
        if one.verdict is Verdict.ASK and store.allows(action):
            one.verdict, one.by, one.basis = Verdict.RUN, "grant", action.target
        elif (
            one.verdict is Verdict.ASK
            and one.by != "rule"
            and (of_kind := store.kind_grant(action))
        ):
            one.verdict, one.by, one.basis = Verdict.RUN, "grant", of_kind.target
        elif one.verdict is Verdict.ASK and _was_allowed(action, store, rules):
            one.reason = f"{action.target} is described otherwise than when you allowed it"
        judged.append(one)
    return _combined(judged, policy)


def _rule_decision(
    action: Action, rules: RuleBook | None, agent: str, tool: str
) -> "RuleDecision | None":
    """Return the rules' decision on one action, or None."""
    if rules is None:
        return None
    permission = action.permission or _TABLE[action.kind][0]
    if not permission:
        return None
    subject: str | tuple[str, ...] | None = action.subject
    if subject is None:
        subject = tool if permission in ("tool", "mcp") and tool else action.target
    found = rules.decide(permission, subject, agent, safe=action.is_safe)
    if action.written and action.written != subject:
        both = (found, rules.decide(permission, action.written, agent))
        found = max(both, key=lambda each: _STRICTNESS.index(each.decision if each else ""))
    if found is None and action.pinned:
        found = rules.decide(permission, action.pinned, agent)
    if found is not None and found.sandbox == "bypass" and not action.may_leave():
        found = replace(found, sandbox="default")
    if found is None and action.kind is ActionKind.COMMAND_NETWORK and action.may_leave():
        # A command that may leave the sandbox may use the network.
        found = rules.decide("command", subject, agent, safe=action.is_safe)
        leaves = found is not None and (found.decision, found.sandbox) == ("allow", "bypass")
        found = found if leaves else None
    return found


def _was_allowed(action: Action, store: ApprovalStore, rules: RuleBook | None) -> bool:
    """Tell whether a tool of this name had a lasting approval under another description."""
    if not action.pinned:
        return False
    name = action.pinned.partition("@")[0]
    if any(grant.fingerprint.startswith(f"{name}:") for grant in store.grants):
        return True
    return rules is not None and any(
        isinstance(rule.pattern, str) and rule.pattern.startswith(f"{name}@")
        for rule in rules.rules
        if rule.permission == "mcp" and rule.decision == "allow"
    )


def _judge(
    action: Action, rule: "RuleDecision | None", policy: ApprovalPolicy, *, allow_dangerous: bool
) -> _Judged:
    """Judge one action: by the rule that applies, else by the table."""
    if rule is not None and _applies(rule, action):
        return _judge_by_rule(action, rule, policy)
    verdict = decide(action.kind, policy, allow_dangerous=allow_dangerous)
    reason = ""
    if verdict is not Verdict.RUN:
        refused = verdict is Verdict.REFUSE
        reason = refusal(action, policy) if refused else _reason_to_ask(action)
    return _Judged(action, verdict, "policy", str(policy), action.leaves_sandbox, reason)


def _applies(rule: "RuleDecision", action: Action) -> bool:
    """Tell whether a rule's decision covers this action; a prohibition always does."""
    if rule.decision != "allow":
        return True
    if action.kind is ActionKind.COMMAND_DANGEROUS:
        # A rule for "git push" does not cover "--force" unless it names it.
        return any(map(action.is_danger, rule.prefixes))
    if action.kind is ActionKind.COMMAND_ESCALATED:
        return rule.sandbox == "bypass"
    return True


def _judge_by_rule(action: Action, rule: "RuleDecision", policy: ApprovalPolicy) -> _Judged:
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
    if len(judged) == 1 and _is_plain(judged[0]):  # fast path for nearly every call
        return _PLAIN[policy]
    needed = [one for one in judged if one.verdict is Verdict.ASK]
    # They are one call, which leaves the sandbox if any of them does once approved.
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
    """Tell whether the table lets an action run, without anything else to report."""
    runs = one.verdict is Verdict.RUN and one.by == "policy" and not one.bypass
    return runs and one.action.proposed_rule is None


_PLAIN = {policy: Skip(by="policy", basis=policy.value) for policy in ApprovalPolicy}


def _rule_for(needed: Sequence[_Judged]) -> ProposedRule | None:
    """Return the rule that would make this question unnecessary, if a single rule can.

    None where a rule asks: the stricter of two rules wins, so the question would be asked again.
    """
    rules = {one.action.proposed_rule for one in needed}
    if len(rules) != 1 or any(one.by == "rule" for one in needed):
        return None
    return rules.pop()


def is_worth_recording(actions: Sequence[Action], requirement: ExecApprovalRequirement) -> bool:
    """Tell whether the decision about a call belongs in the audit log.

    Reads that need no approval are left out, because there are many.
    """
    plain = isinstance(requirement, Skip) and requirement.by == "policy"
    return not (plain and all(action.kind in _READING for action in actions))


def refusal(action: Action, policy: ApprovalPolicy) -> str:
    """Return the sentence for the model on why `action` was refused without asking."""
    because = f" ({action.reason})" if action.reason else ""
    return (
        f"Refused: {action.kind.value}{because}: {action.target}. Approval policy "
        f"{policy.value!r} asks nobody, and this needs an approval. Find another way, or tell the "
        "person what you would need."
    )
