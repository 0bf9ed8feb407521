"""Which handler answers which tool name, and the specs that go to the model with them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from agent_magics.dispatch.actions import Action
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
    """One call that has been looked up and whose arguments fit.

    Attributes:
        args, kwargs: the checked arguments, as Python values.
    """

    call: ToolCall
    context: ToolContext
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


class ToolHandler(Protocol):
    """What answers the calls of one tool (or of a family of tools).

    Attributes:
        action: what every call of it does, whatever its arguments; None where they matter.
    """

    kind: str
    options: ToolOptions
    supports_parallel: bool
    action: Action | None

    def matches_kind(self, payload: ToolPayload) -> bool:
        """Tell whether a call with this payload can be answered."""
        ...

    def how_to_call(self) -> str:
        """One sentence for a model that used the wrong payload kind."""
        ...

    def prepare(self, call: ToolCall, context: ToolContext) -> ToolInvocation:
        """Check the arguments.

        Raises:
            RespondToModel: they do not fit; the message lists every problem.
        """
        ...

    def assess(self, invocation: ToolInvocation) -> list[Action]:
        """Say what the call would do, for approval."""
        ...

    def is_mutating(self, invocation: ToolInvocation) -> bool:
        """Tell whether the call might change the person's environment.

        For whoever shows or checks tools: approval goes by `assess`, and which calls may run side
        by side by `supports_parallel`.
        """
        ...

    async def handle(self, invocation: ToolInvocation) -> ToolOutput:
        """Do it.

        Raises:
            RespondToModel: it could not be done; the message goes to the model.
        """
        ...


class JoiningTools(Protocol):
    """Tools that come, change and go while a turn runs: those of MCP servers.

    The tools of a registry come first: none of these takes the place of one of them.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """Those that can be called now."""
        ...

    def specs(self) -> tuple[ConfiguredToolSpec, ...]:
        """Return what can be offered now; the same tuple as long as nothing has changed."""
        ...

    def handler(self, name: str) -> ToolHandler | None:
        """Return who answers `name`, or None."""
        ...

    def may_come(self, name: str) -> bool:
        """Tell whether a tool of that name may still come."""
        ...

    async def arrival(self, name: str) -> None:
        """Wait until a tool of that name has come, or will not come any more.

        Raises:
            RespondToModel: it will not come; says why.
        """
        ...


class ToolRegistry:
    """Handlers by tool name; those it was built with never change.

    Args:
        handlers: by name.
        joining: the tools that come and go beside them.

    Attributes:
        groups: names of those whose work is to make other calls.
    """

    def __init__(
        self, handlers: Mapping[str, ToolHandler], joining: JoiningTools | None = None
    ) -> None:
        self._handlers = dict(handlers)
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
        """Tell whether a tool of that name may still join."""
        return self.joining is not None and self.joining.may_come(name)

    @cached_property
    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """The tools that are Python functions, by name."""
        pairs = ((name, getattr(each, "function", None)) for name, each in self._handlers.items())
        return {name: function for name, function in pairs if function is not None}

    @property
    def names(self) -> tuple[str, ...]:
        """All names that can be called."""
        joined = () if self.joining is None else self.joining.names
        return (*self._handlers, *joined)


class ToolRegistryBuilder:
    """Collects specs and handlers; `build` gives both."""

    def __init__(self) -> None:
        self._specs: list[ConfiguredToolSpec] = []
        self._handlers: dict[str, ToolHandler] = {}

    def push_spec(self, spec: ToolSpec) -> None:
        """Offer `spec` to the model; its calls run one at a time."""
        self.push_spec_with_parallel_support(spec, False)

    def push_spec_with_parallel_support(self, spec: ToolSpec, supports_parallel: bool) -> None:
        """Offer `spec` to the model, saying whether its calls may run side by side."""
        if any(other.spec.name == spec.name for other in self._specs):
            raise FatalError(f"Two tools are named {spec.name!r}; rename one with @tool(name=...).")
        self._specs.append(ConfiguredToolSpec(spec, supports_parallel))

    def register_handler(self, name: str, handler: ToolHandler) -> None:
        """Let `handler` answer the calls of `name`.

        Raises:
            FatalError: `name` has a handler already.
        """
        if name in self._handlers:
            raise FatalError(f"Two tools are named {name!r}; rename one with @tool(name=...).")
        self._handlers[name] = handler

    def build(
        self, joining: JoiningTools | None = None
    ) -> tuple[tuple[ConfiguredToolSpec, ...], ToolRegistry]:
        """Return the specs for the model and the registry for the router."""
        return tuple(self._specs), ToolRegistry(self._handlers, joining)
