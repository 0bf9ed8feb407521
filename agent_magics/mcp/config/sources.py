"""Which MCP servers there are: of the person, of the project once it is trusted, and of a program.

Law: a project's files start programs, so they are used only while they are, byte for byte, the ones
that the person trusted; what is hashed is what is read.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from agent_magics.dispatch.mcp_json import NAME as JSON_NAME
from agent_magics.dispatch.mcp_json import read_mcp_json
from agent_magics.dispatch.mcp_table import TableReader
from agent_magics.dispatch.rules import FOLDER, trust_folder, user_config_file
from agent_magics.dispatch.toml_places import TomlPlaces, decode, parse_toml, read_plain
from agent_magics.dispatch.trust import TrustedDigest, digest_of
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.mcp import McpServerConfig

NAME = "config.toml"
TABLE = "mcp_servers"
GIVEN = "Agent(mcp_servers=...)"
_WHAT = "MCP servers"


@dataclass(frozen=True, slots=True)
class McpConfig:
    """The servers of a run.

    Attributes:
        servers: by name, each name once.
        warnings: a sentence for each file or server that was left out.
    """

    servers: tuple[McpServerConfig, ...] = ()
    warnings: tuple[str, ...] = ()


class ProjectServers:
    """The files of a project that name MCP servers.

    Args:
        folder: the workspace.
        state: where the digests of trusted files are kept.
    """

    def __init__(self, folder: Path, *, state: Path | None = None) -> None:
        self.folder = Path(os.path.realpath(folder))
        self.toml_file = self.folder / FOLDER / NAME
        self.json_file = self.folder / JSON_NAME
        self._trusted = TrustedDigest(self.folder, state or trust_folder("mcp"))

    def files(self) -> list[tuple[Path, bytes]]:
        """Return the files that there are, with their content, the one that goes before first.

        Raises:
            FatalError: one cannot be read.
        """
        read = [(path, read_plain(path, _WHAT)) for path in (self.toml_file, self.json_file)]
        return [(path, data) for path, data in read if data is not None]

    def digest(self, files: Iterable[tuple[Path, bytes]]) -> str:
        """Return what trust binds to: names and contents of all files."""
        return digest_of((str(path.relative_to(self.folder)), data) for path, data in files)

    def is_trusted(self, files: Iterable[tuple[Path, bytes]]) -> bool:
        """Tell whether these very files were trusted."""
        return self._trusted.read() == self.digest(files)

    def trust(self, digest: str) -> None:
        """Trust the files of this digest, and those alone.

        Raises:
            FatalError: the files are others by now.
            OSError: it cannot be kept.
        """
        if digest != self.digest(self.files()):
            raise FatalError(
                f"The files in {self.folder} that name MCP servers are not (or no longer) those of "
                f"{digest[:12]}; look at them again: %agent mcp trust."
            )
        self._trusted.keep(digest)


def read_mcp_config(
    cwd: Path,
    given: Mapping[str, Any] | None = None,
    *,
    user_file: Path | None = None,
    state: Path | None = None,
) -> McpConfig:
    """Return the MCP servers for a workspace; of two with one name the nearer holds as a whole.

    A program's come first, then the project's `.agent_magics/config.toml`, its `.mcp.json`, and the
    person's own `config.toml`. Cheap enough for every run: what has not changed is not parsed anew.

    Args:
        cwd: the workspace.
        given: what a program gave: name to a dict with the keys of the files, or a config.
        user_file: the person's own settings, else those in their folder.
        state: where the digests of trusted files are kept, else in the person's folder.

    Raises:
        FatalError: something is not understood; says file and line.
    """
    project = ProjectServers(cwd, state=state)
    files = project.files()
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
    user_file = user_file or user_config_file()
    if (data := read_plain(user_file, _WHAT)) is not None:
        found += servers_of(user_file, data, project.folder)[0]
    by_name: dict[str, McpServerConfig] = {}
    for server in found:
        by_name.setdefault(server.name, server)
    return McpConfig(tuple(by_name.values()), tuple(warnings))


def servers_of(
    path: Path, data: bytes, folder: Path, environment: Mapping[str, str] | None = os.environ
) -> tuple[list[McpServerConfig], list[str]]:
    """Return the servers that a file names, and a sentence for each that is left out.

    Args:
        path: the file; `.mcp.json` is JSON, every other TOML.
        data: its content.
        folder: the workspace.
        environment: the variables that `${VAR}` stands for; None leaves it as it is written.

    Raises:
        FatalError: it is not understood; says file and line.
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
        if key != TABLE:
            raise FatalError(
                f"{path}, line {places.line_of(key)}: {key!r} is not known here; a {NAME} holds "
                f"[{TABLE}.NAME] tables."
            )

    def place(name: str, key: str) -> str:
        return f"{path}, line {places.line_of(*filter(None, (TABLE, name, key)))}"

    servers = tables.get(TABLE, {})
    if not isinstance(servers, dict):
        raise FatalError(f"{place('', '')}: MCP servers are written as [{TABLE}.NAME] tables.")
    reader = TableReader(place, folder)
    return tuple(reader.read(name, table) for name, table in servers.items())


def given_servers(given: Any, folder: Path) -> Iterable[McpServerConfig]:
    """Yield the servers that a program gave.

    Raises:
        FatalError: one of them is not understood.
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


def _as_table(server: McpServerConfig) -> dict[str, Any]:
    """Return what a config says beyond what holds anyway, to be checked like all others."""
    usual = McpServerConfig(name="")
    names = (
        name for name in McpServerConfig.__dataclass_fields__ if name not in ("name", "source")
    )
    said = {name: getattr(server, name) for name in names}
    return {name: _plain(value) for name, value in said.items() if value != getattr(usual, name)}


def _plain(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value
