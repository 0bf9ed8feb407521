"""Reads the configured MCP servers: the person's, a trusted project's, a program's.

Law: a project's files start programs, so they are used only while they are, byte for byte, the ones
that the person trusted; the hashed bytes are the parsed ones.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from agent_magics.config_files.places import FOLDER, user_config_file
from agent_magics.config_files.toml_places import TomlPlaces, decode, parse_toml, read_settings
from agent_magics.config_files.trust import Trustable, digest_of
from agent_magics.mcp.config.json_file import NAME as JSON_NAME
from agent_magics.mcp.config.json_file import read_mcp_json
from agent_magics.mcp.config.table import TableReader
from agent_magics.protocol.config import Settings
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.mcp import McpServerConfig

NAME = "config.toml"
TABLE = "mcp_servers"
SETTINGS = tuple(field.name for field in fields(Settings))
GIVEN = "Agent(mcp_servers=...)"
_WHAT = "MCP servers"


@dataclass(frozen=True, slots=True)
class McpConfig:
    """The servers of a run.

    Attributes:
        servers: with unique names.
        warnings: a sentence for each file or server that was left out.
    """

    servers: tuple[McpServerConfig, ...] = ()
    warnings: tuple[str, ...] = ()


class ProjectServers(Trustable[list[tuple[Path, bytes]]]):
    """The files of a project that configure MCP servers.

    Args:
        folder: the workspace.
    """

    what, command, kept = "The files", "%agent mcp trust", "mcp"

    def __init__(self, folder: Path) -> None:
        super().__init__(Path(os.path.realpath(folder)))
        self.toml_file = self.folder / FOLDER / NAME
        self.json_file = self.folder / JSON_NAME

    def read(self) -> list[tuple[Path, bytes]]:
        """Return the existing files with their content, in order of precedence.

        Raises:
            FatalError: one cannot be read.
        """
        read = [
            (path, read_settings(path, _WHAT, links=False))
            for path in (self.toml_file, self.json_file)
        ]
        return [(path, data) for path, data in read if data is not None]

    def digest(self, found: list[tuple[Path, bytes]]) -> str:
        """Return the digest that trust is bound to: of names and contents of all files."""
        return digest_of((str(path.relative_to(self.folder)), data) for path, data in found)


def read_mcp_config(cwd: Path, given: Mapping[str, Any] | None = None) -> McpConfig:
    """Return the MCP servers for a workspace; a source listed first replaces servers of the same
    name.

    The order is: the program's, the project's `.agent_magics/config.toml`, its `.mcp.json`, the
    person's own `config.toml`. Cheap enough for every run: unchanged files are not parsed again.

    Args:
        cwd: the workspace.
        given: the program's servers: name to a dict with the keys of the files, or a config.

    Raises:
        FatalError: a file is malformed; the message names file and line.
    """
    project = ProjectServers(cwd)
    files = project.read()
    found = list(given_servers(given, project.folder))
    warnings: list[str] = []
    if files and project.is_trusted(files):
        for path, data in files:
            servers, left_out = servers_of(path, data, project.folder)
            found += servers
            warnings += left_out
    elif files:
        names = " and ".join(str(path.relative_to(project.folder)) for path, _ in files)
        warnings.append(
            f"The MCP servers in {names} are left out: you have not trusted these files (or they "
            "have changed since). %agent mcp trust shows them."
        )
    user_file = user_config_file()
    of_user = read_settings(user_file, _WHAT, links=True)
    if of_user is not None:
        found += servers_of(user_file, of_user, project.folder)[0]
    by_name: dict[str, McpServerConfig] = {}
    for server in found:
        by_name.setdefault(server.name, server)
    return McpConfig(tuple(by_name.values()), tuple(warnings))


def servers_of(
    path: Path, data: bytes, folder: Path, environment: Mapping[str, str] | None = os.environ
) -> tuple[list[McpServerConfig], list[str]]:
    """Parse a file; return its servers, and a sentence for each that is left out.

    Args:
        path: the file; `.mcp.json` is JSON, every other TOML.
        data: its content.
        folder: the workspace.
        environment: variables for `${VAR}`; None keeps references unexpanded.

    Raises:
        FatalError: it is malformed; the message names file and line.
    """
    if path.name == JSON_NAME:
        return read_mcp_json(decode(data, path), path, environment)
    return list(_toml_servers(path, data, folder)), []


@lru_cache(maxsize=16)
def _toml_servers(path: Path, data: bytes, folder: Path) -> tuple[McpServerConfig, ...]:
    text = decode(data, path)
    tables = parse_toml(text, path)
    places = TomlPlaces(text)
    for key in tables:
        if key not in (TABLE, *SETTINGS):
            raise FatalError(
                f"{path}, line {places.line_of(key)}: {key!r} is not known here; a {NAME} holds "
                f"[{TABLE}.NAME] tables and settings."
            )

    def place(name: str, key: str) -> str:
        return f"{path}, line {places.line_of(*filter(None, (TABLE, name, key)))}"

    servers = tables.get(TABLE, {})
    if not isinstance(servers, dict):
        raise FatalError(f"{place('', '')}: MCP servers are written as [{TABLE}.NAME] tables.")
    reader = TableReader(place, folder)
    return tuple(reader.read(name, table) for name, table in servers.items())


def given_servers(given: object, folder: Path) -> Iterable[McpServerConfig]:
    """Yield the servers that a program gave.

    Raises:
        FatalError: one of them is invalid.
    """
    if given is None:
        return
    if not isinstance(given, Mapping):
        raise FatalError(
            f"mcp_servers must be a dict of a name to the settings of a server, not "
            f"{type(given).__name__}."
        )

    def place(name: str, key: str) -> str:
        return f"{GIVEN}, {'.'.join(filter(None, (name, key)))}" if name else GIVEN

    reader = TableReader(place, folder)
    for name, server in given.items():
        if not isinstance(name, str):
            raise FatalError(f"{GIVEN}: the name of a server must be text, not {name!r}.")
        if isinstance(server, McpServerConfig):
            server = _as_table(server)
        elif isinstance(server, Mapping):
            server = {key: _plain(value) for key, value in server.items()}
        yield replace(reader.read(name, server), source=GIVEN)


def _as_table(server: McpServerConfig) -> dict[str, object]:
    """Return the settings of a config that differ from the defaults, to be validated like all
    others.
    """
    usual = McpServerConfig(name="")
    names = (
        name for name in McpServerConfig.__dataclass_fields__ if name not in ("name", "source")
    )
    values = {name: getattr(server, name) for name in names}
    return {name: _plain(value) for name, value in values.items() if value != getattr(usual, name)}


def _plain(value: object) -> object:
    return os.fspath(value) if isinstance(value, os.PathLike) else value
