"""Manages all MCP servers of one agent: start in the background, find by name, stop."""

import asyncio
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from agent_magics.mcp.client.server import McpServer
from agent_magics.mcp.environment import McpEnvironment, Spawn
from agent_magics.protocol.errors import FatalError, RespondToModel, full_message
from agent_magics.protocol.mcp import McpServerConfig, McpServerState, McpStatus, McpTool

_TURN_FIRST = 0.05  # seconds; shorter than any model's answer


def _ignore(state: McpServerState) -> None:
    pass


class McpConnectionManager:
    """The connections of one agent to its MCP servers.

    Nothing runs before `start`. Async methods must run on the event loop of `spawn`; the others may
    be called from any thread.

    Args:
        servers: the configurations; names must be unique.
        spawn: starts a coroutine on the event loop that owns the connections, as
            `EngineThread.spawn` does.
        roots: the workspace's folders, which servers are informed of; they run in the first one.
        environment: source of environment variables and tokens for servers.
        changed: called on the loop with every new state; must be quick.

    Raises:
        FatalError: two servers have one name.
    """

    def __init__(
        self,
        servers: Sequence[McpServerConfig],
        *,
        spawn: Spawn,
        roots: Sequence[Path] = (),
        environment: Mapping[str, str],
        changed: Callable[[McpServerState], None] = _ignore,
    ) -> None:
        self._around = McpEnvironment(spawn, tuple(roots), environment, self._tell)
        self._spawn = spawn
        self._changed = changed
        self._servers: Mapping[str, McpServer] = {}
        self._leaving: set[McpServer] = set()  # touched on the loop only
        self.reconfigure(servers)

    # -- from any thread -----------------------------------------------------------------------

    def reconfigure(self, servers: Sequence[McpServerConfig]) -> None:
        """Replace the set of servers; returns at once.

        A server with an unchanged configuration keeps its connection. The others end; new ones
        begin with the next `start`.

        Raises:
            FatalError: two servers have one name, and nothing has changed; or the loop is gone.
        """
        now: dict[str, McpServer] = {}
        for config in servers:
            if config.name in now:
                raise FatalError(f"Two MCP servers are named {config.name!r}: rename one of them.")
            known = self._servers.get(config.name)
            if known is None or known.config != replace(config, source=known.config.source):
                known = McpServer(config, self._around)
            known.config = config  # its `source` may have changed
            now[config.name] = known
        left = [each for name, each in self._servers.items() if now.get(name) is not each]
        self._servers = now
        if left:
            self._spawn(self._dismiss(left))

    def start(self, only: Collection[str] | None = None) -> None:
        """Start every enabled server that is not started yet; returns at once.

        Args:
            only: names of the servers to start; None means all.

        Raises:
            FatalError: the loop is gone: this process is a fork.
        """
        waiting = [each for each in self._chosen(only) if each.standing.announce()]
        if waiting:
            self._spawn(self._start_all(waiting))

    def states(self) -> tuple[McpServerState, ...]:
        """Return the current state of every server, in the configured order."""
        return tuple(each.standing.state for each in self._servers.values())

    def secrets(self) -> tuple[str, ...]:
        """Return the secrets given to servers (keys, tokens), which must not be shown."""
        found = {secret for each in self._servers.values() for secret in each.redact.secrets}
        return tuple(sorted(found, key=lambda each: (-len(each), each)))

    def server(self, name: str) -> McpServer:
        """Return a server, to call its tools, read its resources, restart it, log in to it.

        Raises:
            RespondToModel: there is no server of this name.
        """
        found = self._servers.get(name)
        if found is None:
            names = ", ".join(self._servers) or "none"
            raise RespondToModel(f"There is no MCP server {name!r}; configured are: {names}.")
        return found

    # -- on the loop ---------------------------------------------------------------------------

    async def require(self, only: Collection[str] | None = None) -> None:
        """Wait for the servers that are configured as required.

        Args:
            only: names of the servers that the run uses; None means all.

        Raises:
            FatalError: one of them did not start.
        """
        for each in self._chosen(only):
            if not (each.config.required and each.config.enabled):
                continue
            try:
                await each.standing.ready()
            except RespondToModel as error:
                raise FatalError(
                    f"{full_message(error)} The configuration says that it is required"
                    f"{f' ({each.config.source})' if each.config.source else ''}; mend it, or set "
                    "required = false."
                ) from None

    async def close(self) -> None:
        """Stop all servers; takes some seconds at most."""
        await asyncio.gather(*(each.close() for each in self._servers.values()), self._end_left())

    async def list_all_tools(self) -> tuple[McpTool, ...]:
        """Return the tools of all servers; waits for those that are starting (see `states`)."""
        starting = (McpStatus.STARTING, McpStatus.RESTARTING)
        for each in self._servers.values():
            if each.standing.status in starting:
                with suppress(RespondToModel):
                    await each.standing.ready()
        return tuple(tool for state in self.states() for tool in state.tools)

    def _tell(self, state: McpServerState) -> None:
        """Forward a server's state, unless another server has replaced it."""
        known = self._servers.get(state.config.name)
        if known is not None and known.standing.state is state:
            self._changed(state)

    def _chosen(self, only: Collection[str] | None) -> list[McpServer]:
        servers = self._servers
        return [each for name, each in servers.items() if only is None or name in only]

    async def _dismiss(self, left: Sequence[McpServer]) -> None:
        """Stop servers that are no longer configured."""
        self._leaving.update(left)
        await self._end_left()
        self._leaving.difference_update(left)

    async def _end_left(self) -> None:
        await asyncio.gather(*(each.close() for each in self._leaving))

    async def _start_all(self, servers: Sequence[McpServer]) -> None:
        if "mcp" not in sys.modules:
            # Importing the SDK slows down the event loop; let the turn send its request first.
            await asyncio.sleep(_TURN_FIRST)
        await self._end_left()  # the old server may hold a resource that the new one needs
        for each in servers:
            if each.standing.status is McpStatus.STARTING:  # else it was stopped before its start
                each.start()
