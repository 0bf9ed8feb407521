"""Calls on their way to an outside client: each waits under its id until the client's op comes."""

import asyncio
from typing import Any

from agent_magics.dispatch.context import Emit
from agent_magics.protocol.events import DynamicToolCallRequest
from agent_magics.protocol.ops import DynamicToolResponse


class ClientCalls:
    """The calls of one session that clients are at work on; lives on the engine's loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[DynamicToolResponse]] = {}

    async def ask(self, emit: Emit, call_id: str, tool: str, arguments: Any) -> DynamicToolResponse:
        """Tell the clients of a call and wait for the answer; whoever calls limits the time."""
        answer: asyncio.Future[DynamicToolResponse] = asyncio.get_running_loop().create_future()
        self._waiting[call_id] = answer
        emit(DynamicToolCallRequest, call_id=call_id, tool=tool, arguments=arguments)
        try:
            return await answer
        finally:
            self._waiting.pop(call_id, None)

    def resolve(self, response: DynamicToolResponse) -> bool:
        """Hand an answer to the call that waits for it; False where none does (any more)."""
        waiting = self._waiting.pop(response.call_id, None)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(response)
        return True
