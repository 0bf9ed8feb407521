"""Builds approval questions and the lasting grants that each may offer."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from agent_magics.approval.actions import NOT_BOUND, Action, ActionKind, NeedsApproval
from agent_magics.approval.kinds import kind_of
from agent_magics.approval.read_rules import target_of
from agent_magics.approval.rules import ProposedRule, RuleBook
from agent_magics.approval.rules_file import PERMISSIONS
from agent_magics.dispatch.registry import ToolInvocation
from agent_magics.protocol.errors import SandboxDenied

# What the guard rails of live code ask for, beside the permissions of tools.
GUARD_RAIL = "guard rail"


def scopes_of(
    requirement: NeedsApproval, rules: RuleBook | None, asker: str = ""
) -> dict[str, str]:
    """Return the lasting answers that a question offers, each with a description of its scope.

    Args:
        requirement: the approval that is required.
        rules: the rules that an answer may add to.
        asker: the name of the outside client that asks, which has no cell; "" for the agent itself.
    """
    scopes: dict[str, str] = {}
    if all(action.fingerprint or action.always for action in requirement.actions):
        exact = _exactly(requirement.actions)
        if asker:
            ends = "until the kernel or the conversation ends"
            return {"approve_for_session": f"{exact}, from {asker} alone, {ends}"}
        scopes["approve_for_cell"] = f"{exact}, until this cell ends"
        scopes["approve_for_session"] = f"{exact}, until the kernel or the conversation ends"
    kind = None if requirement.by == "rule" else kind_of(requirement.actions)
    if kind is not None:
        scopes["approve_kind_for_cell"] = f"{kind.covers}, until this cell ends"
        ends = "until the kernel or the conversation ends"
        scopes["approve_kind_for_session"] = f"{kind.covers}, {ends}"
    proposed = requirement.proposed_rule
    if proposed is not None and rules is not None and rules.may_grow:
        scopes["approve_for_project"] = _described(proposed, requirement, rules)
        if proposed.command:
            exact = _described(proposed.narrowed, requirement, rules)
            scopes["approve_for_project_exact"] = exact
    return scopes


def _exactly(actions: Sequence[Action]) -> str:
    always = [pattern for action in actions for pattern in action.always]
    if always:
        return ", ".join(dict.fromkeys(always))
    if all(action.pinned for action in actions):
        return "every call of it, as long as its server describes it as now"
    if all(action.kind is ActionKind.NOTEBOOK_CHANGE for action in actions):
        return "every change of the notebook that is open here; you can undo each"
    if any(action.is_command for action in actions):
        return "this very command, while its folder, environment, program and script are the same"
    return "this very call, with these arguments"


def _described(proposed: ProposedRule, requirement: NeedsApproval, rules: RuleBook) -> str:
    which = "this very command" if proposed.exact else "every command that begins so"
    if proposed.permission == "network":
        what = f"{proposed.text} (the network for {which})"
    elif proposed.sandbox == "bypass":
        what = f"{proposed.text} ({which}, OUTSIDE the sandbox)"
    elif any(action.pinned == proposed.pattern for action in requirement.actions):
        what = f"{proposed.text} (every call of it, as long as its server describes it as now)"
    elif proposed.permission != "command":
        what = f"{proposed.text} ({proposed.permission})"
    elif any(action.sandboxed for action in requirement.actions):
        what = f"{proposed.text} ({which}, in the sandbox)"
    else:
        what = f"{proposed.text} ({which}; there is no sandbox here)"
    return f"{what}; written to {rules.project_file.relative_to(rules.folder)}"


def repeated_outside(actions: Sequence[Action], denied: SandboxDenied) -> Action:
    """Return the action of repeating a refused call outside the sandbox."""
    command = next(action for action in actions if action.is_command)
    is_bound = command.is_bound()
    proposed = command.proposed_rule if is_bound else None
    outside = proposed and replace(proposed, permission="command", sandbox="bypass")
    lasting = bool(command.fingerprint) and is_bound
    once = "" if lasting else f" ({NOT_BOUND})"
    return replace(
        command,
        kind=ActionKind.COMMAND_ESCALATED,
        reason=f"{denied.denial.sentence} Repeat it outside the sandbox?" + once,
        fingerprint=f"outside:{command.fingerprint}" if lasting else "",
        identity="" if lasting else command.identify(),
        leaves_sandbox=True,
        proposed_rule=outside or None,
    )


def requested_actions(
    invocation: ToolInvocation, permission: str, patterns: Sequence[str], always: Sequence[str]
) -> list[Action]:
    """Return the actions for which a tool asks itself (`ToolContext.ask`)."""
    if permission == GUARD_RAIL:
        reason = "the code was allowed to run; a yes to this holds until it ends"
        return [
            Action(ActionKind.GUARD_RAIL, what, reason, fingerprint)
            for what, fingerprint in zip(patterns, always, strict=True)
        ]
    if permission not in PERMISSIONS:
        raise ValueError(f"permission={permission!r} is not one of: {' | '.join(PERMISSIONS)}")
    if not patterns or isinstance(patterns, str) or isinstance(always, str):
        raise ValueError("patterns is a list with at least one entry, and always is a list")
    proposed = None
    if len(always) == 1 and permission not in ("command", "network"):
        proposed = ProposedRule(permission, always[0])
    folder = str(invocation.context.cwd) if permission in ("read", "write") else ""
    if proposed and folder:
        # Else the rule would not hold behind a link that a command may change.
        proposed = replace(proposed, target=target_of(always[0], Path(folder)))
    return [
        Action(
            ActionKind.TOOL_REQUEST,
            target=pattern,
            reason=f"{invocation.call.tool_name} asks for it ({permission})",
            permission=permission,
            subject=tuple(shlex.split(pattern)) if permission == "command" else pattern,
            proposed_rule=proposed,
            always=tuple(always),
            folder=folder,
        )
        for pattern in patterns
    ]
