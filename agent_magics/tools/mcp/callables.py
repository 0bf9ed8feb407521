"""The tools of MCP servers as Python callables: ``mcp.github.search_issues(q="…")``."""

import inspect
import keyword
import re
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from agent_magics.dispatch.foreign_schemas.sanitizer import sanitize_json_schema
from agent_magics.dispatch.foreign_schemas.signature import bound_arguments, function_of, type_of
from agent_magics.protocol.errors import RespondToModel, full_message
from agent_magics.protocol.mcp import McpCallbacks, McpTool
from agent_magics.text.invisible import clean_text
from agent_magics.tools.mcp.by_hand import Ask, await_call, decline, wait_for_call
from agent_magics.tools.mcp.handler import McpToolHandler
from agent_magics.tools.mcp.joining import McpTools
from agent_magics.tools.mcp.results import is_wrapped, value_of

# Makes the callable for a tool out of a function with its signature: (name, function).
Caller = Callable[[str, Callable[..., Any]], Callable[..., Any]]
# Starts a coroutine on the engine's loop; from any other thread.
Spawn = Callable[[Coroutine[Any, Any, Any]], "Future[Any]"]


class McpToolError(RuntimeError):
    """A tool of an MCP server reported a failure (``isError``).

    Its text cannot act on a terminal.
    """

    def __init__(self, text: str) -> None:
        super().__init__(clean_text(text))


class McpNamespace:
    """The MCP servers by name: ``mcp.github``, or ``mcp["my-server"]``.

    Args:
        tools: the tools of the servers.
        spawn: starts a coroutine on the engine's loop.
        caller: wraps each tool as a callable; None calls the server directly, as a person does.
        ask: answers servers' questions during direct calls.
    """

    def __init__(
        self, tools: McpTools, spawn: Spawn, caller: Caller | None = None, ask: Ask = decline
    ) -> None:
        self._tools = tools
        self._spawn = spawn
        self._caller = caller
        self._ask = ask

    def __getitem__(self, server: str) -> "McpServerTools":
        if server not in self:
            names = ", ".join(self) or "none"
            raise KeyError(f"there is no MCP server named {server!r}; there are: {names}")
        return McpServerTools(server, self._tools, self._spawn, self._caller, self._ask)

    def __getattr__(self, name: str) -> "McpServerTools":
        if not name.startswith("_"):
            for server in self:
                if attribute_of(server) == name:
                    return self[server]
        names = ", ".join(map(attribute_of, self)) or "none"
        raise AttributeError(f"there is no MCP server named {name!r}; there are: {names}")

    def __iter__(self) -> Iterator[str]:
        return iter([state.config.name for state in self._tools.states])

    def __contains__(self, server: object) -> bool:
        return any(server == name for name in self)

    def __dir__(self) -> list[str]:
        return [attribute_of(name) for name in self]

    def __repr__(self) -> str:
        lines = [f"  {state.config.name}: {state.status}" for state in self._tools.states]
        return "\n".join(["MCP servers:", *lines])


