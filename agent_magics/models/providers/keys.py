"""Which environment variable holds whose key, and how a person gives one that is missing."""

import os
from functools import cache, lru_cache
from urllib.parse import urlsplit

from agent_magics.models.endpoints import HOSTS, LOOPBACK, OPENAI_ADDRESS, endpoint_of

# In a notebook; elsewhere the other ways are there.
_LOGIN = "give a valid one with api_key=... or %agent login {place}"
WAYS_OUT = (
    "set OPENAI_API_KEY, or run %agent login, or point OPENAI_BASE_URL at a local "
    "OpenAI-compatible server, or play a recording (replay=FILE)"
)


@lru_cache(maxsize=64)
def place_of(address: str) -> str:
    """Return for whom a key at `address` is: its host, with a port that is not https's own."""
    parts = urlsplit(address if "://" in address else f"https://{address}")
    host = (parts.hostname or "").lower()
    port = parts.port or (80 if parts.scheme == "http" else 443)
    return host if port == 443 else f"{host}:{port}"


def is_local(address: str) -> bool:
    """Return whether `address` is on this machine, where servers mostly want no key."""
    return urlsplit(address).hostname in LOOPBACK


def key_names_of(address: str) -> tuple[str, ...]:
    """Return the environment variables whose key is for the host of `address`.

    A provider's own variable is for its hosts. OPENAI_API_KEY is for the server that
    OPENAI_BASE_URL names, else for OpenAI: a key of theirs is never sent to anybody else.
    """
    theirs = os.environ.get("OPENAI_BASE_URL") or OPENAI_ADDRESS
    general = ("OPENAI_API_KEY",) if place_of(address) == place_of(theirs.strip()) else ()
    return (*endpoint_of(address).key_names, *general)


def key_name_in_use(address: str) -> str:
    """Return which environment variable holds the key for `address`, or ""."""
    return next(filter(os.environ.get, key_names_of(address)), "")


def key_of(address: str) -> str:
    """Return the key for `address` that the environment holds, or ""."""
    return os.environ.get(key_name_in_use(address), "")


def shared_key_of(address: str) -> str:
    """Return OPENAI_API_KEY where `address` may have it though it is no server of OpenAI's, or "".

    Servers that no row knows (a proxy, a server of one's own) get it where nothing else is given,
    as from every other client. A provider that has a variable of its own does not, nor does anybody
    where OPENAI_BASE_URL says whose it is.
    """
    row = endpoint_of(address)
    if row.name or row.key_names or os.environ.get("OPENAI_BASE_URL"):
        return ""
    return os.environ.get("OPENAI_API_KEY", "")


def environment_keys() -> tuple[str, ...]:
    """Return all keys of known servers that the environment holds: none may be written anywhere."""
    return tuple(filter(None, (os.environ.get(name) for name in _all_key_names())))


@cache
def _all_key_names() -> tuple[str, ...]:
    names = {name for _, endpoint in HOSTS for name in endpoint.key_names}
    return tuple(sorted((*names, "OPENAI_API_KEY")))


def ways_to_give(address: str) -> str:
    """Say how a key for `address` is given, where there is none."""
    names = key_names_of(address)
    if names == ("OPENAI_API_KEY",):
        return WAYS_OUT
    if names:
        return f"set {names[0]}, {_LOGIN.format(place=place_of(address))}"
    return (
        f"{_LOGIN.format(place=place_of(address))}, or set OPENAI_API_KEY, which is sent to it "
        "where OPENAI_BASE_URL names it or is not set"
    )


def way_to_mend(address: str) -> str:
    """Say how a valid key for `address` is given, where one was refused."""
    name = next(iter(key_names_of(address)), "")
    login = _LOGIN.format(place=place_of(address))
    return f"set a valid {name}, or {login}" if name else login
