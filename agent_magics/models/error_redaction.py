"""Finds API keys in addresses of servers, and removes keys from addresses and texts of errors."""

import re
from collections.abc import Iterable
from urllib.parse import unquote, unquote_plus, urlsplit, urlunsplit

from agent_magics.text.secrets import SECRET_PARAMETER

NO_KEY = "[API key]"

# A shorter "key" is a dummy for a server that needs none ("EMPTY", "ollama").
SHORTEST_KEY = 8
# Keys from this length are removed from errors as whole words, unless they consist of letters only.
_SHORTEST_ALONE = 4


def keys_in_address(address: str) -> tuple[str, ...]:
    """Return the keys in a server's address, as they stand there and as they are meant: a
    password, a name without one (some servers take a token there), or keys in its query.
    """
    parts = urlsplit(address)
    found = [each.partition("=")[2] for each in parts.query.split("&") if _is_key(each)]
    written = [*filter(None, (parts.password or parts.username, *found))]
    return tuple(dict.fromkeys([*written, *map(unquote, written), *map(unquote_plus, written)]))


def shown_address(address: str) -> str:
    """Return a server's address without the login and the keys that stand within it."""
    parts = urlsplit(address)
    query = "&".join(each for each in parts.query.split("&") if not _is_key(each))
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=query))


def _is_key(parameter: str) -> bool:
    return SECRET_PARAMETER.search(unquote_plus(parameter.partition("=")[0])) is not None


def without_keys(text: str, keys: Iterable[str]) -> str:
    """Return an error's text without `keys`; keys too short or too common are not removed."""
    for key in sorted(set(keys), key=len, reverse=True):
        if len(key) >= SHORTEST_KEY:
            text = text.replace(key, NO_KEY)
        elif len(key) >= _SHORTEST_ALONE and not key.isalpha():
            text = re.sub(rf"(?<![\w-]){re.escape(key)}(?![\w-])", NO_KEY, text)
    return text
