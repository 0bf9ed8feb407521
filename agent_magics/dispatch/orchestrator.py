"""One call's way: what would it do -> may it -> its turn among the others -> do it.

Law: what runs is what was approved. A person who is asked takes their time, and a call in front may
change what a path or a program leads to, so right before it runs the call is judged again; what has
changed is asked about once more.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from agent_magics.dispatch.actions import (
    Action,
    ActionKind,
    ExecApprovalRequirement,
    Forbidden,
    NeedsApproval,
    Skip,
)
from agent_magics.dispatch.approval import is_worth_recording, requirement_of
from agent_magics.dispatch.attempt import attempt
from agent_magics.dispatch.edits import (
    describe_edit,
    editable_of,
    edited_call,
    readable_payload,
)
from agent_magics.dispatch.grants import ApprovalStore
from agent_magics.dispatch.hooks import Hooks
from agent_magics.dispatch.questions import repeated_outside, requested_actions, scopes_of
from agent_magics.dispatch.registry import ToolHandler, ToolInvocation
from agent_magics.dispatch.rules import RuleBook
from agent_magics.protocol.config import ApprovalPolicy
from agent_magics.protocol.errors import FatalError, RespondToModel, SandboxDenied, TurnAbort
from agent_magics.protocol.events import ApprovalDecided, ApprovalRequested, Warned
from agent_magics.protocol.items import InputText, Json
from agent_magics.protocol.ops import Answer
from agent_magics.protocol.tools import ToolCall, ToolOutput

# Questions that are open at the same time; a page with a thousand of them cannot be used.
MOST_OPEN = 8
# Denials in a row after which a turn asks no more: whoever floods a person waits for a slip.
MOST_DENIED = 25

_CHANGED = "it has changed since it was checked"


@dataclass(frozen=True, slots=True)
class _Approved:
    """A call that may run.

    Attributes:
        actions: what it would do, as it was judged.
        asked: a person (or a program in their place) said yes to these very actions.
        bypass: it may leave the sandbox.
        note: what the model is told about it before its output.
    """

    invocation: ToolInvocation
    actions: list[Action]
    asked: bool = False
    bypass: bool = False
    note: str = ""

    @property
    def is_command(self) -> bool:
        return any(action.is_command for action in self.actions)


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
        self.store = store
        self.rules = rules
        self._hooks = hooks
        self._ended = 0  # calls that have run
        self._open = asyncio.Semaphore(MOST_OPEN)

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
        loop = asyncio.get_running_loop()
        invocation.context.permit = partial(self._permit, loop, invocation)
        ended = self._ended
        approved = await self._approve(handler, invocation, note)
        if invocation.context.gate is not None:
            await invocation.context.gate()
        if approved.asked or approved.is_command or self._ended != ended:
            approved = await self._approve_changes(handler, approved)
        try:
            if self._hooks is None:
                return await self._attempt(handler, approved)
            return await self._attempt_watched(self._hooks, handler, approved)
        finally:
            self._ended += 1

    # -- may it -----------------------------------------------------------------------------------

    async def _approve(
        self, handler: ToolHandler, invocation: ToolInvocation, note: str = ""
    ) -> _Approved:
        """Judge a call and ask about it where that is needed."""
        actions = handler.assess(invocation)
        requirement = self._requirement(actions, invocation)
        if isinstance(requirement, NeedsApproval):
            return await self._ask(handler, invocation, actions, requirement, note)
        self._record_unasked(invocation, actions, requirement)
        if isinstance(requirement, Forbidden):
            raise RespondToModel(f"{note}\n{requirement.reason}" if note else requirement.reason)
        return _Approved(invocation, actions, bypass=requirement.bypass_sandbox, note=note)

    def _requirement(
        self, actions: Sequence[Action], invocation: ToolInvocation
    ) -> ExecApprovalRequirement:
        config = invocation.context.turn.config
        if self.rules is not None:
            self.rules.refresh()
        return requirement_of(
            actions,
            config.approval,
            self.store,
            allow_dangerous=config.allow_dangerous,
            rules=self.rules,
            agent=invocation.context.agent,
            tool=invocation.call.tool_name,
        )

    async def _approve_changes(self, handler: ToolHandler, approved: _Approved) -> _Approved:
        """Judge a call again, directly before it runs; ask about what has changed, once."""
        fresh = handler.assess(approved.invocation)
        if self._is_unchanged(fresh, approved):
            return approved
        requirement = self._requirement(fresh, approved.invocation)
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
        requirement = self._requirement(fresh, approved.invocation)
        return isinstance(requirement, Skip) and requirement.bypass_sandbox == approved.bypass

    # -- asking -----------------------------------------------------------------------------------

    async def _ask(
        self,
        handler: ToolHandler,
        invocation: ToolInvocation,
        actions: list[Action],
        requirement: NeedsApproval,
        note: str = "",
    ) -> _Approved:
        """Return the call as it was approved, and all it would do."""
        answer = await self._put(invocation, requirement)
        self._record_answer(invocation, requirement, answer)
        if answer.decision == "abort":
            raise TurnAbort(f"stopped at the question about {invocation.call.tool_name}")
        if not answer.decision.startswith("approve"):
            self.store.denied_in_a_row += 1
            raise RespondToModel(_denial(invocation, answer))
        self.store.denied_in_a_row = 0
        try:
            edited = edited_call(invocation.call, answer)
        except ValueError as error:
            again = replace(requirement, reason=f"what you typed is no command line: {error}")
            return await self._ask(handler, invocation, actions, again, note)
        if edited is not None:
            return await self._take_edited(handler, invocation, edited, requirement, answer)
        self._grant(invocation, requirement, answer.decision)
        return _Approved(invocation, actions, True, requirement.bypass_sandbox, note)

    async def _put(self, invocation: ToolInvocation, requirement: NeedsApproval) -> Answer:
        """Put the question, when there is room for one more."""
        scopes = scopes_of(requirement, self.rules)
        async with self._open:
            if self.store.denied_in_a_row >= MOST_DENIED:
                raise RespondToModel(
                    f"{invocation.call.tool_name} was not run: {MOST_DENIED} questions in a row "
                    "were denied, so no more are asked in this turn. Say what you need, and why."
                )
            return await invocation.context.turn.ask(
                ApprovalRequested,
                call_id=invocation.call.call_id,
                tool=invocation.call.tool_name,
                target=requirement.target,
                arguments=readable_payload(invocation.call.payload),
                reason=requirement.reason,
                scopes=tuple(scopes),
                covers=scopes,
                editable=editable_of(invocation.call),
            )

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
        fresh = self._requirement(actions, invocation)
        if isinstance(fresh, Forbidden):
            self._record_unasked(invocation, actions, fresh)
            raise RespondToModel(f"{note}\n{fresh.reason}")
        needs = isinstance(fresh, NeedsApproval) and _is_dangerous(fresh.actions)
        if needs and not _is_dangerous(requirement.actions):
            return await self._ask(handler, invocation, actions, fresh, note)
        for action in actions:
            self.store.grant(action, answer.decision)
        return _Approved(invocation, actions, True, fresh.bypass_sandbox, note)

    def _grant(self, invocation: ToolInvocation, requirement: NeedsApproval, decision: str) -> None:
        """Keep a lasting answer: as a rule of the project where one can say it, else here."""
        proposed = requirement.proposed_rule
        if decision == "approve_for_project" and proposed and self.rules is not None:
            try:
                self.rules.add(proposed, _cut(requirement.target))
                return
            except (OSError, FatalError) as error:
                message = f"The rule was not saved, the answer holds for this session: {error}"
                invocation.context.turn.emit(Warned, message=message)
        for action in requirement.actions:
            self.store.grant(action, decision)

    async def _permit(
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
        requirement = self._requirement(actions, invocation)
        if not isinstance(requirement, NeedsApproval):
            self._record_unasked(invocation, actions, requirement)
            if isinstance(requirement, Forbidden):
                raise RespondToModel(requirement.reason)
            return
        shown = "; ".join(f"{name}: {value}" for name, value in metadata.items())
        reason = f"{requirement.reason} ({shown})" if shown else requirement.reason
        answer = await self._put(invocation, replace(requirement, reason=reason))
        self._record_answer(invocation, requirement, answer)
        if answer.decision == "abort":
            raise TurnAbort(f"stopped at the question about {invocation.call.tool_name}")
        if not answer.decision.startswith("approve"):
            self.store.denied_in_a_row += 1
            raise RespondToModel(_denial(invocation, answer))
        self.store.denied_in_a_row = 0
        self._grant(invocation, requirement, answer.decision)

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
        kinds = {action.kind for action in approved.actions}
        context.read_only = kinds == {ActionKind.COMMAND_SAFE} and not approved.bypass
        try:
            output = await _handled(handler, approved.invocation)
        except SandboxDenied as denied:
            on_failure = context.turn.config.approval is ApprovalPolicy.ON_FAILURE
            if not on_failure or approved.bypass:
                raise _noted(denied, approved.note) from None
            output = await self._repeat_outside(handler, approved, denied)
        except RespondToModel as error:
            raise _noted(error, approved.note) from error.__cause__
        return _with_note(output, approved.note)

    async def _repeat_outside(
        self, handler: ToolHandler, approved: _Approved, denied: SandboxDenied
    ) -> ToolOutput:
        """Ask whether to repeat outside the sandbox what it refused something, and do so.

        Raises:
            RespondToModel: it was denied, or the call is another one by now.
        """
        invocation = approved.invocation
        action = repeated_outside(approved.actions, denied)
        requirement = self._requirement([action], invocation)
        if isinstance(requirement, NeedsApproval):
            try:
                await self._ask_to_repeat(invocation, requirement)
            except RespondToModel as denial:
                raise RespondToModel(f"{denied}\n{denial}") from None
        else:
            self._record_unasked(invocation, [action], requirement)
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

    async def _ask_to_repeat(self, invocation: ToolInvocation, requirement: NeedsApproval) -> None:
        answer = await self._put(invocation, requirement)
        self._record_answer(invocation, requirement, answer)
        if answer.decision == "abort":
            raise TurnAbort(f"stopped at the question about {invocation.call.tool_name}")
        if not answer.decision.startswith("approve"):
            raise RespondToModel(f"It was not repeated outside the sandbox. {answer.feedback}")
        self._grant(invocation, requirement, answer.decision)

    # -- the audit --------------------------------------------------------------------------------

    def _record_unasked(
        self,
        invocation: ToolInvocation,
        actions: Sequence[Action],
        requirement: Skip | Forbidden,
    ) -> None:
        if not is_worth_recording(actions, requirement):
            return
        runs = isinstance(requirement, Skip)
        self._record(
            invocation,
            actions,
            decision="run" if runs else "refuse",
            by=requirement.by,
            basis=requirement.basis,
            bypass=requirement.bypass_sandbox if runs else False,
            reason="" if runs else requirement.reason,
        )

    def _record_answer(
        self, invocation: ToolInvocation, requirement: NeedsApproval, answer: Answer
    ) -> None:
        proposed = requirement.proposed_rule
        is_rule = answer.decision == "approve_for_project" and proposed is not None
        self._record(
            invocation,
            requirement.actions,
            decision=answer.decision,
            by=answer.by,
            basis=f"rule {proposed.text}" if is_rule else requirement.basis,
            scope=answer.decision.partition("approve_for_")[2] or "once",
            bypass=requirement.bypass_sandbox,
            reason=requirement.reason,
        )

    def _record(
        self, invocation: ToolInvocation, actions: Sequence[Action], *, bypass: bool, **fields: str
    ) -> None:
        commands = [action for action in actions if action.is_command]
        inside = any(action.sandboxed for action in commands) and not bypass
        invocation.context.turn.emit(
            ApprovalDecided,
            call_id=invocation.call.call_id,
            tool=invocation.call.tool_name,
            target=", ".join(dict.fromkeys(action.target for action in actions)),
            fingerprints=tuple(filter(None, (a.identity or a.fingerprint for a in actions))),
            sandbox=("inside" if inside else "outside") if commands else "",
            **fields,
        )


def _handled(handler: ToolHandler, invocation: ToolInvocation) -> Awaitable[ToolOutput]:
    options = handler.options
    if options.timeout is None and options.init is None:
        return handler.handle(invocation)
    return attempt(handler, invocation)


# -- what is the same, and what is dangerous ------------------------------------------------------


def _identity(action: Action) -> tuple[str, ...]:
    """Return what makes two actions the same to the person; the reason may be put otherwise."""
    return action.kind, action.target, action.identity or action.fingerprint


def _is_dangerous(actions: Sequence[Action]) -> bool:
    return any(action.kind is ActionKind.COMMAND_DANGEROUS for action in actions)


# -- words to the model ---------------------------------------------------------------------------


def _not_run(approved: _Approved) -> str:
    return (
        f"{approved.invocation.call.tool_name} was not run: what it would touch has changed since "
        "it was checked. Call again, so that it is checked anew."
    )


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


def _noted(error: RespondToModel, note: str) -> RespondToModel:
    return RespondToModel(f"{note}\n{error}") if note else error


def _with_note(output: ToolOutput, note: str) -> ToolOutput:
    if not note:
        return output
    if isinstance(output.content, str):
        return replace(output, content=f"{note}\n{output.content}")
    return replace(output, content=(InputText(note), *output.content))


def _cut(text: str, longest: int = 200) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
