"""Stores and looks up API keys; each key is sent only to the host it was given for.

The order is: the agent's own ``api_key``, the environment (`keys`), keys stored by ``%agent
login``, and the system's keyring. Login stores a key in the keyring if the optional package
`keyring` is installed and has a working backend, else in a file that only the person can read. That
file also lists the hosts whose key is in the keyring, so that a person without one does not wait
for it.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_magics.config_files.places import config_folder
from agent_magics.files.locks import locked, own_write
from agent_magics.files.plain_files import file_stamp, load_json, read_with_status, replace_file
from agent_magics.models.providers.keys import is_local, place_of
from agent_magics.protocol.errors import FatalError, clause
from agent_magics.protocol.items import JsonObject
from agent_magics.text.brief import brief_line

NAME = "credentials.json"
_LARGEST = 1_000_000  # bytes; thousands of keys
SERVICE = "agent-magics"  # our service name in the keyring; the user name there is the host


@dataclass(frozen=True, slots=True)
class FoundKey:
    """A key and where it was found; its repr does not show the key.

    Attributes:
        where: for people: "the keyring (...)" or "the file ...".
    """

    value: str = field(repr=False)
    where: str


# Cache by host: the stamp of the file at the time of the lookup, and the key or None.
_cache: dict[str, tuple[tuple[int, ...], FoundKey | None]] = {}


def knows_about(address: str) -> bool:
    """Tell whether `stored_key` for this address can answer without the keyring."""
    cached = _cache.get(place_of(address))
    return cached is not None and cached[0] == file_stamp(_file(), links=False)


def stored_key(address: str) -> FoundKey | None:
    """Return the stored key for the host of `address`, or None; may wait for the keyring.

    Raises:
        FatalError: the file is unsafe or malformed, or the keyring does not open.
    """
    if knows_about(address):
        return _cache[place_of(address)][1]
    place, stamp = place_of(address), file_stamp(_file(), links=False)
    found = _look_up(place, anywhere=not is_local(address))
    _cache[place] = (stamp, found)
    return found


def forget_key(address: str) -> None:
    """Drop the cached key of `address`, because it was refused or is missing."""
    _cache.pop(place_of(address), None)


def held_keys() -> tuple[str, ...]:
    """Return the stored keys that this process has read; they must not be written anywhere."""
    return tuple(found.value for _, found in _cache.values() if found is not None)


def keep_key(place: str, key: str) -> str:
    """Store `key` for the host `place`, in the keyring or the file; return where it is stored.

    Raises:
        FatalError: neither could store it.
    """
    keyring, trouble = _usable_keyring()
    with _changing() as hosts:
        # Locked, since a keyring that is a file would lose what another kernel writes meanwhile.
        if keyring is not None:
            trouble = _put_into(keyring, place, key)
        hosts[place] = {"key": key} if trouble else {"keyring": True}
    _cache.pop(place, None)
    if trouble:
        return f"the file {_file()}, which only you can read ({trouble})"
    return f"the keyring ({_name_of(keyring)})"


def kept_secret(place: str) -> str | None:
    """Return the secret stored for a place that is not a host of models, or None.

    Raises:
        FatalError: the file is unsafe or malformed, or the keyring does not open.
    """
    found = _look_up(place, anywhere=False)
    return None if found is None else found.value


def drop_key(place: str) -> bool:
    """Delete the key of the host `place` wherever it is stored; return whether there was one.

    Raises:
        FatalError: it cannot be deleted.
    """
    kept = _read().get(place)
    in_keyring = False
    keyring, trouble = _usable_keyring()
    if keyring is None and kept and kept.get("keyring"):
        raise FatalError(f"The key for {place} is in the keyring, which is not there: {trouble}.")
    try:
        in_keyring = keyring is not None and keyring.get_password(SERVICE, place) is not None
        if kept is not None or in_keyring:
            with _changing() as hosts:
                if in_keyring:
                    keyring.delete_password(SERVICE, place)
                hosts.pop(place, None)
    except FatalError:
        raise
    except Exception as error:  # backends raise any kind
        raise FatalError(f"The keyring did not give {place} up: {_message_of(error)}.") from None
    _cache.pop(place, None)
    return kept is not None or in_keyring


def kept_places() -> tuple[str, ...]:
    """Return the hosts with a stored key.

    Raises:
        FatalError: the file is unsafe or malformed.
    """
    return tuple(sorted(_read()))


# -- looking up -----------------------------------------------------------------------------------


def _look_up(place: str, *, anywhere: bool) -> FoundKey | None:
    """Look in the file, then in the keyring if the file lists the host there or `anywhere` is
    set.
    """
    kept = _read().get(place)
    if kept and isinstance(kept.get("key"), str):
        return FoundKey(kept["key"], f"the file {_file()}")
    is_listed = bool(kept and kept.get("keyring"))
    if not is_listed and not anywhere:
        return None
    keyring, trouble = _usable_keyring()
    key = None
    if keyring is not None:
        try:
            key = keyring.get_password(SERVICE, place)
        except Exception as error:  # backends raise any kind
            trouble = _message_of(error)
    if key:
        return FoundKey(key, f"the keyring ({_name_of(keyring)})")
    if is_listed:
        raise FatalError(
            f"The key for {place} is in the keyring, which does not give it out "
            f"({trouble or 'it is not there'}): unlock it, or run %agent login {place} again."
        )
    return None


def _usable_keyring() -> tuple[Any, str]:
    """Return the keyring's backend and "", or None and the reason why there is none."""
    try:
        keyring = _import_keyring()
        backend = keyring.get_keyring()
        # The "fail" backend has priority 0, the "null" backend -1.
        priority = backend.priority
    except ImportError:
        return None, "the package keyring is not installed"
    except Exception as error:  # backends are third-party code
        return None, f"no keyring works here: {_message_of(error)}"
    if priority <= 0:
        return None, "no keyring works here"
    return backend, ""


