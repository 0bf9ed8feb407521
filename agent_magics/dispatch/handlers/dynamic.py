"""Tools that are data: described by a schema, answered by a callback or by an outside client.

Nobody knows what they do, so they always count as changing something.
"""

import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any

from agent_magics.dispatch.actions import Action, ActionKind, fingerprint_of
from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.edits import arguments_of
from agent_magics.dispatch.foreign_schema import sanitize_parameters
from agent_magics.dispatch.foreign_signature import function_of
from agent_magics.dispatch.function import FunctionToolHandler
from agent_magics.dispatch.output import to_tool_output
from agent_magics.dispatch.registry import ToolInvocation
from agent_magics.dispatch.tool import ToolOptions, checked_name, tool
from agent_magics.protocol.errors import FatalError, RespondToModel
from agent_magics.protocol.items import Content, ContentPart, InputText
from agent_magics.protocol.tools import (
    DynamicToolSpec,
    FunctionPayload,
    FunctionToolSpec,
    ToolCall,
    ToolOutput,
    ToolPayload,
)

# Seconds a client has for its answer; one that is gone must not hold a turn for ever.
CLIENT_LIMIT = 300.0

NOT_STRICT = "the schema is not ours, and may say more than strict mode can"


class DynamicTool:
    """A `DynamicToolSpec` in the place of a function: what registries, offers and lists ask for.

    Args:
        spec: what the tool is.
        callback: answers calls: ``callback(arguments)``, plain or async, runs where your own
            functions run; None leaves the calls to an outside client.
        timeout: seconds a call may take.

    Raises:
        FatalError: the name cannot be a tool's name, or the schema is none.
    """

    def __init__(
        self,
        spec: DynamicToolSpec,
        callback: Callable[[dict[str, Any]], Any] | None = None,
        timeout: float | None = None,
    ) -> None:
        if callback is not None and not callable(callback):
            raise FatalError(f"The callback of tool {spec.name!r} is no function: {callback!r}.")
        self.given = spec
        self.callback = callback
        limit = CLIENT_LIMIT if timeout is None and callback is None else timeout
        self.tool_options = ToolOptions(checked_name(spec.name), timeout=limit)
        parameters = sanitize_parameters(spec.input_schema)
        self.spec = FunctionToolSpec(
            spec.name, spec.description, parameters, strict=False, strict_reason=NOT_STRICT
        )

    @property
    def source(self) -> str:
        """Where it comes from, as a person finds it."""
        code = getattr(self.callback, "__code__", None)
        if code is not None:
            return f"a dynamic tool answered at {code.co_filename}:{code.co_firstlineno}"
        return f"a dynamic tool answered by {self.callback!r}" if self.callback else "a client"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DynamicTool):
            return NotImplemented
        return (self.given, self.callback) == (other.given, other.callback)

    def __hash__(self) -> int:
        return hash((self.given.name, self.callback))

    def __call__(self, **arguments: Any) -> Any:
        """Call it by hand: only where a callback answers.

        Raises:
            RuntimeError: an outside client answers, which a call by hand does not reach.
        """
        if self.callback is None:
            raise RuntimeError(f"{self.given.name} is answered by a client, inside a turn.")
        return self.callback(arguments)

    def make_handler(self) -> "DynamicToolHandler":
        """Return what answers the calls."""
        return DynamicToolHandler(self)


class DynamicToolHandler:
    """Answers the calls of one `DynamicTool`."""

    kind = "dynamic"
    supports_parallel = False
    action = None

    def __init__(self, dynamic: DynamicTool) -> None:
        self.options = dynamic.tool_options
        self.function = function_of(
            self.options.name,
            dynamic.spec.description,
            dynamic.spec.parameters,
            lambda arguments: dynamic(**arguments),
        )
        self._schema = dynamic.spec.parameters
        self._inner = None
        if dynamic.callback is not None:
            self._inner = FunctionToolHandler(_as_function(dynamic.callback, self.options.name))

    def matches_kind(self, payload: ToolPayload) -> bool:
        """JSON arguments only."""
        return isinstance(payload, FunctionPayload)

    def how_to_call(self) -> str:
        """Say that this is a function tool."""
        return f"Call {self.options.name} as a function, with its arguments as one JSON object."

    def prepare(self, call: ToolCall, context: ToolContext) -> ToolInvocation:
        """Check that the arguments are a JSON object, and that none is missing.

        Not more: the schema that is offered may say less than its author's, or otherwise, and
        whoever answers checks the values.
        """
        arguments = arguments_of(call)
        missing = [name for name in self._schema.get("required", ()) if name not in arguments]
        if missing:
            names = ", ".join(self._schema["properties"])
            raise RespondToModel(
                f"The arguments of {self.options.name} do not fit; nothing was run. Missing: "
                f"{', '.join(missing)}. Its parameters are: {names}."
            )
        return ToolInvocation(call, context, (arguments,))

    def assess(self, invocation: ToolInvocation) -> list[Action]:
        """Say that nobody knows what it does; "always" binds to these very arguments."""
        name = self.options.name
        fingerprint = fingerprint_of(name, invocation.args[0])
        return [Action(ActionKind.DYNAMIC_TOOL, name, fingerprint=fingerprint)]

    def is_mutating(self, invocation: ToolInvocation) -> bool:
        """Always: nobody says otherwise."""
        return True

    async def handle(self, invocation: ToolInvocation) -> ToolOutput:
        """Have the callback or the client answer."""
        if self._inner is not None:
            return await self._inner.handle(invocation)
        context = invocation.context
        ask_client = context.turn.ask_client
        if ask_client is None:
            raise RespondToModel(f"{self.options.name} has no client here that could answer.")
        answer = await ask_client(context.call_id, self.options.name, invocation.args[0])
        output = ToolOutput(_content_of(answer.content_items), answer.success)
        return to_tool_output(output, context.output_budget)


def _content_of(items: Sequence[ContentPart]) -> Content:
    """Return one text where there are only texts, else the parts."""
    texts = [item.text for item in items if isinstance(item, InputText)]
    return "\n".join(texts) if len(texts) == len(items) else tuple(items)


def _as_function(callback: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a callback as a tool function of its own, without a mark on what was given."""
    if isinstance(callback, types.FunctionType):
        # A copy, not a wrapper: errors go on naming the line of the person's own code.
        copy = types.FunctionType(
            callback.__code__,
            callback.__globals__,
            callback.__name__,
            callback.__defaults__,
            callback.__closure__,
        )
        copy.__kwdefaults__ = callback.__kwdefaults__
        copy.__annotations__ = {}
        copy.__module__ = callback.__module__
        return tool(name=name)(copy)
    if inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(
        getattr(callback, "__call__", None)  # noqa: B004 - the method, not a test
    ):

        async def answer_async(arguments: dict[str, Any]) -> Any:
            return await callback(arguments)

        return tool(name=name)(answer_async)

    def answer(arguments: dict[str, Any]) -> Any:
        return callback(arguments)

    return tool(name=name)(answer)
