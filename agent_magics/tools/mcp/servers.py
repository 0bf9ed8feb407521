"""An agent's MCP servers: which there are, read anew when a file changes, and their connections."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from agent_magics.backends.mcp import McpConnectionManager
from agent_magics.backends.mcp.surroundings import Spawn
from agent_magics.dispatch.mcp_config import (
    McpConfig,
    ProjectServers,
    given_servers,
    read_mcp_config,
)
from agent_magics.dispatch.rules import trust_folder, user_config_file
from agent_magics.dispatch.shelf import ToolShelf
from agent_magics.models.credentials import drop_key, keep_key, kept_secret
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.mcp import McpServerConfig, McpServerState
from agent_magics.tools.mcp_joining import McpTools
from agent_magics.tools.mcp_selection import Selection

# Seconds that the servers get to end when their agent is closed.
CLOSE_LIMIT = 3.0

Changed = Callable[[str, str, str], None]


class KeptSecrets:
    """The tokens of logins, where the keys of models are kept: the keyring, or a 0600 file."""

    def get(self, name: str) -> str | None:
        """Return what is kept under `name`."""
        return kept_secret(name)

    def put(self, name: str, value: str) -> None:
        """Keep `value`."""
        keep_key(name, value)

    def delete(self, name: str) -> None:
        """Forget it."""
        drop_key(name)


class McpServers:
    """The servers of one agent.

    Args:
        folder: the workspace.
        given: what the program gave; see `read_mcp_config`.
        spawn: starts a coroutine on the engine's loop.
        shelf: the agent's tools that were hidden.
        changed: is told on the engine's loop of each server: its name, status and message.

    Raises:
        FatalError: what was given is not understood.
    """

    def __init__(
        self,
        folder: Path,
        given: Mapping[str, Any] | None,
        *,
        spawn: Spawn,
        shelf: ToolShelf,
        changed: Changed,
    ) -> None:
        self._folder = folder
        self._given = given
        self._spawn = spawn
        self._shelf = shelf
        self._changed = changed
        self._stamps: tuple[Any, ...] | None = None
        self._config = McpConfig()
        self._servers: tuple[McpServerConfig, ...] = ()
        self._tools: McpTools | None = None
        self._told: set[str] = set()

    def give(self, given: Mapping[str, Any] | None) -> None:
        """Take what a program gives now in the place of what it gave before."""
        if given != self._given:
            self._given, self._stamps = given, None

    def tools(self, *, files: bool = True, names: Sequence[str] = ()) -> McpTools | None:
        """Return the tools of the servers as they are configured now; None where there are none.

        Nothing is started. Where the configuration has changed, the connections end whose servers
        are configured otherwise, or no more; the others stay open.

        Args:
            files: whether servers that files name are there, too.
            names: names of tools, patterns, and "mcp" for all: these alone; none is all.

        Raises:
            FatalError: the configuration is not understood (says where), or a name means nothing.
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

    def new_warnings(self) -> tuple[str, ...]:
        """Return what was left out of the configuration and nobody was told yet."""
        new = [word for word in self._config.warnings if word not in self._told]
        self._told.update(new)
        return tuple(new)

    def secrets(self) -> tuple[str, ...]:
        """Return what the servers were given as secrets: none may be written anywhere."""
        return () if self._tools is None else self._tools.manager.secrets()

    def close(self, *, wait: bool = True) -> None:
        """End the servers.

        Args:
            wait: for their end, some seconds at most.
        """
        tools, self._tools, self._servers = self._tools, None, ()
        if tools is None:
            return
        with suppress(FatalError):  # in a forked child they are the parent's
            ending: Future[Any] = self._spawn(tools.manager.close())
            if wait:
                with suppress(TimeoutError):
                    ending.result(CLOSE_LIMIT)

    def _make(self, servers: tuple[McpServerConfig, ...]) -> McpTools:
        manager = McpConnectionManager(
            servers,
            spawn=self._spawn,
            roots=(self._folder,),
            environment=os.environ,
            changed=lambda state: self._hear(tools, state),
            secrets=KeptSecrets(),
        )
        tools = McpTools(manager, lambda: self._shelf.hidden)
        return tools

    def _hear(self, tools: McpTools, state: McpServerState) -> None:
        tools.refresh()
        if tools is self._tools:
            self._changed(state.config.name, str(state.status), state.message)

    def _read(self) -> McpConfig:
        """Read the configuration, unless its files are those of the last time."""
        project = ProjectServers(self._folder)
        watched = (project.toml_file, project.json_file, user_config_file(), trust_folder("mcp"))
        stamps = tuple(map(_stamp, watched))
        # What is written in .mcp.json goes by the environment, which nobody watches.
        if self._stamps is None or stamps != self._stamps or stamps[1] is not None:
            self._config = read_mcp_config(self._folder, self._given)
            self._stamps = stamps
        return self._config


def read_given(folder: Path, given: Mapping[str, Any] | None) -> McpConfig:
    """Return the servers that a program gave, and no others.

    Raises:
        FatalError: what it gave is not understood.
    """
    return McpConfig(tuple(given_servers(given, folder)))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - four of them in every run
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
