"""Manages all MCP servers of one agent: start in the background, call by name, stop."""

import asyncio
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from agent_magics.mcp.client.server import Server
from agent_magics.mcp.environment import McpEnvironment, SecretStore, Spawn
from agent_magics.protocol.errors import FatalError, RespondToModel
from agent_magics.protocol.items import Content, Json
from agent_magics.protocol.mcp import (
    McpCallbacks,
    McpContents,
    McpPage,
    McpPrompt,
    McpResult,
    McpServerConfig,
    McpServerState,
    McpStatus,
    McpTool,
)

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
        secrets: stores the tokens of logins; without it login is not possible.

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
        secrets: SecretStore | None = None,
    ) -> None:
        self._around = McpEnvironment(spawn, tuple(roots), environment, self._tell, secrets)
        self._spawn = spawn
        self._changed = changed
        self._servers: Mapping[str, Server] = {}
        self._leaving: set[Server] = set()  # touched on the loop only
        self.reconfigure(servers)

    # -- from any thread -----------------------------------------------------------------------

    def reconfigure(self, servers: Sequence[McpServerConfig]) -> None:
        """Replace the set of servers; returns at once.

        A server with an unchanged configuration keeps its connection. The others end; new ones
        begin with the next `start`.

        Raises:
            FatalError: two servers have one name, and nothing has changed; or the loop is gone.
        """
        now: dict[str, Server] = {}
        for config in servers:
            if config.name in now:
                raise FatalError(f"Two MCP servers are named {config.name!r}: rename one of them.")
            known = self._servers.get(config.name)
            if known is None or known.config != replace(config, source=known.config.source):
                known = Server(config, self._around)
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

    def logs(self, server: str) -> str:
        """Return the end of a server's output beside the protocol, without secrets.

        Raises:
            RespondToModel: there is no server of this name.
        """
        return self._named(server).log.text()

    def secrets(self) -> tuple[str, ...]:
        """Return the secrets given to servers (keys, tokens), which must not be shown."""
        found = {secret for each in self._servers.values() for secret in each.redact.secrets}
        return tuple(sorted(found, key=lambda each: (-len(each), each)))

    # -- on the loop: servers ------------------------------------------------------------------

    async def ready(self, server: str) -> McpServerState:
        """Wait until a server has started, at most for its start-up time limit.

        Raises:
            RespondToModel: it is not available; the sentence says why.
        """
        return await self._named(server).standing.ready()

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
                    f"{error} The configuration says that it is required"
                    f"{f' ({each.config.source})' if each.config.source else ''}; mend it, or set "
                    "required = false."
                ) from None

    async def enable(self, server: str) -> None:
        """Start a server that is disabled or was stopped; returns when its start has begun."""
        await self._named(server).enable()

    async def disable(self, server: str) -> None:
        """Stop a server and do not start it again."""
        await self._named(server).disable()

    async def restart(self, server: str) -> None:
        """Stop a server and start it again, resetting the count of its crashes."""
        await self._named(server).restart()

    async def login(self, server: str, show: Callable[[str], None], limit: float = 300) -> None:
        """Log in to a server over HTTP, store the tokens, and restart the connection.

        Args:
            server: its name.
            show: called with the address that the person has to open; no browser is opened here.
            limit: seconds to wait for the person.

        Raises:
            FatalError: it failed; the sentence says why.
        """
        await self._named(server).login(show, limit)

    async def logout(self, server: str) -> None:
        """Delete the tokens of a server, and restart the connection without them."""
        await self._named(server).logout()

    async def close(self) -> None:
        """Stop all servers; takes some seconds at most."""
        await asyncio.gather(*(each.close() for each in self._servers.values()), self._end_left())

    # -- on the loop: tools, resources, prompts ------------------------------------------------

    async def list_all_tools(self) -> tuple[McpTool, ...]:
        """Return the tools of all servers; waits for those that are starting (see `states`)."""
        starting = (McpStatus.STARTING, McpStatus.RESTARTING)
        for each in self._servers.values():
            if each.standing.status in starting:
                with suppress(RespondToModel):
                    await each.standing.ready()
        return tuple(tool for state in self.states() for tool in state.tools)

    async def call_tool(
        self, server: str, tool: str, arguments: Mapping[str, Json], callbacks: McpCallbacks
    ) -> McpResult:
        """Call a tool; waits for a server that is starting.

        Args:
            server: its name.
            tool: the tool's name at the server.
            arguments: a JSON object.
            callbacks: receive progress, log messages and questions of the server meanwhile.

        Raises:
            RespondToModel: there is no such tool, the server is not available, it refused the call,
                it ended during the call, or timed out.
        """
        return await self._named(server).call_tool(tool, arguments, callbacks)

    async def list_resources(self, server: str, cursor: str = "") -> McpPage:
        """Return a page of a server's resources.

        Raises:
            RespondToModel: it has none, or is not available.
        """
        return await self._named(server).ask(lambda link: link.list_resources(cursor))

    async def list_resource_templates(self, server: str, cursor: str = "") -> McpPage:
        """Return a page of a server's resource templates; raises as `list_resources`."""
        return await self._named(server).ask(lambda link: link.list_resource_templates(cursor))

    async def read_resource(self, server: str, uri: str) -> tuple[McpContents, ...]:
        """Read a resource, which may have several parts; raises as `list_resources`."""
        return await self._named(server).ask(lambda link: link.read_resource(uri))

    async def subscribe(self, server: str, uri: str, changed: Callable[[str], None]) -> None:
        """Call `changed(uri)` on the loop whenever the server reports a change of the resource.

        The subscription is kept over restarts of the server, until `unsubscribe`.

        Raises:
            RespondToModel: the server does not report changes, or is not available.
        """
        await self._named(server).subscribe(uri, changed)

    async def unsubscribe(self, server: str, uri: str, changed: Callable[[str], None]) -> None:
        """Stop calling `changed`."""
        await self._named(server).unsubscribe(uri, changed)

    async def list_prompts(self, server: str) -> tuple[McpPrompt, ...]:
        """Return the prompts that a server offers; raises as `list_resources`."""
        return await self._named(server).ask(lambda link: link.list_prompts())

    async def get_prompt(
        self, server: str, name: str, arguments: Mapping[str, str]
    ) -> tuple[tuple[str, Content], ...]:
        """Return a prompt's messages as (role, content); raises as `list_resources`."""
        return await self._named(server).ask(lambda link: link.get_prompt(name, arguments))

    def _tell(self, state: McpServerState) -> None:
        """Forward a server's state, unless another server has replaced it."""
        known = self._servers.get(state.config.name)
        if known is not None and known.standing.state is state:
            self._changed(state)

    def _chosen(self, only: Collection[str] | None) -> list[Server]:
        servers = self._servers
        return [each for name, each in servers.items() if only is None or name in only]

    async def _dismiss(self, left: Sequence[Server]) -> None:
        """Stop servers that are no longer configured."""
        self._leaving.update(left)
        await self._end_left()
        self._leaving.difference_update(left)

    async def _end_left(self) -> None:
        await asyncio.gather(*(each.close() for each in self._leaving))

    async def _start_all(self, servers: Sequence[Server]) -> None:
        if "mcp" not in sys.modules:
            # Importing the SDK slows down the event loop; let the turn send its request first.
            await asyncio.sleep(_TURN_FIRST)
        await self._end_left()  # the old server may hold a resource that the new one needs
        for each in servers:
            if each.standing.status is McpStatus.STARTING:  # else it was stopped before its start
                each.start()

    def _named(self, server: str) -> Server:
        found = self._servers.get(server)
        if found is None:
            names = ", ".join(self._servers) or "none"
            raise RespondToModel(f"There is no MCP server {server!r}; configured are: {names}.")
        return found
