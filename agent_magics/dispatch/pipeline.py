"""Runs each tool call through its stages, in order, from the model's text to the output it reads.

Each call goes through this one list: a call of the model, of its code, of a batch, of the person,
and of an MCP client. A stage is a function of the call: it returns None, or an awaitable to finish
before the next stage. One that raises `RespondToModel` skips the stages up to the tool; the error
is the call's output, and the last stages follow as they do after the tool.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from agent_magics.dispatch.call import CallInProgress, CallLock, CallState
from agent_magics.dispatch.consent.edits import readable_payload
from agent_magics.dispatch.context import TurnContext
from agent_magics.dispatch.hooks import Hooks
from agent_magics.dispatch.results.cutting import encodable
from agent_magics.dispatch.router import ToolRouter
from agent_magics.dispatch.stages.orchestrator import ToolOrchestrator
from agent_magics.dispatch.stages.stored_outputs import within_share
from agent_magics.protocol.errors import FatalError, RespondToModel, TurnAbort, full_message
from agent_magics.protocol.events import (
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallPending,
    ToolCallRunning,
)
from agent_magics.protocol.items import map_text
from agent_magics.protocol.tools import ToolCall, ToolOutput

Stage: TypeAlias = Callable[[CallInProgress], Awaitable[object] | None]


class ToolCallRuntime:
    """Takes the calls of one turn through the stages.

    Args:
        router: finds the handler of a call.
        turn: the data that the calls share.
        orchestrator: judges calls, asks about them, and runs their tools.
        hooks: the person's hooks; None where there are none.
        repetition: asks before a call that repeats others; None where repetitions are not counted.
        redact: removes secrets from a text that leaves a tool; None where there are none.
    """

    def __init__(
        self,
        router: ToolRouter,
        turn: TurnContext,
        orchestrator: ToolOrchestrator,
        *,
        hooks: Hooks | None = None,
        repetition: Stage | None = None,
        redact: Callable[[str], str] | None = None,
    ) -> None:
        self.router = router
        self._turn = turn
        self._lock = CallLock()
        self._groups: dict[str, CallLock] = {}  # by the id of a running group call
        self._of_model: set[CallInProgress] = set()  # not those made from inside others
        to_the_tool: tuple[Stage | None, ...] = (
            repetition,
            router.find_handler,
            validate_arguments,
            None if hooks is None else hooks.before_call,
            orchestrator.judge,
            orchestrator.ask,
            partial(wait_for_place, router),
            orchestrator.judge_again,
            orchestrator.attempt,
        )
        from_the_tool: tuple[Stage | None, ...] = (
            None if hooks is None else hooks.after_call,
            end_turn,
            leave_place,
            None if redact is None else partial(redact_output, redact),
            fit_share,  # of what was redacted: half a key would be no key that is known
        )
        self._to_the_tool = tuple(filter(None, to_the_tool))
        self._from_the_tool = tuple(filter(None, from_the_tool))

    def start(self, call: ToolCall) -> "asyncio.Task[ToolOutput]":
        """Take the call's place in the order now, and run it in a task of its own."""
        going = CallInProgress(call, self._turn)
        # The task first: what it does in its first step is then written together with its arrival.
        going.task = asyncio.create_task(self._answer(going))
        self._arrive(going)
        return going.task

    async def run(self, call: ToolCall) -> ToolOutput:
        """Run a call that the caller waits for."""
        going = CallInProgress(call, self._turn)
        self._arrive(going)
        return await self._answer(going)

    def _arrive(self, going: CallInProgress) -> None:
        """Give a call its place in the order, and report it."""
        call = going.call
        # A nested call runs under its parent's place, since one of its own would wait for ever;
        # the calls of a group have an order of their own under its place.
        lock = self._lock if call.parent_call_id is None else self._groups.get(call.parent_call_id)
        if lock is not None:
            going.place = lock.take_place(shared=self.router.supports_parallel(call))
        self._turn.uses[call.tool_name] += 1
        going.emit(ToolCallPending, arguments=readable_payload(call.payload))
        if call.parent_call_id is None:
            self._of_model.add(going)

    def skip(self, reason: str) -> None:
        """Answer the model's calls that have not begun with `reason`; running ones go on."""
        for going in tuple(self._of_model):
            going.skip(reason)

    async def dispatch(self, call: CallInProgress) -> ToolOutput:
        """Take a call through the stages and return its output.

        Raises:
            FatalError: only the person can help.
            TurnAbort: the person ended the turn at a question of this call.
        """
        call.may_stop = True
        try:
            if call.skipped:  # before its task had begun
                raise asyncio.CancelledError
            for stage in self._to_the_tool:
                waiting = stage(call)
                if waiting is not None:
                    await waiting
        except RespondToModel as refusal:
            call.output = ToolOutput(encodable(full_message(refusal)), success=False)
        except asyncio.CancelledError:
            if not call.skipped:
                raise
            call.output = ToolOutput(call.skipped, success=False, details={"not_run": True})
        finally:
            call.may_stop = False  # from here on nothing ends it but the turn
        for stage in self._from_the_tool:
            waiting = stage(call)
            if waiting is not None:
                await waiting
        call.move(CallState.ENDED)
        return call.output

    async def _answer(self, going: CallInProgress) -> ToolOutput:
        """Run one call and record its end."""
        call, began = going.call, time.perf_counter()
        is_group = call.tool_name in self.router.registry.groups
        if is_group:
            self._groups[call.call_id] = CallLock()
        try:
            await self.dispatch(going)
        except (TurnAbort, FatalError):
            raise
        except BaseException as error:
            # Work on another thread cannot be cancelled; it looks at `ctx.cancelled`.
            going.status.cancel()
            if self._turn.stop.error is None:
                if call.parent_call_id in self._groups:  # which goes on without this call
                    leave_place(going)
                if isinstance(error, (SystemExit, KeyboardInterrupt)):
                    # Raised for instance by a program's handler: it would end the engine's loop.
                    raise RuntimeError(f"{call.tool_name} raised {type(error).__name__}") from error
                raise
        finally:
            going.status.permit = None  # the permit and the call hold each other
            self._of_model.discard(going)
            if is_group:
                del self._groups[call.call_id]
        end_turn(going)  # also where a call beside this one did, and this one was cancelled
        output = going.output
        going.emit(
            ToolCallCompleted if output.success else ToolCallFailed,
            output=output.content,
            details=output.details,
            duration=time.perf_counter() - began,
        )
        return output