def _import_keyring() -> Any:
    import keyring  # noqa: PLC0415 - optional, and 0.1 s that only those pay who have no other key

    return keyring


def _put_into(keyring: Any, place: str, key: str) -> str:
    """Store a key in the keyring; return the reason if that failed, or ""."""
    try:
        keyring.set_password(SERVICE, place, key)
        if keyring.get_password(SERVICE, place) == key:
            return ""
    except Exception as error:  # backends raise any kind
        return f"the keyring refused: {_message_of(error)}"
    return "the keyring did not keep it"


def _name_of(keyring: object) -> str:
    return str(getattr(keyring, "name", "") or type(keyring).__name__)


def _message_of(error: Exception) -> str:
    return brief_line(clause(error), 200)


# -- the file -------------------------------------------------------------------------------------


def _file() -> Path:
    return config_folder() / NAME


def _read() -> Mapping[str, JsonObject]:
    """Return the file's entries by host; {} where there is no file.

    Raises:
        FatalError: others can read it, it is a link, it has another owner, or it is malformed.
    """
    path = _file()
    try:
        # No links: one could point to a file that somebody else controls.
        text, found = read_with_status(path, _LARGEST)
    except FileNotFoundError:
        return {}
    except OSError as error:
        message = f"Your keys in {path} cannot be read ({clause(error)}): mend or remove it."
        raise FatalError(message) from None
    _check_safe(found, path)
    try:
        hosts: Mapping[str, JsonObject] = load_json(text)["hosts"]
        if all(isinstance(kept, dict) for kept in hosts.values()):
            return hosts
    except (ValueError, TypeError, KeyError, AttributeError):
        pass
    raise FatalError(f"{path} does not hold keys as %agent login writes them: mend or remove it.")


def _check_safe(found: os.stat_result, path: Path) -> None:
    if found.st_uid != os.geteuid():
        raise FatalError(f"{path} belongs to somebody else: remove it, and run %agent login again.")
    if found.st_mode & 0o077:
        raise FatalError(
            f"Others can read your keys in {path}: run chmod 600 {path}, and get new keys if "
            "somebody may have."
        )


@contextmanager
def _changing() -> Iterator[JsonObject]:
    """Lock the file, yield its entries by host for changes, and write them back.

    It is replaced as a whole, and no other user can read it at any moment.

    Raises:
        FatalError: it cannot be read or written, or another kernel holds the lock.
    """
    path = _file()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(path):
            for left in path.parent.glob(f".{path.name}-*"):
                left.unlink()  # a kernel was killed while it wrote its keys there
            hosts = dict(_read())
            yield hosts
            text = json.dumps({"version": 1, "hosts": hosts}, indent=1) + "\n"
            with own_write(path):
                replace_file(path, text.encode())
    except OSError as error:
        raise FatalError(
            f"Your keys could not be written to {path} ({_message_of(error)})."
        ) from None
