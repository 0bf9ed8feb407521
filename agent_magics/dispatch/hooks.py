"""Hooks: objects of the person's that look at requests, calls and outputs on their way.

Law: a hook only ever sees and changes JSON; what it changes is checked and approved like anything
the model writes. One that raises stops the call it was asked about, and is named. A run without
hooks has no `Hooks` object at all, so that it pays for nothing.
"""

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from agent_magics.dispatch.context import ToolContext, TurnContext
from agent_magics.dispatch.edits import arguments_of, with_edited_arguments
from agent_magics.dispatch.output import to_tool_output
from agent_magics.dispatch.pool import run_on_thread
from agent_magics.dispatch.registry import ToolHandler, ToolInvocation
from agent_magics.protocol.errors import FatalError, RespondToModel, TurnAbort
from agent_magics.protocol.items import Json
from agent_magics.protocol.tools import ToolOutput

R = TypeVar("R")

MOMENTS = ("before_model", "before_tool", "after_tool", "on_event")


@dataclass(frozen=True, slots=True)
class Block:
    """Returned by a hook: this call is not run (or its output is withheld), and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Abort:
    """Returned by a hook: the turn ends now, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class HookedCall:
    """One call as a hook sees it; a changed one is made with `dataclasses.replace`.

    Attributes:
        tool: the tool's name.
        arguments: what the model wrote, as JSON values by name; text for a freeform call.
        parent_call_id: the call that made this one, or None where the model did.
        context: what the tool itself is handed.
    """

    tool: str
    call_id: str
    arguments: dict[str, Json] | str
    parent_call_id: str | None
    context: ToolContext


@dataclass(frozen=True, slots=True)
class HookMethod:
    """One method of one hook, under the name that messages give it."""

    name: str
    call: Callable[..., Any]


class Hooks:
    """The hooks of an agent, by the moments they want to see.

    Args:
        hooks: objects with any of the methods in `MOMENTS`; asked in this order.

    Raises:
        FatalError: one of them has none of these methods.
    """

    def __init__(self, hooks: Sequence[Any]) -> None:
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
        """Return the request as the hooks want it.

        Raises:
            TurnAbort: a hook wants no request to be made.
            FatalError: a hook raised, or returned something that is no request.
        """
        for method in self.before_models:
            try:
                answer = await _ask(method, turn, "", request)
            except _HookFailed as failure:
                raise FatalError(f"The model was not asked: {failure}.") from failure.__cause__
            if answer is None:
                continue
            if isinstance(answer, (Block, Abort)):
                raise TurnAbort(f"the hook {method.name} stopped it: {answer.reason}")
            if type(answer) is not type(request):
                raise FatalError(
                    f"The model was not asked: the hook {method.name} returned "
                    f"{type(answer).__name__}, and not None or a {type(request).__name__}."
                )
            request = answer
        return request

    # -- around a call -----------------------------------------------------------------------------

    async def before_tool(
        self, handler: ToolHandler, invocation: ToolInvocation
    ) -> tuple[ToolInvocation, str]:
        """Return the call as the hooks want it, checked, and what the model is told about that.

        Raises:
            RespondToModel: a hook blocks the call, raised, or its arguments do not fit.
            TurnAbort: a hook ends the turn.
        """
        notes = []
        for method in self.before_tools:
            seen = _as_seen(invocation)
            try:
                answer = await _ask(method, invocation.context.turn, seen.call_id, seen)
                wanted = None if answer is None else _wanted_arguments(method, answer)
            except _HookFailed as failure:
                raise RespondToModel(f"{seen.tool} was not run: {failure}.") from failure.__cause__
            except _Blocked as blocked:
                raise RespondToModel(f"{seen.tool} was not run: {blocked}") from None
            given = arguments_of(invocation.call)  # anew: the hook may have changed its copy
            if wanted is None or wanted == given:
                continue
            invocation = _with_arguments(method, handler, invocation, wanted)
            notes.append(f"The hook {method.name} changed {_changed_words(given, wanted)}.")
        return invocation, "\n".join(notes)

    async def after_tool(self, invocation: ToolInvocation, output: ToolOutput) -> ToolOutput:
        """Return the output as the hooks want it.

        Raises:
            TurnAbort: a hook ends the turn.
        """
        for method in self.after_tools:
            seen = _as_seen(invocation)
            try:
                answer = await _ask(method, invocation.context.turn, seen.call_id, seen, output)
            except _HookFailed as failure:
                return _withheld(seen.tool, str(failure))
            if isinstance(answer, Abort):
                raise TurnAbort(f"the hook {method.name} stopped it: {answer.reason}")
            if isinstance(answer, Block):
                reason = f"the hook {method.name} withholds it: {answer.reason}"
                return _withheld(seen.tool, reason)
            if answer is not None:
                output = _replaced(output, answer, invocation.context.output_budget)
        return output


