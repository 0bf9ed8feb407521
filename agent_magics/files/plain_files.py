"""Reads only regular files, of bounded size and nesting depth, since a command may have made them.

Here is also how a file is replaced as a whole, and by what it is seen to have changed.

Law: no file that the kernel reads by itself can block it, exhaust its memory or redirect it.
"""

import errno
import json
import os
import re
import secrets
import stat
import time
import tomllib
from contextlib import suppress
from itertools import accumulate, count
from pathlib import Path
from typing import Any, TypeAlias

from agent_magics.files.beneath import closing_descriptor

MOST_BYTES = 1 << 20  # of a configuration file
DEEPEST = 64  # nested brackets, and names of one dotted key
_MOST_LINES = 20_000  # of a TOML text, but for those in strings

# Does not wait for the writer of a FIFO, and does not make a terminal the controlling one.
_FLAGS = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

# Strings and comments. An unclosed one reaches to the end of the text: searching again from each of
# its characters would take quadratic time.
_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_TOML_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?(?:"""|\Z)'
    r"|'''.*?(?:'''|\Z)"
    r'|"(?:[^"\\\n]|\\.)*+"?'
    r"|'[^'\n]*+'?"
    r"|#[^\n]*+",
    re.DOTALL,
)
_BRACKET = re.compile(r"[\[\]{}]")
_LONG_WORD = re.compile(r"\w{1001}")  # such as a number that takes long to be written
_LONG_KEY = re.compile(rf"(?<![\w-])[\w-]++(?:[ \t]*+\.[ \t]*+[\w-]++){{{DEEPEST}}}")

Stamp: TypeAlias = tuple[int, ...]  # of a file; see `file_stamp`
_TICK = 2_000_000_000  # nanoseconds, of the coarsest file system (FAT)
_LOOKS = count()


class NotPlain(OSError):
    """The file is not read: it is not a regular file, is a link, or is too large."""


def read_plain(
    path: str | os.PathLike[str],
    most: int = MOST_BYTES,
    *,
    folder: int | None = None,
    links: bool = False,
) -> bytes:
    """Read the bytes of a regular file.

    Args:
        path: the file.
        most: its maximal size in bytes.
        folder: descriptor of the folder to which a relative `path` is relative.
        links: whether a final symlink is followed; only for the person's own files.

    Raises:
        NotPlain: it is not a regular file, or too large; `strerror` says which.
        OSError: as raised by `os.open` and `os.read`.
    """
    return read_with_status(path, most, folder=folder, links=links)[0]


def read_with_status(
    path: str | os.PathLike[str],
    most: int = MOST_BYTES,
    *,
    folder: int | None = None,
    links: bool = False,
) -> tuple[bytes, os.stat_result]:
    """Read a regular file as `read_plain` does; return its bytes and its status before the
    reading.
    """
    with closing_descriptor(open_plain(path, folder=folder, links=links)) as descriptor:
        status = os.fstat(descriptor)
        return _read(descriptor, status.st_size, most, path), status


def open_plain(
    path: str | os.PathLike[str],
    flags: int = os.O_RDONLY,
    *,
    folder: int | None = None,
    links: bool = False,
    mode: int = 0o600,
) -> int:
    """Open a regular file of any size; the caller closes the descriptor.

    Args:
        path: the file.
        flags: those of `os.open` that say what for.
        folder: descriptor of the folder to which a relative `path` is relative.
        links: whether a final symlink is followed; only for the person's own files.
        mode: the permission bits of a new file.

    Raises:
        NotPlain: it is not a regular file; `strerror` says why.
        OSError: as raised by `os.open`.
    """
    flags |= _FLAGS | (0 if links else os.O_NOFOLLOW)
    descriptor = _open(path, flags, mode, folder)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotPlain(errno.EINVAL, "it is no regular file", os.fspath(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _open(path: str | os.PathLike[str], flags: int, mode: int, folder: int | None) -> int:
    try:
        return os.open(path, flags, mode, dir_fd=folder)
    except ValueError:  # the path holds a NUL
        raise NotPlain(errno.EINVAL, "its name holds a NUL", os.fspath(path)) from None
    except OSError as error:
        if error.errno == errno.ELOOP and flags & os.O_NOFOLLOW:
            raise NotPlain(errno.ELOOP, "it is a symbolic link", os.fspath(path)) from None
        if error.errno == errno.ENXIO:  # of a socket
            raise NotPlain(errno.ENXIO, "it is no regular file", os.fspath(path)) from None
        raise


def _read(descriptor: int, expected: int, most: int, path: str | os.PathLike[str]) -> bytes:
    """Read to the end of the file, whose size may have changed since `expected` was determined."""
    blocks, size = list[bytes](), 0
    while expected <= most and size <= most:
        block = os.read(descriptor, max(expected - size, 0) + 1)
        if not block:
            return b"".join(blocks)
        blocks.append(block)
        size += len(block)
    shown = f"{most >> 20} MiB" if most >= 1 << 20 else f"{most} bytes"
    raise NotPlain(errno.EFBIG, f"it is larger than {shown}", os.fspath(path))


def load_json(data: str | bytes) -> Any:
    """Parse JSON text as `json.loads` does, with limited nesting depth.

    Raises:
        ValueError: it is not JSON (`json.JSONDecodeError` says where), or nested too deeply.
    """
    text = data if isinstance(data, str) else data.decode("utf-8")
    _check_depth(_JSON_STRING.sub("", text))
    return json.loads(text.removeprefix("\ufeff"))


def load_toml(text: str) -> dict[str, object]:
    """Parse TOML text as `tomllib.loads` does, with limited nesting depth.

    Raises:
        ValueError: it is not TOML (`tomllib.TOMLDecodeError` says where), or nested too deeply.
    """
    outline = _TOML_STRING.sub("s", text)
    _check_depth(outline)
    if _LONG_KEY.search(outline):
        raise ValueError(f"a key of more than {DEEPEST} names")
    if outline.count("\n") > _MOST_LINES:
        raise ValueError(f"more than {_MOST_LINES:,} lines")
    if _LONG_WORD.search(outline):
        raise ValueError("a word or number of more than 1,000 signs")
    return tomllib.loads(text)


def _check_depth(outline: str) -> None:
    steps = (1 if bracket in "[{" else -1 for bracket in _BRACKET.findall(outline))
    if max(accumulate(steps), default=0) > DEEPEST:
        raise ValueError(f"nested too deeply, more than {DEEPEST} brackets")


def stamp_of(found: os.stat_result) -> Stamp:
    """Return what every write to a file changes: device, inode, size and times."""
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def file_stamp(path: str | os.PathLike[str], *, links: bool = True) -> Stamp:
    """Return the stamp of a file, or of what a final link leads to; () where there is none.

    That of a file which has just changed equals no other, since one more change within the same
    tick of the file system's clock would not alter its times.
    """
    try:
        found = os.stat(path, follow_symlinks=links)
    except (OSError, ValueError):  # a NUL in its name
        return ()
    is_settled = found.st_ctime_ns < time.time_ns() - _TICK
    return stamp_of(found) if is_settled else (*stamp_of(found), next(_LOOKS))


def replace_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a new file beside `path`, flush it to the disk, and let it take the name.

    Args:
        path: the file; its folder must exist.
        content: all bytes of the new file.
        mode: its permission bits; while it is written, only its owner may read it.

    Raises:
        OSError: it could not be written; the old file is unchanged.
    """
    # Named first: an interrupt may come just after it was made.
    beside = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        with os.fdopen(open_plain(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
