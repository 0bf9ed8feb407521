"""Receives change notifications on separate streams, as servers send them since protocol 2026."""

import asyncio
from collections.abc import Callable
from typing import Any

from mcp.client.client import Client
from mcp.client.subscriptions import ResourceUpdated, ToolsListChanged

from agent_magics.exec.servers import LogRing


class ChangeStream:
    """The notification streams of one connection, one task each.

    Args:
        log: records when one ends by itself.
        on_tools: called when the tools have changed.
        on_updated: called with the URI of a changed resource.
    """

    def __init__(
        self, log: LogRing, on_tools: Callable[[], None], on_updated: Callable[[str], None]
    ) -> None:
        self._log = log
        self._on_tools = on_tools
        self._on_updated = on_updated
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def follow(self, client: Client, key: str, **wanted: object) -> None:
        """Open a stream, unless one with this key is open; `wanted` are arguments of
        `Client.listen`.
        """
        if key not in self._tasks:
            self._tasks[key] = asyncio.create_task(self._follow(client, wanted))

    def leave(self, key: str) -> None:
        """Close a stream."""
        if task := self._tasks.pop(key, None):
            task.cancel()

    async def end(self) -> None:
        """Close all streams."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, client: Client, wanted: dict[str, Any]) -> None:
        try:
            async with client.listen(**wanted) as events:
                async for event in events:
                    match event:
                        case ToolsListChanged():
                            self._on_tools()
                        case ResourceUpdated():
                            self._on_updated(event.uri)
        except Exception as error:
            self._log.note(f"changes are not told any more: {error}")
