"""Represents the state of a path (file, link, folder, absent), to compare and restore it.

Law: contents are identified by digest. A file too large or too secret to be copied has none, is
compared by its stamp, and can be reported but not restored.
"""

import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from agent_magics.files.beneath import folder_of
from agent_magics.files.plain_files import read_with_status
from agent_magics.protocol.errors import clause

# Limit in bytes of a stored file; most files that people write are far smaller.
MOST_FILE = 8 * 1024 * 1024

Kind = Literal["absent", "file", "link", "folder", "other"]
Stamp = tuple[int, ...]  # ctime, mtime, size, inode, mode; only the mode of a folder


@dataclass(frozen=True, slots=True)
class PathState:
    """The state of one path.

    Attributes:
        mode: permissions of a file or folder.
        digest: of a file's content; "" where that is not stored.
        size: bytes of a file.
        target: text of a link.
        stamp: distinguishes versions of a file whose content is not stored.
        why: the reason why it is not stored, in words.
    """

    kind: Kind = "absent"
    mode: int = 0
    digest: str = ""
    size: int = 0
    target: str = ""
    stamp: str = ""
    why: str = ""

    @property
    def can_be_made(self) -> bool:
        """Whether it can be restored."""
        return self.kind in ("absent", "link", "folder") or bool(self.digest)

    def to_json(self) -> dict[str, Any]:
        """Return its fields, without empty ones."""
        shown = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in shown.items() if value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "PathState":
        """Create it from the result of `to_json`."""
        return cls(**data)


ABSENT = PathState()


@dataclass(frozen=True, slots=True)
class PathChange:
    """A change of one path.

    Attributes:
        path: absolute, without links.
    """

    path: str
    before: PathState
    after: PathState

    @property
    def reverse(self) -> "PathChange":
        """The change back."""
        return PathChange(self.path, self.after, self.before)


class ContentStore:
    """Stores contents by digest, each in a private file, written atomically.

    Args:
        folder: created with the first content.
        limit: maximal bytes in all.
    """

    def __init__(self, folder: str, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        self._size: int | None = None

    @property
    def size(self) -> int:
        """Stored bytes."""
        if self._size is None:
            self._size = 0
            with suppress(OSError), os.scandir(self._folder) as entries:
                self._size = sum(entry.stat().st_size for entry in entries)
        return self._size

    def put(self, digest: str, content: bytes) -> bool:
        """Store a content; False if the limit is reached or writing fails."""
        path = f"{self._folder}/{digest}"
        if os.path.exists(path):
            return True
        if self.size + len(content) > self._limit:
            return False
        staged = f"{path}.{secrets.token_hex(4)}"
        try:
            if not os.path.isdir(self._folder):
                os.makedirs(self._folder, mode=0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with open(os.open(staged, flags, 0o600), "wb") as file:
                file.write(content)
            os.rename(staged, path)
        except OSError:
            with suppress(OSError):
                os.unlink(staged)
            return False
        self._size = self.size + len(content)
        return True

    def get(self, digest: str) -> bytes | None:
        """Return a content; None where it is not stored (any more)."""
        try:
            with open(f"{self._folder}/{digest}", "rb") as file:
                content = file.read()
        except OSError:
            return None
        return content if digest_of(content) == digest else None

    def drop(self, digests: set[str]) -> None:
        """Delete contents."""
        for digest in digests:
            with suppress(OSError):
                os.unlink(f"{self._folder}/{digest}")
        self._size = None


def digest_of(content: bytes) -> str:
    """Return the digest that identifies a content (BLAKE2b, 20 bytes, in hex)."""
    return hashlib.blake2b(content, digest_size=20).hexdigest()


def stamp_of(status: os.stat_result) -> Stamp:
    """Return metadata that changes whenever a file does, since no program can reset its ctime."""
    if stat.S_ISDIR(status.st_mode):
        return (status.st_mode,)
    return (
        status.st_ctime_ns,
        status.st_mtime_ns,
        status.st_size,
        status.st_ino,
        status.st_mode,
    )


def look_at(
    path: str,
    why_secret: Callable[[str], str] = lambda path: "",
    keep: Callable[[str, bytes], bool] = lambda digest, content: True,
) -> PathState:
    """Return the state of an absolute path; no link in it is followed.

    Args:
        path: the path.
        why_secret: returns why a file's content must not be copied, or "".
        keep: called with the digest and content of a file, to store it; returns False if the limit
            is reached.

    Raises:
        PathChanged: a folder of it is a link now.
    """
    try:
        with folder_of(path) as (folder, name):
            return look_in(folder, name, path, why_secret, keep)
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT


def look_in(
    folder: int,
    name: str,
    path: str,
    why_secret: Callable[[str], str] = lambda path: "",
    keep: Callable[[str, bytes], bool] = lambda digest, content: True,
) -> PathState:
    """Return the state of `name` in an opened folder, as `look_at`; `path` is its whole path."""
    try:
        status = os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return ABSENT
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISDIR(status.st_mode):
        return PathState("folder", mode)
    if stat.S_ISLNK(status.st_mode):
        return PathState("link", target=os.readlink(name, dir_fd=folder))
    if not stat.S_ISREG(status.st_mode):
        return PathState("other", mode)
    if why := why_secret(path):
        return unkept(stamp_of(status), f"protected: {why}")
    if status.st_size > MOST_FILE:
        return unkept(stamp_of(status), f"larger than {MOST_FILE >> 20} MB")
    try:
        content, status = read_with_status(name, MOST_FILE, folder=folder)
    except OSError as error:
        return unkept(stamp_of(status), f"not readable ({clause(error)})")
    digest = digest_of(content)
    if not keep(digest, content):
        return unkept(stamp_of(status), "no room is left for copies")
    return PathState("file", stat.S_IMODE(status.st_mode), digest, len(content))


def unkept(stamp: Stamp, why: str) -> PathState:
    """Return the state of a file whose content is not stored."""
    _, mtime, size, inode, mode = stamp
    seen = f"{size}:{mtime}:{inode}"
    return PathState("file", stat.S_IMODE(mode), size=size, stamp=seen, why=why)


def with_missing_folders(paths: Iterable[str]) -> list[str]:
    """Return absolute paths, and their parent folders that do not exist."""
    found: dict[str, None] = {}
    for path in paths:
        above = os.path.dirname(path)
        while above not in found and not os.path.lexists(above):
            found[above] = None
            above = os.path.dirname(above)
        found[path] = None
    return list(found)
