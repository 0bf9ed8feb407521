"""Runs the model's code in the person's namespace, and expands `{{expression}}` in prompts."""

import asyncio
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.person_code import marks_person_code
from agent_magics.dispatch.results.output import to_tool_output
from agent_magics.dispatch.tool import is_tool
from agent_magics.dispatch.turn import LiveDocument, LiveResult
from agent_magics.engine.foreground.interrupt import (
    Stopped,
    call_of_person,
    presses,
    raise_if_pressed,
)
from agent_magics.engine.past.variables import maker_of, outlines
from agent_magics.kernel.live.capture import Capture, captured, is_of_person
from agent_magics.kernel.live.changes import WORD, Changes, RunChange, Watch
from agent_magics.kernel.live.displayed import describe_error, is_cell, refuse_exit
from agent_magics.kernel.live.guard import Guard
from agent_magics.kernel.live.tasks import contained
from agent_magics.kernel.live.tools import LiveTools
from agent_magics.protocol.errors import FatalError, RespondToModel, clause, typed_message
from agent_magics.protocol.events import NamespaceChanged, VariablesKnown
from agent_magics.text.braces import split_at_braces

# The most characters of one expression in a prompt; larger values belong in the kernel.
_INTERPOLATED = 10_000
_KEPT = re.compile(r"\b_r[1-9]\d*\b")
_MOST_RAN = 1_000

_ATTRIBUTES = ("last_execution_succeeded", "last_execution_result")
_SYS_LAST = ("last_type", "last_value", "last_traceback", "last_exc")


# What code prints is captured for the whole process: two pieces that end in another order than they
# began would leave the kernel without outputs. The lock is held while a piece runs; code inside it,
# of an agent that it runs, has a lock of its own.
_FREE: ContextVar[threading.Lock] = ContextVar("free")
NOT_FREE = (
    "python was not run: code of another agent runs in this kernel, and one piece at a time does. "
    'Call it again later, or pass where="scratch".'
)


@dataclass(frozen=True, slots=True)
class RanCode:
    """Code of a model that was run, as it was approved.

    Attributes:
        session_id: the conversation.
        place: "live" in the kernel, "scratch" in a scratch process.
        copied: names of the variables that were copied to scratch.
    """

    session_id: str
    code: str
    place: str = "live"
    copied: tuple[str, ...] = ()


