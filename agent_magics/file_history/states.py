"""What stands at a path (a file, a link, a folder, nothing), as it is compared and put back.

Law: contents are known by their digest. What is too large or too secret to be copied has none, is
compared by its stamp, and can be told but not put back.
"""

import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from agent_magics.backends.beneath import folder_of, open_file

# Bytes of one file that are kept; most of what people write is far smaller.
MOST_FILE = 8 * 1024 * 1024

Kind = Literal["absent", "file", "link", "folder", "other"]
Stamp = tuple[int, ...]  # ctime, mtime, size, inode, mode; of a folder the mode alone


@dataclass(frozen=True, slots=True)
class PathState:
    """What stands at one path.

    Attributes:
        mode: permissions of a file or folder.
        digest: of a file's content; "" where that is not kept.
        size: bytes of a file.
        target: what a link says.
        stamp: tells versions of a file apart whose content is not kept.
        why: why it is not kept, in words.
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
        """Whether it can be put back."""
        return self.kind in ("absent", "link", "folder") or bool(self.digest)

    def to_json(self) -> dict[str, Any]:
        """Return its fields, without those that say nothing."""
        shown = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in shown.items() if value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "PathState":
        """Return what `to_json` was made of."""
        return cls(**data)


ABSENT = PathState()


@dataclass(frozen=True, slots=True)
class PathChange:
    """One path that became something else.

    Attributes:
        path: absolute, without links.
    """

    path: str
    before: PathState
    after: PathState


class ContentStore:
    """Contents by digest, each a private file of its own; written whole or not at all.

    Args:
        folder: made when the first content comes.
        limit: bytes that may be kept.
    """

    def __init__(self, folder: str, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        self._size: int | None = None

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        if self._size is None:
            self._size = 0
            with suppress(OSError), os.scandir(self._folder) as entries:
                self._size = sum(entry.stat().st_size for entry in entries)
        return self._size

    def put(self, digest: str, content: bytes) -> bool:
        """Keep a content; False where there is no room or no disk for it."""
        path = f"{self._folder}/{digest}"
        if os.path.exists(path):
            return True
        if self.size + len(content) > self._limit:
            return False
        staged = f"{path}.{secrets.token_hex(4)}"
        try:
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
        """Return a content; None where it is not kept (any more)."""
        try:
            with open(f"{self._folder}/{digest}", "rb") as file:
                content = file.read()
        except OSError:
            return None
        return content if digest_of(content) == digest else None

    def drop(self, digests: set[str]) -> None:
        """Forget contents."""
        for digest in digests:
            with suppress(OSError):
                os.unlink(f"{self._folder}/{digest}")
        self._size = None


def digest_of(content: bytes) -> str:
    """Return what a content is known by."""
    return hashlib.blake2b(content, digest_size=20).hexdigest()


def stamp_of(status: os.stat_result) -> Stamp:
    """Return what changes whenever a file does, since no program can set its ctime back."""
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
    """Return what stands at an absolute path; no link in it is followed.

    Args:
        path: the path.
        why_secret: says why a file's content must not be copied, or "".
        keep: is handed each content with its digest; False says that it has no room.

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
    """Do the same for a name in an opened folder; `path` is its whole path."""
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
        return unkept(status, f"protected: {why}")
    if status.st_size > MOST_FILE:
        return unkept(status, f"larger than {MOST_FILE >> 20} MB")
    try:
        with open(open_file(name, folder), "rb") as file:
            status = os.fstat(file.fileno())
            content = file.read(MOST_FILE + 1)
    except OSError as error:
        return unkept(status, f"not readable ({error.strerror})")
    digest = digest_of(content)
    if not keep(digest, content):
        return unkept(status, "no room is left for copies")
    return PathState("file", stat.S_IMODE(status.st_mode), digest, len(content))


def unkept(status: os.stat_result, why: str) -> PathState:
    """Return the state of a file whose content is not kept."""
    stamp = f"{status.st_size}:{status.st_mtime_ns}:{status.st_ino}"
    mode = stat.S_IMODE(status.st_mode)
    return PathState("file", mode, size=status.st_size, stamp=stamp, why=why)


def with_missing_folders(paths: Iterable[str]) -> list[str]:
    """Return absolute paths, and the folders above them that are not there."""
    found: dict[str, None] = {}
    for path in paths:
        above = os.path.dirname(path)
        while above not in found and not os.path.lexists(above):
            found[above] = None
            above = os.path.dirname(above)
        found[path] = None
    return list(found)
