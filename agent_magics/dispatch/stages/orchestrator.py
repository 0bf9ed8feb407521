"""Judges calls, asks about them, and runs their tools: four stages of the pipeline.

Law: what runs is what was approved. A question takes time, and a call in front may change what a
path or a program resolves to, so the call is judged again right before it runs; changes are asked
about once more.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent_magics.approval.actions import Action, ActionKind, Forbidden, NeedsApproval, Skip
from agent_magics.approval.grants import ApprovalStore
from agent_magics.approval.rules import RuleBook
from agent_magics.dispatch.call import CallInProgress, CallState
from agent_magics.dispatch.consent.decision import Consent, audit_of
from agent_magics.dispatch.consent.edits import describe_edit, edited_call
from agent_magics.dispatch.consent.questions import repeated_outside
from agent_magics.dispatch.hooks import Hooks
from agent_magics.dispatch.registry import ToolHandler, ToolInvocation
from agent_magics.dispatch.stages.attempt import run_tool
from agent_magics.protocol.config import ApprovalPolicy
from agent_magics.protocol.errors import RespondToModel, SandboxDenied, full_message, short_message
from agent_magics.protocol.events import ApprovalDecided
from agent_magics.protocol.items import InputText
from agent_magics.protocol.ops import Answer
from agent_magics.protocol.tools import ToolCall, ToolOutput

_CHANGED = "it has changed since it was checked"


@dataclass(frozen=True, slots=True)
class Settled:
    """The decision for all calls of a tool whose arguments do not matter for approval.

    Attributes:
        runs: whether each of them may run without a question.
        audit: the fields of the audit record; None where none is recorded.
    """

    actions: tuple[Action, ...]
    runs: bool
    audit: Mapping[str, Any] | None


class ToolOrchestrator:
    """The stages in which a call is judged, asked about, judged again, and its tool run.

    Args:
        store: the grants of this session.
        rules: the approval rules; None where there are none.
        hooks: the person's hooks, which also see a call that the person edited.
        settled: decisions that turns of the same configuration have in common.
    """

    def __init__(
        self,
        store: ApprovalStore,
        rules: RuleBook | None = None,
        hooks: Hooks | None = None,
        settled: dict[ToolHandler, Settled] | None = None,
    ) -> None:
        self._consent = Consent(store, rules)
        self._hooks = hooks
        self._settled = {} if settled is None else settled
        self._ended = 0  # calls that have run

    # -- the stages -------------------------------------------------------------------------------

    def judge(self, call: CallInProgress) -> None:
        """Determine the effects of a call, and whether it may run.

        Raises:
            RespondToModel: rules or the policy refuse it.
            FatalError: the rules are malformed.
        """
        loop = asyncio.get_running_loop()
        # About the call as it is when its tool asks: hooks and the person may change it until then.
        call.status.permit = lambda *asked: self._consent.permit(loop, call.invocation, *asked)
        call.ended = self._ended
        if not self._take_settled(call):
            self._judge(call)

    def ask(self, call: CallInProgress) -> Awaitable[None] | None:
        """Ask for approval of the call where it is required.

        Raises:
            RespondToModel: it was denied.
            TurnAbort: the person ended the turn instead of answering.
        """
        return None if call.requirement is None else self._ask(call, call.requirement)

    def judge_again(self, call: CallInProgress) -> Awaitable[None] | None:
        """Judge the call again directly before it runs, where its effects may have changed.

        A session may change what a command finds while that waits. One that has not waited was
        judged in this same step of the loop.
        """
        if call.is_settled:
            may_have_changed = call.has_waited and self._consent.has_rules()
        elif call.is_command:
            may_have_changed = call.has_waited
        else:
            may_have_changed = call.asked or self._ended != call.ended
        return self._ask_about_changes(call) if may_have_changed else None

    async def attempt(self, call: CallInProgress) -> None:
        """Run the tool, and once more outside the sandbox where that is approved.

        Raises:
            RespondToModel: the tool failed.
        """
        call.was_attempted = True
        if call.bypass:
            call.status.bypass_sandbox = True
        elif not call.is_settled:
            call.status.read_only = _only_reads(call.actions)
        try:
            call.output = await run_tool(call)
        except SandboxDenied as denied:
            on_failure = call.turn.config.approval is ApprovalPolicy.ON_FAILURE
            if not on_failure or call.bypass:
                raise _noted(denied, call.note) from None
            call.output = await self._repeat_outside(call, denied)
        except RespondToModel as error:
            raise _noted(error, call.note) from error.__cause__
        finally:
            self._ended += 1
        if call.note:
            call.output = _with_note(call.output, call.note)

    # -- may it -----------------------------------------------------------------------------------

    def _take_settled(self, call: CallInProgress) -> bool:
        """Apply the decision made for all calls of a tool; return False where there is none."""
        action = call.handler.action
        if action is None or self._consent.has_rules():
            return False
        settled = self._settled.get(call.handler)
        if settled is None:
            settled = self._settled[call.handler] = self._settle((action,), call.invocation)
        if not settled.runs:
            return False
        if settled.audit is not None:
            call.turn.emit(ApprovalDecided, call_id=call.call.call_id, **settled.audit)
        call.actions, call.is_settled = settled.actions, True
        return True

    def _settle(self, actions: tuple[Action, ...], invocation: ToolInvocation) -> Settled:
        requirement = self._consent.requirement(actions, invocation)
        if not isinstance(requirement, Skip) or requirement.by != "policy":
            return Settled(actions, False, None)
        return Settled(actions, True, audit_of(invocation, actions, requirement))

    def _judge(self, call: CallInProgress) -> None:
        call.actions = call.handler.assess(call.invocation)
        requirement = self._consent.requirement(call.actions, call.invocation)
        if isinstance(requirement, NeedsApproval):
            call.requirement = requirement
            return
        self._consent.record_unasked(call.invocation, call.actions, requirement)
        if isinstance(requirement, Forbidden):
            raise _noted(RespondToModel(requirement.reason), call.note)
        call.requirement, call.bypass = None, requirement.bypass_sandbox

    async def _ask_about_changes(self, call: CallInProgress) -> None:
        """Judge the call again, and ask once about actions that have changed."""
        fresh = call.handler.assess(call.invocation)
        if self._is_unchanged(call, fresh):
            return
        requirement = self._consent.requirement(fresh, call.invocation)
        if not isinstance(requirement, NeedsApproval):
            self._consent.record_unasked(call.invocation, fresh, requirement)
        if isinstance(requirement, Forbidden):
            raise RespondToModel(f"{_not_run(call)} {requirement.reason}")
        call.actions = fresh
        if isinstance(requirement, Skip):  # it needs no approval any more
            call.asked, call.bypass = False, requirement.bypass_sandbox
            return
        await self._ask(call, replace(requirement, reason=f"{_CHANGED}; {requirement.reason}"))
        self._refuse_changed(call)

    def _refuse_changed(
        self, call: CallInProgress, said: str = "", *, is_as_asked: bool = True
    ) -> None:
        """Refuse a call that has changed once more, with what was `said` of it before."""
        fresh = call.handler.assess(call.invocation)
        if not (is_as_asked and self._is_unchanged(call, fresh)):
            self._consent.record_unasked(call.invocation, fresh, Forbidden(_not_run(call)))
            raise RespondToModel(f"{said}{_not_run(call)}")

    def _is_unchanged(self, call: CallInProgress, fresh: Sequence[Action]) -> bool:
        """Return whether `fresh` equals the judged actions: exactly, where they were approved."""
        if call.asked or call.is_command:
            return list(map(_identity, fresh)) == list(map(_identity, call.actions))
        requirement = self._consent.requirement(fresh, call.invocation)
        return isinstance(requirement, Skip) and requirement.bypass_sandbox == call.bypass

    # -- asking -----------------------------------------------------------------------------------

    async def _ask(self, call: CallInProgress, requirement: NeedsApproval) -> None:
        """Ask for approval, and apply the person's edits of the call."""
        before = call.state
        call.move(CallState.ASKING)
        call.has_waited = True
        answer = await self._consent.obtain(call.invocation, requirement, takes_edit=True)
        call.move(before)
        try:
            edited = edited_call(call.invocation.call, answer)
        except ValueError as error:
            reason = f"what you typed is no command line: {short_message(error)}"
            await self._ask(call, replace(requirement, reason=reason))
            return
        if edited is not None:
            await self._take_edited(call, edited, requirement, answer)
            return
        await self._consent.keep(call.invocation, requirement, answer)
        call.asked, call.bypass = True, requirement.bypass_sandbox

    async def _take_edited(
        self, call: CallInProgress, edited: ToolCall, requirement: NeedsApproval, answer: Answer
    ) -> None:
        """Check the person's edit like any arguments, and replace the call by it.

        They are asked again only where the edited call is dangerous in a way that the original was
        not: a typing mistake must not delete a home folder.
        """
        call.change(call.handler.prepare(edited, call.context), by="approver")
        call.note = describe_edit(edited)
        if self._hooks is not None and await self._hooks.change(call):
            # Hooks changed it, so it is not what the person wrote and approved.
            self._judge(call)
            if call.requirement is not None:
                await self._ask(call, call.requirement)
            return
        call.actions = call.handler.assess(call.invocation)
        fresh = self._consent.requirement(call.actions, call.invocation)
        if isinstance(fresh, Forbidden):
            self._consent.record_unasked(call.invocation, call.actions, fresh)
            raise _noted(RespondToModel(fresh.reason), call.note)
        was_dangerous = requirement.is_dangerous
        if isinstance(fresh, NeedsApproval) and fresh.is_dangerous and not was_dangerous:
            await self._ask(call, fresh)
            return
        call.asked, call.bypass = True, fresh.bypass_sandbox
        edit = replace(requirement, actions=tuple(call.actions), bypass_sandbox=call.bypass)
        edit = replace(edit, proposed_rule=None)  # which is about the call as it was
        await self._consent.keep(call.invocation, requirement, answer, edit)

    # -- outside the sandbox ----------------------------------------------------------------------

    async def _repeat_outside(self, call: CallInProgress, denied: SandboxDenied) -> ToolOutput:
        """Ask whether to repeat a refused call outside the sandbox, and do so.

        Raises:
            RespondToModel: it was denied, or the call has changed meanwhile.
        """
        invocation = call.invocation
        action = repeated_outside(call.actions, denied)
        requirement = self._consent.requirement([action], invocation)
        if isinstance(requirement, NeedsApproval):
            try:
                answer = await self._consent.obtain(
                    invocation, requirement, otherwise="It was not repeated outside the sandbox."
                )
            except RespondToModel as denial:
                raise RespondToModel(f"{full_message(denied)}\n{full_message(denial)}") from None
            await self._consent.keep(invocation, requirement, answer)
        else:
            self._consent.record_unasked(invocation, [action], requirement)
        if isinstance(requirement, Forbidden):
            raise RespondToModel(f"{full_message(denied)}\n{requirement.reason}")
        call.asked = True
        is_as_asked = action.identity in ("", action.identify())
        self._refuse_changed(call, f"{full_message(denied)}\n", is_as_asked=is_as_asked)
        call.status.bypass_sandbox, call.status.read_only = True, False
        output = await run_tool(call)
        return _with_note(output, "The sandbox refused this, and it was repeated outside of it.")


# -- what is the same, and what is dangerous ------------------------------------------------------


def _identity(action: Action) -> tuple[str, ...]:
    """Return the values by which two actions are the same to the person, whatever their reason."""
    return action.kind, action.target, action.identity or action.fingerprint


def _only_reads(actions: Sequence[Action]) -> bool:
    return {action.kind for action in actions} == {ActionKind.COMMAND_SAFE}


# -- words to the model ---------------------------------------------------------------------------


def _not_run(call: CallInProgress) -> str:
    return (
        f"{call.call.tool_name} was not run: what it would touch has changed since "
        "it was checked. Call again, so that it is checked anew."
    )


def _noted(error: RespondToModel, note: str) -> RespondToModel:
    return RespondToModel(f"{note}\n{full_message(error)}") if note else error


def _with_note(output: ToolOutput, note: str) -> ToolOutput:
    if isinstance(output.content, str):
        return replace(output, content=f"{note}\n{output.content}")
    return replace(output, content=(InputText(note), *output.content))