class LiveNamespace:
    """Runs code in `shell`'s namespace as a cell would, without changing the shell's own state.

    Attributes:
        changes: the changes of the last runs, for undo.
        ran: the code that ran, oldest first.
        cell_ids: the ids of the notebook's cells that ran, by their source.
        running: whether code runs right now.
        document: the open notebook, where a front end provides it.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self.changes = Changes()
        self.ran: deque[RanCode] = deque(maxlen=_MOST_RAN)
        self.running = False
        self._free = threading.Lock()
        self.cell_ids: dict[str, str] = {}
        self.document: LiveDocument | None = None

    @property
    def namespace(self) -> Mapping[str, Any]:
        """The person's variables, and IPython's own."""
        namespace: Mapping[str, Any] = self._shell.user_ns
        return namespace

    def keep_code(self, code: str, session_id: str, copied: Sequence[str]) -> None:
        """Record code that runs in scratch; see `LiveKernel.keep_code`."""
        self.ran.append(RanCode(session_id, code, "scratch", tuple(copied)))

    async def run(self, code: str, context: ToolContext) -> LiveResult:
        """Run `code`; see `LiveKernel.run`."""
        free = _FREE.get(self._free)
        if not free.acquire(blocking=False):
            raise RespondToModel(NOT_FREE)
        inside = _FREE.set(threading.Lock())
        try:
            return await self._run(code, context)
        finally:
            free.release()
            with suppress(ValueError):  # a task that was left ends in another context
                _FREE.reset(inside)

    async def _run(self, code: str, context: ToolContext) -> LiveResult:
        shell = self._shell
        before = presses()
        with _undisturbed(shell), captured(shell, code, context) as capture:
            try:
                transformed = shell.transform_cell(code)
            except Exception as error:
                return LiveResult(capture.text, error=typed_message(error))
            self.bind_kept(code, context.handles.value_of)
            self.ran.append(RanCode(context.session_id, code))
            with self._watching(transformed, context, capture):
                tools = LiveTools(context, capture.suspended)
                guard = Guard(
                    context,
                    code,
                    base=LiveNamespace._execute.__code__,
                    is_cell=partial(is_cell, shell),
                    uncaptured=capture.suspended,
                    stop=tools.end_with,
                )
                with (
                    tools.bound(shell.user_ns),
                    _rewriting(shell, tools),
                    guard.watching(),
                    contained(),
                ):
                    self.running = True
                    try:
                        result = await self._execute(code, transformed)
                    finally:
                        self.running = False
        if tools.stop is not None:
            raise tools.stop
        raised: BaseException | None = result.error_before_exec or result.error_in_exec
        out_of_time = isinstance(raised, Stopped | asyncio.CancelledError) and context.is_late
        if raised is not None and not out_of_time and _ends_turn(raised, presses() > before):
            raise raised
        text = "" if raised is None else describe_error(shell, raised)
        return LiveResult(capture.text, tuple(capture.images), text, tuple(capture.notes))

    @contextmanager
    def _watching(self, code: str, context: ToolContext, capture: Capture) -> Iterator[None]:
        """Report the changes of the namespace, also where the code fails or is interrupted."""
        watch = Watch(self._shell.user_ns, code, self._shell.user_ns_hidden)
        try:
            with _names_of_person(self._shell) as theirs:
                yield
        finally:
            change = watch.end(theirs)
            self._remember(watch.named, change, context)
            if change:
                change.turn_id = context.turn_id
                self.changes.add(change)
                capture.notes.append(f"[Variables: {change}.]")
                context.emit(
                    NamespaceChanged,
                    added=change.added,
                    changed=change.changed,
                    deleted=change.deleted,
                )

    def _remember(self, read: set[str], change: RunChange, context: ToolContext) -> None:
        """Put on record what the code has read or made, for when the kernel has ended."""
        names = read | set(change.was)
        namespace = {
            name: value
            for name in sorted(names)
            if (value := self._shell.user_ns.get(name, self)) is not self
        }
        known: dict[str, Any] = dict.fromkeys(sorted(names - namespace.keys()))
        cells, raw = self._shell.user_ns.get("In", []), self._shell.history_manager.input_hist_raw
        made = f"the agent in [{len(cells) - 1}]"
        ids = {at: self.cell_ids[cell] for at, cell in enumerate(raw) if cell in self.cell_ids}
        for name, outline in outlines(namespace, namespace).items():
            by = made if name in change.was else maker_of(name, cells, ids)
            known[name] = {**outline, "made_by": by}
        if known:
            context.emit(VariablesKnown, variables=known)

    def bind_kept(self, code: str, value_of: Callable[[str], Any]) -> None:
        """Bind the stored results that `code` names (``_r7``) to their objects."""
        for name in sorted(set(_KEPT.findall(code))):
            with suppress(RespondToModel):  # the code gets a NameError
                self._shell.user_ns[name] = value_of(f"@{name[1:]}")

    @marks_person_code
    async def _execute(self, code: str, transformed: str) -> Any:
        # Marked separately: an interrupt must not arrive while the state around it is restored.
        raise_if_pressed()
        result = await self._shell.run_cell_async(
            code, store_history=False, transformed_cell=transformed
        )
        # Inline figures are drawn by this event; without it they come only when the surrounding
        # cell ends, and not as this call's output.
        self._shell.events.trigger("post_execute")
        return result


@contextmanager
def _names_of_person(shell: Any) -> Iterator[set[str]]:
    """Collect the names that cells of the person use or bind meanwhile, as code in the background
    awaits something: what becomes of these is theirs.
    """
    names = set[str]()
    before: dict[str, Any] = {}

    def begin(info: Any) -> None:
        if is_of_person():
            names.update(WORD.findall(info.raw_cell))
            before.clear()
            before.update(shell.user_ns)

    def end(_: Any) -> None:
        if is_of_person():
            now = dict(shell.user_ns)
            names.update(
                n for n in {*now, *before} if now.get(n, names) is not before.get(n, names)
            )

    shell.events.register("pre_run_cell", begin)
    shell.events.register("post_run_cell", end)
    try:
        yield names
    finally:
        shell.events.unregister("pre_run_cell", begin)
        shell.events.unregister("post_run_cell", end)


def _ends_turn(raised: BaseException, was_pressed: bool) -> bool:
    """Return whether the person interrupted, or the turn stops the code or cancels its task.

    Code may raise KeyboardInterrupt by itself, and raises CancelledError where it awaits a task
    which it cancelled.
    """
    if not isinstance(raised, asyncio.CancelledError):
        return isinstance(raised, Stopped) or (
            isinstance(raised, KeyboardInterrupt) and was_pressed
        )
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs: the code is driven by hand, and stopped otherwise
        return False
    return task is not None and task.cancelling() > 0


@contextmanager
def _rewriting(shell: Any, tools: LiveTools) -> Iterator[None]:
    """Rewrite ``await tool(...)`` to the awaitable call in code that runs inside this context."""
    transformer = tools.awaitable()
    shell.ast_transformers.append(transformer)
    try:
        yield
    finally:
        with suppress(ValueError):  # IPython takes out one that has failed
            shell.ast_transformers.remove(transformer)


@contextmanager
def _undisturbed(shell: Any) -> Iterator[None]:
    """Preserve the shell's history variables, and keep tracebacks out of the cell."""
    hook = shell.displayhook
    saved_result = hook.exec_result
    saved = {name: getattr(shell, name, None) for name in _ATTRIBUTES}
    saved_sys = {name: getattr(sys, name) for name in _SYS_LAST if hasattr(sys, name)}
    # An `error` message would fail the cell under nbval; the error is the call's output.
    names = ("showtraceback", "showsyntaxerror", "showindentationerror")
    silenced = {name: _for_live_code(shell, name, lambda *_, **__: None) for name in names}
    silenced["ask_exit"] = _for_live_code(shell, "ask_exit", refuse_exit)
    own = {**vars(shell)}  # those of code that runs this code stay
    vars(shell).update(silenced)
    try:
        yield
    finally:
        for name in silenced:
            del vars(shell)[name]
            if name in own:
                vars(shell)[name] = own[name]
        hook.exec_result = saved_result
        for name, value in saved.items():
            setattr(shell, name, value)
        for name in _SYS_LAST:
            if name in saved_sys:
                setattr(sys, name, saved_sys[name])
            elif hasattr(sys, name):
                delattr(sys, name)


