"""Adds, removes or enables one MCP server in a `config.toml`; everything else is kept unchanged."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agent_magics.config_files.places import CONFIG, make_project_folder
from agent_magics.config_files.toml_edit import with_switch, with_table, without_table, write_text
from agent_magics.config_files.toml_places import decode, parse_toml, read_settings
from agent_magics.files.locks import locked
from agent_magics.mcp.config.parsing import TABLE, servers_of
from agent_magics.mcp.config.sources import ProjectServers
from agent_magics.mcp.config.table import TableReader
from agent_magics.protocol.errors import FatalError
from agent_magics.text.brief import meant
from agent_magics.text.typed import as_typed


class McpFile:
    """One `config.toml` to be edited: the person's own, or a project's.

    After an edit a project's file is trusted if it was trusted, or missing, before.

    Args:
        path: the file.
        project: the project it belongs to; None for the person's own.
    """

    def __init__(self, path: Path, project: ProjectServers | None = None) -> None:
        # The person's own file may be a link; a project's may not, since it could point elsewhere.
        self.path = path if project else Path(os.path.realpath(path))
        self._project = project

    def names(self) -> tuple[str, ...]:
        """Return the names of the servers in the file, in order.

        Raises:
            FatalError: it is malformed.
        """
        servers = parse_toml(self._text(), self.path).get(TABLE, {})
        return tuple(servers) if isinstance(servers, dict) else ()

    def add(self, name: str, settings: Mapping[str, Any]) -> None:
        """Append a server to the file.

        Raises:
            FatalError: there is one of this name, or its settings are invalid.
            OSError: it cannot be written.
        """
        if name in self.names():
            raise FatalError(
                f"There is an MCP server {name!r} in {self.path} already; %agent mcp remove "
                f"{as_typed(name)} takes it out."
            )
        TableReader(lambda *_: f"MCP server {name!r}", self.path.parent).read(name, settings)
        self._change(lambda text: with_table(text, (TABLE, name), settings, self.path))

    def remove(self, name: str) -> None:
        """Remove a server.

        Raises:
            FatalError: it does not exist, or cannot be removed automatically.
            OSError: the file cannot be written.
        """
        self._check(name)
        self._change(lambda text: without_table(text, (TABLE, name), self.path))

    def switch(self, name: str, on: bool) -> None:
        """Enable or disable a server in the file.

        Raises:
            FatalError: it does not exist, or cannot be changed automatically.
            OSError: the file cannot be written.
        """
        self._check(name)
        self._change(lambda text: with_switch(text, (TABLE, name, "enabled"), on, self.path))

    def _check(self, name: str) -> None:
        there = self.names()
        if name not in there:
            raise FatalError(
                f"There is no MCP server {name!r} in {self.path}; {meant(name, there)}"
            )

    def _text(self) -> str:
        data = read_settings(self.path, "MCP servers", links=self._project is None)
        return decode(data or b"", self.path)

    def _change(self, change: Callable[[str], str]) -> None:
        if self._project:
            make_project_folder(self.path.parent)
        else:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.path):
            self._change_locked(change)

    def _change_locked(self, change: Callable[[str], str]) -> None:
        project = self._project
        files = project.read() if project else []
        trusted = project is not None and (not files or project.is_trusted(files))
        text = change(self._text())
        folder = project.folder if project else self.path.parent
        # raises if it is invalid
        servers_of(self.path.with_name(CONFIG), text.encode("utf-8"), folder)
        write_text(self.path, text, mode=0o644 if project else 0o600)
        if project is not None and trusted:
            others = [(path, data) for path, data in files if path != self.path]
            # The digest of the intended text, in case the file has changed since.
            project.trust(project.digest([*others, (self.path, text.encode("utf-8"))]))
