"""Tools as plain functions for the model's live code: checked, approved and shown as its calls.

A sync call blocks the main thread, which serves the run meanwhile: questions are typed in there,
and the person's own sync tools run there. ``await tool(...)`` waits without blocking. The person's
own calls from a cell are none of this: they run the functions themselves.
"""

import ast
import asyncio
import functools
import os
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.output import NONE_TEXT
from agent_magics.dispatch.stubs import NOT_FROM_CODE, call_signature
from agent_magics.dispatch.tool import is_tool
from agent_magics.dispatch.values import library_class
from agent_magics.engine.foreground import SERVING, Foreground
from agent_magics.engine.thread import shared_engine
from agent_magics.kernel.interrupt import marks_own_code
from agent_magics.protocol.errors import FatalError, TurnAbort
from agent_magics.protocol.tools import ToolOutput
from agent_magics.tools.command_run import CommandReport
from agent_magics.tools.mcp_callables import McpNamespace

# An interrupt while a call waits stops the run; our own serving is not broken off half-way.
marks_own_code(Foreground.block_on)

_LARGEST_SENT = 1_000  # elements of plain data that a call carries; more goes by reference
_ABSENT = object()
MCP = "mcp"  # the name under which code reaches the tools of MCP servers

Uncaptured = Callable[[], AbstractContextManager[None]]


class _Stopped(BaseException):
    """Ends the code where the turn ends, whatever exceptions the code catches."""


class ToolFailedError(RuntimeError):
    """What live code gets where a model would read that a call did not do what was asked."""


