"""All servers of one agent: started in the background, asked by name, ended together."""

import asyncio
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from agent_magics.backends.mcp.server import Server
from agent_magics.backends.mcp.surroundings import SecretStore, Spawn, Surroundings
from agent_magics.protocol.errors import FatalError, RespondToModel
from agent_magics.protocol.items import Content, Json
from agent_magics.protocol.mcp import (
    McpContents,
    McpDesk,
    McpPage,
    McpPrompt,
    McpResult,
    McpServerConfig,
    McpServerState,
    McpStatus,
    McpTool,
)

_TURN_FIRST = 0.05  # seconds; a model has not answered before


def _ignore(state: McpServerState) -> None:
    pass


class McpConnectionManager:
    """The connections of one agent to its servers.

    Nothing runs before `start`. What is `async` belongs on the loop that `spawn` starts things on;
    the rest may be called from any thread.

    Args:
        servers: how each is reached; two of one name are refused.
        spawn: starts a coroutine on the loop that shall own the connections, as
            `EngineThread.spawn` does.
        roots: the workspace's folders; servers are told them, and run in the first one.
        environment: where variables for servers and their tokens come from.
        changed: is told of every new state, on the loop; it must be quick.
        secrets: where the tokens of logins are kept; without it nobody can log in.

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
        self._around = Surroundings(spawn, tuple(roots), environment, self._tell, secrets)
        self._spawn = spawn
        self._changed = changed
        self._servers: Mapping[str, Server] = {}
        self._leaving: set[Server] = set()  # touched on the loop only
        self.reconfigure(servers)

    # -- from any thread -----------------------------------------------------------------------

    def reconfigure(self, servers: Sequence[McpServerConfig]) -> None:
        """Have these servers from now on; returns at once.

        One whose configuration is what it was stays as it is, and its connection open. The others
        end; those that are new begin with the next `start`.

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
            known.config = config  # where it stands may have changed
            now[config.name] = known
        left = [each for name, each in self._servers.items() if now.get(name) is not each]
        self._servers = now
        if left:
            self._spawn(self._dismiss(left))

    def start(self, only: Collection[str] | None = None) -> None:
        """Have every enabled server started that is not yet; returns at once.

        Args:
            only: the names of those that shall be; None is all.

        Raises:
            FatalError: the loop is gone: this process is a fork.
        """
        waiting = [each for each in self._chosen(only) if each.standing.announce()]
        if waiting:
            self._spawn(self._start_all(waiting))

    def states(self) -> tuple[McpServerState, ...]:
        """Return how every server stands at this moment, in the order they were given."""
        return tuple(each.standing.state for each in self._servers.values())

    def logs(self, server: str) -> str:
        """Return the last of what a server wrote beside the protocol, without secrets.

        Raises:
            RespondToModel: there is no server of this name.
        """
        return self._named(server).log.text()

    def secrets(self) -> tuple[str, ...]:
        """Return what servers were given as secrets (keys, tokens): none may be shown."""
        found = {secret for each in self._servers.values() for secret in each.redact.secrets}
        return tuple(sorted(found, key=lambda each: (-len(each), each)))

    # -- on the loop: servers ------------------------------------------------------------------

    async def ready(self, server: str) -> McpServerState:
        """Wait until a server has started, at most as long as its start may take.

        Raises:
            RespondToModel: it is not there for use; the sentence says why.
        """
        return await self._named(server).standing.ready()

    async def require(self, only: Collection[str] | None = None) -> None:
        """Wait for the servers that a run cannot do without.

        Args:
            only: the names of those that the run has; None is all.

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
        """Start a server that is disabled or was stopped; returns when it begins to start."""
        await self._named(server).enable()

    async def disable(self, server: str) -> None:
        """End a server and do not start it again."""
        await self._named(server).disable()

    async def restart(self, server: str) -> None:
        """End a server and start it anew; its earlier crashes are forgotten."""
        await self._named(server).restart()

    async def login(self, server: str, show: Callable[[str], None], limit: float = 300) -> None:
        """Log in to a server over HTTP, keep the tokens, and start it anew.

        Args:
            server: its name.
            show: is handed the address that the person has to open; no browser is opened here.
            limit: seconds the person has.

        Raises:
            FatalError: it did not come about; the sentence says why.
        """
        await self._named(server).login(show, limit)

    async def logout(self, server: str) -> None:
        """Forget the tokens of a server, and start it anew without."""
        await self._named(server).logout()

    async def close(self) -> None:
        """End all servers; takes some seconds at most."""
        await asyncio.gather(*(each.close() for each in self._servers.values()), self._end_left())

    # -- on the loop: what servers offer -------------------------------------------------------

    async def list_all_tools(self) -> tuple[McpTool, ...]:
        """Return the tools of all servers; waits for those that are starting (see `states`)."""
        starting = (McpStatus.STARTING, McpStatus.RESTARTING)
        for each in self._servers.values():
            if each.standing.status in starting:
                with suppress(RespondToModel):
                    await each.standing.ready()
        return tuple(tool for state in self.states() for tool in state.tools)

    async def call_tool(
        self, server: str, tool: str, arguments: Mapping[str, Json], desk: McpDesk
    ) -> McpResult:
        """Call a tool; waits for a server that is starting.

        Args:
            server: its name.
            tool: the tool's name, as the server says it.
            arguments: a JSON object.
            desk: whom the server may speak to meanwhile.

        Raises:
            RespondToModel: there is no such tool, the server is not there, it refused the call, it
                ended during the call, or took too long.
        """
        return await self._named(server).call_tool(tool, arguments, desk)

    async def list_resources(self, server: str, cursor: str = "") -> McpPage:
        """Return a page of a server's resources.

        Raises:
            RespondToModel: it has none, or is not there.
        """
        return await self._named(server).ask("list_resources", cursor)

    async def list_resource_templates(self, server: str, cursor: str = "") -> McpPage:
        """Return a page of a server's templates of resources; raises as `list_resources`."""
        return await self._named(server).ask("list_resource_templates", cursor)

    async def read_resource(self, server: str, uri: str) -> tuple[McpContents, ...]:
        """Return a resource, in as many parts as the server gives; raises as `list_resources`."""
        return await self._named(server).ask("read_resource", uri)

    async def subscribe(self, server: str, uri: str, changed: Callable[[str], None]) -> None:
        """Have `changed(uri)` called on the loop whenever the server says that it has changed.

        It holds over restarts of the server, until `unsubscribe`.

        Raises:
            RespondToModel: the server does not tell changes, or is not there.
        """
        await self._named(server).subscribe(uri, changed)

    async def unsubscribe(self, server: str, uri: str, changed: Callable[[str], None]) -> None:
        """Have `changed` called no more."""
        await self._named(server).unsubscribe(uri, changed)

    async def list_prompts(self, server: str) -> tuple[McpPrompt, ...]:
        """Return the prompts that a server offers; raises as `list_resources`."""
        return await self._named(server).ask("list_prompts")

    async def get_prompt(
        self, server: str, name: str, arguments: Mapping[str, str]
    ) -> tuple[tuple[str, Content], ...]:
        """Return a prompt's messages as (role, content); raises as `list_resources`."""
        return await self._named(server).ask("get_prompt", name, arguments)

    def _tell(self, state: McpServerState) -> None:
        """Pass on how a server stands, unless another one has taken its place."""
        known = self._servers.get(state.config.name)
        if known is not None and known.standing.state is state:
            self._changed(state)

    def _chosen(self, only: Collection[str] | None) -> list[Server]:
        servers = self._servers
        return [each for name, each in servers.items() if only is None or name in only]

    async def _dismiss(self, left: Sequence[Server]) -> None:
        """End servers that are configured no more."""
        self._leaving.update(left)
        await self._end_left()
        self._leaving.difference_update(left)

    async def _end_left(self) -> None:
        await asyncio.gather(*(each.close() for each in self._leaving))

    async def _start_all(self, servers: Sequence[Server]) -> None:
        if "mcp" not in sys.modules:
            # Importing the SDK takes the interpreter for moments; the turn that begins goes first.
            await asyncio.sleep(_TURN_FIRST)
        await self._end_left()  # what has a new configuration may have but one of something
        for each in servers:
            if each.standing.status is McpStatus.STARTING:  # else it was ended before it began
                each.start()

    def _named(self, server: str) -> Server:
        found = self._servers.get(server)
        if found is None:
            names = ", ".join(self._servers) or "none"
            raise RespondToModel(f"There is no MCP server {server!r}; configured are: {names}.")
        return found
