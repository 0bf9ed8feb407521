"""Holds calls of dynamic tools until the client's op brings their results."""

import asyncio

from agent_magics.dispatch.context import Emit
from agent_magics.protocol.events import DynamicToolCallRequest
from agent_magics.protocol.ops import DynamicToolResponse


class ClientCalls:
    """The calls of one session that wait for an outside client; used on the engine's loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[DynamicToolResponse]] = {}

    async def ask(
        self, emit: Emit, call_id: str, tool: str, arguments: object
    ) -> DynamicToolResponse:
        """Emit a call for the clients and wait for the response; the caller limits the time."""
        answer: asyncio.Future[DynamicToolResponse] = asyncio.get_running_loop().create_future()
        self._waiting[call_id] = answer
        emit(DynamicToolCallRequest, call_id=call_id, tool=tool, arguments=arguments)
        try:
            return await answer
        finally:
            self._waiting.pop(call_id, None)

    def resolve(self, response: DynamicToolResponse) -> bool:
        """Pass a response to the call that waits for it; return False where none does."""
        waiting = self._waiting.pop(response.call_id, None)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(response)
        return True
