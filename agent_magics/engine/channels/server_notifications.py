"""What became of MCP servers, told to people in whichever turn runs and to the model once."""

from collections.abc import Callable, Collection

from agent_magics.engine.outbox import Outbox
from agent_magics.protocol.events import McpServerChanged


class ServerNews:
    """The changes of one conversation's servers; on the engine's loop.

    Attributes:
        told: what the model knows of each server.
    """

    def __init__(self, outbox: Outbox) -> None:
        self.told: dict[str, str] = {}
        self._outbox = outbox
        self._waiting: dict[str, dict[str, str]] = {}

    def add(self, server: str, status: str, message: str, turns: Collection[str]) -> None:
        """Say that a server changed: in the `turns` that run, else in the next."""
        change = {"server": server, "status": status, "message": message}
        if not turns:
            self._waiting[server] = change
        for turn_id in turns:
            self._outbox.emit(turn_id, McpServerChanged, **change)

    def catch_up(self, emit: Callable[..., None]) -> None:
        """Say how servers changed while nothing ran."""
        for change in self._waiting.values():
            emit(McpServerChanged, **change)
        self._waiting.clear()
