"""Validates one MCP server's table: every mistake is one sentence with its place.

Law: the values of `env`, `headers` and `args` are in no message, since they may be secrets.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar
from urllib.parse import urlsplit

from agent_magics.files.paths import typed_path
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.mcp import McpServerConfig
from agent_magics.text.brief import brief

_OAUTH_KEYS = ("oauth_client_id", "oauth_client_secret_env_var", "oauth_callback_port")
Choice = TypeVar("Choice", bound=str)

APPROVAL_MODES: tuple[Literal["auto", "prompt", "approve"], ...] = ("auto", "prompt", "approve")
TRANSPORTS: tuple[Literal["stdio", "http", "sse"], ...] = ("stdio", "http", "sse")
LONGEST_NAME = 64
_MOST_SECONDS = 1e9
LONGEST_SHOWN = 100  # characters of a value in an error
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER_VALUE = re.compile(r"[\t -~]*")  # a line break would let it inject further headers
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.6.2
_TOKEN_KEYS = frozenset({"bearer_token", "token", "api_key"})


class TableReader:
    """Converts tables to server configurations.

    Args:
        place: returns the beginning of an error's sentence: `place(name, key)`.
        folder: the folder to which `cwd` is relative.
        unexpanded: whether an address may hold ``${VAR}``, whose value is not known.
    """

    def __init__(
        self, place: Callable[..., str], folder: Path, *, unexpanded: bool = False
    ) -> None:
        self._place, self._folder, self._unexpanded = place, folder, unexpanded

    def read(self, name: str, table: object) -> McpServerConfig:
        """Convert and validate one table.

        Raises:
            FatalError: it is invalid.
        """
        self._name = name
        if not name or name != name.strip() or not name.isprintable() or len(name) > LONGEST_NAME:
            self.refuse(
                "", f"the name {name!r} of an MCP server must be 1 to {LONGEST_NAME} characters"
            )
        if not isinstance(table, Mapping):
            self.refuse("", f"MCP server {name!r} must be a table with command or url")
        self._table = table
        self._check_keys()
        values = {key: KEYS[key](self, key) for key in table}
        if "timeout_seconds" in values:
            values["tool_timeout_sec"] = values.pop("timeout_seconds")
        values["transport"] = self._transport("transport")
        return McpServerConfig(name=name, source=self._place(name, ""), **values)

    def refuse(self, key: str, what: str) -> NoReturn:
        """Raise the error for a key of the server; "" is the server itself."""
        raise FatalError(f"{self._place(self._name, key)}: {what}.")

    # -- which keys --------------------------------------------------------------------------------

    def _check_keys(self) -> None:
        for key in self._table:
            if key in _TOKEN_KEYS:
                self.refuse(
                    key,
                    f"a token does not belong into settings ({key}); put it into an environment "
                    "variable, and that variable's name into bearer_token_env_var",
                )
            if key not in KEYS:
                near = get_close_matches(str(key), KEYS, n=1)
                meant = f"did you mean {near[0]}? There are" if near else "there are"
                self.refuse(
                    str(key), f"{key!r} is not a key of an MCP server; {meant}: {', '.join(KEYS)}"
                )
        self._check_combinations()

    def _check_combinations(self) -> None:
        if "command" not in self._table and "url" not in self._table:
            self.refuse("", f"MCP server {self._name!r} has neither command nor url")
        if "command" in self._table and "url" in self._table:
            self.refuse("url", "an MCP server has either command or url, not both")
        if "tool_timeout_sec" in self._table and "timeout_seconds" in self._table:
            self.refuse(
                "timeout_seconds", "timeout_seconds means tool_timeout_sec; give one of them"
            )
        if "oauth_client_id" not in self._table:
            for key in filter(self._table.__contains__, _OAUTH_KEYS):
                self.refuse(key, f"{key} is only for a server with oauth_client_id")
        stdio = "command" in self._table
        for key in _OF_HTTP if stdio else _OF_STDIO:
            if key in self._table:
                other = "url" if stdio else "command"
                self.refuse(key, f"{key} is only for a server with {other}")

    def _transport(self, key: str) -> Literal["stdio", "http", "sse"]:
        stdio = "command" in self._table
        usual: Literal["stdio", "http"] = "stdio" if stdio else "http"
        found = self._choice(key, TRANSPORTS) if key in self._table else usual
        if (found == "stdio") is not stdio:
            other = "command" if stdio else "url"
            self.refuse(key, f"transport = {found!r} does not go with {other}")
        return found

    # -- kinds of values ---------------------------------------------------------------------------

    def _text(self, key: str) -> str:
        value = self._table[key]
        if not (isinstance(value, str) and value and "\0" not in value):
            self.refuse(key, f"{key} must be text")
        return value

    def _texts(self, key: str) -> tuple[str, ...]:
        value = self._table[key]
        plain = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
        if not plain or not all(isinstance(each, str) and "\0" not in each for each in value):
            self.refuse(key, f"{key} must be a list of texts")
        return tuple(value)

    def _text_table(self, key: str) -> dict[str, str]:
        value = self._table[key]
        if not isinstance(value, Mapping):
            self.refuse(key, f"{key} must be a table of texts")
        for name, each in value.items():
            if not isinstance(name, str) or not isinstance(each, str) or "\0" in each:
                self.refuse(
                    key, f"the value of {brief(repr(name), LONGEST_SHOWN)} in {key} must be text"
                )
        return dict(value)

    def _switch(self, key: str) -> bool:
        value = self._table[key]
        if not isinstance(value, bool):
            self.refuse(key, f"{key} must be true or false")
        return value

    def _seconds(self, key: str) -> float:
        value = self._table[key]
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 < value < _MOST_SECONDS:
            self.refuse(key, f"{key} must be a number of seconds above 0")
        return float(value)

    def _port(self, key: str) -> int:
        value = self._table[key]
        if not (type(value) is int and 0 < value < 1 << 16):
            self.refuse(key, f"{key} must be a port, from 1 to 65535")
        return value

    def _choice(self, key: str, choices: Sequence[Choice]) -> Choice:
        value = self._table[key]
        if value not in choices or not isinstance(value, str):
            shown = brief(repr(value), LONGEST_SHOWN)
            self.refuse(key, f"{key} = {shown} is not one of: {' | '.join(choices)}")
        return choices[choices.index(value)]

    def _approval_mode(self, key: str) -> Literal["auto", "prompt", "approve"]:
        return self._choice(key, APPROVAL_MODES)

    def _variable(self, key: str) -> str:
        value = self._text(key)
        if not _VARIABLE.fullmatch(value):
            self.refuse(
                key, f"{key} must be the name of an environment variable, not the secret itself"
            )
        return value

    def _variables(self, key: str) -> tuple[str, ...]:
        names = self._texts(key)
        if not all(map(_VARIABLE.fullmatch, names)):
            self.refuse(key, f"{key} must be names of environment variables, without values")
        return names

    # -- values of their own kind ------------------------------------------------------------------

    def _headers(self, key: str) -> dict[str, str]:
        headers = self._text_table(key)
        for name, value in headers.items():
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
                self.refuse(
                    key, f"{brief(repr(name), LONGEST_SHOWN)} in headers cannot be sent as a header"
                )
        return headers

    def _url(self, key: str) -> str:
        url = self._text(key)
        if self._unexpanded and "${" in url:
            return url
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname)
            usable = usable and (parts.port is None or parts.port > 0)
        except ValueError:
            usable = False
        if not usable:
            self.refuse(key, f"{key} must be an address such as https://example.org/mcp")
        if parts.username or parts.password:
            self.refuse(
                key, f"{key} holds a user or a password; name a variable in bearer_token_env_var"
            )
        return url

    def _cwd(self, key: str) -> Path:
        return Path(os.path.normpath(self._folder / typed_path(self._text(key))))


_Read = Callable[[TableReader, str], Any]
_OF_STDIO: Mapping[str, _Read] = {
    "command": TableReader._text,
    "args": TableReader._texts,
    "env": TableReader._text_table,
    "env_vars": TableReader._variables,
    "cwd": TableReader._cwd,
}
_OF_HTTP: Mapping[str, _Read] = {
    "url": TableReader._url,
    "headers": TableReader._headers,
    "bearer_token_env_var": TableReader._variable,
    "oauth_issuer": TableReader._url,
    "oauth_client_id": TableReader._text,
    "oauth_client_secret_env_var": TableReader._variable,
    "oauth_callback_port": TableReader._port,
}
KEYS: Mapping[str, _Read] = {
    **_OF_STDIO,
    **_OF_HTTP,
    "transport": TableReader._transport,
    "enabled": TableReader._switch,
    "required": TableReader._switch,
    "enabled_tools": TableReader._texts,
    "disabled_tools": TableReader._texts,
    "startup_timeout_sec": TableReader._seconds,
    "tool_timeout_sec": TableReader._seconds,
    "timeout_seconds": TableReader._seconds,
    "supports_parallel_tool_calls": TableReader._switch,
    "approval_mode": TableReader._approval_mode,
}
