"""The handler that runs Python functions: checks arguments, chooses where they run."""

import asyncio
import inspect
import json
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

from agent_magics.approval.actions import Action, ActionKind, fingerprint_of
from agent_magics.approval.requirement import Verdict, decide
from agent_magics.dispatch.arguments.decoding import ArgumentBinder
from agent_magics.dispatch.consent.edits import readable_payload, shell_arguments
from agent_magics.dispatch.context import ToolContext, status_of
from agent_magics.dispatch.person_code import marks_person_code
from agent_magics.dispatch.pool import ThreadPool, run_on_thread
from agent_magics.dispatch.registry import ToolHandler, ToolInvocation
from agent_magics.dispatch.results.cutting import fit_text
from agent_magics.dispatch.results.json_text import plain_object
from agent_magics.dispatch.results.outline import may_run_code
from agent_magics.dispatch.results.output import LEAST, small_output, to_tool_output
from agent_magics.dispatch.results.values import type_name
from agent_magics.dispatch.schema.signature import context_parameter, signature_of
from agent_magics.dispatch.stages.attempt import forget_error, run_off_loop
from agent_magics.dispatch.stages.stored_outputs import refer, with_reference
from agent_magics.dispatch.tool import Assess, Tool
from agent_magics.protocol.errors import (
    AgentMagicsError,
    RespondToModel,
    full_message,
    short_message,
    typed_message,
)
from agent_magics.protocol.items import json_object
from agent_magics.protocol.tools import (
    CustomPayload,
    FunctionPayload,
    LocalShellPayload,
    ToolCall,
    ToolOutput,
    ToolPayload,
)

# What only becomes a result when it is awaited.
_AWAITED = (AsyncGeneratorType, CoroutineType, asyncio.Future)
WORDS_LIMIT = 10.0  # seconds for putting a result into words
# A pool of its own, so that a conversion that never returns delays no other work.
_WORDING = ThreadPool("agent-words", idle_limit=0.0)
_LONGEST_LINE = 200  # of a tool's code, that is shown with its error