def read_hooks(hooks: Any) -> Hooks | None:
    """Return the hooks of an agent; None where there are none.

    Raises:
        FatalError: it is no list of hooks.
    """
    if isinstance(hooks, (str, Mapping)) or not hasattr(hooks, "__iter__"):
        raise FatalError(f"hooks={hooks!r} must be a list of objects.")
    given = tuple(hooks)
    return Hooks(given) if given else None


def _name_of(hook: Any) -> str:
    return str(getattr(hook, "__name__", None) or type(hook).__name__)


# -- asking one hook -------------------------------------------------------------------------------


class _HookFailed(Exception):
    """A hook raised, or returned what it may not; the message names it."""


class _Blocked(Exception):
    """A hook blocks the call; the message says which and why."""


async def _ask(method: HookMethod, turn: TurnContext, call_id: str, *arguments: Any) -> Any:
    """Return a hook's answer: an async one runs on the person's loop, others on a thread of ours.

    Not on the main thread, which may be busy with the very code that made this call.
    """
    try:
        if inspect.iscoroutinefunction(method.call):
            run = partial(method.call, *arguments)
            if turn.main_thread is None:
                return await run()
            return await turn.main_thread("async", call_id, method.name, run)
        return await run_on_thread(method.call, *arguments)
    except FatalError:
        raise
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise  # the turn is over, which is not the hook's doing
        words = f"the hook {method.name} raised {type(error).__name__}: {error}"
        raise _HookFailed(words) from error


def _as_seen(invocation: ToolInvocation) -> HookedCall:
    """Return the call for one hook's eyes; a copy, so that nothing changes behind our back."""
    call = invocation.call
    return HookedCall(
        call.tool_name,
        call.call_id,
        arguments_of(call),
        call.parent_call_id,
        invocation.context,
    )


def _wanted_arguments(method: HookMethod, answer: Any) -> dict[str, Json] | str:
    """Return the arguments that a hook asks for.

    Raises:
        TurnAbort: it wants the turn to end.
        _Blocked: it wants the call not to run.
        _HookFailed: it returned something else.
    """
    if isinstance(answer, Abort):
        raise TurnAbort(f"the hook {method.name} stopped it: {answer.reason}")
    if isinstance(answer, Block):
        raise _Blocked(f"the hook {method.name} blocked it: {answer.reason}")
    wanted = answer.arguments if isinstance(answer, HookedCall) else answer
    if isinstance(wanted, str):
        return wanted
    if isinstance(wanted, Mapping):
        try:
            plain: dict[str, Json] = json.loads(json.dumps(dict(wanted)))
        except (TypeError, ValueError, RecursionError) as error:
            words = f"the hook {method.name} returned arguments that are no JSON ({error})"
            raise _HookFailed(words) from None
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
    """Return the call with other arguments, checked as the model's own are."""
    text = wanted if isinstance(wanted, str) else json.dumps(wanted)
    try:
        return handler.prepare(with_edited_arguments(invocation.call, text), invocation.context)
    except RespondToModel as error:
        raise RespondToModel(
            f"{invocation.call.tool_name} was not run: the hook {method.name} changed its "
            f"arguments, and they do not fit. {error}"
        ) from None


def _changed_words(given: dict[str, Json] | str, wanted: dict[str, Json] | str) -> str:
    """Name what was changed, without the values: a hook may fill in what no model should read."""
    if isinstance(given, str) or isinstance(wanted, str):
        return "the text of this call"
    names = [n for n in {**given, **wanted} if given.get(n) != wanted.get(n)]
    return f"arguments of this call ({', '.join(names)})"


def _withheld(tool: str, reason: str) -> ToolOutput:
    return ToolOutput(f"{tool} has run, but there is no output: {reason}.", success=False)


def _replaced(output: ToolOutput, answer: Any, budget: int) -> ToolOutput:
    """Return a hook's own output; details go, since they may hold what the hook took out."""
    if isinstance(answer, ToolOutput):
        return to_tool_output(answer, budget)
    return replace(to_tool_output(answer, budget), success=output.success)
