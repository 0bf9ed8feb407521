"""Obtains the person's decision about a call: by rules and policy, else by a question.

Law: whatever was decided, and by whom, is recorded before anything runs.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from agent_magics.approval.actions import (
    Action,
    ExecApprovalRequirement,
    Forbidden,
    NeedsApproval,
    Skip,
)
from agent_magics.approval.grants import ApprovalStore
from agent_magics.approval.kinds import kind_of
from agent_magics.approval.requirement import is_worth_recording, requirement_of
from agent_magics.approval.rules import ProposedRule, RuleBook
from agent_magics.dispatch.consent.edits import as_offered, editable_of, readable_payload
from agent_magics.dispatch.consent.questions import requested_actions, scopes_of
from agent_magics.dispatch.pool import POOL
from agent_magics.dispatch.registry import ToolInvocation
from agent_magics.protocol.errors import FatalError, RespondToModel, TurnAbort, short_message
from agent_magics.protocol.events import ApprovalDecided, ApprovalRequested, Warned
from agent_magics.protocol.items import Json
from agent_magics.protocol.ops import Answer, denied
from agent_magics.text.brief import brief

# Questions that are open at the same time; a page with a thousand of them cannot be used.
MOST_OPEN = 8
# Denials in a row after which a turn asks no more: a flood of questions invites a wrong click.
MOST_DENIED = 25


class Consent:
    """Decides whether calls may run, and asks the person where that is needed.

    Args:
        store: the grants of this session.
        rules: the approval rules; None where there are none.
    """

    def __init__(self, store: ApprovalStore, rules: RuleBook | None) -> None:
        self._store = store
        self._rules = rules
        self._open = asyncio.Semaphore(MOST_OPEN)

    def has_rules(self) -> bool:
        """Return whether any rule is in force now."""
        if self._rules is None:
            return False
        self._rules.refresh()
        return bool(self._rules.rules)

    def requirement(
        self, actions: Sequence[Action], invocation: ToolInvocation
    ) -> ExecApprovalRequirement:
        """Return whether a call with these `actions` runs freely, needs approval or is forbidden.

        Raises:
            FatalError: the rules are malformed.
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
        self,
        invocation: ToolInvocation,
        requirement: NeedsApproval,
        *,
        otherwise: str = "",
        takes_edit: bool = False,
    ) -> Answer:
        """Ask for approval and return the approving answer, which `keep` records.

        Args:
            invocation: the call.
            requirement: the approval that is required.
            otherwise: the beginning of the message to the model on a denial, before the person's
                feedback; "" stands for a message that the call was not run.
            takes_edit: whether the caller applies the person's edit of the call.

        Raises:
            RespondToModel: it was denied.
            TurnAbort: the person ended the turn instead.
        """
        answer = await self._put(invocation, requirement, takes_edit)
        if not answer.decision.startswith("approve"):
            self._record_answer(invocation, requirement, answer)
            if answer.decision == "abort":
                raise TurnAbort(f"stopped at the question about {invocation.call.tool_name}")
            self._store.denied_in_a_row += 1
            denial = f"{otherwise} {answer.feedback}" if otherwise else _denial(invocation, answer)
            raise RespondToModel(denial)
        self._store.denied_in_a_row = 0
        return answer

    async def _put(
        self, invocation: ToolInvocation, requirement: NeedsApproval, takes_edit: bool
    ) -> Answer:
        """Ask the question once fewer than the maximal number are open."""
        scopes = scopes_of(requirement, self._growing, self._store.asker)
        async with self._open:
            if self._store.denied_in_a_row >= MOST_DENIED:
                return denied(
                    reason=f"{MOST_DENIED} questions in a row were denied, so no more are asked in "
                    "this turn. Say what you need, and why."
                )
            shown = await _shown_of(requirement.actions)
            answer = await invocation.context.turn.ask(
                ApprovalRequested,
                call_id=invocation.call.call_id,
                tool=invocation.call.tool_name,
                target=requirement.target,
                arguments=shown or readable_payload(invocation.call.payload),
                reason=requirement.reason,
                scopes=tuple(scopes),
                covers=scopes,
                editable=editable_of(invocation.call) if takes_edit else "",
                dangerous=requirement.is_dangerous,
            )
        return as_offered(answer, scopes, takes_edit=takes_edit)

    @property
    def _growing(self) -> RuleBook | None:
        """The rules that an answer may add to; None for outside clients, as rules hold for all."""
        return None if self._store.asker else self._rules

    async def keep(
        self,
        invocation: ToolInvocation,
        requirement: NeedsApproval,
        answer: Answer,
        edited: NeedsApproval | None = None,
    ) -> None:
        """Record an approval; store a lasting one: as a project rule, else as a grant.

        `edited` is what would have been asked about the call as the person edited it.
        """
        approved = edited or requirement
        self._record_answer(invocation, approved, answer)
        proposed = _rule_of(approved, answer.decision)
        if proposed and self._growing is not None:
            comment = brief(requirement.target, 200)
            try:
                # On a thread: a command may hold the lock of the file's folder for a long time.
                await asyncio.wrap_future(POOL.submit(self._growing.add, proposed, comment))
                return
            except (OSError, FatalError) as error:
                why = short_message(error)
                message = f"The rule was not saved, the answer holds for this session: {why}"
                invocation.context.turn.emit(Warned, message=message)
        if answer.decision.startswith("approve_kind"):
            kind = kind_of(requirement.actions)  # as the question says it
            if kind is not None:
                self._store.grant_kind(kind, answer.decision)
            return
        for action in approved.actions:
            self._store.grant(action, answer.decision)

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
        """Answer `ToolContext.ask`, from whichever event loop it is called."""
        actions = requested_actions(invocation, permission, patterns, always)
        permitting = self._permit_here(invocation, actions, metadata)
        asked = f"{invocation.call.call_id}.asked"
        asking = invocation.context.turn.stop.watch(asked, permitting)
        if asyncio.get_running_loop() is loop:
            await asking
        else:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asking, loop))

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
        if shown:
            requirement = replace(requirement, reason=f"{requirement.reason} ({shown})")
        answer = await self.obtain(invocation, requirement)
        await self.keep(invocation, requirement, answer)

    # -- the audit --------------------------------------------------------------------------------

    def record_unasked(
        self,
        invocation: ToolInvocation,
        actions: Sequence[Action],
        requirement: Skip | Forbidden,
    ) -> None:
        """Record a decision made without a question, where the audit wants it."""
        audit = audit_of(invocation, actions, requirement)
        if audit is not None:
            turn = invocation.context.turn
            turn.emit(ApprovalDecided, call_id=invocation.call.call_id, **audit)

    def _record_answer(
        self, invocation: ToolInvocation, requirement: NeedsApproval, answer: Answer
    ) -> None:
        proposed = _rule_of(requirement, answer.decision)
        scope = answer.decision.partition("_for_")[2].removesuffix("_exact")
        invocation.context.turn.emit(
            ApprovalDecided,
            call_id=invocation.call.call_id,
            **_subject_of(invocation, requirement.actions, bypass=requirement.bypass_sandbox),
            decision=answer.decision,
            by=answer.by,
            basis=f"rule {proposed.text}" if proposed else requirement.basis,
            scope="session" if scope == "project" and not proposed else scope or "once",
            reason=requirement.reason,
        )