# -- the stages that are one step ------------------------------------------------------------------


def validate_arguments(call: CallInProgress) -> None:
    """Check the arguments and convert them to Python values."""
    call.invocation = call.handler.prepare(call.call, call.context)


def wait_for_place(router: ToolRouter, call: CallInProgress) -> Awaitable[None] | None:
    """Wait until the calls in front allow this one, then report that it runs."""
    place = call.place
    if place is not None:
        # Hooks and the person may have changed the calls of a group.
        if place.shared and not router.supports_parallel(call.invocation.call):
            place.exclude()
        if not place.is_admitted():
            return _wait_and_begin(call, place.wait())
    _begin(call)
    return None


def end_turn(call: CallInProgress) -> None:
    """End the turn where a nested call has ended it, although its caller caught the error."""
    if call.turn.stop.error is not None:
        raise call.turn.stop.error


def leave_place(call: CallInProgress) -> None:
    """Free the call's place for the next one.

    The pipeline does not do so after an error that ends the turn: the next call would begin before
    it is cancelled, although the person has just pressed Stop.
    """
    if call.place is not None:
        call.place.leave()
        call.place = None


def fit_share(call: CallInProgress) -> None:
    """Cut the output of a batch's call to its share, and name what the model cannot read whole."""
    share = call.turn.shares.get(call.call.parent_call_id or "")
    if share is not None:
        most, is_named = share
        call.output = within_share(call.output, call.context, most, is_named=is_named)


def redact_output(redact: Callable[[str], str], call: CallInProgress) -> None:
    """Remove secrets from what the model reads; the outbox does so in events."""
    content = map_text(call.output.content, redact)
    if content != call.output.content:
        call.output = replace(call.output, content=content)


async def _wait_and_begin(call: CallInProgress, waiting: Awaitable[None]) -> None:
    call.has_waited = True
    await waiting
    _begin(call)


def _begin(call: CallInProgress) -> None:
    call.move(CallState.RUNNING)
    call.emit(ToolCallRunning)
