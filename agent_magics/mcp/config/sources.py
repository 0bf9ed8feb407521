"""Reads the configured MCP servers: the person's, a trusted project's, a program's.

Law: a project's files start programs, so they are used only while they are, byte for byte, the ones
that the person trusted; the hashed bytes are the parsed ones.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_magics.config_files.places import CONFIG, FOLDER, MCP_JSON, user_config_file
from agent_magics.config_files.toml_places import read_settings
from agent_magics.config_files.trust import Trustable, digest_of

if TYPE_CHECKING:  # which most agents never need: they have no servers
    from agent_magics.protocol.mcp import McpServerConfig

_WHAT = "MCP servers"


@dataclass(frozen=True, slots=True)
class McpConfig:
    """The servers of a run.

    Attributes:
        servers: with unique names.
        warnings: a sentence for each file or server that was left out.
    """

    servers: "tuple[McpServerConfig, ...]" = ()
    warnings: tuple[str, ...] = ()


class ProjectServers(Trustable[list[tuple[Path, bytes]]]):
    """The files of a project that configure MCP servers.

    Args:
        folder: the workspace.
    """

    what, command, kept = "The files", "%agent mcp trust", "mcp"

    def __init__(self, folder: Path) -> None:
        super().__init__(Path(os.path.realpath(folder)))
        self.toml_file = self.folder / FOLDER / CONFIG
        self.json_file = self.folder / MCP_JSON

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
    warnings: list[str] = []
    if files and not project.is_trusted(files):
        names = " and ".join(str(path.relative_to(project.folder)) for path, _ in files)
        warnings.append(
            f"The MCP servers in {names} are left out: you have not trusted these files (or they "
            "have changed since). %agent mcp trust shows them."
        )
        files = []
    user_file = user_config_file()
    of_user = read_settings(user_file, _WHAT, links=True)
    if of_user is not None:
        files.append((user_file, of_user))
    found = list(read_given(project.folder, given).servers)
    if files:
        from agent_magics.mcp.config.parsing import servers_of  # noqa: PLC0415 - as above

        for path, data in files:
            servers, left_out = servers_of(path, data, project.folder)
            found += servers
            warnings += left_out
    by_name: dict[str, McpServerConfig] = {}
    for server in found:
        by_name.setdefault(server.name, server)
    return McpConfig(tuple(by_name.values()), tuple(warnings))


def read_given(folder: Path, given: Mapping[str, object] | None) -> McpConfig:
    """Return the servers that a program gave, and no others.

    Raises:
        FatalError: `given` is invalid.
    """
    if given is None:
        return McpConfig()
    from agent_magics.mcp.config.parsing import given_servers  # noqa: PLC0415 - as above

    return McpConfig(tuple(given_servers(given, folder)))
