"""Calls the person's hooks on requests, calls and outputs.

Law: a hook sees and changes only JSON; its changes are checked and approved like anything the model
writes. A hook that raises stops the call it was called for, and is named. A run without hooks has
no `Hooks` object at all, so that it costs nothing.
"""

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from agent_magics.dispatch.call import CallInProgress
from agent_magics.dispatch.consent.edits import arguments_of, with_edited_arguments
from agent_magics.dispatch.context import ToolContext, TurnContext
from agent_magics.dispatch.pool import run_on_thread
from agent_magics.dispatch.registry import ToolHandler, ToolInvocation
from agent_magics.dispatch.results.output import to_tool_output
from agent_magics.protocol.errors import (
    FatalError,
    RespondToModel,
    TurnAbort,
    clause,
    full_message,
    short_message,
    typed_message,
)
from agent_magics.protocol.items import Json
from agent_magics.protocol.tools import ToolOutput

R = TypeVar("R")

MOMENTS = ("before_model", "before_tool", "after_tool", "on_event")


@dataclass(frozen=True, slots=True)
class Block:
    """A hook's answer that the call is not run, or its output withheld.

    Attributes:
        reason: one sentence for the model.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Abort:
    """A hook's answer that the turn ends now.

    Attributes:
        reason: one sentence for the person.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class HookedCall:
    """One call as a hook sees it; a changed one is made with `dataclasses.replace`.

    Attributes:
        tool: the tool's name.
        arguments: the arguments as JSON values by name; the text of a freeform call.
        parent_call_id: the call that made this one, or None where the model did.
        context: the context that the tool itself gets.
    """

    tool: str
    call_id: str
    arguments: dict[str, Json] | str
    parent_call_id: str | None
    context: ToolContext


@dataclass(frozen=True, slots=True)
class HookMethod:
    """One method of one hook, with its name in messages."""

    name: str
    call: Callable[..., Any]


class Hooks:
    """The hooks of an agent, grouped by the moments at which they are called.

    Args:
        hooks: objects with any of the methods in `MOMENTS`; called in this order.

    Raises:
        FatalError: one of them has none of these methods.
    """

    def __init__(self, hooks: Sequence[object]) -> None:
        found: dict[str, list[HookMethod]] = {moment: [] for moment in MOMENTS}
        for hook in hooks:
            methods = [(moment, getattr(hook, moment, None)) for moment in MOMENTS]
            usable = [(moment, method) for moment, method in methods if callable(method)]
            if not usable or isinstance(hook, type):
                raise FatalError(
                    f"hooks=... holds {hook!r}, which is no hook: a hook is an object with any of "
                    f"the methods {', '.join(MOMENTS)}."
                )
            for moment, method in usable:
                found[moment].append(HookMethod(f"{_name_of(hook)}.{moment}", method))
        self.before_models = tuple(found["before_model"])
        self.before_tools = tuple(found["before_tool"])
        self.after_tools = tuple(found["after_tool"])
        self.on_events = tuple(found["on_event"])

    # -- before the model is asked -----------------------------------------------------------------

    async def before_model(self, request: R, turn: TurnContext) -> R:
        """Return the model request as changed by the hooks.

        Raises:
            TurnAbort: a hook ends the turn.
            FatalError: a hook raised, or returned something that is no request.
        """
        for method in self.before_models:
            try:
                answer = await _ask(method, turn, "", request)
            except _HookFailed as failure:
                raise FatalError(
                    f"The model was not asked: {clause(failure)}."
                ) from failure.__cause__
            if answer is None:
                continue
            if isinstance(answer, (Block, Abort)):
                raise TurnAbort(_sentence(method, "stopped it", answer))
            if type(answer) is not type(request):
                raise FatalError(
                    f"The model was not asked: the hook {method.name} returned "
                    f"{type(answer).__name__}, and not None or a {type(request).__name__}."
                )
            request = answer
        return request

    # -- around a call -----------------------------------------------------------------------------

    def before_call(self, call: CallInProgress) -> Awaitable[object] | None:
        """Let hooks see and change a call (a stage of the pipeline)."""
        if self.after_tools:
            call.status.held = []
        return self.change(call) if self.before_tools else None

    def after_call(self, call: CallInProgress) -> Awaitable[None] | None:
        """Let hooks see and change an output (a stage of the pipeline), also that of a failure."""
        return self._after_call(call) if self.after_tools and call.was_attempted else None

    async def _after_call(self, call: CallInProgress) -> None:
        held, call.status.held = call.status.held or [], None
        whole = call.output
        call.output = await self._seen(call)
        if held:
            passes = call.output.content == whole.content
            await run_on_thread(call.turn.handles.settle, held, passes)

    async def change(self, call: CallInProgress) -> bool:
        """Apply the hooks' changes to a call, checked; return whether there were any.

        Raises:
            RespondToModel: a hook blocks the call, raised, or its arguments do not fit.
            TurnAbort: a hook ends the turn.
        """
        invocation, notes = call.invocation, list[str]()
        for method in self.before_tools:
            seen = _as_seen(invocation)
            try:
                answer = await _ask(method, invocation.context.turn, seen.call_id, seen)
                wanted = None if answer is None else _wanted_arguments(method, answer)
            except _HookFailed as failure:
                raise RespondToModel(
                    f"{seen.tool} was not run: {clause(failure)}."
                ) from failure.__cause__
            except _Blocked as blocked:
                raise RespondToModel(f"{seen.tool} was not run: {short_message(blocked)}") from None
            given = arguments_of(invocation.call)  # built again: the hook may have changed its copy
            if wanted is None or wanted == given:
                continue
            invocation = _with_arguments(method, call.handler, invocation, wanted)
            notes.append(f"The hook {method.name} changed {_changed_words(given, wanted)}.")
        if notes:
            call.change(invocation, by="hook")
            call.note = "\n".join(filter(None, (call.note, *notes)))
        return bool(notes)

    async def _seen(self, call: CallInProgress) -> ToolOutput:
        """Return the output as the hooks leave it."""
        context, output = call.invocation.context, call.output
        for method in self.after_tools:
            seen = _as_seen(call.invocation)
            try:
                answer = await _ask(method, context.turn, seen.call_id, seen, output)
            except _HookFailed as failure:
                return _withheld(seen.tool, short_message(failure))
            if isinstance(answer, Abort):
                raise TurnAbort(_sentence(method, "stopped it", answer))
            if isinstance(answer, Block):
                return _withheld(seen.tool, _sentence(method, "withholds it", answer))
            if not (answer is None or (type(answer) is str and answer == output.text)):
                output = _replaced(output, answer, context.output_budget)
        return output


