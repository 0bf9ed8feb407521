"""Opening exactly the file that was judged, whatever is put in its place meanwhile.

A path is judged after every symlink in it was followed. Between that and the opening a folder of it
can be swapped for a link that leads elsewhere. So here a path is walked name by name, each opened
in the folder opened before it, and a link is never followed: what opens is where its path says.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

# Linux can hold a folder without the right to list it; elsewhere it has to be readable.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_TRIES = 100
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class PathChanged(OSError):
    """A part of the path is a symbolic link now; when it was judged there was none."""


def real_path(path: str | os.PathLike[str]) -> str:
    """Return `path` with every link followed, as `os.path.realpath` does; it need not exist.

    Where a link is swapped for a folder between two of its steps, that function fails; then it is
    asked again.

    Raises:
        PathChanged: the path changes all the time.
    """
    for _ in range(_MOST_TRIES):
        try:
            return os.path.realpath(path)
        except OSError:
            continue
    raise PathChanged(errno.ELOOP, "changes while it is looked at", os.fspath(path))


def open_folder(
    path: str, start: int | None = None, on_missing: Callable[[str, int], None] | None = None
) -> int:
    """Open a folder without following any link; the caller closes the descriptor.

    Args:
        path: an absolute path without links; or, with `start`, a relative one without "..".
        start: descriptor of the folder where `path` starts; it stays open.
        on_missing: called with a name that is not there and the folder it should be in, to make it.

    Raises:
        PathChanged: one of its names is a link now.
        OSError: it is not there, no folder, or may not be entered.
    """
    folder = os.open("/", _FOLDER) if start is None else os.dup(start)
    try:
        for name in path.split("/"):
            if name in ("", "."):
                continue
            if name == "..":  # leads out of a folder that was swapped
                raise PathChanged(errno.EXDEV, "is no plain path", path)
            if on_missing is not None and not exists_at(name, folder):
                on_missing(name, folder)
            deeper = _open_at(name, _FOLDER, folder)
            os.close(folder)
            folder = deeper
    except BaseException:
        os.close(folder)
        raise
    return folder


@contextmanager
def folder_of(path: str) -> Iterator[tuple[int, str]]:
    """Open the folder of a file as `open_folder` does; give its descriptor and the file's name."""
    parent, name = os.path.split(path)
    folder = open_folder(parent)
    try:
        yield folder, name
    finally:
        os.close(folder)


def open_file(path: str, folder: int | None = None) -> int:
    """Open a file for reading without following any link; the caller closes the descriptor.

    Args:
        path: an absolute path without links; or, with `folder`, a name.
        folder: descriptor of the folder it stands in.

    A FIFO does not block and a terminal does not become ours; whether the file is a regular one is
    the caller's question.

    Raises:
        PathChanged: one of its names is a link now.
        OSError: as `os.open` has it.
    """
    if folder is not None:
        return _open_at(path, _READ, folder)
    with folder_of(path) as (parent, name):
        return _open_at(name or ".", _READ, parent)


def exists_at(name: str, folder: int) -> bool:
    """Tell whether an opened folder has an entry of that name."""
    with suppress(FileNotFoundError):
        os.lstat(name, dir_fd=folder)
        return True
    return False


def _open_at(name: str, flags: int, folder: int) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        # A link, where none may be followed: ELOOP, and ENOTDIR where a folder was asked for.
        if _is_link(name, folder):
            raise PathChanged(errno.ELOOP, "is a symbolic link now", name) from None
        raise


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode)
    except OSError:
        return False