def _rule_of(requirement: NeedsApproval, decision: str) -> ProposedRule | None:
    """Return the rule that an answer adds, if any."""
    proposed = requirement.proposed_rule
    if proposed is None or not decision.startswith("approve_for_project"):
        return None
    exact = decision == "approve_for_project_exact" and proposed.command
    return proposed.narrowed if exact else proposed


def audit_of(
    invocation: ToolInvocation, actions: Sequence[Action], requirement: Skip | Forbidden
) -> dict[str, object] | None:
    """Return the fields of the audit record of a decision made without a question.

    Returns:
        The fields of an `ApprovalDecided` without the call's id; None where none is recorded.
    """
    if not is_worth_recording(actions, requirement):
        return None
    if isinstance(requirement, Skip):
        decision, reason, bypass = "run", "", requirement.bypass_sandbox
    else:
        decision, reason, bypass = "refuse", requirement.reason, False
    return {
        **_subject_of(invocation, actions, bypass=bypass),
        "decision": decision,
        "by": requirement.by,
        "basis": requirement.basis,
        "reason": reason,
    }


def _subject_of(
    invocation: ToolInvocation, actions: Sequence[Action], *, bypass: bool
) -> dict[str, object]:
    commands = [action for action in actions if action.is_command]
    inside = any(action.sandboxed for action in commands) and not bypass
    return {
        "tool": invocation.call.tool_name,
        "target": ", ".join(dict.fromkeys(action.target for action in actions)),
        "fingerprints": tuple(filter(None, (a.identity or a.fingerprint for a in actions))),
        "sandbox": ("inside" if inside else "outside") if commands else "",
    }


async def _shown_of(actions: Sequence[Action]) -> str:
    """Return the text shown to the person in place of the arguments, "" for none."""
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