class LiveTools:
    """The tools of one piece of live code.

    Args:
        context: the call that runs the code; theirs name it as their parent.
        uncaptured: lets questions be asked and other work print as if no code ran.

    Attributes:
        stop: what ended the turn at a call of the code's, to be raised when the code has ended.
    """

    def __init__(self, context: ToolContext, uncaptured: Uncaptured) -> None:
        self._context = context
        self._uncaptured = uncaptured
        self.stop: TurnAbort | FatalError | None = None
        self._over = False
        self._before: dict[str, Any] = {}
        self._thread = threading.get_ident()
        self.functions = {
            name: self._offer(name, fn)
            for name, fn in context.turn.functions.items()
            if name.isidentifier() and name not in NOT_FROM_CODE
        }

        self._bound: dict[str, Any] = dict(self.functions)
        if context.turn.servers is not None:
            spawn = shared_engine().spawn
            self._bound[MCP] = McpNamespace(context.turn.servers, spawn, self._offer)

    @contextmanager
    def bound(self, namespace: MutableMapping[str, Any]) -> Iterator[None]:
        """Put the functions into `namespace`, but never in the place of a person's variable."""
        before = self._before
        for name, ours in self._bound.items():
            there = namespace.get(name, _ABSENT)
            if there is _ABSENT or is_tool(there) or isinstance(there, McpNamespace):
                before[name], namespace[name] = there, ours
        self._context.turn.from_code.add(self._context.call_id)
        try:
            yield
        finally:
            self._over = True
            self._context.turn.from_code.discard(self._context.call_id)
            for name, there in before.items():
                if namespace.get(name) is not self._bound[name]:
                    continue  # the code has defined something of that name
                if there is _ABSENT:
                    del namespace[name]
                else:
                    namespace[name] = there

    def awaitable(self) -> "AwaitedTools":
        """Return what rewrites awaited calls of the functions that are bound."""
        return AwaitedTools(frozenset(self._before))

    def _offer(self, name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        signature = call_signature(fn)

        def arguments_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
            bound = signature.bind(*args, **kwargs).arguments
            rest = next(
                (p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD), ""
            )
            flat = {**bound, **bound.pop(rest, {})}
            flat.pop(rest, None)
            return {key: self._sent(value) for key, value in flat.items()}

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call_blocking(name, arguments_of(args, kwargs))

        async def aio(*args: Any, **kwargs: Any) -> Any:
            return await self._call(name, arguments_of(args, kwargs))

        for each in (call, aio):
            functools.update_wrapper(each, fn, updated=())
            del each.__wrapped__  # help() and inspect go by the signature
            each.__signature__ = signature  # type: ignore[attr-defined] - read by inspect
            each.__name__ = each.__qualname__ = name
        call.aio = aio  # type: ignore[attr-defined] - as the person's own tools have it
        return call

    # -- making the call --------------------------------------------------------------------------

    def _call_blocking(self, name: str, arguments: Mapping[str, Any]) -> Any:
        foreground = SERVING.get()
        if foreground is None or threading.get_ident() != self._thread:
            self._check(name)
            raise ToolFailedError(
                f"{name} can be called from the code's main thread only; "
                f"await asyncio.gather({name}.aio(...), ...) runs calls side by side."
            )
        pending = self._start(name, arguments)
        with self._uncaptured(), self._stopping():
            return _value_of(name, foreground.block_on(pending))

    async def _call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        foreground = SERVING.get()
        if foreground is not None and foreground.blocks:
            return self._call_blocking(name, arguments)
        with self._stopping():
            return _value_of(name, await asyncio.wrap_future(self._start(name, arguments)))

    @contextmanager
    def _stopping(self) -> Iterator[None]:
        """End the code where the person, or an error that only they can mend, ends the turn."""
        try:
            yield
        except (TurnAbort, FatalError) as error:
            raise self.end_with(error) from None

    def end_with(self, error: TurnAbort | FatalError) -> BaseException:
        """Keep what ended the turn, and return what ends the code."""
        self.stop = error
        return _Stopped(str(error))

    def _start(self, name: str, arguments: Mapping[str, Any]) -> "Future[ToolOutput]":
        self._check(name)
        context = self._context
        return shared_engine().spawn(context.turn.call(name, arguments, context.call_id))

    def _check(self, name: str) -> None:
        if self._over:
            raise ToolFailedError(
                f"{name} belonged to a run of code that has ended; call the tool by its name again."
            )

    def _sent(self, value: Any) -> Any:
        """Return what stands for `value` in a call: itself where it is small and plain."""
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if _is_plain(value, [_LARGEST_SENT]):
            return value
        if library_class(value) == ("numpy", "generic"):
            return value.item()
        return self._context.handles.keep_value(value)


def _is_plain(value: Any, left: list[int]) -> bool:
    """Tell whether JSON carries `value` as it is, and no more than `left` elements."""
    left[0] -= 1
    kind = type(value)
    if kind in (str, int, float, bool) or value is None:
        return True
    if left[0] < 0:
        return False
    if kind is list:
        return all(_is_plain(each, left) for each in value)
    if kind is dict:
        return all(type(k) is str and _is_plain(each, left) for k, each in value.items())
    return False


def _value_of(name: str, output: ToolOutput) -> Any:
    if not output.success:
        raise ToolFailedError(output.text)
    value = output.value
    if isinstance(value, CommandReport):
        return value.result
    if value is None and output.text != NONE_TEXT:
        return output.text
    return value


class AwaitedTools(ast.NodeTransformer):
    """Makes ``await tool(...)`` the awaitable call; ``tool(...)`` alone is the plain one."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def visit_Await(self, node: ast.Await) -> ast.AST:
        """Rewrite the awaited call."""
        call = node.value
        named = call.func if isinstance(call, ast.Call) else None
        if self._is_tool(named):
            awaitable = ast.Attribute(named, "aio", ast.Load())
            call.func = ast.copy_location(awaitable, named)
        self.generic_visit(node)
        return node

    def _is_tool(self, called: ast.expr | None) -> bool:
        """Tell whether this is the name of a function, or ``mcp.SERVER.TOOL``."""
        if isinstance(called, ast.Attribute):
            server = called.value
            root = server.value if isinstance(server, ast.Attribute | ast.Subscript) else None
            is_mcp = isinstance(root, ast.Name) and root.id == MCP
            return is_mcp and MCP in self._names and called.attr != "aio"
        return isinstance(called, ast.Name) and called.id in self._names
