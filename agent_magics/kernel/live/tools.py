"""Tools as plain functions for the model's live code: checked, approved and shown as its calls.

A sync call blocks the main thread, which serves the run meanwhile: questions are typed in there,
and the person's own sync tools run there. ``await tool(...)`` waits without blocking. Calls in the
person's own cells bypass all of this: they run the functions themselves.
"""

import ast
import asyncio
import functools
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.person_code import marks_own_code
from agent_magics.dispatch.results.output import NONE_TEXT
from agent_magics.dispatch.tool import is_tool
from agent_magics.engine.foreground.waiting import SERVING, Foreground
from agent_magics.engine.past.variables import assigned_in
from agent_magics.engine.thread import shared_engine
from agent_magics.kernel.live.capture import is_of_person
from agent_magics.kernel.live.sending import Sender, ToolFailedError
from agent_magics.protocol.errors import FatalError, TurnAbort, short_message
from agent_magics.protocol.tools import ToolOutput
from agent_magics.tools.catalog.stubs import NOT_FROM_CODE, call_signature
from agent_magics.tools.commands.run import CommandReport
from agent_magics.tools.mcp.callables import McpNamespace
from agent_magics.tools.mcp.joining import McpTools

# An interrupt while a call waits stops the run; our own code is not interrupted half-way.
marks_own_code(Foreground.block_on)

_ABSENT = object()
MCP = "mcp"  # the name under which code reaches the tools of MCP servers

Uncaptured = Callable[[], AbstractContextManager[None]]


class _TurnEnded(BaseException):
    """Ends the code when the turn ends; no ``except Exception`` of the code catches it."""


class LiveTools:
    """The tools of one piece of live code.

    Args:
        context: the call that runs the code; the code's calls name it as their parent.
        uncaptured: suspends the capture while questions are asked and tools run.

    Attributes:
        stop: the error that ended the turn at a call of the code; raised when the code has ended.
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
        servers = context.turn.servers
        if isinstance(servers, McpTools):
            self._bound[MCP] = McpNamespace(servers, shared_engine().spawn, self._offer)

    @contextmanager
    def bound(self, namespace: MutableMapping[str, Any]) -> Iterator[None]:
        """Bind the functions in `namespace` inside this context; keep the person's variables."""
        before = self._before
        for name, function in self._bound.items():
            there = namespace.get(name, _ABSENT)
            if there is _ABSENT or is_tool(there) or isinstance(there, McpNamespace):
                before[name], namespace[name] = there, function
        self._context.turn.from_code.add(self._context.call_id)
        try:
            yield
        finally:
            self._over = True
            self._context.turn.from_code.discard(self._context.call_id)
            for name, there in before.items():
                if namespace.get(name) is not self._bound[name]:
                    continue  # the code has assigned the name
                if there is _ABSENT:
                    del namespace[name]
                else:
                    namespace[name] = there

    def awaitable(self) -> "AwaitedTools":
        """Return a transformer that rewrites awaited calls of the bound functions."""
        return AwaitedTools(frozenset(self._before))

    def _offer(self, name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        signature = call_signature(fn)
        sender = Sender(name, fn, self._context.turn.handles)

        def arguments_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
            bound = signature.bind(*args, **kwargs).arguments
            rest = next(
                (p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD), ""
            )
            flat = {**bound, **bound.pop(rest, {})}
            flat.pop(rest, None)
            return {key: sender.sent(key, value) for key, value in flat.items()}

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call_blocking(name, arguments_of(args, kwargs))

        async def aio(*args: Any, **kwargs: Any) -> Any:
            return await self._call(name, arguments_of(args, kwargs))

        for each in (call, aio):
            functools.update_wrapper(each, fn, updated=())
            del each.__dict__["__wrapped__"]  # help() and inspect use the signature
            each.__dict__["__signature__"] = signature
            each.__name__ = each.__qualname__ = name
        call.__dict__["aio"] = aio  # as on the person's own tools
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
            return _value_of(foreground.block_on(pending))

    async def _call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        foreground = SERVING.get()
        if foreground is not None and foreground.blocks:
            return self._call_blocking(name, arguments)
        with self._stopping():
            return _value_of(await asyncio.wrap_future(self._start(name, arguments)))

    @contextmanager
    def _stopping(self) -> Iterator[None]:
        """End the code where the person, or an error that only they can repair, ends the turn."""
        try:
            yield
        except (TurnAbort, FatalError) as error:
            raise self.end_with(error) from None

    def end_with(self, error: TurnAbort | FatalError) -> BaseException:
        """Store the error that ended the turn, and return the exception that ends the code."""
        self.stop = error
        return _TurnEnded(short_message(error))

    def _start(self, name: str, arguments: Mapping[str, Any]) -> "Future[ToolOutput]":
        self._check(name)
        context = self._context
        return shared_engine().spawn(context.turn.call(name, arguments, context.call_id))

    def _check(self, name: str) -> None:
        if self._over:
            raise ToolFailedError(
                f"{name} belonged to a run of code that has ended; call the tool by its name again."
            )


def _value_of(output: ToolOutput) -> Any:
    if not output.success:
        raise ToolFailedError(output.text)
    value = output.value
    if isinstance(value, CommandReport):
        return value.result
    if value is None and output.text != NONE_TEXT:
        return output.text
    return value


class AwaitedTools(ast.NodeTransformer):
    """Rewrites ``await tool(...)`` to the awaitable call; ``tool(...)`` alone stays plain."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def visit_Module(self, node: ast.Module) -> ast.AST:
        """Leave the names alone that the code itself binds, and cells of the person."""
        if is_of_person():
            return node
        self._names -= assigned_in(node)
        return self.generic_visit(node)

    def visit_Await(self, node: ast.Await) -> ast.AST:
        """Rewrite the awaited call."""
        call = node.value
        if isinstance(call, ast.Call) and self._is_tool(call.func):
            awaitable = ast.Attribute(call.func, "aio", ast.Load())
            call.func = ast.copy_location(awaitable, call.func)
        self.generic_visit(node)
        return node

    def _is_tool(self, called: ast.expr) -> bool:
        """Return whether an expression names a tool function, or ``mcp.SERVER.TOOL``."""
        if isinstance(called, ast.Attribute):
            server = called.value
            root = server.value if isinstance(server, ast.Attribute | ast.Subscript) else None
            is_mcp = isinstance(root, ast.Name) and root.id == MCP
            return is_mcp and MCP in self._names and called.attr != "aio"
        return isinstance(called, ast.Name) and called.id in self._names
