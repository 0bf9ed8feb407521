"""``%agent mcp add``, ``remove``, ``enable``, ``disable``, ``trust``: edits configuration files."""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from agent_magics.config_files.places import user_config_file
from agent_magics.config_files.trust import SHOWN_DIGEST
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.mcp.client.manager import McpConnectionManager
from agent_magics.mcp.config.edit import McpFile
from agent_magics.mcp.config.parsing import GIVEN, servers_of
from agent_magics.mcp.config.sources import ProjectServers, read_mcp_config
from agent_magics.protocol.errors import FatalError, clause, short_message
from agent_magics.protocol.mcp import McpServerConfig
from agent_magics.render.markdown import code_span
from agent_magics.render.tables import table
from agent_magics.render.visible import show_shortened
from agent_magics.text.brief import meant
from agent_magics.text.secrets import (
    ADDRESS_PASSWORD,
    KEY_LIKE,
    SECRET_NAME,
    secrets_in,
    split_arguments,
)

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
_LONGEST_COMMAND = 200
_SHORTEST_SECRET = 8  # of a variable's value; shorter ones occur by chance
_HIDDEN = "…"


# -- how it is reached -----------------------------------------------------------------------------


def how_reached(server: McpServerConfig, manager: McpConnectionManager | None = None) -> str:
    """Return a server's command line or address, with secrets redacted."""
    if server.url is None:
        line = " ".join([server.command or "", *_shown_args(server.args)])
    else:
        line = re.split("[?#]", server.url)[0]  # without the query, which may hold keys
    line = ADDRESS_PASSWORD.sub(rf"\1:{_HIDDEN}", line)
    known = manager.secrets() if manager else ()
    for secret in (*known, *_secret_variables(), *secrets_in(line)):
        line = line.replace(secret, _HIDDEN)
    return show_shortened(line, _LONGEST_COMMAND)


def _shown_args(args: Sequence[str]) -> Iterator[str]:
    for shown, secret in split_arguments(args):
        yield _HIDDEN if KEY_LIKE.match(shown) else f"{shown}{_HIDDEN if secret else ''}"


def _secret_variables() -> list[str]:
    """Return values of secret environment variables, which ``${API_KEY}`` may have inserted."""
    named = (value for name, value in os.environ.items() if SECRET_NAME.search(name))
    return [value for value in named if len(value) >= _SHORTEST_SECRET]


def _file(folder: Path, *, project: bool) -> McpFile:
    if not project:
        return McpFile(user_config_file())
    servers = ProjectServers(folder)
    return McpFile(servers.toml_file, servers)


# -- add -------------------------------------------------------------------------------------------


def add_server(notebook: NotebookAgents, *words: str) -> str:
    """NAME -- COMMAND ARGS, or NAME URL: writes a server into your config.toml (--project).

    Raises:
        FatalError: the words do not fit, or the file cannot be written.
    """
    name, settings, project = read_addition(words)
    file = _file(notebook.agent_named().config.cwd, project=project)
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


def remove_server(notebook: NotebookAgents, *words: str) -> str:
    """Takes a server out of the config.toml that names it (--project: of the project).

    Raises:
        FatalError: none names it, or the file cannot be written.
    """
    names = [word for word in words if word != "--project"]
    if len(names) != 1:
        raise FatalError("%agent mcp remove takes: NAME, and --project.")
    (name,) = names
    folder = notebook.agent_named().config.cwd
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
        raise FatalError(f"{file.path} cannot be written: {clause(error)}.") from None


# -- trust -----------------------------------------------------------------------------------------


def trust_servers(folder: Path, given: str = "") -> str:
    """Show the project's files that name servers, or trust those of a digest.

    Raises:
        FatalError: there are none, or their digest is another one.
    """
    project = ProjectServers(folder)
    files = project.read()
    if not files:
        raise FatalError(
            f"There is nothing to trust: neither {project.toml_file} nor {project.json_file} is "
            "there."
        )
    digest = project.digest(files)
    listed = "\n\n".join(_file_text(path, data, project) for path, data in files)
    if not given:
        return f"{listed}\n\n{_invitation(project, files, digest)}"
    project.trust(given)
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


def _file_text(path: Path, data: bytes, project: ProjectServers) -> str:
    head = f"{code_span(str(path))}, {data.count(bytes([10])) + 1} lines:"
    try:
        servers, left_out = servers_of(path, data, project.folder, None)
    except FatalError as error:
        return f"{head}\n\n{code_span(short_message(error))}"
    rows = [(code_span(one.name), code_span(how_reached(one)), _with(one)) for one in servers]
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
