"""Makes one request to a server through our client, without waiting between retries."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from agent_magics.models.base import ItemDone, ModelEvent, ModelRequest, TextChunk
from agent_magics.models.provider import open_model
from agent_magics.models.recordings.scripted import SeenHistory
from agent_magics.models.retry import RetryPolicy
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import Item
from agent_magics.protocol.tools import ConfiguredToolSpec, FreeformToolSpec, FunctionToolSpec

NUMBERS = {
    "type": "object",
    "properties": {
        "a": {"type": "integer", "enum": [1, 2, 3]},
        "b": {"type": "integer", "enum": [2, 4]},
    },
    "required": ["a", "b"],
    "additionalProperties": False,
}
ADD = ConfiguredToolSpec(FunctionToolSpec("add", "Add two numbers.", NUMBERS))
PATCH = ConfiguredToolSpec(
    FreeformToolSpec("patch", "Change a file.", "lark", 'start: "*** Begin" /.+/')
)


def ask(
    address: str,
    key: str,
    model: str,
    *items: Item,
    wire: str = "auto",
    tools: Sequence[ConfiguredToolSpec] = (),
    waits: list[float] | None = None,
    **fields: Any,
) -> list[ModelEvent]:
    """Return the events of one response.

    Args:
        waits: collects the seconds between retries, which are not waited for.
    """

    async def wait(seconds: float) -> None:
        if waits is not None:
            waits.append(seconds)

    async def run() -> list[ModelEvent]:
        policy = RetryPolicy(tries=3, wait=wait)
        client = open_model(wire, api_key=key, base_url=address, retries=policy)
        request = ModelRequest(
            model, "Be brief.", SeenHistory(items), tuple(tools), "hi", 1, **fields
        )
        try:
            return [event async for event in client.stream(request)]
        finally:
            await client.close()

    return asyncio.run(run())


def failure(*arguments: Any, **fields: Any) -> FatalError:
    """Make a request that fails, and return the error."""
    with pytest.raises(FatalError) as caught:
        ask(*arguments, **fields)
    return caught.value


def text_of(events: Sequence[ModelEvent]) -> str:
    """Return the text of the pieces."""
    return "".join(event.text for event in events if isinstance(event, TextChunk))


def items_of(events: Sequence[ModelEvent]) -> list[Item]:
    """Return the complete items."""
    return [event.item for event in events if isinstance(event, ItemDone)]
