"""Classifies Python's audit events: program started, connection made, file changed."""

import os
import shlex
import stat
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from agent_magics.files.beneath import is_below, real_path
from agent_magics.files.paths import write_kind
from agent_magics.protocol.config import RunConfig, SandboxPolicy
from agent_magics.protocol.errors import RespondToModel, full_message
from agent_magics.text.brief import brief_line

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_LONGEST = 300  # characters shown of a command or an address
# Where programs may always write: what is written there is lost without harm.
_HARMLESS = ("/dev/null", "/dev/shm", "/dev/tty", "/dev/stdout", "/dev/stderr", "/dev/fd")


class Hit(NamedTuple):
    """An operation of code that needs approval.

    Attributes:
        kind: "spawn", "connect" or "write"; one answer covers a kind for the rest of a run.
        what: a description for people, such as "deletes /etc/hosts".
    """

    kind: str
    what: str


class _FileEvent(NamedTuple):
    """An event that changes files: a verb, the indexes of its paths, and of their folders."""

    verb: str
    paths: tuple[int, ...]
    folders: tuple[int, ...] = ()
    follows: bool = False


# https://docs.python.org/3/library/audit_events.html; what is not in that list raises no event.
_CHANGES = {
    "os.remove": _FileEvent("deletes", (0,), (1,)),
    "os.rmdir": _FileEvent("deletes", (0,), (1,)),
    "os.mkdir": _FileEvent("makes the folder", (0,), (2,)),
    "os.rename": _FileEvent("renames", (0, 1), (2, 3)),
    "os.link": _FileEvent("links", (0, 1), (2, 3)),
    "os.symlink": _FileEvent("makes the link", (1,), (2,)),
    "os.truncate": _FileEvent("cuts off", (0,), follows=True),
    "os.chmod": _FileEvent("changes the mode of", (0,), (2,), follows=True),
    "os.chown": _FileEvent("changes the owner of", (0,), (3,), follows=True),
    "os.utime": _FileEvent("changes the times of", (0,), (3,), follows=True),
    "os.setxattr": _FileEvent("changes attributes of", (0,), follows=True),
    "os.removexattr": _FileEvent("changes attributes of", (0,), follows=True),
    "sqlite3.connect": _FileEvent("opens the database", (0,), follows=True),
    "shutil.rmtree": _FileEvent("deletes all of", (0,)),
}


def _program(arguments: Any) -> str:
    if isinstance(arguments, (str, bytes, os.PathLike)):
        return os.fsdecode(arguments)
    return shlex.join(map(os.fsdecode, arguments))


_SPAWNS: dict[str, Callable[[Sequence[Any]], str]] = {
    "subprocess.Popen": lambda args: _program(args[1]),
    "os.system": lambda args: _program(args[0]),
    "os.exec": lambda args: _program(args[1]),
    "os.posix_spawn": lambda args: _program(args[1]),
    "os.spawn": lambda args: _program(args[2]),
    "pty.spawn": lambda args: _program(args[0]),
    "os.fork": lambda args: "",
    "os.forkpty": lambda args: "",
}
_CONNECTS = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})

WATCHED = frozenset({"open", *_CHANGES, *_SPAWNS, *_CONNECTS})


