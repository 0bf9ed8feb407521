"""One call's way: what would it do -> may it -> its turn among the others -> do it.

Law: what runs is what was approved. A person who is asked takes their time, and a call in front may
change what a path or a program leads to, so right before it runs the call is judged again; what has
changed is asked about once more.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from agent_magics.dispatch.actions import (
    Action,
    ActionKind,
    Forbidden,
    NeedsApproval,
    Skip,
)
from agent_magics.dispatch.attempt import attempt
from agent_magics.dispatch.consent import Consent, audit_of
from agent_magics.dispatch.edits import (
    describe_edit,
    edited_call,
)
from agent_magics.dispatch.grants import ApprovalStore
from agent_magics.dispatch.hooks import Hooks
from agent_magics.dispatch.questions import repeated_outside
from agent_magics.dispatch.registry import ToolHandler, ToolInvocation
from agent_magics.dispatch.rules import RuleBook
from agent_magics.protocol.config import ApprovalPolicy
from agent_magics.protocol.errors import RespondToModel, SandboxDenied
from agent_magics.protocol.events import ApprovalDecided
from agent_magics.protocol.items import InputText
from agent_magics.protocol.ops import Answer
from agent_magics.protocol.tools import ToolCall, ToolOutput

_CHANGED = "it has changed since it was checked"


@dataclass(slots=True)
class _Approved:
    """A call that may run.

    Attributes:
        actions: what it would do, as it was judged.
        asked: a person (or a program in their place) said yes to these very actions.
        bypass: it may leave the sandbox.
        note: what the model is told about it before its output.
        is_settled: neither its arguments nor the world can change that.
    """

    invocation: ToolInvocation
    actions: Sequence[Action]
    asked: bool = False
    bypass: bool = False
    note: str = ""
    is_settled: bool = False

    @property
    def is_command(self) -> bool:
        return any(action.is_command for action in self.actions)


@dataclass(frozen=True, slots=True)
class _Settled:
    """What holds for every call of a tool whose arguments approval does not look at.

    Attributes:
        policy: under which it holds.
        runs: each of them may run, and nobody is asked.
        audit: the fields of the line of the audit; None where none is due.
    """

    policy: ApprovalPolicy
    actions: tuple[Action, ...]
    runs: bool
    audit: Mapping[str, Any] | None


class ToolOrchestrator:
    """Takes calls through approval, the gate and the attempt.

    Args:
        store: what was granted earlier in this session.
        rules: the rules that hold; None where there are none.
        hooks: the person's hooks; None where there are none.
    """

    def __init__(
        self, store: ApprovalStore, rules: RuleBook | None = None, hooks: Hooks | None = None
    ) -> None:
        self._consent = Consent(store, rules)
        self._hooks = hooks
        self._settled: dict[ToolHandler, _Settled] = {}
        self._ended = 0  # calls that have run

    async def run(self, handler: ToolHandler, invocation: ToolInvocation) -> ToolOutput:
        """Run the call, asking first where rules or the policy say so.

        Raises:
            RespondToModel: refused, denied, or the tool itself could not do it.
            FatalError: the rules are not understood.
            TurnAbort: the person ended the turn instead of answering.
        """
        note = ""
        if self._hooks is not None:
            invocation, note = await self._hooks.before_tool(handler, invocation)
        context = invocation.context
        context.permit = partial(self._consent.permit, asyncio.get_running_loop(), invocation)
        ended = self._ended
        approved = self._find_settled(handler, invocation, note)
        if approved is None:
            approved = await self._approve(handler, invocation, note)
        if context.gate is not None:
            await context.gate()
        if self._may_have_changed(approved, ended):
            approved = await self._approve_changes(handler, approved)
        try:
            if self._hooks is None:
                return await self._attempt(handler, approved)
            return await self._attempt_watched(self._hooks, handler, approved)
        finally:
            self._ended += 1

    # -- may it -----------------------------------------------------------------------------------

    def _find_settled(
        self, handler: ToolHandler, invocation: ToolInvocation, note: str
    ) -> _Approved | None:
        """Return the call as approved where that was decided for all calls of its tool at once."""
        action = handler.action
        if action is None or self._consent.has_rules():
            return None
        turn = invocation.context.turn
        settled = self._settled.get(handler)
        if settled is None or settled.policy is not turn.config.approval:
            settled = self._settled[handler] = self._settle((action,), invocation)
        if not settled.runs:
            return None
        if settled.audit is not None:
            turn.emit(ApprovalDecided, call_id=invocation.call.call_id, **settled.audit)
        return _Approved(invocation, settled.actions, False, False, note, True)

    def _settle(self, actions: tuple[Action, ...], invocation: ToolInvocation) -> _Settled:
        requirement = self._consent.requirement(actions, invocation)
        runs = isinstance(requirement, Skip) and requirement.by == "policy"
        audit = audit_of(invocation, actions, requirement) if runs else None
        return _Settled(invocation.context.turn.config.approval, actions, runs, audit)

    def _may_have_changed(self, approved: _Approved, ended: int) -> bool:
        """Tell whether a call must be judged again; `ended` calls had run when it was judged."""
        if approved.is_settled:
            return self._consent.has_rules()
        return approved.asked or approved.is_command or self._ended != ended

    async def _approve(
        self, handler: ToolHandler, invocation: ToolInvocation, note: str = ""
    ) -> _Approved:
        """Judge a call and ask about it where that is needed."""
        actions = handler.assess(invocation)
        requirement = self._consent.requirement(actions, invocation)
        if isinstance(requirement, NeedsApproval):
            return await self._ask(handler, invocation, actions, requirement, note)
        self._consent.record_unasked(invocation, actions, requirement)
        if isinstance(requirement, Forbidden):
            raise RespondToModel(f"{note}\n{requirement.reason}" if note else requirement.reason)
        return _Approved(invocation, actions, bypass=requirement.bypass_sandbox, note=note)

    async def _approve_changes(self, handler: ToolHandler, approved: _Approved) -> _Approved:
        """Judge a call again, directly before it runs; ask about what has changed, once."""
        fresh = handler.assess(approved.invocation)
        if self._is_unchanged(fresh, approved):
            return approved
        requirement = self._consent.requirement(fresh, approved.invocation)
        if isinstance(requirement, Skip):  # whatever it was, now it needs no approval
            return replace(approved, actions=fresh, asked=False, bypass=requirement.bypass_sandbox)
        if isinstance(requirement, Forbidden):
            raise RespondToModel(f"{_not_run(approved)} {requirement.reason}")
        requirement = replace(requirement, reason=f"{_CHANGED}; {requirement.reason}")
        again = await self._ask(handler, approved.invocation, fresh, requirement, approved.note)
        if not self._is_unchanged(handler.assess(again.invocation), again):
            raise RespondToModel(_not_run(approved))
        return again

    def _is_unchanged(self, fresh: Sequence[Action], approved: _Approved) -> bool:
        if approved.asked or approved.is_command:
            return list(map(_identity, fresh)) == list(map(_identity, approved.actions))
        requirement = self._consent.requirement(fresh, approved.invocation)
        return isinstance(requirement, Skip) and requirement.bypass_sandbox == approved.bypass

    # -- asking -----------------------------------------------------------------------------------

    async def _ask(
        self,
        handler: ToolHandler,
        invocation: ToolInvocation,
        actions: Sequence[Action],
        requirement: NeedsApproval,
        note: str = "",
    ) -> _Approved:
        """Return the call as it was approved, and all it would do."""
        answer = await self._consent.obtain(invocation, requirement)
        try:
            edited = edited_call(invocation.call, answer)
        except ValueError as error:
            again = replace(requirement, reason=f"what you typed is no command line: {error}")
            return await self._ask(handler, invocation, actions, again, note)
        if edited is not None:
            return await self._take_edited(handler, invocation, edited, requirement, answer)
        self._consent.keep(invocation, requirement, answer.decision)
        return _Approved(invocation, actions, True, requirement.bypass_sandbox, note)

    async def _take_edited(
        self,
        handler: ToolHandler,
        invocation: ToolInvocation,
        edited: ToolCall,
        requirement: NeedsApproval,
        answer: Answer,
    ) -> _Approved:
        """Check the person's own words like any arguments.

        They are asked about again only where they are dangerous in a way that the call was not:
        a slip of the hand must not delete a home folder.
        """
        invocation = handler.prepare(edited, invocation.context)
        note = describe_edit(edited)
        if self._hooks is not None:
            invocation, changed = await self._hooks.before_tool(handler, invocation)
            if changed:  # so it is not what the person wrote and approved
                return await self._approve(handler, invocation, f"{note}\n{changed}")
        actions = handler.assess(invocation)
        fresh = self._consent.requirement(actions, invocation)
        if isinstance(fresh, Forbidden):
            self._consent.record_unasked(invocation, actions, fresh)
            raise RespondToModel(f"{note}\n{fresh.reason}")
        needs = isinstance(fresh, NeedsApproval) and _is_dangerous(fresh.actions)
        if needs and not _is_dangerous(requirement.actions):
            return await self._ask(handler, invocation, actions, fresh, note)
        self._consent.grant(actions, answer.decision)
        return _Approved(invocation, actions, True, fresh.bypass_sandbox, note)

    # -- doing it ---------------------------------------------------------------------------------

    async def _attempt_watched(
        self, hooks: Hooks, handler: ToolHandler, approved: _Approved
    ) -> ToolOutput:
        """Run the call and show its output, also that of a failure, to the hooks."""
        try:
            output = await self._attempt(handler, approved)
        except RespondToModel as failure:
            output = ToolOutput(str(failure), success=False)
        return await hooks.after_tool(approved.invocation, output)

    async def _attempt(self, handler: ToolHandler, approved: _Approved) -> ToolOutput:
        context = approved.invocation.context
        context.bypass_sandbox = approved.bypass
        context.read_only = not (approved.is_settled or approved.bypass) and _only_reads(
            approved.actions
        )
        try:
            output = await _handled(handler, approved.invocation)
        except SandboxDenied as denied:
            on_failure = context.turn.config.approval is ApprovalPolicy.ON_FAILURE
            if not on_failure or approved.bypass:
                raise _noted(denied, approved.note) from None
            output = await self._repeat_outside(handler, approved, denied)
        except RespondToModel as error:
            raise _noted(error, approved.note) from error.__cause__
        return _with_note(output, approved.note) if approved.note else output

    async def _repeat_outside(
        self, handler: ToolHandler, approved: _Approved, denied: SandboxDenied
    ) -> ToolOutput:
        """Ask whether to repeat outside the sandbox what it refused something, and do so.

        Raises:
            RespondToModel: it was denied, or the call is another one by now.
        """
        invocation = approved.invocation
        action = repeated_outside(approved.actions, denied)
        requirement = self._consent.requirement([action], invocation)
        if isinstance(requirement, NeedsApproval):
            try:
                answer = await self._consent.obtain(
                    invocation, requirement, otherwise="It was not repeated outside the sandbox."
                )
            except RespondToModel as denial:
                raise RespondToModel(f"{denied}\n{denial}") from None
            self._consent.keep(invocation, requirement, answer.decision)
        else:
            self._consent.record_unasked(invocation, [action], requirement)
        if isinstance(requirement, Forbidden):
            raise RespondToModel(f"{denied}\n{requirement.reason}")
        if not self._is_unchanged(handler.assess(invocation), replace(approved, asked=True)):
            raise RespondToModel(f"{denied}\n{_not_run(approved)}")
        context = invocation.context
        context.bypass_sandbox, context.read_only = True, False
        try:
            output = await _handled(handler, invocation)
        finally:
            context.bypass_sandbox = False
        return _with_note(output, "The sandbox refused this, and it was repeated outside of it.")


def _handled(handler: ToolHandler, invocation: ToolInvocation) -> Awaitable[ToolOutput]:
    options = handler.options
    if options.timeout is None and options.init is None:
        return handler.handle(invocation)
    return attempt(handler, invocation)


# -- what is the same, and what is dangerous ------------------------------------------------------


def _identity(action: Action) -> tuple[str, ...]:
    """Return what makes two actions the same to the person; the reason may be put otherwise."""
    return action.kind, action.target, action.identity or action.fingerprint


def _only_reads(actions: Sequence[Action]) -> bool:
    return {action.kind for action in actions} == {ActionKind.COMMAND_SAFE}


def _is_dangerous(actions: Sequence[Action]) -> bool:
    return any(action.kind is ActionKind.COMMAND_DANGEROUS for action in actions)


# -- words to the model ---------------------------------------------------------------------------


def _not_run(approved: _Approved) -> str:
    return (
        f"{approved.invocation.call.tool_name} was not run: what it would touch has changed since "
        "it was checked. Call again, so that it is checked anew."
    )


def _noted(error: RespondToModel, note: str) -> RespondToModel:
    return RespondToModel(f"{note}\n{error}") if note else error


def _with_note(output: ToolOutput, note: str) -> ToolOutput:
    if isinstance(output.content, str):
        return replace(output, content=f"{note}\n{output.content}")
    return replace(output, content=(InputText(note), *output.content))
