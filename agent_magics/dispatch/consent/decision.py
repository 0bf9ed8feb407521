"""The person's yes or no about a call: what rules and policy say, the question, what is kept of it.

Law: whatever was decided, and by whom, is recorded before anything runs.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent_magics.dispatch.actions import (
    Action,
    ExecApprovalRequirement,
    Forbidden,
    NeedsApproval,
    Skip,
)
from agent_magics.dispatch.approval import is_worth_recording, requirement_of
from agent_magics.dispatch.edits import editable_of, readable_payload
from agent_magics.dispatch.grants import ApprovalStore
from agent_magics.dispatch.pool import POOL
from agent_magics.dispatch.questions import requested_actions, scopes_of
from agent_magics.dispatch.registry import ToolInvocation
from agent_magics.dispatch.rules import RuleBook
from agent_magics.protocol.errors import FatalError, RespondToModel, TurnAbort
from agent_magics.protocol.events import ApprovalDecided, ApprovalRequested, Warned
from agent_magics.protocol.items import Json
from agent_magics.protocol.ops import Answer

# Questions that are open at the same time; a page with a thousand of them cannot be used.
MOST_OPEN = 8
# Denials in a row after which a turn asks no more: whoever floods a person waits for a slip.
MOST_DENIED = 25


class Consent:
    """Finds out whether calls may run, asking where that is needed.

    Args:
        store: what was granted earlier in this session.
        rules: the rules that hold; None where there are none.
    """

    def __init__(self, store: ApprovalStore, rules: RuleBook | None) -> None:
        self._store = store
        self._rules = rules
        self._open = asyncio.Semaphore(MOST_OPEN)

    def has_rules(self) -> bool:
        """Tell whether any rule holds now."""
        if self._rules is None:
            return False
        self._rules.refresh()
        return bool(self._rules.rules)

    def requirement(
        self, actions: Sequence[Action], invocation: ToolInvocation
    ) -> ExecApprovalRequirement:
        """Return what must happen before a call that does `actions` runs.

        Raises:
            FatalError: the rules are not understood.
        """
        config = invocation.context.turn.config
        if self._rules is not None:
            self._rules.refresh()
        return requirement_of(
            actions,
            config.approval,
            self._store,
            allow_dangerous=config.allow_dangerous,
            rules=self._rules,
            agent=invocation.context.agent,
            tool=invocation.call.tool_name,
        )

    # -- asking -----------------------------------------------------------------------------------

    async def obtain(
        self, invocation: ToolInvocation, requirement: NeedsApproval, *, otherwise: str = ""
    ) -> Answer:
        """Put the question and return an answer that approves.

        Args:
            invocation: the call.
            requirement: what is asked about.
            otherwise: what the model is told of a denial, before the person's own words; "" says
                that the call was not run.

        Raises:
            RespondToModel: it was denied.
            TurnAbort: the person ended the turn instead.
        """
        answer = await self._put(invocation, requirement)
        self._record_answer(invocation, requirement, answer)
        if answer.decision == "abort":
            raise TurnAbort(f"stopped at the question about {invocation.call.tool_name}")
        if not answer.decision.startswith("approve"):
            self._store.denied_in_a_row += 1
            told = f"{otherwise} {answer.feedback}" if otherwise else _denial(invocation, answer)
            raise RespondToModel(told)
        self._store.denied_in_a_row = 0
        return answer

    async def _put(self, invocation: ToolInvocation, requirement: NeedsApproval) -> Answer:
        """Put the question, when there is room for one more."""
        scopes = scopes_of(requirement, self._rules)
        async with self._open:
            if self._store.denied_in_a_row >= MOST_DENIED:
                raise RespondToModel(
                    f"{invocation.call.tool_name} was not run: {MOST_DENIED} questions in a row "
                    "were denied, so no more are asked in this turn. Say what you need, and why."
                )
            shown = await _shown_of(requirement.actions)
            return await invocation.context.turn.ask(
                ApprovalRequested,
                call_id=invocation.call.call_id,
                tool=invocation.call.tool_name,
                target=requirement.target,
                arguments=shown or readable_payload(invocation.call.payload),
                reason=requirement.reason,
                scopes=tuple(scopes),
                covers=scopes,
                editable=editable_of(invocation.call),
            )

    def keep(self, invocation: ToolInvocation, requirement: NeedsApproval, decision: str) -> None:
        """Keep a lasting answer: as a rule of the project where one can say it, else here."""
        proposed = requirement.proposed_rule
        if decision == "approve_for_project" and proposed and self._rules is not None:
            try:
                self._rules.add(proposed, _cut(requirement.target))
                return
            except (OSError, FatalError) as error:
                message = f"The rule was not saved, the answer holds for this session: {error}"
                invocation.context.turn.emit(Warned, message=message)
        self.grant(requirement.actions, decision)

    def grant(self, actions: Sequence[Action], decision: str) -> None:
        """Keep a lasting answer for as long as it says."""
        for action in actions:
            self._store.grant(action, decision)

    # -- what a tool asks for itself --------------------------------------------------------------

    async def permit(
        self,
        loop: asyncio.AbstractEventLoop,
        invocation: ToolInvocation,
        permission: str,
        patterns: Sequence[str],
        always: Sequence[str],
        metadata: Mapping[str, Json],
    ) -> None:
        """Answer `ToolContext.ask`, from whichever loop it is called."""
        actions = requested_actions(invocation, permission, patterns, always)
        asking: Awaitable[None] = self._permit_here(invocation, actions, metadata)
        if asyncio.get_running_loop() is not loop:
            asking = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asking, loop))
        await asking

    async def _permit_here(
        self, invocation: ToolInvocation, actions: list[Action], metadata: Mapping[str, Json]
    ) -> None:
        requirement = self.requirement(actions, invocation)
        if not isinstance(requirement, NeedsApproval):
            self.record_unasked(invocation, actions, requirement)
            if isinstance(requirement, Forbidden):
                raise RespondToModel(requirement.reason)
            return
        shown = "; ".join(f"{name}: {value}" for name, value in metadata.items())
        reason = f"{requirement.reason} ({shown})" if shown else requirement.reason
        answer = await self.obtain(invocation, replace(requirement, reason=reason))
        self.keep(invocation, requirement, answer.decision)

    # -- the audit --------------------------------------------------------------------------------

    def record_unasked(
        self,
        invocation: ToolInvocation,
        actions: Sequence[Action],
        requirement: Skip | Forbidden,
    ) -> None:
        """Record a decision that nobody was asked about, where it is worth a line."""
        audit = audit_of(invocation, actions, requirement)
        if audit is not None:
            turn = invocation.context.turn
            turn.emit(ApprovalDecided, call_id=invocation.call.call_id, **audit)

    def _record_answer(
        self, invocation: ToolInvocation, requirement: NeedsApproval, answer: Answer
    ) -> None:
        proposed = requirement.proposed_rule
        is_rule = answer.decision == "approve_for_project" and proposed is not None
        invocation.context.turn.emit(
            ApprovalDecided,
            call_id=invocation.call.call_id,
            **_subject_of(invocation, requirement.actions, bypass=requirement.bypass_sandbox),
            decision=answer.decision,
            by=answer.by,
            basis=f"rule {proposed.text}" if is_rule else requirement.basis,
            scope=answer.decision.partition("approve_for_")[2] or "once",
            reason=requirement.reason,
        )


def audit_of(
    invocation: ToolInvocation, actions: Sequence[Action], requirement: Skip | Forbidden
) -> dict[str, Any] | None:
    """Return the fields of the audit's line about a call that nobody was asked about.

    Returns:
        The fields of an `ApprovalDecided` without the call's id; None where no line is due.
    """
    if not is_worth_recording(actions, requirement):
        return None
    runs = isinstance(requirement, Skip)
    bypass = requirement.bypass_sandbox if runs else False
    return {
        **_subject_of(invocation, actions, bypass=bypass),
        "decision": "run" if runs else "refuse",
        "by": requirement.by,
        "basis": requirement.basis,
        "reason": "" if runs else requirement.reason,
    }


def _subject_of(
    invocation: ToolInvocation, actions: Sequence[Action], *, bypass: bool
) -> dict[str, Any]:
    commands = [action for action in actions if action.is_command]
    inside = any(action.sandboxed for action in commands) and not bypass
    return {
        "tool": invocation.call.tool_name,
        "target": ", ".join(dict.fromkeys(action.target for action in actions)),
        "fingerprints": tuple(filter(None, (a.identity or a.fingerprint for a in actions))),
        "sandbox": ("inside" if inside else "outside") if commands else "",
    }


async def _shown_of(actions: Sequence[Action]) -> str:
    """Return what the person reads in place of the arguments, "" for nothing."""
    shown = [action.shown for action in actions]
    shows = dict.fromkeys(action.show for action in actions if action.show is not None)
    # A thread reads files, since the loop serves all turns.
    shown += [await asyncio.wrap_future(POOL.submit(show)) for show in shows]
    return "\n".join(filter(None, shown))


def _denial(invocation: ToolInvocation, answer: Answer) -> str:
    name = invocation.call.tool_name
    if answer.by == "policy":
        return f"{name} was not run: {answer.feedback}"
    if answer.feedback:
        return f"{name} was not run: the person denied it and says: {answer.feedback}"
    return (
        f"{name} was not run: the person denied it. Do not try the same again; ask or find "
        "another way."
    )


def _cut(text: str, longest: int = 200) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
