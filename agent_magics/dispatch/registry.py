"""Maps tool names to their handlers, and collects the specs that go to the model with them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent_magics.approval.actions import Action
from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.tool import ToolOptions
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.tools import (
    ConfiguredToolSpec,
    ToolCall,
    ToolOutput,
    ToolPayload,
    ToolSpec,
)


@dataclass(slots=True)
class ToolInvocation:
    """One call whose handler is known and whose arguments are checked.

    Attributes:
        args, kwargs: the checked arguments, as Python values.
    """

    call: ToolCall
    context: ToolContext
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


class ToolHandler(Protocol):
    """Runs the calls of one tool (or of a family of tools).

    Attributes:
        action: the action of every call, whatever its arguments; None where they matter.
    """

    kind: str
    options: ToolOptions
    supports_parallel: bool
    action: Action | None

    def matches_kind(self, payload: ToolPayload) -> bool:
        """Return whether the handler takes calls with this payload."""

    def how_to_call(self) -> str:
        """Return one sentence for a model that used the wrong kind of payload."""
        return f"Call {self.options.name} as a function, with its arguments as one JSON object."

    def prepare(self, call: ToolCall, context: ToolContext) -> ToolInvocation:
        """Check the arguments.

        Raises:
            RespondToModel: they do not fit; the message lists every problem.
        """

    def assess(self, invocation: ToolInvocation) -> list[Action]:
        """Return the actions of the call, for approval."""

    def is_mutating(self, invocation: ToolInvocation) -> bool:
        """Return whether the call might change the person's environment.

        This is for display and checks: approval uses `assess`, and the order of calls uses
        `supports_parallel`.
        """
        return bool(self.options.mutating)

    async def handle(self, invocation: ToolInvocation) -> ToolOutput:
        """Run the call.

        Raises:
            RespondToModel: it failed; the message goes to the model.
        """


class JoiningTools(Protocol):
    """Tools that are added, changed and removed while a turn runs: those of MCP servers.

    The tools of a registry take precedence over them.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tools that can be called now."""

    def specs(self) -> tuple[ConfiguredToolSpec, ...]:
        """Return the specifications that can be offered; the same tuple while nothing changes."""

    def handler(self, name: str) -> ToolHandler | None:
        """Return the handler of `name`, or None."""

    def may_come(self, name: str) -> bool:
        """Return whether a tool of that name may still be added."""

    async def arrival(self, name: str) -> None:
        """Wait until a tool of that name has been added, or will not be any more.

        Raises:
            RespondToModel: it will not be; the sentence says why.
        """


class ToolRegistry:
    """Handlers by tool name; those it was built with never change.

    Args:
        handlers: by name.
        functions: the tools that code can call as functions, by name.
        joining: the tools that are added and removed meanwhile.

    Attributes:
        groups: names of the tools that make other calls.
    """

    def __init__(
        self,
        handlers: Mapping[str, ToolHandler],
        functions: Mapping[str, Callable[..., Any]],
        joining: JoiningTools | None = None,
    ) -> None:
        self._handlers = dict(handlers)
        self.functions = dict(functions)
        self.joining = joining
        groups = (name for name, each in self._handlers.items() if each.options.group)
        self.groups = frozenset(groups)

    def handler(self, name: str) -> ToolHandler | None:
        """Return the handler of `name`, or None."""
        handler = self._handlers.get(name)
        if handler is None and self.joining is not None:
            return self.joining.handler(name)
        return handler

    def may_come(self, name: str) -> bool:
        """Return whether a tool of that name may still be added."""
        return self.joining is not None and self.joining.may_come(name)

    async def arrival(self, name: str) -> None:
        """Wait until a tool of that name has been added, or will not be any more.

        Raises:
            RespondToModel: it will not be; the sentence says why.
        """
        if self.joining is not None:
            await self.joining.arrival(name)

    @property
    def names(self) -> tuple[str, ...]:
        """All names that can be called."""
        joined = () if self.joining is None else self.joining.names
        return (*self._handlers, *joined)


class ToolRegistryBuilder:
    """Collects specs and handlers, and builds the registry."""

    def __init__(self) -> None:
        self._specs: list[ConfiguredToolSpec] = []
        self._handlers: dict[str, ToolHandler] = {}
        self._functions: dict[str, Callable[..., Any]] = {}

    def push_spec_with_parallel_support(self, spec: ToolSpec, supports_parallel: bool) -> None:
        """Offer `spec` to the model.

        Args:
            spec: the specification.
            supports_parallel: whether calls of it may run side by side.

        Raises:
            FatalError: another spec has this name.
        """
        if any(other.spec.name == spec.name for other in self._specs):
            raise FatalError(f"Two tools are named {spec.name!r}; rename one with @tool(name=...).")
        self._specs.append(ConfiguredToolSpec(spec, supports_parallel))

    def register_handler(
        self, name: str, handler: ToolHandler, function: Callable[..., Any] | None = None
    ) -> None:
        """Register the handler of `name`.

        Args:
            name: the tool's name.
            handler: runs the calls.
            function: the tool as a function for code; None means the handler's own attribute.

        Raises:
            FatalError: `name` has a handler already.
        """
        if name in self._handlers:
            raise FatalError(f"Two tools are named {name!r}; rename one with @tool(name=...).")
        self._handlers[name] = handler
        function = function or getattr(handler, "function", None)
        if function is not None:
            self._functions[name] = function

    def build(
        self, joining: JoiningTools | None = None
    ) -> tuple[tuple[ConfiguredToolSpec, ...], ToolRegistry]:
        """Return the specs for the model and the registry for the router."""
        return tuple(self._specs), ToolRegistry(self._handlers, self._functions, joining)
