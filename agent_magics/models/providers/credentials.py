"""Whose key is sent where: each one only to the host that it was given for.

The order is: the agent's own ``api_key``, the environment (`keys`), what ``%agent login``
kept, and the system's keyring. Login keeps a key in the keyring where the optional package of that
name has one that works, else in a file that only the person can read. That file also says which
hosts have their key in the keyring, so that nobody who has none waits for it.
"""

import json
import os
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from agent_magics.models.keys import is_local, place_of
from agent_magics.protocol.errors import FatalError

NAME = "credentials.json"
_LARGEST = 1_000_000  # bytes; thousands of keys
SERVICE = "agent-magics"  # the keyring's name for us; the user's name there is the host

Stamp = tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class FoundKey:
    """A key and where it was found; printing it does not show the key.

    Attributes:
        where: for people: "the keyring (...)" or "the file ...".
    """

    value: str = field(repr=False)
    where: str


# By place: the state of the file at that time, and what was found, None for nothing.
_seen: dict[str, tuple[Stamp, FoundKey | None]] = {}


def knows_about(address: str) -> bool:
    """Return whether `stored_key` for this address answers at once."""
    seen = _seen.get(place_of(address))
    return seen is not None and seen[0] == _stamp()


def stored_key(address: str) -> FoundKey | None:
    """Return the key that was kept for the host of `address`, or None; may ask the keyring.

    Raises:
        FatalError: the file is not safe or not ours, or the keyring does not open.
    """
    if knows_about(address):
        return _seen[place_of(address)][1]
    place, stamp = place_of(address), _stamp()
    found = _look_up(place, anywhere=not is_local(address))
    _seen[place] = (stamp, found)
    return found


def forget_key(address: str) -> None:
    """Look the key up anew the next time: it was refused, or is still missing."""
    _seen.pop(place_of(address), None)


def held_keys() -> tuple[str, ...]:
    """Return the kept keys that this process has read: none may be written anywhere."""
    return tuple(found.value for _, found in _seen.values() if found is not None)


def keep_key(place: str, key: str) -> str:
    """Keep `key` for the host `place`, in the keyring or the file; return where it stands.

    Raises:
        FatalError: neither takes it.
    """
    hosts = dict(_read())
    keyring, trouble = _usable_keyring()
    if keyring is not None:
        trouble = _put_into(keyring, place, key)
    if keyring is None or trouble:
        hosts[place] = {"key": key}
        where = f"the file {_file()}, which only you can read ({trouble})"
    else:
        hosts[place] = {"keyring": True}
        where = f"the keyring ({_name_of(keyring)})"
    _write(hosts)
    _seen.pop(place, None)
    return where


def kept_secret(place: str) -> str | None:
    """Return what was kept for a place that is no host of models, or None.

    Raises:
        FatalError: the file is not safe or not ours, or the keyring does not open.
    """
    found = _look_up(place, anywhere=False)
    return None if found is None else found.value


def drop_key(place: str) -> bool:
    """Forget the key of the host `place` wherever it was kept; return whether there was one.

    Raises:
        FatalError: it cannot be taken out.
    """
    hosts = dict(_read())
    kept = hosts.pop(place, None)
    in_keyring = False
    keyring, trouble = _usable_keyring()
    if keyring is not None:
        try:
            in_keyring = keyring.get_password(SERVICE, place) is not None
            if in_keyring:
                keyring.delete_password(SERVICE, place)
        except Exception as error:
            raise FatalError(f"The keyring did not give {place} up: {_said(error)}.") from None
    elif kept and kept.get("keyring"):
        raise FatalError(f"The key for {place} is in the keyring, which is not there: {trouble}.")
    if kept is not None:
        _write(hosts)
    _seen.pop(place, None)
    return kept is not None or in_keyring


def kept_places() -> tuple[str, ...]:
    """Return the hosts that somebody has logged in to.

    Raises:
        FatalError: the file is not safe or not ours.
    """
    return tuple(sorted(_read()))


# -- looking up -----------------------------------------------------------------------------------