class FunctionToolHandler(ToolHandler):
    """Runs the calls of one `@tool` function."""

    kind = "function"

    def __init__(self, fn: Tool) -> None:
        self.function = self._fn = fn
        self.options = fn.tool_options
        self.supports_parallel = self.options.parallel
        self._binder = ArgumentBinder(fn)
        self._is_inline = self.options.inline and not (
            inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn)
        )
        if self._is_inline:  # nothing can stop it before it returns
            self.options = replace(self.options, timeout=None)
        self._execute = self._choose_place()
        self._judges_paths = self.options.own and self.options.assess is not None
        self._has_own_words = bool(self.options.in_own_words or self.options.freeform)
        mutating = self.options.mutating
        kind = ActionKind.OWN_TOOL_MUTATING if mutating else ActionKind.OWN_TOOL_READING
        self._action = Action(kind, self.options.name)
        # The action of every call, where the arguments do not matter.
        is_one = self.options.assess is None and not callable(mutating)
        self.action = self._action if is_one else None

    def matches_kind(self, payload: ToolPayload) -> bool:
        """Return whether the tool takes this payload.

        That is a function payload always, plain text if the tool has a grammar, and the API's own
        shell call if the tool is `native`.
        """
        if isinstance(payload, FunctionPayload):
            return True
        if isinstance(payload, LocalShellPayload):
            return self.options.native
        return self.options.freeform is not None and isinstance(payload, CustomPayload)

    def prepare(self, call: ToolCall, context: ToolContext) -> ToolInvocation:
        """Check the arguments; the text of a freeform call is the first parameter."""
        payload = call.payload
        if isinstance(payload, FunctionPayload):
            text = payload.arguments
        elif isinstance(payload, LocalShellPayload):
            args, kwargs = self._binder.bind(shell_arguments(payload))
            return ToolInvocation(call, context, args, kwargs)
        elif isinstance(payload, CustomPayload) and not self._is_object(payload.input):
            return ToolInvocation(call, context, (payload.input,), {})
        else:
            text = readable_payload(payload)
        if self._has_own_words:
            text = self._in_own_words(text)
        args, kwargs = self._binder.bind_json(text, context.handles.value_of)
        return ToolInvocation(call, context, args, kwargs)

    @cached_property
    def _context_name(self) -> str | None:
        return context_parameter(self._fn)

    @cached_property
    def _names(self) -> list[str]:
        return [n for n in signature_of(self._fn).parameters if n != self._context_name]

    def _is_object(self, text: str) -> bool:
        """Return whether the text of a freeform call is a JSON object of the tool's arguments."""
        given = json_object(text) if text.lstrip()[:1] == "{" else None
        return given is not None and given.keys() <= {*self._names, "input"}

    def _in_own_words(self, text: str) -> str:
        """Rename arguments that models name otherwise; "input" is the text of a freeform call."""
        given = json_object(text)
        if given is None:
            return text  # the binder reports the error
        first = self._names[0]
        if self.options.freeform is not None and "input" in given and first not in given:
            given[first] = given.pop("input")
        if self.options.in_own_words is not None:
            given = self.options.in_own_words(given)
        return json.dumps(given)

    def _arguments(self, invocation: ToolInvocation) -> dict[str, Any]:
        return dict(zip(self._names, invocation.args, strict=False)) | invocation.kwargs

    def assess(self, invocation: ToolInvocation) -> list[Action]:
        """Return the actions that the tool's `assess` reports, else one by its `mutating` mark."""
        if self.options.assess is not None:
            return self._ask_tool(self.options.assess, invocation)
        action = self._action
        if not self.is_mutating(invocation):
            action = replace(action, kind=ActionKind.OWN_TOOL_READING)
        if decide(action.kind, invocation.context.config.approval) is not Verdict.ASK:
            return [action]
        text = readable_payload(invocation.call.payload)
        # "Always" is bound to these very arguments: no other description of the effect exists.
        bound = fingerprint_of(self.options.name, text)
        return [replace(action, fingerprint=bound, family=self.options.name)]

    def _ask_tool(self, assess: Assess, invocation: ToolInvocation) -> list[Action]:
        """Return what a tool's own `assess` reports; where that fails, the call is not made."""
        if self.options.own:
            try:
                return assess(self._arguments(invocation), invocation.context)
            except OSError as error:  # a path that may not be looked up, or not any more
                raise RespondToModel(
                    f"{self.options.name} was not run: {short_message(error)}."
                ) from error
        try:
            actions = list(assess(self._arguments(invocation), invocation.context))
            if not all(issubclass(type(action), Action) for action in actions):
                raise TypeError("it has to return a list of Action")
            return actions
        except AgentMagicsError:
            raise
        except BaseException as error:  # the person's own function may raise anything
            raise RespondToModel(
                f"{self.options.name} was not run: its `assess` failed ({typed_message(error)})."
            ) from error

    def is_mutating(self, invocation: ToolInvocation) -> bool:
        """Return whether the tool may change something, True where its own function fails."""
        mutating = self.options.mutating
        if not callable(mutating):
            return bool(mutating)
        try:
            return bool(mutating(self._arguments(invocation)))
        except BaseException:  # the person's own function may raise anything
            return True

    async def handle(self, invocation: ToolInvocation) -> ToolOutput:
        """Run the function on its thread or loop and convert its result for the model."""
        context, budget = invocation.context, invocation.context.turn.config.output_budget
        # Our own tools' `assess` has judged every path; for the person's tools `validate_path`
        # does, since their `assess` may have missed one.
        if self._judges_paths:
            status_of(context).judged = True
        if self._context_name is not None:
            invocation.kwargs[self._context_name] = context
        try:
            if self._is_inline:  # avoids one more coroutine
                value = self._run_off_main(invocation)
            else:
                value = await self._execute(invocation)
            if issubclass(type(value), _AWAITED):  # of a function that calls an async one
                value = await self._on_calling_loop(invocation, lambda *_, **__: value)
        except RespondToModel as error:
            told = error if self.options.own else _fitting(error, budget)
            raise told from error.__cause__
        except AgentMagicsError:
            raise
        except Exception as error:
            raise _fitting(RespondToModel(self._describe(error)), budget) from error
        return small_output(value, budget) or await self._large_output(value, context)

    async def _large_output(self, value: object, context: ToolContext) -> ToolOutput:
        if self.options.own:
            return self._output_of(value, context)
        if not may_run_code(value):
            return self._named(self._output_of(value, context), context)
        return await self._output_in_time(value, context)

    async def _output_in_time(self, value: object, context: ToolContext) -> ToolOutput:
        """Convert a value to text on a thread, with a time limit: its repr may never return."""
        working = asyncio.wrap_future(_WORDING.submit(self._output_of, value, context))
        working.add_done_callback(forget_error)  # it may end after its time, or after the turn
        done, _ = await asyncio.wait([working], timeout=WORDS_LIMIT)
        if done:  # only then, so that nothing is stored after hooks have seen the output
            output: ToolOutput = await run_on_thread(self._named, working.result(), context)
            return output
        summary = (
            f"{self.options.name} ran. What it returned ({type_name(value)}) takes more than "
            f"{WORDS_LIMIT:.0f} s to be put into words, so it is not shown."
        )
        return ToolOutput(f"{summary}\n{refer(value, context, was_cut=True)}", value=value)

    def _output_of(self, value: object, context: ToolContext) -> ToolOutput:
        with self._telling_failure():
            output = to_tool_output(value, context.turn.config.output_budget)
            if output.details and not self.options.own:
                output = replace(output, details=_plain_details(output.details))
            return output

    def _named(self, output: ToolOutput, context: ToolContext) -> ToolOutput:
        with self._telling_failure():
            return with_reference(output, context)

    @contextmanager
    def _telling_failure(self) -> Iterator[None]:
        """Tell the model of a result that raises where it is converted or looked at."""
        try:
            yield
        except AgentMagicsError:
            raise
        except BaseException as error:  # of an object of the tool's own making
            raise RespondToModel(
                f"{self.options.name} ran, but what it returned has no form that can be read "
                f"({typed_message(error)})."
            ) from error

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

    async def _on_calling_loop(
        self, invocation: ToolInvocation, fn: Callable[..., Any] | None = None
    ) -> Any:
        run = partial(self._run_async, fn or self._fn)
        if invocation.context.turn.main_thread is None:
            return await run(invocation)
        return await _hand_over(invocation, "async", run)

    async def _on_thread(self, invocation: ToolInvocation) -> Any:
        return await run_off_loop(invocation.context, self._run_off_main, invocation)

    async def _on_main_thread(self, invocation: ToolInvocation) -> Any:
        if invocation.context.turn.main_thread is None:
            return await self._on_thread(invocation)
        return await _hand_over(invocation, "sync", self._run_sync)

    def _run_off_main(self, invocation: ToolInvocation) -> Any:
        try:
            return self._run_sync(invocation)
        except KeyboardInterrupt as error:  # the tool's own; Ctrl-C reaches the main thread
            raise RespondToModel(self._describe(error)) from error

    @marks_person_code
    def _run_sync(self, invocation: ToolInvocation) -> Any:
        try:
            result = self._fn(*invocation.args, **invocation.kwargs)
            if issubclass(type(result), GeneratorType):
                return _exhaust(result, invocation.context)
        except BaseException as error:
            if _may_pass(error):
                raise
            raise RespondToModel(self._describe(error)) from error
        return result

    @marks_person_code
    async def _run_async(self, fn: Callable[..., Any], invocation: ToolInvocation) -> Any:
        try:
            result = fn(*invocation.args, **invocation.kwargs)
            if not issubclass(type(result), AsyncGeneratorType):
                return await result
            last = None
            async for last in result:
                _show_progress(last, invocation.context)
                await asyncio.sleep(0)  # a generator that awaits nothing can be stopped here
        except BaseException as error:
            task = asyncio.current_task()
            # Cancelled because the turn is over, not because of something the tool awaited.
            is_over = isinstance(error, asyncio.CancelledError) and task and task.cancelling()
            if is_over or _may_pass(error):
                raise
            raise RespondToModel(self._describe(error)) from error
        return last

    def _describe(self, error: BaseException) -> str:
        """Describe an error with the line of the tool's own code that raised it."""
        frames = traceback.extract_tb(error.__traceback__)
        code = getattr(inspect.unwrap(self._fn), "__code__", None)  # none of a compiled function
        own = [f for f in frames if code is not None and f.filename == code.co_filename]
        line = (own[-1].line or "")[:_LONGEST_LINE] if own else ""
        place = f" (line {own[-1].lineno}: {line})" if line else ""
        return f"{self.options.name} raised {typed_message(error)}{place}"