class McpServerTools:
    """The tools of one server by name; waits for a server that is starting."""

    def __init__(
        self, server: str, tools: McpTools, spawn: Spawn, caller: Caller | None, ask: Ask
    ) -> None:
        self._ask = ask
        self._server = server
        self._tools = tools
        self._spawn = spawn
        self._caller = caller
        self._why = ""  # the tools are not known

    def __getitem__(self, tool: str) -> Callable[..., Any]:
        handler = self._handlers().get(tool)
        if handler is None:
            raise KeyError(self._missing(tool))
        return self._callable(handler)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("__"):
            for tool, handler in self._handlers().items():
                if attribute_of(tool) == name:
                    return self._callable(handler)
        raise AttributeError(self._missing(name))

    def __dir__(self) -> list[str]:
        return [attribute_of(tool) for tool in self._tools.handlers_of(self._server)]

    def __repr__(self) -> str:
        lines = [
            f"  {attribute_of(tool)}{inspect.signature(function_for(handler, _refused))}"
            for tool, handler in self._tools.handlers_of(self._server).items()
        ]
        return "\n".join([f"MCP server {self._server}:", *(lines or ["  no tools (yet)"])])

    def _handlers(self) -> dict[str, McpToolHandler]:
        """Return the server's tools, waiting for its start where they are not known yet."""
        known = self._tools.handlers_of(self._server)
        if not known:
            self._why = _waited(self._spawn(self._tools.arrived(self._server)))
            known = self._tools.handlers_of(self._server)
        return known

    def _missing(self, name: str) -> str:
        names = ", ".join(dir(self)) or "none"
        return self._why or f"{self._server} has no tool named {name!r}; there are: {names}"

    def _callable(self, handler: McpToolHandler) -> Callable[..., Any]:
        if self._caller is not None:
            return self._caller(handler.options.name, function_for(handler, _refused))

        def start(arguments: dict[str, Any], callbacks: McpCallbacks) -> "Future[Any]":
            return self._spawn(_call(self._tools, handler.card.tool, arguments, callbacks))

        def call(arguments: dict[str, Any]) -> Any:
            return wait_for_call(partial(start, arguments), self._ask)

        async def aio(*args: Any, **kwargs: Any) -> Any:
            arguments = bound_arguments(signature, args, kwargs)
            return await await_call(partial(start, arguments), self._ask)

        function = function_for(handler, call)
        signature = inspect.signature(function)
        aio.__name__ = aio.__qualname__ = function.__name__
        aio.__doc__ = function.__doc__
        aio.__dict__["__signature__"] = signature  # read by inspect
        function.__dict__["aio"] = aio  # as on the person's own tools
        return function


async def _call(
    tools: McpTools, tool: McpTool, arguments: dict[str, Any], callbacks: McpCallbacks
) -> Any:
    """Call a tool directly, without approval, on behalf of the person."""
    try:
        result = await tools.manager.server(tool.server).call_tool(tool.name, arguments, callbacks)
    except RespondToModel as error:
        raise McpToolError(full_message(error)) from None
    value = value_of(result, tool)
    if result.is_error:
        raise McpToolError(value if isinstance(value, str) else f"{tool.name} failed: {value}")
    return value


def _waited(pending: "Future[Any]") -> Any:
    try:
        return pending.result()
    except KeyboardInterrupt:
        pending.cancel()
        raise


def _refused(arguments: dict[str, object]) -> object:
    raise RuntimeError("this only shows how the tool is called")


def function_for(
    handler: McpToolHandler, call: Callable[[dict[str, Any]], Any]
) -> Callable[..., Any]:
    """Return a function with a tool's signature and docstring that passes arguments to `call`."""
    tool = handler.card.tool
    return function_of(
        attribute_of(tool.name),
        tool.description or tool.title,
        handler.card.parameters,
        call,
        defaults=_defaults(tool),
        returns=_returned(tool),
    )


def _defaults(tool: McpTool) -> dict[str, object]:
    properties = tool.input_schema.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    return {
        name: each["default"]
        for name, each in properties.items()
        if isinstance(each, Mapping) and "default" in each
    }


def _returned(tool: McpTool) -> object:
    """Return the annotation of a tool's result, from its output schema where it has one."""
    if tool.output_schema is None:
        return inspect.Signature.empty
    schema = sanitize_json_schema(tool.output_schema)
    # What was wrapped may be written so that no property is left of it.
    value = schema.get("properties", {}).get("result") if is_wrapped(tool) else schema
    return type_of(value, schema.get("$defs", {}))


def attribute_of(name: str) -> str:
    """Convert the name of a server or a tool to a Python identifier."""
    plain = re.sub(r"[^a-zA-Z0-9_]", "_", name)
    if keyword.iskeyword(plain):
        return f"{plain}_"
    return plain if plain.isidentifier() else f"_{plain}"
