"""Parses `.mcp.json`, which other clients read too: `{"mcpServers": {NAME: {...}}}`.

Source: Claude Code's documentation, "Connect Claude Code to tools via MCP": the file's shape, and
`${VAR}` and `${VAR:-default}` in `command`, `args`, `env`, `url` and `headers`.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_magics.config_files.json_places import JsonPlaces, parse_json
from agent_magics.mcp.config.table import LONGEST_SHOWN, TableReader
from agent_magics.protocol.errors import FatalError, clause
from agent_magics.protocol.mcp import McpServerConfig
from agent_magics.text.brief import brief

_TOP = "mcpServers"
_TYPES = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
    "sse": "sse",
}
# Keys of other clients that change nothing about how a server is reached.
_IGNORED = frozenset({"description", "alwaysLoad", "alwaysAllow", "autoApprove"})
_OAUTH = {"clientId": "oauth_client_id", "callbackPort": "oauth_callback_port"}
_EXPANDED = ("command", "args", "env", "url", "headers")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class _Unusable(Exception):
    """A server cannot be used as configured; the message says what is missing."""


def read_mcp_json(
    text: str, path: Path, environment: Mapping[str, str] | None
) -> tuple[list[McpServerConfig], list[str]]:
    """Parse an `.mcp.json`; return its servers, and a sentence for each that is left out.

    Args:
        text: its content.
        path: the file; a relative `cwd` is relative to its folder.
        environment: variables for `${VAR}`; None keeps references unexpanded.

    Raises:
        FatalError: it is malformed; the message names file and line.
    """
    data = parse_json(text, path)
    places = JsonPlaces(text)

    def place(name: str, key: str) -> str:
        return f"{path}, line {places.line_of(*filter(None, (_TOP, name, key)))}"

    if places.twice:
        line = places.line_of(*places.twice)
        raise FatalError(f"{path}, line {line}: {places.twice[-1]!r} stands here a second time.")
    servers = data.get(_TOP, {}) if isinstance(data, dict) else None
    if not isinstance(servers, dict):
        raise FatalError(f'{place("", "")}: this file holds {{"{_TOP}": {{NAME: {{...}}}}}}.')
    if unknown := [key for key in data if key not in (_TOP, "inputs", "$schema")]:
        line, shown = places.line_of(unknown[0]), brief(repr(unknown[0]), LONGEST_SHOWN)
        raise FatalError(f"{path}, line {line}: {shown} is not known; there is: {_TOP}.")
    reader = TableReader(place, path.parent, unexpanded=environment is None)
    found, left_out = [], []
    for name, table in servers.items():
        try:
            found.append(reader.read(name, _as_table(table, environment, place, name)))
        except _Unusable as needs:
            left_out.append(
                f"MCP server {name!r} is left out: {place(name, '')} needs {clause(needs)}."
            )
    return found, left_out


def _as_table(table: Any, environment: Mapping[str, str] | None, place: Any, name: str) -> Any:
    """Return the table with our names of keys, and references expanded."""
    if not isinstance(table, dict):
        return table
    if "headersHelper" in table:
        raise _Unusable("a program that makes its headers (headersHelper), which is not run here")
    converted = {key: value for key, value in table.items() if key not in _IGNORED}
    if "type" in converted:
        kind = converted.pop("type")
        if not isinstance(kind, str) or kind not in _TYPES:
            known = ", ".join(_TYPES)
            shown = brief(repr(kind), LONGEST_SHOWN)
            raise FatalError(f"{place(name, 'type')}: type {shown} is not one of: {known}.")
        converted["transport"] = _TYPES[kind]
    if "disabled" in converted:
        disabled = converted.pop("disabled")
        converted["enabled"] = not disabled if isinstance(disabled, bool) else disabled
    login = converted.pop("oauth", {})
    if not isinstance(login, dict):
        raise FatalError(f"{place(name, 'oauth')}: oauth must be a table, such as its clientId.")
    converted |= {ours: login[key] for key, ours in _OAUTH.items() if key in login}
    if "timeout" in converted:  # in milliseconds in this file
        timeout = converted.pop("timeout")
        plain = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
        converted["tool_timeout_sec"] = timeout * 0.001 if plain and 0 < timeout < 1e12 else timeout
    for key in _EXPANDED:
        if key in converted and environment is not None:
            converted[key] = _expanded(converted[key], environment)
    return converted


def _expanded(value: object, environment: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return _REFERENCE.sub(lambda found: _value_of(found, environment), value)
    if isinstance(value, list):
        return [_expanded(each, environment) for each in value]
    if isinstance(value, dict):
        return {key: _expanded(each, environment) for key, each in value.items()}
    return value


def _value_of(reference: "re.Match[str]", environment: Mapping[str, str]) -> str:
    name, default = reference.groups()
    if name in environment and (environment[name] or default is None):
        return environment[name]
    if default is None:
        raise _Unusable(f"the environment variable {name}, which is not set")
    return str(default)
