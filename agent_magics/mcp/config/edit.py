"""A `config.toml` with one MCP server more, less, or switched: all else in it stays as it is."""

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agent_magics.dispatch.mcp_config import NAME, TABLE, ProjectServers, servers_of
from agent_magics.dispatch.mcp_table import TableReader
from agent_magics.dispatch.toml_edit import with_switch, with_table, without_table, write_text
from agent_magics.dispatch.toml_places import decode, parse_toml, read_plain
from agent_magics.protocol.errors import FatalError


class McpFile:
    """One `config.toml` that may be changed: the person's own, or a project's.

    A project's file is trusted as it is after a change if it was trusted, or not there, before.

    Args:
        path: the file.
        project: whose file it is; None is the person's own.
    """

    def __init__(self, path: Path, project: ProjectServers | None = None) -> None:
        # A person may keep their settings elsewhere, behind a link; a project may not lead away.
        self.path = path if project else Path(os.path.realpath(path))
        self._project = project

    def names(self) -> tuple[str, ...]:
        """Return the names of the servers in the file, in order.

        Raises:
            FatalError: it is not understood.
        """
        servers = parse_toml(self._text(), self.path).get(TABLE, {})
        return tuple(servers) if isinstance(servers, dict) else ()

    def add(self, name: str, settings: Mapping[str, Any]) -> None:
        """Write one more server at the file's end.

        Raises:
            FatalError: there is one of this name, or its settings are not understood.
            OSError: it cannot be written.
        """
        if name in self.names():
            raise FatalError(
                f"There is an MCP server {name!r} in {self.path} already; %agent mcp remove {name} "
                "takes it out."
            )
        TableReader(lambda *_: f"MCP server {name!r}", self.path.parent).read(name, settings)
        self._change(lambda text: with_table(text, (TABLE, name), settings, self.path))

    def remove(self, name: str) -> None:
        """Take a server out.

        Raises:
            FatalError: it is not there, or cannot be taken out by itself.
            OSError: the file cannot be written.
        """
        if name not in self.names():
            raise FatalError(f"There is no MCP server {name!r} in {self.path}.")
        self._change(lambda text: without_table(text, (TABLE, name), self.path))

    def switch(self, name: str, on: bool) -> None:
        """Write that a server is enabled, or not.

        Raises:
            FatalError: it is not there, or cannot be changed by itself.
            OSError: the file cannot be written.
        """
        if name not in self.names():
            raise FatalError(f"There is no MCP server {name!r} in {self.path}.")
        self._change(lambda text: with_switch(text, (TABLE, name, "enabled"), on, self.path))

    def _text(self) -> str:
        return decode(read_plain(self.path, "MCP servers") or b"", self.path)

    def _change(self, change: Callable[[str], str]) -> None:
        project = self._project
        files = project.files() if project else []
        trusted = project is not None and (not files or project.is_trusted(files))
        text = change(self._text())
        folder = project.folder if project else self.path.parent
        servers_of(self.path.with_name(NAME), text.encode("utf-8"), folder)  # it is understood
        self._make_folder()
        write_text(self.path, text, mode=0o644 if project else 0o600)
        if project is not None and trusted:
            others = [(path, data) for path, data in files if path != self.path]
            # Of what was meant to be written, whatever stands there by now.
            project.trust(project.digest([*others, (self.path, text.encode("utf-8"))]))

    def _make_folder(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self._project and not stat.S_ISDIR(self.path.parent.lstat().st_mode):
            raise FatalError(
                f"{self.path.parent} is no folder of this project; nothing was written."
            )
