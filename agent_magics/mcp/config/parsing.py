"""Parses the MCP servers that one source names: a configuration file, or a program."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path

from agent_magics.config_files.places import CONFIG, MCP_JSON
from agent_magics.config_files.toml_places import TomlPlaces, decode, parse_toml
from agent_magics.mcp.config.json_file import read_mcp_json
from agent_magics.mcp.config.table import TableReader
from agent_magics.protocol.config import Settings
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.mcp import McpServerConfig

TABLE = "mcp_servers"
GIVEN = "Agent(mcp_servers=...)"
_SETTINGS = tuple(field.name for field in fields(Settings))


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
    if path.name == MCP_JSON:
        return read_mcp_json(decode(data, path), path, environment)
    return list(_toml_servers(path, data, folder)), []


@lru_cache(maxsize=16)
def _toml_servers(path: Path, data: bytes, folder: Path) -> tuple[McpServerConfig, ...]:
    text = decode(data, path)
    tables = parse_toml(text, path)
    places = TomlPlaces(text)
    for key in tables:
        if key not in (TABLE, *_SETTINGS):
            raise FatalError(
                f"{path}, line {places.line_of(key)}: {key!r} is not known here; a {CONFIG} holds "
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
