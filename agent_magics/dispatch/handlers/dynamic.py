"""Tools defined by data: a schema, with a callback or an outside client that runs the calls.

Their effects are unknown, so they always count as changing something.
"""

import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any

from agent_magics.approval.actions import Action, ActionKind, fingerprint_of
from agent_magics.dispatch.consent.edits import arguments_of
from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.foreign_schemas.sanitizer import sanitize_parameters
from agent_magics.dispatch.foreign_schemas.signature import function_of
from agent_magics.dispatch.handlers.function import FunctionToolHandler
from agent_magics.dispatch.registry import ToolHandler, ToolInvocation
from agent_magics.dispatch.results.output import to_tool_output
from agent_magics.dispatch.stages.stored_outputs import with_reference
from agent_magics.dispatch.tool import Tool, ToolOptions, checked_name, tool
from agent_magics.protocol.checked import check
from agent_magics.protocol.errors import FatalError, RespondToModel
from agent_magics.protocol.items import Json, join_parts
from agent_magics.protocol.tools import (
    DynamicToolSpec,
    FunctionPayload,
    FunctionToolSpec,
    ToolCall,
    ToolOutput,
    ToolPayload,
)

# Seconds a client has for its answer; a disconnected one must not block a turn for ever.
CLIENT_LIMIT = 300.0

NOT_STRICT = "the schema is not ours, and may say more than strict mode can"


class DynamicTool:
    """A tool made of a `DynamicToolSpec`, usable wherever a tool function is.

    Args:
        spec: the tool's name, description and schema.
        callback: runs a call: ``callback(arguments)``, plain or async, on the thread of your own
            functions; None leaves calls to an outside client.
        timeout: seconds that a call may take.

    Raises:
        FatalError: the name is not usable as a tool's name, or the schema is invalid.
    """

    def __init__(
        self,
        spec: DynamicToolSpec,
        callback: Callable[[dict[str, Any]], Any] | None = None,
        timeout: float | None = None,
    ) -> None:
        if callback is not None and not callable(callback):
            raise FatalError(f"The callback of tool {spec.name!r} is no function: {callback!r}.")
        check(f"Tool {spec.name!r}: timeout", timeout, float | None)
        if timeout is not None and not timeout > 0:
            raise FatalError(f"Tool {spec.name!r}: timeout={timeout!r} is no time above 0.")
        check(f"Tool {spec.name!r}: description", spec.description, str)
        check(f"Tool {spec.name!r}: input_schema", spec.input_schema, Mapping)
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
        """A description of the tool's origin, for people."""
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
        """Call the callback directly.

        Raises:
            RuntimeError: an outside client runs the calls, which a direct call does not reach.
        """
        if self.callback is None:
            raise RuntimeError(f"{self.given.name} is answered by a client, inside a turn.")
        return self.callback(arguments)

    def make_handler(self) -> "DynamicToolHandler":
        """Return a handler that runs the calls."""
        return DynamicToolHandler(self)


class DynamicToolHandler(ToolHandler):
    """Runs the calls of one `DynamicTool`."""

    kind = "dynamic"
    supports_parallel = False
    action: Action | None = None

    def __init__(self, dynamic: DynamicTool) -> None:
        self.options = dynamic.tool_options
        self.function = function_of(
            self.options.name,
            dynamic.spec.description,
            dynamic.spec.parameters,
            lambda arguments: dynamic(**arguments),
        )
        said = fingerprint_of(dynamic.spec.description, dynamic.spec.parameters)
        self._family = f"{self.options.name}@{said}"
        self._parameters = dynamic.spec.parameters
        self._inner = None
        if dynamic.callback is not None:
            self._inner = FunctionToolHandler(_as_function(dynamic.callback, self.options.name))

    def matches_kind(self, payload: ToolPayload) -> bool:
        """Return whether the payload is JSON arguments."""
        return isinstance(payload, FunctionPayload)

    def prepare(self, call: ToolCall, context: ToolContext) -> ToolInvocation:
        """Check that the arguments are a JSON object and that no required one is missing.

        No more is checked: the schema that is sent may be a subset of its author's, and the
        callback or client checks the values.
        """
        return ToolInvocation(call, context, (given_arguments(call, self._parameters),))

    def assess(self, invocation: ToolInvocation) -> list[Action]:
        """Return an action of unknown effect; "always" is bound to these very arguments."""
        name = self.options.name
        fingerprint = fingerprint_of(name, invocation.args[0])
        return [Action(ActionKind.DYNAMIC_TOOL, name, fingerprint=fingerprint, family=self._family)]

    async def handle(self, invocation: ToolInvocation) -> ToolOutput:
        """Run the call by the callback or the client."""
        if self._inner is not None:
            return await self._inner.handle(invocation)
        context = invocation.context
        ask_client = context.turn.ask_client
        if ask_client is None:
            raise RespondToModel(f"{self.options.name} has no client here that could answer.")
        answer = await ask_client(context.call_id, self.options.name, invocation.args[0])
        output = ToolOutput(join_parts(answer.content_items, "\n"), answer.success)
        return with_reference(to_tool_output(output, context.output_budget), context)


def given_arguments(call: ToolCall, parameters: Mapping[str, Any]) -> dict[str, Json] | str:
    """Return the arguments of a call of a tool that others check.

    Args:
        call: the call.
        parameters: the tool's sanitized schema, which may be a subset of its author's.

    Raises:
        RespondToModel: they are no JSON object, or a required one is missing.
    """
    arguments = arguments_of(call)
    missing = [name for name in parameters.get("required", ()) if name not in arguments]
    if missing:
        names = ", ".join(parameters["properties"])
        raise RespondToModel(
            f"The arguments of {call.tool_name} do not fit; nothing was run. Missing: "
            f"{', '.join(missing)}. Its parameters are: {names}."
        )
    return arguments


def _as_function(callback: Callable[..., Any], name: str) -> Tool:
    """Return a callback as a tool function, without modifying the given object."""
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
