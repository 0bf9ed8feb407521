"""Holds an agent's MCP servers and connections; reads their configuration again when it changes."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_magics.config_files.places import trust_folder, user_config_file
from agent_magics.files.plain_files import file_stamp
from agent_magics.mcp.config.sources import (
    McpConfig,
    ProjectServers,
    read_given,
    read_mcp_config,
)
from agent_magics.protocol.errors import FatalError
from agent_magics.tools.mcp.names import Selection

if TYPE_CHECKING:  # what an agent without servers never needs
    from agent_magics.mcp.environment import Spawn
    from agent_magics.protocol.mcp import McpServerConfig, McpServerState
    from agent_magics.tools.mcp.joining import McpTools

# Seconds that the servers get to end when their agent is closed.
CLOSE_LIMIT = 3.0

Changed = Callable[[str, str, str], None]


class McpServers:
    """The MCP servers of one agent.

    Args:
        folder: the workspace.
        given: the program's servers; see `read_mcp_config`.
        spawn: starts a coroutine on the engine's loop.
        hidden: returns the names of tools that are neither offered nor answered.
        changed: called on the engine's loop with a server's name, status and message.

    Raises:
        FatalError: `given` is invalid.
    """

    def __init__(
        self,
        folder: Path,
        given: Mapping[str, object] | None,
        *,
        spawn: "Spawn",
        hidden: Callable[[], frozenset[str]],
        changed: Changed,
    ) -> None:
        self._folder = folder
        self._given = given
        self._spawn = spawn
        self._hidden = hidden
        self._changed = changed
        self._stamps: tuple[object, ...] | None = None
        self._config = McpConfig()
        self._servers: tuple[McpServerConfig, ...] = ()
        self._tools: McpTools | None = None

    def give(self, given: Mapping[str, object] | None) -> None:
        """Replace the program's servers."""
        if given != self._given:
            self._given, self._stamps = given, None

    def tools(self, *, files: bool = True, names: Sequence[str] = ()) -> "McpTools | None":
        """Return the tools of the configured servers; None where there are none.

        No server is started. Where the configuration has changed, connections to changed or removed
        servers are closed; the others stay open.

        Args:
            files: whether to include servers of configuration files.
            names: names of tools, patterns, and "mcp" for all: only these; empty means all.

        Raises:
            FatalError: the configuration is invalid (with the place), or a name is unknown.
        """
        config = self._read() if files else read_given(self._folder, self._given)
        if config.servers != self._servers:
            if not config.servers:
                self.close(wait=False)
            elif self._tools is None:
                self._tools = self._make(config.servers)
            else:
                self._tools.manager.reconfigure(config.servers)
            self._servers = config.servers
        if not names:
            return self._tools
        if self._tools is None:
            Selection(names).check(())
            return None
        return self._tools.select(names)

    @property
    def warnings(self) -> tuple[str, ...]:
        """One sentence for each part of the configuration that was left out."""
        return self._config.warnings

    def secrets(self) -> tuple[str, ...]:
        """Return the secrets in the servers' configuration, which must not be written anywhere."""
        return () if self._tools is None else self._tools.manager.secrets()

    def close(self, *, wait: bool = True) -> None:
        """Stop the servers.

        Args:
            wait: whether to wait for their end, some seconds at most.
        """
        tools, self._tools, self._servers = self._tools, None, ()
        if tools is None:
            return
        with suppress(FatalError):  # in a forked child the servers belong to the parent
            ending: Future[Any] = self._spawn(tools.manager.close())
            if wait:
                with suppress(TimeoutError):
                    ending.result(CLOSE_LIMIT)

    def _make(self, servers: "tuple[McpServerConfig, ...]") -> "McpTools":
        # Late: a dozen modules, which an agent without servers never uses.
        from agent_magics.mcp.client.manager import McpConnectionManager  # noqa: PLC0415
        from agent_magics.tools.mcp.joining import McpTools  # noqa: PLC0415

        manager = McpConnectionManager(
            servers,
            spawn=self._spawn,
            roots=(self._folder,),
            environment=os.environ,
            changed=lambda state: self._hear(tools, state),
        )
        tools = McpTools(manager, self._hidden)
        return tools

    def _hear(self, tools: "McpTools", state: "McpServerState") -> None:
        tools.refresh()
        if tools is self._tools:
            self._changed(state.config.name, str(state.status), state.message)

    def _read(self) -> McpConfig:
        """Read the configuration, unless its files are unchanged."""
        project = ProjectServers(self._folder)
        watched = (project.toml_file, project.json_file, user_config_file(), trust_folder("mcp"))
        stamps = tuple(map(file_stamp, watched))
        # .mcp.json may refer to environment variables, whose changes are not noticed.
        if self._stamps is None or stamps != self._stamps or stamps[1]:
            self._config = read_mcp_config(self._folder, self._given)
            self._stamps = stamps
        return self._config
