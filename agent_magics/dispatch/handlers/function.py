"""The handler that runs Python functions: checks arguments, chooses where they run."""

import asyncio
import inspect
import json
import traceback
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from types import AsyncGeneratorType, GeneratorType
from typing import Any

from agent_magics.dispatch.actions import Action, ActionKind, fingerprint_of
from agent_magics.dispatch.approval import Verdict, decide
from agent_magics.dispatch.arguments import ArgumentBinder
from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.output import to_tool_output
from agent_magics.dispatch.pool import POOL
from agent_magics.dispatch.references import with_reference
from agent_magics.dispatch.registry import ToolInvocation
from agent_magics.dispatch.signature import context_parameter
from agent_magics.dispatch.tool import ToolOptions
from agent_magics.protocol.errors import AgentMagicsError, RespondToModel
from agent_magics.protocol.tools import (
    CustomPayload,
    FunctionPayload,
    LocalShellPayload,
    ToolCall,
    ToolOutput,
    ToolPayload,
)

# Seconds a tool that runs on a thread gets to clean up when its turn is interrupted.
CLEAN_UP_LIMIT = 0.9


class FunctionToolHandler:
    """Answers the calls of one `@tool` function."""

    kind = "function"

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.function = self._fn = fn
        self.options: ToolOptions = fn.tool_options
        self.supports_parallel = self.options.parallel
        self._binder = ArgumentBinder(fn)
        self._context_name = context_parameter(fn)
        self._names = [n for n in inspect.signature(fn).parameters if n != self._context_name]
        is_sync = not (inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn))
        self._is_inline = self.options.inline and is_sync
        self._execute = self._choose_place()
        mutating = self.options.mutating
        kind = ActionKind.OWN_TOOL_MUTATING if mutating else ActionKind.OWN_TOOL_READING
        self._action = Action(kind, self.options.name)
        self.action = self._action if self.options.assess is None else None

    def matches_kind(self, payload: ToolPayload) -> bool:
        """Function payloads always; plain text where the tool has a grammar; the API's own call."""
        if isinstance(payload, FunctionPayload):
            return True
        if isinstance(payload, LocalShellPayload):
            return self.options.native
        return self.options.freeform is not None and isinstance(payload, CustomPayload)

    def how_to_call(self) -> str:
        """Say that this is a function tool."""
        return f"Call {self.options.name} as a function, with its arguments as one JSON object."

    def prepare(self, call: ToolCall, context: ToolContext) -> ToolInvocation:
        """Check the arguments; freeform text is the first parameter."""
        payload = call.payload
        if isinstance(payload, CustomPayload):
            return ToolInvocation(call, context, (payload.input,), {})
        if isinstance(payload, LocalShellPayload):
            args, kwargs = self._binder.bind(_arguments_of(payload))
            return ToolInvocation(call, context, args, kwargs)
        text = payload.arguments
        if self.options.freeform is not None:
            text = _without_alias(text, self._names[0])
        args, kwargs = self._binder.bind_json(text, context.handles.value_of)
        return ToolInvocation(call, context, args, kwargs)

    def assess(self, invocation: ToolInvocation) -> list[Action]:
        """Ask the tool itself, or judge by whether it says it changes things."""
        if self.options.assess is not None:
            arguments = dict(zip(self._names, invocation.args, strict=False)) | invocation.kwargs
            return self.options.assess(arguments, invocation.context)
        if decide(self._action.kind, invocation.context.config.approval) is not Verdict.ASK:
            return [self._action]
        payload = invocation.call.payload
        text = payload.input if isinstance(payload, CustomPayload) else payload.arguments
        # "Always" binds to these very arguments: nothing else says what the tool would do.
        return [replace(self._action, fingerprint=fingerprint_of(self.options.name, text))]

    def is_mutating(self, invocation: ToolInvocation) -> bool:
        """Whether the tool says it may change things."""
        return self.options.mutating

    async def handle(self, invocation: ToolInvocation) -> ToolOutput:
        """Run the function where it belongs and turn its result into text for the model."""
        # Our own tools were judged by their assessment; for the person's `validate_path` judges,
        # since nothing says that an assessment of theirs looked at every path.
        invocation.context.judged = self.options.own and self.options.assess is not None
        if self._context_name is not None:
            invocation.kwargs[self._context_name] = invocation.context
        try:
            if self._is_inline:  # without the step through one more coroutine
                value = self._run_off_main(invocation)
            else:
                value = await self._execute(invocation)
        except AgentMagicsError:
            raise
        except Exception as error:
            raise RespondToModel(self._describe(error)) from error
        return self._output_of(value, invocation.context)

    def _output_of(self, value: Any, context: ToolContext) -> ToolOutput:
        try:
            output = to_tool_output(value, context.turn.config.output_budget)
        except AgentMagicsError:
            raise
        except Exception as error:  # a `ToolOutput` or `to_output` of the tool's own making
            raise RespondToModel(
                f"{self.options.name} ran, but what it returned has no form that can be read "
                f"({type(error).__name__}: {error})."
            ) from error
        if self.options.own:
            return output
        if not output.details:
            return with_reference(output, context)
        try:
            json.dumps(output.details, default=str, skipkeys=True)
        except Exception as error:  # a cycle, or a stranger's __str__
            # They are for people only, and everything that shows or records them would fail.
            output = replace(output, details={"left_out": f"no JSON form: {error}"})
        return with_reference(output, context)

    # -- where a function runs ------------------------------------------------------------------

    def _choose_place(self) -> Callable[[ToolInvocation], Any]:
        fn = self._fn
        if inspect.iscoroutinefunction(fn):
            return self._on_this_loop if self.options.own else self._on_calling_loop
        if inspect.isasyncgenfunction(fn):
            return self._on_calling_loop
        if self.options.parallel or self.options.own:
            return self._on_thread
        return self._on_main_thread

    async def _on_this_loop(self, invocation: ToolInvocation) -> Any:
        return await self._fn(*invocation.args, **invocation.kwargs)

    async def _on_calling_loop(self, invocation: ToolInvocation) -> Any:
        main_thread = invocation.context.turn.main_thread
        if main_thread is None:
            return await self._run_async(invocation)
        call = invocation.call
        run = partial(self._run_async, invocation)
        return await main_thread("async", call.call_id, call.tool_name, run)

    async def _on_thread(self, invocation: ToolInvocation) -> Any:
        running = asyncio.wrap_future(POOL.submit(self._run_off_main, invocation))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            # A thread cannot be cancelled: it is told, and gets a moment to end its processes.
            invocation.context.cancel()
            running.add_done_callback(_forget)
            await asyncio.wait([running], timeout=CLEAN_UP_LIMIT)
            raise

    async def _on_main_thread(self, invocation: ToolInvocation) -> Any:
        main_thread = invocation.context.turn.main_thread
        if main_thread is None:
            return await self._on_thread(invocation)
        call = invocation.call
        run = partial(self._run_sync, invocation)
        return await main_thread("sync", call.call_id, call.tool_name, run)

    def _run_off_main(self, invocation: ToolInvocation) -> Any:
        try:
            return self._run_sync(invocation)
        except KeyboardInterrupt as error:  # the tool's own; Ctrl-C reaches the main thread
            raise RespondToModel(self._describe(error)) from error

    def _run_sync(self, invocation: ToolInvocation) -> Any:
        try:
            result = self._fn(*invocation.args, **invocation.kwargs)
            if isinstance(result, GeneratorType):
                return _exhaust(result, invocation.context)
        except BaseException as error:
            if _may_pass(error):
                raise
            raise RespondToModel(self._describe(error)) from error
        return result

    async def _run_async(self, invocation: ToolInvocation) -> Any:
        try:
            result = self._fn(*invocation.args, **invocation.kwargs)
            if not isinstance(result, AsyncGeneratorType):
                return await result
            last = None
            async for last in result:
                _show_progress(last, invocation.context)
        except BaseException as error:
            task = asyncio.current_task()
            # Cancelled: the turn is over, and not merely something the tool awaited.
            is_over = isinstance(error, asyncio.CancelledError) and task and task.cancelling()
            if is_over or _may_pass(error):
                raise
            raise RespondToModel(self._describe(error)) from error
        return last

    def _describe(self, error: BaseException) -> str:
        """Name the error and the line of the tool's own code that raised it."""
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if f.filename == self._fn.__code__.co_filename]
        place = f" (line {own[-1].lineno}: {own[-1].line})" if own and own[-1].line else ""
        return f"{self.options.name} raised {type(error).__name__}: {error}{place}"


