"""Finds API keys in environment variables, and explains how to give a missing one."""

import os
from collections.abc import Mapping
from functools import cache, lru_cache
from urllib.parse import urlsplit

from agent_magics.models.providers.endpoints import HOSTS, LOOPBACK, OPENAI_ADDRESS, endpoint_of

# `%agent login` exists only in notebooks.
_LOGIN = "give a valid one with api_key=... or %agent login {place}"
WAYS_OUT = (
    "set OPENAI_API_KEY, or run %agent login, or point OPENAI_BASE_URL at a local "
    "OpenAI-compatible server, or play a recording (replay=FILE; --replay FILE in a cell)"
)
# Keys that programs have given, as `api_key=`; logs must not hold them.
given_keys: set[str] = set()


@lru_cache(maxsize=64)
def place_of(address: str) -> str:
    """Return the host (with a port other than 443) at `address`, under which its key is stored; ""
    if it is no address.
    """
    try:
        parts = urlsplit(address if "://" in address else f"https://{address}")
        host = (parts.hostname or "").lower()
        port = parts.port or (80 if parts.scheme == "http" else 443)
    except ValueError:
        return ""
    return host if port == 443 else f"{host}:{port}"


def is_local(address: str) -> bool:
    """Tell whether `address` is on this machine, where most servers need no key."""
    return urlsplit(address).hostname in LOOPBACK


def key_names_of(address: str) -> tuple[str, ...]:
    """Return the environment variables whose key may be sent to the host of `address`.

    A provider's own variable is for its hosts. OPENAI_API_KEY is for the server that
    OPENAI_BASE_URL names, else for OpenAI; it is never sent to another host.
    """
    openai_address = os.environ.get("OPENAI_BASE_URL") or OPENAI_ADDRESS
    general = ("OPENAI_API_KEY",) if place_of(address) == place_of(openai_address.strip()) else ()
    return (*endpoint_of(address).key_names, *general)


def key_name_in_use(address: str) -> str:
    """Return the environment variable that holds the key for `address`, or ""."""
    return next(filter(os.environ.get, key_names_of(address)), "")


def key_of(address: str) -> str:
    """Return the key for `address` from the environment, or ""."""
    return os.environ.get(key_name_in_use(address), "").strip()


def shared_key_of(address: str) -> str:
    """Return OPENAI_API_KEY if it may be sent to `address` although that is not OpenAI's server, or
    "".

    Servers without a row (a proxy, one's own server) get it where nothing else is given, as from
    every other client. A provider with a variable of its own does not, nor does any server if
    OPENAI_BASE_URL is set.
    """
    row = endpoint_of(address)
    if row.name or row.key_names or os.environ.get("OPENAI_BASE_URL"):
        return ""
    return os.environ.get("OPENAI_API_KEY", "").strip()


def environment_keys(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return all keys of known servers in an environment; they must not be written anywhere."""
    return tuple(filter(None, (environment.get(name, "").strip() for name in _all_key_names())))


@cache
def _all_key_names() -> tuple[str, ...]:
    names = {name for _, endpoint in HOSTS for name in endpoint.key_names}
    return tuple(sorted((*names, "OPENAI_API_KEY")))


def ways_to_give(address: str) -> str:
    """Return a phrase on how to give a missing key for `address`."""
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
    """Return a phrase on how to replace a refused key for `address`."""
    if name := key_name_in_use(address):
        first = f"set a valid {name}, which goes before a key of %agent login"
        return f"{first}, or give one with api_key=..."
    name = next(iter(key_names_of(address)), "")
    login = _LOGIN.format(place=place_of(address))
    return f"set a valid {name}, or {login}" if name else login
