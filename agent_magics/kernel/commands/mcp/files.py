"""``%agent mcp add``, ``remove``, ``enable``, ``disable``, ``trust``: edits configuration files."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from agent_magics.config_files.places import user_config_file
from agent_magics.config_files.trust import SHOWN_DIGEST
from agent_magics.kernel.commands.table import table
from agent_magics.mcp.config.edit import McpFile
from agent_magics.mcp.config.sources import GIVEN, ProjectServers, read_mcp_config, servers_of
from agent_magics.protocol.brief import meant
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.mcp import McpServerConfig
from agent_magics.protocol.secrets import SECRET_NAME
from agent_magics.render.markdown import code_span

_USAGE = (
    "%agent mcp add takes: NAME -- COMMAND ARGS..., or NAME URL; before the -- also --project, "
    "--cwd FOLDER, --env NAME=VALUE, --env-var NAME, --bearer-token-env-var NAME, --transport sse."
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_OPTIONS = {
    "--cwd": "cwd",
    "--bearer-token-env-var": "bearer_token_env_var",
    "--transport": "transport",
}


def _file(folder: Path, *, project: bool) -> McpFile:
    if not project:
        return McpFile(user_config_file())
    servers = ProjectServers(folder)
    return McpFile(servers.toml_file, servers)


# -- add -------------------------------------------------------------------------------------------


def add_server(folder: Path, words: Sequence[str]) -> str:
    """Write a server into a config.toml, and return a sentence about it.

    Args:
        folder: the workspace.
        words: the words after ``add``.

    Raises:
        FatalError: the words do not fit, or the file cannot be written.
    """
    name, settings, project = read_addition(words)
    file = _file(folder, project=project)
    _written(file, lambda: file.add(name, settings))
    return (
        f"MCP server {code_span(name)} is written to {code_span(str(file.path))} and starts with "
        "the next cell. `%agent mcp status` starts it now, `%agent mcp remove` takes it out."
    )


def read_addition(words: Sequence[str]) -> tuple[str, dict[str, Any], bool]:
    """Parse the words of ``add``: the server's name, its settings, and whether for the project.

    Raises:
        FatalError: the words do not fit.
    """
    at = list(words).index("--") if "--" in words else len(words)
    command = list(words[at + 1 :])
    plain, settings, project = _read_options(list(words[:at]))
    if not plain or not _NAME.fullmatch(plain[0]):
        raise FatalError(f"A server's name is letters, digits, '-', '_' and '.'. {_USAGE}")
    if at < len(words) and command and len(plain) == 1:
        settings = {"command": command[0], "args": command[1:], **settings}
        if not command[1:]:
            del settings["args"]
    elif at == len(words) and len(plain) == 2 and "://" in plain[1]:
        settings = {"url": plain[1], **settings}
    else:
        raise FatalError(_USAGE)
    return plain[0], settings, project


def _read_options(words: list[str]) -> tuple[list[str], dict[str, Any], bool]:
    plain: list[str] = []
    settings: dict[str, Any] = {}
    project = False
    waiting = iter(words)
    for word in waiting:
        if not word.startswith("--"):
            plain.append(word)
            continue
        if word == "--project":
            project = True
            continue
        value = next(waiting, None)
        if value is None:
            raise FatalError(_USAGE)
        if word in _OPTIONS:
            settings[_OPTIONS[word]] = value
        elif word == "--env-var":
            settings.setdefault("env_vars", []).append(value)
        elif word == "--env" and "=" in value:
            name, _, text = value.partition("=")
            _refuse_secret(name)
            settings.setdefault("env", {})[name] = text
        else:
            raise FatalError(_USAGE)
    return plain, settings, project


def _refuse_secret(name: str) -> None:
    if SECRET_NAME.search(name):
        raise FatalError(
            f"A value for {name} does not belong into a cell, where it would be saved: set the "
            f"variable before the kernel starts, and say --env-var {name}. If the value was real, "
            "it stands in this notebook now: get a new one."
        )


# -- remove, enable, disable -----------------------------------------------------------------------


def remove_server(folder: Path, words: Sequence[str]) -> str:
    """Remove a server from the config.toml that names it, and return a sentence about it.

    Raises:
        FatalError: none names it, or the file cannot be written.
    """
    names = [word for word in words if word != "--project"]
    if len(names) != 1:
        raise FatalError("%agent mcp remove takes: NAME, and --project.")
    (name,) = names
    file = _naming(folder, name, [True] if "--project" in words else [False, True])
    if file is None:
        raise FatalError(f"No config.toml names an MCP server {name!r}; %agent mcp list says more.")
    _written(file, lambda: file.remove(name))
    return f"MCP server {code_span(name)} is taken out of {code_span(str(file.path))}."


def switch_server(folder: Path, given: Mapping[str, Any] | None, name: str, *, on: bool) -> str:
    """Enable or disable a server in the config.toml that is in force, and return which.

    Returns:
        "" where no config.toml decides about it.

    Raises:
        FatalError: there is no such server, or the file cannot be written.
    """
    servers = read_mcp_config(folder, given).servers
    server = next((one for one in servers if one.name == name), None)
    if server is None:
        known = [one.name for one in servers]
        raise FatalError(f"There is no MCP server {name!r}; {meant(name, known)}")
    for project in (True, False):
        file = _file(folder, project=project)
        if server.source != GIVEN and server.source.startswith(f"{file.path}, "):
            _written(file, partial(file.switch, name, on))
            return f"in {code_span(str(file.path))}"
    return ""


def _naming(folder: Path, name: str, projects: Sequence[bool]) -> McpFile | None:
    files = (_file(folder, project=project) for project in projects)
    return next((file for file in files if name in file.names()), None)


def _written(file: McpFile, change: Callable[[], None]) -> None:
    try:
        change()
    except OSError as error:
        raise FatalError(f"{file.path} cannot be written: {error.strerror}.") from None


# -- trust -----------------------------------------------------------------------------------------


def trust_servers(
    folder: Path, words: Sequence[str], shown: Callable[[McpServerConfig], str]
) -> str:
    """Show the project's files that name servers, or trust those of a digest.

    Args:
        folder: the workspace.
        words: none, or the beginning of the digest.
        shown: returns how a server is reached, as text.

    Raises:
        FatalError: there are none, or their digest is another one.
    """
    if len(words) > 1:
        raise FatalError("%agent mcp trust takes: nothing, or DIGEST.")
    project = ProjectServers(folder)
    files = project.read()
    if not files:
        raise FatalError(
            f"There is nothing to trust: neither {project.toml_file} nor {project.json_file} is "
            "there."
        )
    digest = project.digest(files)
    listed = "\n\n".join(_file_text(path, data, project, shown) for path, data in files)
    if not words:
        return f"{listed}\n\n{_invitation(project, files, digest)}"
    project.trust(words[0])
    return (
        f"{listed}\n\nYou trust these files as they are now; the servers start with the next cell."
    )


def _invitation(project: ProjectServers, files: Any, digest: str) -> str:
    if project.is_trusted(files):
        return "You have trusted these files as they are now."
    return (
        "These servers are programs that run with your rights, or addresses that your data goes "
        f"to. Read the files; `%agent mcp trust {digest[:SHOWN_DIGEST]}` trusts them as they are "
        "now. When one of them changes, you are asked again; what the programs themselves do is "
        "not looked at."
    )


def _file_text(
    path: Path, data: bytes, project: ProjectServers, shown: Callable[[McpServerConfig], str]
) -> str:
    head = f"{code_span(str(path))}, {data.count(bytes([10])) + 1} lines:"
    try:
        servers, left_out = servers_of(path, data, project.folder, None)
    except FatalError as error:
        return f"{head}\n\n{code_span(str(error))}"
    rows = [(code_span(one.name), code_span(shown(one)), _with(one)) for one in servers]
    listed = table(("Server", "Reached by", "With"), rows) if rows else "It names no servers."
    return "\n\n".join([head, listed, *map(code_span, left_out)])


def _with(server: McpServerConfig) -> str:
    """Return the other settings of a server that a person should know; no values."""
    secrets = filter(None, [server.bearer_token_env_var, server.oauth_client_secret_env_var])
    named = (
        ("sets", [*server.env]),
        ("is given", [*server.env_vars, *secrets]),
        ("is sent", [*server.headers]),
        ("runs in", [str(server.cwd)] if server.cwd else []),
    )
    parts = [f"{what} {', '.join(map(code_span, names))}" for what, names in named if names]
    parts += ["its calls run without a question"] * (server.approval_mode == "approve")
    return "; ".join(parts)