def _fitting(error: RespondToModel, budget: int) -> RespondToModel:
    """Return a tool's own refusal, shortened as its outputs are."""
    return RespondToModel(fit_text(full_message(error), max(budget, LEAST)))


async def _hand_over(invocation: ToolInvocation, kind: str, run: Callable[..., Any]) -> Any:
    """Let the thread that waits for the run make a call."""
    main_thread, call = invocation.context.turn.main_thread, invocation.call
    assert main_thread is not None  # some thread waits
    return await main_thread(kind, call.call_id, call.tool_name, partial(run, invocation))


def _plain_details(details: object) -> dict[str, Any]:
    """Return details as plain JSON: displays and recordings would fail later, for people only."""
    try:
        return plain_object(details)
    except BaseException as error:  # a cycle, or a foreign class's __str__
        return {"left_out": f"no JSON form: {typed_message(error)}"}


def _may_pass(error: BaseException) -> bool:
    """Return whether a tool's exception may reach the caller unchanged.

    Others would end the event loop, or look as if the turn was stopped (`SystemExit`,
    `GeneratorExit`, `CancelledError`), or belong to a test library and are caught by nobody.
    """
    if isinstance(error, StopIteration):
        return False
    return isinstance(error, (Exception, KeyboardInterrupt))


def _exhaust(generator: Generator[Any, Any, Any], context: ToolContext) -> Any:
    """Run a generator to its end, showing its values; return its result, else the last value."""
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


def _show_progress(update: object, context: ToolContext) -> None:
    """Show a yielded value: a number as the share done, text as the title, a dict as metadata."""
    if isinstance(update, str):
        context.update(title=update)
    elif isinstance(update, dict):
        context.update(metadata=update)
    elif isinstance(update, (int, float)):
        with suppress(OverflowError):
            context.update(progress=float(update))
