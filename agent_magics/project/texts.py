"""Cleans the texts that a project has for agents, and reads all files of a folder of them.

The files may be hostile. So no link is followed below the folder that is opened, and sizes, numbers
and depths are bounded.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from agent_magics.files.beneath import PathChanged, closing_descriptor, open_folder
from agent_magics.files.paths import is_second_name, printable
from agent_magics.files.plain_files import NotPlain, read_with_status
from agent_magics.protocol.errors import clause
from agent_magics.text.invisible import clean_text

MOST_FILES, MOST_BYTES, MOST_FOLDERS_DEEP = 500, 8 << 20, 8


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A regular file below a folder.

    Attributes:
        path: relative to the folder, with "/".
        folder: descriptor of its own folder, open only while the entries are gone through.
    """

    path: str
    status: os.stat_result
    folder: int

    def read(self) -> bytes:
        """Return the file's content.

        Raises:
            OSError: it cannot be read.
        """
        return read_file(self.path.rpartition("/")[2], MOST_BYTES, folder=self.folder)


def read_file(
    path: str | Path, most: int = MOST_BYTES, *, folder: int | None = None, links: bool = False
) -> bytes:
    """Read a file that a project has for agents; for the arguments see `read_plain`.

    Raises:
        NotPlain: `read_plain` does not read it, or it is a hard link to a key or the like.
        OSError: it cannot be opened.
    """
    data, status = read_with_status(path, most, folder=folder, links=links)
    if is_second_name(status, ()):
        raise NotPlain(errno.EPERM, "it is a second name of a protected file", str(path))
    return data


def decode_text(data: bytes) -> str:
    """Return a file's content as clean text.

    Raises:
        ValueError: it is not UTF-8.
    """
    try:
        return clean_text(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from None


def open_listed(name: str, folder: int | None = None, *, links: bool = False) -> int:
    """Open a folder whose entries are to be listed; the caller closes the descriptor.

    Args:
        name: its path.
        folder: descriptor of the folder to which `name` is relative.
        links: whether a final link is followed.

    Raises:
        NotPlain: it is a link.
        OSError: it is missing, or no folder.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW)
    try:
        return os.open(name, flags, dir_fd=folder)
    except NotADirectoryError:
        if stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode):
            raise NotPlain(errno.ELOOP, "it is a symbolic link") from None
        raise


def opened(
    path: Path, *, links: bool = False, on_missing: Callable[[str, int], None] | None = None
) -> AbstractContextManager[int]:
    """Open a folder whose entries are to be listed, until the end of the block.

    Args:
        path: its absolute path.
        links: whether links in the path are followed, as in the person's own folders.
        on_missing: without `links`, creates a missing folder; see `open_folder`.

    Raises:
        OSError: it is missing, no folder, or (without `links`) below a link.
    """
    if links:
        descriptor = open_listed(os.fspath(path), links=True)
    else:
        with closing_descriptor(open_folder(os.fspath(path), on_missing=on_missing)) as parent:
            descriptor = open_listed(".", parent)
    return closing_descriptor(descriptor)


def reason_of(error: OSError) -> str:
    """Return why a file or folder is not read, in a few words."""
    if isinstance(error, PathChanged):
        return "a part of its path is a symbolic link"
    return clause(error) if isinstance(error, NotPlain) else "it cannot be opened"


def names_in(folder: int) -> list[str]:
    """Return the names of a folder's entries in order, at most one more than `MOST_FILES`."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in islice(entries, MOST_FILES + 1))


def entries_below(folder: int) -> Iterator[ListedFile]:
    """Yield the files below a folder, in the order of their names.

    Args:
        folder: its descriptor.

    Raises:
        NotPlain: it holds a link or a device, or it is too large.
        OSError: it cannot be read.
    """
    names = size = 0
    for entry in _walk(folder, ""):
        names, size = names + 1, size + entry.status.st_size
        if names > MOST_FILES:
            raise NotPlain(errno.EFBIG, f"it holds more than {MOST_FILES} files and folders")
        if size > MOST_BYTES:
            raise NotPlain(errno.EFBIG, f"it holds more than {MOST_BYTES >> 20} MiB")
        if stat.S_ISREG(entry.status.st_mode):
            yield entry


def _walk(folder: int, prefix: str) -> Iterator[ListedFile]:
    """Yield files and folders; a folder comes before what is in it."""
    if prefix.count("/") > MOST_FOLDERS_DEEP:
        raise NotPlain(errno.EFBIG, f"its folders are more than {MOST_FOLDERS_DEEP} deep")
    for name in names_in(folder):
        status, path = os.lstat(name, dir_fd=folder), f"{prefix}{name}"
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            kind = "a link" if stat.S_ISLNK(status.st_mode) else "no regular file"
            raise NotPlain(errno.EINVAL, f"{printable(path)} in it is {kind}")
        yield ListedFile(path, status, folder)
        if stat.S_ISDIR(status.st_mode):
            with closing_descriptor(open_listed(name, folder)) as deeper:
                yield from _walk(deeper, f"{path}/")