class Rails:
    """Judges audit events for one run.

    Args:
        config: the run's configuration, with its writable folders.
    """

    def __init__(self, config: RunConfig) -> None:
        self._roots = config.roots
        self._read_only = config.sandbox is SandboxPolicy.READ_ONLY
        self._free = _free_places()
        self._plain: set[str] = set()  # folders in which ordinary files may be written

    def hit(self, event: str, args: Sequence[Any]) -> Hit | None:
        """Return the operation of an event that needs approval, or None."""
        if event == "open":
            return self._opened(*args[:3])
        if event in _SPAWNS:
            program = _SPAWNS[event](args)
            return Hit(
                "spawn",
                f"starts {brief_line(program, _LONGEST)}" if program else "starts a process",
            )
        if event in _CONNECTS:
            # What is sent on a connection that stands has no address of its own.
            return None if args[1] is None else Hit("connect", f"connects to {_address(args[1])}")
        return self._changed(_CHANGES[event], args)

    def _opened(self, path: Any, mode: Any, flags: Any) -> Hit | None:
        if isinstance(path, int) or not (isinstance(flags, int) and flags & _WRITING):
            return None
        return self._write("writes", os.fsdecode(path), follows=True)

    def _changed(self, change: _FileEvent, args: Sequence[object]) -> Hit | None:
        for number, index in enumerate(change.paths):
            path = args[index]
            if not isinstance(path, (str, bytes, os.PathLike)):
                continue  # a descriptor: its file was judged when it was opened
            folder = change.folders[number] if number < len(change.folders) else -1
            descriptor = args[folder] if 0 <= folder < len(args) else -1
            text = _in_folder(_without_scheme(os.fsdecode(path)), descriptor)
            hit = self._write(change.verb, text, follows=change.follows) if text else None
            if hit is not None:
                return hit
        return None

    def _write(self, verb: str, path: str, *, follows: bool) -> Hit | None:
        # The current folder may be deleted, which does not matter for an absolute path.
        absolute = str(Path(path) if path.startswith(os.sep) else Path.cwd() / path)
        if path in ("", ":memory:") or self._is_plain(absolute):
            return None
        real = _led_to(absolute, follows=follows)
        if is_below(real, self._free) or _is_byte_code(real):
            return None
        try:
            allowed, why = write_kind(Path(real), self._roots, self._read_only)
        except RespondToModel as error:  # another thread changes it
            allowed, why = False, full_message(error)
        if allowed:
            folder, name = os.path.split(absolute)
            if f"{real_path(folder)}/{name}" == real:
                self._plain.add(folder)
            return None
        return Hit("write", f"{verb} {brief_line(path, _LONGEST)} ({why})")

    def _is_plain(self, path: str) -> bool:
        """Return whether a path is in the same folder as a file judged before (a fast path)."""
        folder, name = os.path.split(path)
        if folder not in self._plain or name.startswith((".", "id_", "kernel-", "jpserver-")):
            return False
        try:
            return stat.S_ISREG(os.lstat(path).st_mode)
        except OSError:
            return True


def _led_to(path: str, *, follows: bool) -> str:
    if follows:
        return real_path(path)
    folder, name = os.path.split(path)  # a link is itself what is deleted or renamed
    return f"{real_path(folder)}/{name}"


def _without_scheme(path: str) -> str:
    """Return a path without the form of an address, in which SQLite takes it."""
    return unquote(urlsplit(path).path) if path.startswith("file:") else path


def _in_folder(path: str, descriptor: object) -> str:
    """Return a path relative to a descriptor as an absolute one; "" where that is unknown."""
    if descriptor in (-1, None) or path.startswith(os.sep):
        return path
    try:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink() / path)
    except OSError:
        return ""


def _is_byte_code(path: str) -> bool:
    return f"{os.sep}__pycache__{os.sep}" in path or path.endswith(f"{os.sep}__pycache__")


def _free_places() -> tuple[str, ...]:
    home = Path.home()
    caches = [
        os.environ.get("XDG_CACHE_HOME") or f"{home}/.cache",
        os.environ.get("MPLCONFIGDIR") or f"{home}/.config/matplotlib",
        *([f"{home}/Library/Caches"] if sys.platform == "darwin" else []),
    ]
    return (*_HARMLESS, *map(real_path, (tempfile.gettempdir(), *caches)))


def _address(address: object) -> str:
    if isinstance(address, tuple) and len(address) >= 2:
        return brief_line(f"{address[0]}:{address[1]}", _LONGEST)
    text = os.fsdecode(address) if isinstance(address, (str, bytes)) else str(address)
    return brief_line(text, _LONGEST)
