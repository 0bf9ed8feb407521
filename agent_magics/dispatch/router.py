"""Converts the items of a model's answer to tool calls, and finds the handler of each."""

import difflib
from collections.abc import Awaitable

from agent_magics.dispatch.call import CallInProgress
from agent_magics.dispatch.catalog.offer import SEARCH
from agent_magics.dispatch.registry import ToolHandler, ToolRegistry
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.items import CallItem, CustomToolCall, FunctionCall, Json, json_object
from agent_magics.protocol.tools import (
    CustomPayload,
    FunctionPayload,
    LocalShellPayload,
    ToolCall,
)
from agent_magics.text.brief import first_of

_MOST_NAMED = 100  # names listed to a model that calls an unknown tool


class ToolRouter:
    """Finds the handlers of a run's tools; stateless.

    Args:
        registry: the handlers by name.
    """

    def __init__(self, registry: ToolRegistry) -> None:
        self.registry = registry

    def build_tool_call(self, item: CallItem) -> ToolCall:
        """Convert an item of the model's answer to a tool call.

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
        """Return whether `call` may run beside others; a group may if all of its calls may.

        A call of an unknown name may: it only returns an error. A group may not where its calls
        are no list of objects: what is written otherwise is read by the more patient binder alone.
        """
        if call.tool_name not in self.registry.groups:
            return self._is_parallel(call.tool_name)
        calls = (json_object(getattr(call.payload, "arguments", "")) or {}).get("calls")
        return isinstance(calls, list) and all(map(self._is_parallel, map(_name_in, calls)))

    def _is_parallel(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        handler = self.registry.handler(name)
        if handler is None:  # unknown for a tool that may still be added
            return not self.registry.may_come(name)
        return handler.supports_parallel

    def find_handler(self, call: CallInProgress) -> Awaitable[None] | None:
        """Find the handler of the call (a stage); wait for a tool that may still be added.

        Raises:
            RespondToModel: there is none, or its tool does not take this kind of call.
        """
        name = call.call.tool_name
        handler = self.registry.handler(name)
        if handler is None and self.registry.may_come(name):
            return self._await_handler(call)
        self._take_handler(call, handler)
        return None

    async def _await_handler(self, call: CallInProgress) -> None:
        name = call.call.tool_name
        await self.registry.arrival(name)
        self._take_handler(call, self.registry.handler(name))

    def _take_handler(self, call: CallInProgress, handler: ToolHandler | None) -> None:
        name = call.call.tool_name
        if handler is None:
            raise RespondToModel(self._unknown(name))
        if not handler.matches_kind(call.call.payload):
            raise RespondToModel(f"{name} was not run. {handler.how_to_call()}")
        call.handler = handler

    def _unknown(self, name: str) -> str:
        names = sorted(set(self.registry.names) - {SEARCH})  # which finds what is listed here
        if not names:
            return f"There is no tool named {name!r}; no tools are offered in this conversation."
        # Models add prefixes such as "functions." and change the case; the meant name is similar.
        lowered = {known.lower(): known for known in names}
        bare = name.rpartition(".")[2].lower()
        near = [lowered[key] for key in difflib.get_close_matches(bare, lowered, n=3, cutoff=0.6)]
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        there = first_of(names, _MOST_NAMED)
        return f"There is no tool named {name!r}.{hint} Available tools: {there}."


def _name_in(call: Json) -> Json:
    """Return the tool's name in one call of a group; None where it is written in another way."""
    return call.get("tool") if isinstance(call, dict) else None
