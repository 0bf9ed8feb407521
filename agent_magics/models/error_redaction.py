"""Finds API keys in addresses of servers, and removes keys from the texts of errors."""

import re
from collections.abc import Iterable
from urllib.parse import unquote, unquote_plus, urlsplit

from agent_magics.text.secrets import SECRET_PARAMETER

NO_KEY = "[API key]"

# A shorter "key" is a dummy for a server that needs none ("EMPTY", "ollama").
SHORTEST_KEY = 8
# Keys from this length are removed from errors as whole words, unless they consist of letters only.
_SHORTEST_ALONE = 4


def keys_in_address(address: str) -> tuple[str, ...]:
    """Return the keys in a server's address, as they stand there and as they are meant: a
    password, or keys in its query.
    """
    parts = urlsplit(address)
    query = (each.partition("=") for each in parts.query.split("&"))
    found = [value for name, _, value in query if SECRET_PARAMETER.search(unquote_plus(name))]
    written = [*filter(None, (parts.password, *found))]
    return tuple(dict.fromkeys([*written, *map(unquote, written), *map(unquote_plus, written)]))


def without_keys(text: str, keys: Iterable[str]) -> str:
    """Return an error's text without `keys`; keys too short or too common are not removed."""
    for key in sorted(set(keys), key=len, reverse=True):
        if len(key) >= SHORTEST_KEY:
            text = text.replace(key, NO_KEY)
        elif len(key) >= _SHORTEST_ALONE and not key.isalpha():
            text = re.sub(rf"(?<![\w-]){re.escape(key)}(?![\w-])", NO_KEY, text)
    return text
