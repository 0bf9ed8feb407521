"""Converts tools given by a program: functions, descriptions, and handlers with their specs."""

import reprlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from agent_magics.dispatch.foreign_schemas.signature import function_of
from agent_magics.dispatch.handlers.dynamic import DynamicTool
from agent_magics.dispatch.registry import ToolHandler
from agent_magics.dispatch.tool import Tool, ToolOptions, as_tool, checked_name, is_tool
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.tools import DynamicToolSpec, FunctionToolSpec

# A handler that stands alone holds its spec as its attribute `spec`.
Given: TypeAlias = (
    Callable[..., Any] | DynamicToolSpec | ToolHandler | tuple[FunctionToolSpec, ToolHandler]
)

_MEMBERS = (
    *ToolHandler.__annotations__,
    *(name for name in vars(ToolHandler) if not name.startswith("_")),
)


class HandledTool:
    """A tool made of a `ToolHandler` and its spec, usable wherever a tool function is.

    Args:
        spec: the specification for models.
        handler: runs the calls.

    Raises:
        FatalError: one of them is of the wrong type, or their names differ.
    """

    def __init__(self, spec: FunctionToolSpec, handler: ToolHandler) -> None:
        if not isinstance(spec, FunctionToolSpec):
            raise FatalError(
                f"A handler of type {type(handler).__name__} cannot be a tool without its "
                "FunctionToolSpec: set its attribute spec, or give the pair (spec, handler)."
            )
        missing = [name for name in _MEMBERS if not hasattr(handler, name)]
        if missing:
            raise FatalError(
                f"The handler of tool {spec.name!r} ({type(handler).__name__}) is no ToolHandler: "
                f"it has no {', '.join(missing)}."
            )
        if not isinstance(handler.options, ToolOptions) or handler.options.name != spec.name:
            raise FatalError(
                f"The handler of tool {spec.name!r} ({type(handler).__name__}) needs the options "
                f"ToolOptions({spec.name!r}), not {handler.options!r}."
            )
        checked_name(spec.name)
        self.spec = spec
        self.handler = handler
        # Its spec is offered as a function, not as one of this package's tools.
        self.tool_options = replace(handler.options, own=False, native=False, freeform=None)

    @property
    def source(self) -> str:
        """A description of the tool's origin, for people."""
        return f"the handler {type(self.handler).__module__}.{type(self.handler).__qualname__}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HandledTool):
            return NotImplemented
        return self.spec is other.spec and self.handler is other.handler

    def __hash__(self) -> int:
        return hash((id(self.spec), id(self.handler)))

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Raise an error: a handler needs a call and its context.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(f"{self.spec.name} is answered by its handler, inside a turn.")

    def as_function(self) -> Callable[..., Any]:
        """Return a function with the tool's signature, as code of a model sees it."""
        spec = self.spec
        return function_of(
            spec.name, spec.description, spec.parameters, lambda given: self(**given)
        )


def to_tool(given: object) -> Tool:
    """Convert an object given by a program to a tool.

    Raises:
        FatalError: it is not usable as a tool; the sentence says why.
    """
    if is_tool(given):
        return given
    if isinstance(given, DynamicToolSpec):
        return DynamicTool(given)
    if isinstance(given, tuple) and len(given) == 2:
        return HandledTool(*given)
    if hasattr(given, "handle") and not isinstance(given, type):
        spec: Any = getattr(given, "spec", None)
        handler: Any = given  # `HandledTool` looks at both
        return HandledTool(spec, handler)
    if callable(given):
        return as_tool(given)
    raise FatalError(
        "A tool is a function, a ToolHandler with its spec, the pair (spec, handler), or a "
        f"DynamicToolSpec, not {reprlib.repr(given)}."
    )
