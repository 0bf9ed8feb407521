"""From the model's call to the tool's answer: understand it, find the handler, dispatch."""

import difflib
import json
from collections.abc import Sequence

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.offer import SEARCH
from agent_magics.dispatch.orchestrator import ToolOrchestrator
from agent_magics.dispatch.registry import ToolHandler, ToolRegistry
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.items import CallItem, CustomToolCall, FunctionCall
from agent_magics.protocol.tools import (
    ConfiguredToolSpec,
    CustomPayload,
    FunctionPayload,
    LocalShellPayload,
    ToolCall,
    ToolOutput,
)

_MOST_NAMED = 100  # tools that a model is told when it calls one that is not there


class ToolRouter:
    """Knows every tool of a run; stateless beyond that.

    Args:
        specs: what the model is offered.
        registry: who answers.
        orchestrator: takes a call through approval to its attempt.
    """

    def __init__(
        self,
        specs: Sequence[ConfiguredToolSpec],
        registry: ToolRegistry,
        orchestrator: ToolOrchestrator,
    ) -> None:
        self.specs = tuple(specs)
        self.registry = registry
        self._orchestrator = orchestrator

    def build_tool_call(self, item: CallItem) -> ToolCall:
        """Return what the model's item asks for.

        Raises:
            RespondToModel: the item has no call id, so that no answer could be matched to it.
        """
        if isinstance(item, FunctionCall):
            return ToolCall(item.name, item.call_id, FunctionPayload(item.arguments))
        if isinstance(item, CustomToolCall):
            return ToolCall(item.name, item.call_id, CustomPayload(item.input))
        if item.call_id is None:
            raise RespondToModel(
                "The local_shell call has no call_id, so it was not run; send it again."
            )
        payload = LocalShellPayload(item.command, item.workdir, item.timeout_ms)
        return ToolCall("local_shell", item.call_id, payload)

    def supports_parallel(self, call: ToolCall) -> bool:
        """Tell whether `call` may run beside others; a group may if all of its calls may.

        A call of an unknown name may: it only errs.
        """
        if call.tool_name not in self.registry.groups:
            return self._is_parallel(call.tool_name)
        return all(map(self._is_parallel, _names_in(call)))

    def _is_parallel(self, name: str) -> bool:
        handler = self.registry.handler(name)
        if handler is None:  # nobody knows that of one which is still to come
            return not self.registry.may_come(name)
        return handler.supports_parallel

    async def dispatch_tool_call(self, call: ToolCall, context: ToolContext) -> ToolOutput:
        """Answer `call`; what the model can mend comes back as an output with success=False.

        Raises:
            FatalError: only the person can help.
            TurnAbort: the person ended the turn at a question of this call.
        """
        try:
            if self.registry.handler(call.tool_name) is None:
                await self._await_arrival(call.tool_name)
            handler = self._find_handler(call)
            invocation = handler.prepare(call, context)
            return await self._orchestrator.run(handler, invocation)
        except RespondToModel as refusal:
            return ToolOutput(str(refusal), success=False)

    async def _await_arrival(self, name: str) -> None:
        """Wait for a tool that is still to come."""
        joining = self.registry.joining
        if joining is not None and joining.may_come(name):
            await joining.arrival(name)

    def _find_handler(self, call: ToolCall) -> ToolHandler:
        handler = self.registry.handler(call.tool_name)
        if handler is None:
            raise RespondToModel(self._unknown(call.tool_name))
        if not handler.matches_kind(call.payload):
            raise RespondToModel(f"{call.tool_name} was not run. {handler.how_to_call()}")
        return handler

    def _unknown(self, name: str) -> str:
        names = sorted(set(self.registry.names) - {SEARCH})  # which finds what is listed here
        if not names:
            return f"There is no tool named {name!r}; no tools are offered in this conversation."
        # Models add prefixes such as "functions." and change the case; what they meant is near.
        lowered = {known.lower(): known for known in names}
        bare = name.rpartition(".")[2].lower()
        near = [lowered[key] for key in difflib.get_close_matches(bare, lowered, n=3, cutoff=0.6)]
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        shown = names[:_MOST_NAMED]
        rest = f" and {len(names) - len(shown)} more" if len(shown) < len(names) else ""
        return f"There is no tool named {name!r}.{hint} Available tools: {', '.join(shown)}{rest}."


def _names_in(call: ToolCall) -> list[str]:
    """Return the tools that a group call names, as far as its arguments can be read."""
    try:
        calls = json.loads(getattr(call.payload, "arguments", "")).get("calls")
        return [str(each.get("tool")) for each in calls]
    except (ValueError, RecursionError, AttributeError, TypeError):
        return []  # what cannot be read is not run