def _for_live_code(shell: Any, name: str, instead: Callable[..., Any]) -> Callable[..., Any]:
    """Return what takes the place of a method of the shell: it calls `instead` for live code, and
    the method itself for cells of the person.
    """
    method = getattr(shell, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        return (method if is_of_person() else instead)(*args, **kwargs)

    return call


def interpolate(text: str, namespace: dict[str, Any]) -> str:
    r"""Replace each ``{{expression}}`` by its value as a model would read it.

    A lone ``{``, ``$`` or ``%`` is literal, and so is ``\{{``.

    Args:
        text: the prompt.
        namespace: the person's variables.

    Raises:
        FatalError: an expression raises; the message names it.
    """
    pieces = split_at_braces(text)
    for place in range(1, len(pieces), 2):
        expression = pieces[place].strip()
        try:
            pieces[place] = str(call_of_person(_text_of, expression, namespace))
        except (Exception, SystemExit) as error:
            raise FatalError(
                f"{{{{{expression}}}}} in the prompt raised {clause(typed_message(error))}. "
                r"Write \{{ for two literal braces, } } for two inside an expression."
            ) from error
    return "".join(pieces)


def _text_of(expression: str, namespace: dict[str, Any]) -> str:
    value = eval(expression, namespace)
    return "None" if value is None else to_tool_output(value, _INTERPOLATED).text


def own_tools(namespace: Mapping[str, Any]) -> list[Any]:
    """Return the person's `@tool` functions in order of definition, without repeats."""
    found = {
        id(value): value
        for name, value in list(namespace.items())
        if type(name) is str and name[:1] != "_" and is_tool(value) and not value.tool_options.own
    }
    return list(found.values())