def _may_pass(error: BaseException) -> bool:
    """Whether what a tool raised may go on to whoever called it.

    Others end loops, or look as if the turn was stopped (`SystemExit`, `GeneratorExit`,
    `CancelledError`), or are a test library's own and caught by nobody.
    """
    if isinstance(error, StopIteration):
        return False
    return isinstance(error, (Exception, KeyboardInterrupt))


def _without_alias(text: str, name: str) -> str:
    """Rename "input", as servers without freeform tools call the text, to the parameter."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return text  # the binder says what is wrong with it
    if isinstance(given, dict) and "input" in given and name not in given:
        given[name] = given.pop("input")
        return json.dumps(given)
    return text


def _forget(running: "asyncio.Future[Any]") -> None:
    """Look at the outcome of work nobody waits for, so that asyncio does not complain."""
    if not running.cancelled():
        running.exception()


def _exhaust(generator: Generator[Any, Any, Any], context: ToolContext) -> Any:
    """Show what a generator yields; its result is what it returns, else what it yielded last."""
    last = None
    while True:
        try:
            last = next(generator)
        except StopIteration as stop:
            return last if stop.value is None else stop.value
        _show_progress(last, context)
        if context.cancelled.is_set():
            generator.close()
            return last


def _arguments_of(payload: LocalShellPayload) -> dict[str, Any]:
    """Return the API's own shell call as arguments of a function."""
    given = {"workdir": payload.workdir, "timeout_ms": payload.timeout_ms}
    words = {name: value for name, value in given.items() if value is not None}
    return {"command": list(payload.command), **words}


def _show_progress(news: Any, context: ToolContext) -> None:
    """A number is a share done, text a title, a dict metadata; other results are not shown."""
    if isinstance(news, str):
        context.update(title=news)
    elif isinstance(news, dict):
        context.update(metadata=news)
    elif isinstance(news, (int, float)):
        context.update(progress=float(news))