def read_hooks(hooks: object) -> Hooks | None:
    """Return the hooks of an agent; None where there are none.

    Raises:
        FatalError: `hooks` is not a list of hooks.
    """
    if isinstance(hooks, (str, Mapping)) or not hasattr(hooks, "__iter__"):
        raise FatalError(f"hooks={hooks!r} must be a list of objects.")
    given = tuple(hooks)
    return Hooks(given) if given else None


def _name_of(hook: object) -> str:
    return str(getattr(hook, "__name__", None) or type(hook).__name__)


# -- asking one hook -------------------------------------------------------------------------------


class _HookFailed(Exception):
    """A hook raised, or returned an invalid value; the message names it."""


class _Blocked(Exception):
    """A hook blocks the call; the message names it and its reason."""


async def _ask(method: HookMethod, turn: TurnContext, call_id: str, *arguments: Any) -> Any:
    """Call one hook: an async one on the person's loop, others on a thread of our pool.

    It is not called on the main thread, which may be busy with the very code that made this call.
    """
    run = partial(method.call, *arguments)
    try:
        if not inspect.iscoroutinefunction(method.call):
            answer = await run_on_thread(run)
            if not inspect.iscoroutine(answer):
                return answer
            run = partial(lambda: answer)  # a plain method around an async one
        if turn.main_thread is None:
            return await run()
        return await turn.main_thread("async", call_id, method.name, run)
    except FatalError:
        raise
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise  # the turn is over; the hook did not raise
        message = f"the hook {method.name} raised {typed_message(error)}"
        raise _HookFailed(message) from error


def _as_seen(invocation: ToolInvocation) -> HookedCall:
    """Return a copy of the call for one hook, so that changes of it have no side effects."""
    call = invocation.call
    return HookedCall(
        call.tool_name,
        call.call_id,
        arguments_of(call),
        call.parent_call_id,
        invocation.context,
    )


def _sentence(method: HookMethod, did: str, answer: Block | Abort) -> str:
    return f"the hook {method.name} {did}: {short_message(answer.reason)}"


def _wanted_arguments(method: HookMethod, answer: object) -> dict[str, Json] | str:
    """Return the arguments in a hook's answer.

    Raises:
        TurnAbort: it ends the turn.
        _Blocked: it blocks the call.
        _HookFailed: it is of another type.
    """
    if isinstance(answer, Abort):
        raise TurnAbort(_sentence(method, "stopped it", answer))
    if isinstance(answer, Block):
        raise _Blocked(_sentence(method, "blocked it", answer))
    wanted = answer.arguments if isinstance(answer, HookedCall) else answer
    if isinstance(wanted, str):
        return wanted
    if isinstance(wanted, Mapping):
        try:
            plain: dict[str, Json] = json.loads(json.dumps(dict(wanted)))
        except (TypeError, ValueError, RecursionError) as error:
            why = short_message(error)
            message = f"the hook {method.name} returned arguments that are no JSON ({why})"
            raise _HookFailed(message) from None
        return plain
    raise _HookFailed(
        f"the hook {method.name} returned {type(answer).__name__}, and not None, arguments, "
        "Block or Abort"
    )


def _with_arguments(
    method: HookMethod,
    handler: ToolHandler,
    invocation: ToolInvocation,
    wanted: dict[str, Json] | str,
) -> ToolInvocation:
    """Return the call with other arguments, checked like the model's own."""
    text = wanted if isinstance(wanted, str) else json.dumps(wanted)
    try:
        return handler.prepare(with_edited_arguments(invocation.call, text), invocation.context)
    except RespondToModel as error:
        raise RespondToModel(
            f"{invocation.call.tool_name} was not run: the hook {method.name} changed its "
            f"arguments, and they do not fit. {full_message(error)}"
        ) from None


def _changed_words(given: dict[str, Json] | str, wanted: dict[str, Json] | str) -> str:
    """Name the changed arguments without values: a hook may insert what no model should read."""
    if isinstance(given, str) or isinstance(wanted, str):
        return "the text of this call"
    names = [n for n in {**given, **wanted} if given.get(n) != wanted.get(n)]
    return f"arguments of this call ({', '.join(names)})"


def _withheld(tool: str, reason: str) -> ToolOutput:
    return ToolOutput(f"{tool} has run, but there is no output: {clause(reason)}.", success=False)


def _replaced(output: ToolOutput, answer: object, budget: int) -> ToolOutput:
    """Return a hook's output without details and value, which may hold what the hook removed."""
    if isinstance(answer, ToolOutput):
        if answer.content != output.content:  # what it has only copied goes
            details = {} if answer.details is output.details else answer.details
            value = None if answer.value is output.value else answer.value
            answer = replace(answer, details=details, value=value)
        return to_tool_output(answer, budget)
    return replace(to_tool_output(answer, budget), success=output.success)
