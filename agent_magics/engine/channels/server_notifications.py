"""Reports status changes of MCP servers: to people in the running turn, to the model once."""

from collections.abc import Callable, Collection

from agent_magics.engine.channels.outbox import Outbox
from agent_magics.protocol.events import McpServerChanged


class ServerNews:
    """The status changes of one session's MCP servers; used on the engine's loop."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._waiting: dict[str, dict[str, str]] = {}

    def add(self, server: str, status: str, message: str, turns: Collection[str]) -> None:
        """Report a change of a server: in the running `turns`, else in the next one."""
        change = {"server": server, "status": status, "message": message}
        if not turns:
            self._waiting[server] = change
        for turn_id in turns:
            self._outbox.emit(turn_id, McpServerChanged, **change)

    def catch_up(self, emit: Callable[..., None]) -> None:
        """Emit the changes that happened while no turn ran."""
        for change in self._waiting.values():
            emit(McpServerChanged, **change)
        self._waiting.clear()
