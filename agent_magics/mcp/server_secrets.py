"""Redacts the secrets given to a server in whatever is shown or logged about it."""

import re
from collections.abc import Iterable, Mapping
from urllib.parse import unquote, unquote_plus, urlsplit

from agent_magics.protocol.mcp import McpServerConfig
from agent_magics.text.secrets import (
    PLAIN_WORDS,
    SECRET_NAME,
    is_secret,
    secrets_in,
    split_arguments,
)

REDACTED = "[redacted]"
_SHORTEST = 6  # characters; shorter texts occur by chance
_SHORTEST_SECRET = 4  # characters, for values that are certainly secrets
_SHORTEST_ARGUMENT = 8  # characters, for those that only seem so: `--auth oauth`
# Folders, numbers, booleans, schemes of a header: common texts that are not secrets.
_HARMLESS = re.compile(
    r"[/~.][^\s:@]*|[\d.]+|true|false|yes|no|on|off|password|bearer|digest|apikey", re.I
)
_SCHEME = re.compile(
    r"(?:bearer|basic|digest|negotiate|ntlm|token|api-?key|googlelogin|aws4-hmac-sha256)\s+", re.I
)


class Redactor:
    """Removes the values given to one server from texts."""

    def __init__(self, config: McpServerConfig, environment: Mapping[str, str]) -> None:
        self._config = config
        self._known: set[str] = set()
        self._sure: set[str] = set()
        for name, value in config.env.items():
            self._learn(value, sure=bool(SECRET_NAME.search(name)))
        for name, value in config.headers.items():
            self._learn_header(name, value)
        for _, secret in split_arguments(config.args):
            self._learn_likely(secret.strip())
            self._learn_likely(secret.rpartition(" ")[2])  # `Authorization: Bearer X`
        for text in (*config.args, *config.env.values(), *config.headers.values()):
            for secret in secrets_in(text):
                self._learn_likely(secret)
        if config.url:
            self._learn_address(config.url)
        self.learn(environment)

    def learn(self, environment: Mapping[str, str]) -> None:
        """Redact what the server is now given of an environment, beside what it was given before.

        Variables change: a token is set after the start, or another one is.
        """
        config = self._config
        for name in config.env_vars:
            self._learn(environment.get(name, ""), sure=bool(SECRET_NAME.search(name)))
        for variable in (config.bearer_token_env_var, config.oauth_client_secret_env_var):
            self.add(environment.get(variable or "", ""))

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that are certainly secrets, the longest first."""
        return _longest_first(self._sure)

    def add(self, secret: str) -> None:
        """Redact this secret too, from now on."""
        self._learn(secret, sure=True)

    def __call__(self, text: str) -> str:
        """Return `text` redacted."""
        for secret in _longest_first(self._known):
            if secret in text:
                text = text.replace(secret, REDACTED)
        return text

    def _learn(self, value: str, *, sure: bool) -> None:
        # A key of several lines is printed line by line.
        for line in (value, *value.splitlines()):
            part = line.strip()
            shortest = _SHORTEST_SECRET if sure else _SHORTEST
            if len(part) < shortest or (not sure and _HARMLESS.fullmatch(part)):
                continue
            self._known.add(part)
            if sure:
                self._sure.add(part)

    def _learn_likely(self, value: str) -> None:
        """Learn what is a secret by its place; short and common words stand in such places too."""
        for each in (value, unquote(value)):  # of an address: a program may say it decoded
            if not _HARMLESS.fullmatch(each):
                self._learn(each, sure=len(each) >= _SHORTEST_ARGUMENT)

    def _learn_header(self, name: str, value: str) -> None:
        for word in value.split()[-1:]:
            self._learn(word, sure=False)
        if not SECRET_NAME.search(name):
            return
        parts = re.split(r"[\s;,]+", _SCHEME.sub("", value.strip(), count=1))
        is_one, is_taken_apart = len(parts) == 1, is_secret(name, value)
        for part in parts if is_one or is_taken_apart else ():  # `name=X; other=Y`
            named = part.partition("=")[2]
            is_pair = bool(named.strip("="))  # and no base64, which "=" may end
            secret = (named if is_pair else part).strip("\"'")
            if is_one and is_taken_apart and not is_pair:
                self.add(secret)
            if not PLAIN_WORDS.fullmatch(secret[:1].lower() + secret[1:]):
                self._learn_likely(secret)

    def _learn_address(self, url: str) -> None:
        try:
            parts = urlsplit(url)
        except ValueError:
            return
        for password in (parts.password or "", unquote(parts.password or "")):
            self.add(password)
        for pair in parts.query.split("&"):
            name, _, value = pair.partition("=")
            for each in (value, unquote(value), unquote_plus(value)):
                self._learn(each, sure=bool(SECRET_NAME.search(unquote(name))))


def _longest_first(secrets: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(secrets, key=lambda each: (-len(each), each)))