def _look_up(place: str, *, anywhere: bool) -> FoundKey | None:
    """Look into the file, then into the keyring where the file or `anywhere` says so."""
    kept = _read().get(place)
    if kept and isinstance(kept.get("key"), str):
        return FoundKey(kept["key"], f"the file {_file()}")
    promised = bool(kept and kept.get("keyring"))
    if not promised and not anywhere:
        return None
    keyring, trouble = _usable_keyring()
    key = None
    if keyring is not None:
        try:
            key = keyring.get_password(SERVICE, place)
        except Exception as error:  # of whatever kind its back end raises
            trouble = _said(error)
    if key:
        return FoundKey(key, f"the keyring ({_name_of(keyring)})")
    if promised:
        raise FatalError(
            f"The key for {place} is in the keyring, which does not give it out "
            f"({trouble or 'it is not there'}): unlock it, or run %agent login {place} again."
        )
    return None


def _usable_keyring() -> tuple[Any, str]:
    """Return the keyring's back end and "", or None and why there is none."""
    try:
        keyring = _import_keyring()
        backend = keyring.get_keyring()
        # The one that refuses everything has priority 0, the one that forgets everything -1.
        priority = backend.priority
    except ImportError:
        return None, "the package keyring is not installed"
    except Exception as error:  # back ends come from anywhere
        return None, f"no keyring works here: {_said(error)}"
    if priority <= 0:
        return None, "no keyring works here"
    return backend, ""


def _import_keyring() -> ModuleType:
    import keyring  # noqa: PLC0415 - optional, and 0.1 s that only those pay who have no other key

    return keyring


def _put_into(keyring: Any, place: str, key: str) -> str:
    """Give the keyring a key; return why it did not take it, or ""."""
    try:
        keyring.set_password(SERVICE, place, key)
        if keyring.get_password(SERVICE, place) == key:
            return ""
    except Exception as error:  # of whatever kind its back end raises
        return f"the keyring refused: {_said(error)}"
    return "the keyring did not keep it"


def _name_of(keyring: Any) -> str:
    return str(getattr(keyring, "name", "") or type(keyring).__name__)


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__


# -- the file -------------------------------------------------------------------------------------


@lru_cache(maxsize=2)
def _folder(*variables: str | None) -> Path:
    """Return the person's folder for our settings; `variables` only tell when it has moved."""
    import platformdirs  # noqa: PLC0415 - 5 ms that `import agent_magics` need not pay

    return Path(platformdirs.user_config_dir("agent-magics", appauthor=False))


def _file() -> Path:
    return _folder(*map(os.environ.get, ("XDG_CONFIG_HOME", "HOME"))) / NAME


def _stamp() -> Stamp:
    try:
        found = os.lstat(_file())
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _read() -> Mapping[str, dict[str, Any]]:
    """Return what the file says of each host; {} where there is no file.

    Raises:
        FatalError: others can read it, it is a link, it is somebody else's, or it is no JSON.
    """
    path = _file()
    try:
        # A link could lead to a file of somebody else's making; a pipe would hold us up.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return {}
    except OSError as error:
        link = "it is a link" if path.is_symlink() else _said(error)
        said = f"Your keys in {path} cannot be read ({link}): mend or remove it."
        raise FatalError(said) from None
    try:
        _check_safe(os.fstat(descriptor), path)
        text = os.read(descriptor, _LARGEST)
    finally:
        os.close(descriptor)
    try:
        hosts = json.loads(text)["hosts"]
        if all(isinstance(kept, dict) for kept in hosts.values()):
            return hosts
    except (ValueError, TypeError, KeyError, AttributeError):
        pass
    raise FatalError(f"{path} does not hold keys as %agent login writes them: mend or remove it.")


def _check_safe(found: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise FatalError(f"{path} is not a file: remove it, and run %agent login again.")
    if found.st_uid != os.geteuid():
        raise FatalError(f"{path} belongs to somebody else: remove it, and run %agent login again.")
    if found.st_mode & 0o077:
        raise FatalError(
            f"Others can read your keys in {path}: run chmod 600 {path}, and get new keys if "
            "somebody may have."
        )


def _write(hosts: Mapping[str, Mapping[str, Any]]) -> None:
    """Put a new file in the old one's place, at no moment readable by others, or half written.

    Raises:
        FatalError: it cannot be written.
    """
    path = _file()
    text = json.dumps({"version": 1, "hosts": hosts}, indent=1) + "\n"
    fresh = ""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, fresh = tempfile.mkstemp(prefix=f".{NAME}-", dir=path.parent)  # mode 0600
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(fresh).replace(path)
    except OSError as error:
        if fresh:
            with suppress(OSError):
                Path(fresh).unlink()
        raise FatalError(f"Your keys could not be written to {path} ({_said(error)}).") from None
