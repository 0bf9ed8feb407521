"""Takes the secrets that a server was given out of what is shown or logged of it."""

import re
from collections.abc import Iterable, Mapping
from urllib.parse import parse_qsl, urlsplit

from agent_magics.protocol.mcp import McpServerConfig

REDACTED = "[redacted]"
_SHORTEST = 6  # characters; shorter ones stand in every second line by chance
_SHORTEST_SECRET = 4  # of what is certainly meant as a secret
_SECRET_NAME = re.compile(
    r"KEY|SECRET|TOKEN|PASS|CREDENTIAL|AUTH|COOKIE|PRIVATE|(^|_)PAT($|_)", re.I
)
# A folder, a number, a switch: said everywhere, and no secret.
_HARMLESS = re.compile(r"[/~.][^\s:@]*|[\d.]+|true|false|yes|no|on|off", re.I)


class Redactor:
    """Knows what one server was given, and takes it out of texts."""

    def __init__(self, config: McpServerConfig, environment: Mapping[str, str]) -> None:
        self._known: set[str] = set()
        self._sure: set[str] = set()
        passed = {name: environment[name] for name in config.env_vars if name in environment}
        for name, value in {**passed, **config.env}.items():
            self._learn(value, sure=bool(_SECRET_NAME.search(name)))
        for name, value in config.headers.items():
            self._learn(value.rpartition(" ")[2], sure=bool(_SECRET_NAME.search(name)))
        if config.bearer_token_env_var:
            self.add(environment.get(config.bearer_token_env_var, ""))
        if config.url:
            self._learn_address(config.url)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What is certainly a secret, the longest first."""
        return _longest_first(self._sure)

    def add(self, secret: str) -> None:
        """Take this one out as well, from now on."""
        self._learn(secret, sure=True)

    def __call__(self, text: str) -> str:
        """Return `text` without them."""
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

    def _learn_address(self, url: str) -> None:
        try:
            parts = urlsplit(url)
        except ValueError:
            return
        if parts.password:
            self.add(parts.password)
        for name, value in parse_qsl(parts.query):
            self._learn(value, sure=bool(_SECRET_NAME.search(name)))


def _longest_first(secrets: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(secrets, key=lambda each: (-len(each), each)))
