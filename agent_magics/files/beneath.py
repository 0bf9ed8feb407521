"""Opens files by descriptor, folder by folder, so that no symbolic link can redirect a checked
path.

A path is checked after every symlink in it was resolved. Between the check and the opening a folder
of it could be replaced by a link (a time-of-check to time-of-use race). So a path is opened name by
name, each relative to the descriptor of the folder before it, with ``O_NOFOLLOW``; or at once,
where the system then says that what was opened stands at that very path.
"""

import errno
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

# With O_PATH (Linux) a folder can be opened without the right to list it.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_TRIES = 100
_MOST_NAMES = 400  # of a path and the links in it
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class PathChanged(OSError):
    """A part of the path is now a symbolic link, and was none when the path was checked."""


def is_below(path: str, folders: Sequence[str]) -> bool:
    """Tell whether `path` is one of `folders` or below one; compares their text only."""
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def real_path(path: str | os.PathLike[str]) -> str:
    """Return `path` with every symbolic link resolved, as `os.path.realpath` does; it need not
    exist.

    `os.path.realpath` fails where a link is replaced by a folder between two of its steps; it is
    then called again.

    Raises:
        PathChanged: the path keeps changing.
    """
    for _ in range(_MOST_TRIES):
        try:
            return _opened_place(path) or os.path.realpath(path)
        except OSError:
            continue
    raise PathChanged(errno.ELOOP, "changes while it is looked at", os.fspath(path))


def folders_of_links(path: str) -> Iterator[str]:
    """Yield the folder, without links, of each symbolic link that leads on from an absolute path.

    Raises:
        PathChanged: it has too many names, or links in a circle.
    """
    place, waiting = "/", path.split("/")[::-1]
    for _ in range(_MOST_NAMES):
        if not waiting:
            return
        name = waiting.pop()
        found = os.path.normpath(f"{place}/{name}").replace("//", "/")
        if not os.path.islink(found):
            place = found
            continue
        yield place
        with suppress(OSError):  # gone meanwhile
            target = os.readlink(found)
            place = "/" if target.startswith("/") else place
            waiting += target.split("/")[::-1]
    raise PathChanged(errno.ELOOP, "has too many names and links", path)


def _opened_place(path: str | os.PathLike[str]) -> str:
    """Return where the system finds `path`, which takes it one look; "" where it does not say."""
    if not hasattr(os, "O_PATH"):
        return ""
    try:
        with closing_descriptor(os.open(path, os.O_PATH | os.O_CLOEXEC)) as descriptor:
            return _place_of(descriptor)
    except OSError:  # it is missing, or only a part of it may be looked up
        return ""


def _place_of(descriptor: int) -> str:
    """Return the path of what was opened, without links; "" where the system does not say."""
    try:
        place = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""
    # Otherwise it has no place: a pipe, or what was removed meanwhile.
    return place if place.startswith("/") and not place.endswith(" (deleted)") else ""


@contextmanager
def closing_descriptor(descriptor: int) -> Iterator[int]:
    """Close a descriptor at the end of the block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_folder(
    path: str, start: int | None = None, on_missing: Callable[[str, int], None] | None = None
) -> int:
    """Open a folder without following any symbolic link; the caller closes the descriptor.

    Args:
        path: an absolute path without links; or, with `start`, a relative one without "..".
        start: descriptor of the folder to which `path` is relative; it stays open.
        on_missing: called with a missing name and its parent's descriptor, to create the folder.

    Returns:
        A file descriptor.

    Raises:
        PathChanged: one of its names is a link now.
        OSError: it does not exist, is no folder, or may not be entered.
    """
    if start is None and (whole := _open_at_once(path)) is not None:
        return whole
    folder = os.open("/", _FOLDER) if start is None else os.dup(start)
    try:
        for name in path.split("/"):
            if name in ("", "."):
                continue
            if name == "..":  # would leave a folder that was replaced
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


def _open_at_once(path: str) -> int | None:
    """Open a folder by its whole path; None where it is missing, or a link led to another place."""
    try:
        folder = os.open(path, _FOLDER)
    except OSError:
        return None
    if _place_of(folder) == path:
        return folder
    os.close(folder)
    return None


@contextmanager
def folder_of(path: str) -> Iterator[tuple[int, str]]:
    """Open the parent folder of a file as `open_folder` does; yield its descriptor and the
    file's name.
    """
    parent, name = os.path.split(path)
    with closing_descriptor(open_folder(parent)) as folder:
        yield folder, name


def open_file(path: str, folder: int | None = None) -> int:
    """Open a file for reading without following any symbolic link; the caller closes the
    descriptor.

    The call does not block on a FIFO, and does not make a terminal the controlling one. The caller
    checks whether the file is a regular one.

    Args:
        path: an absolute path without links; or, with `folder`, a name.
        folder: descriptor of the folder that contains it.

    Returns:
        A file descriptor.

    Raises:
        PathChanged: one of its names is a link now.
        OSError: as raised by `os.open`.
    """
    if folder is not None:
        return _open_at(path, _READ, folder)
    with folder_of(path) as (parent, name):
        return _open_at(name or ".", _READ, parent)


def create_file(name: str, folder: int, mode: int = 0o600) -> int:
    """Create a file in an opened folder, in which nothing has this name, and open it to write it.

    Raises:
        FileExistsError: something has this name, such as a link.
        OSError: it cannot be created.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(name, flags, mode, dir_fd=folder)


def take_over(descriptor: int, name: str, folder: int) -> None:
    """Give a new file the owner, the list of rights (ACL) and the person's own attributes of the
    regular file `name`, as far as this user may read and set them.
    """
    with suppress(OSError), closing_descriptor(open_file(name, folder)) as old:
        status = os.fstat(old)
        if not stat.S_ISREG(status.st_mode):
            return
        with suppress(OSError):  # only root may set an owner, and in a container not any
            os.fchown(descriptor, status.st_uid, status.st_gid)
        # The list of rights first: a file may have no room for all.
        for attribute in sorted(os.listxattr(old)) if sys.platform == "linux" else ():
            # Not those of the system, such as the capabilities of a program, which a change ends.
            if attribute.startswith("user.") or attribute == "system.posix_acl_access":
                with suppress(OSError):
                    os.setxattr(descriptor, attribute, os.getxattr(old, attribute))


def back_up(name: str, backup: str, folder: int) -> None:
    """Give a file or a link a second name in its opened folder; where it can have none, copy it."""
    try:
        os.link(name, backup, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError:
        if _is_link(name, folder):
            os.symlink(os.readlink(name, dir_fd=folder), backup, dir_fd=folder)
        else:
            _copy(name, backup, folder)


def _copy(name: str, copy: str, folder: int) -> None:
    """Copy a file as a whole or not at all: an incomplete copy must never be restored."""
    part = f"{copy}.part"
    with suppress(FileNotFoundError):  # what a killed kernel has left
        os.unlink(part, dir_fd=folder)
    try:
        with (
            open(open_file(name, folder), "rb") as old,
            open(create_file(part, folder), "wb") as new,
        ):
            status = os.fstat(old.fileno())
            shutil.copyfileobj(old, new)
            take_over(new.fileno(), name, folder)
            os.fchmod(new.fileno(), stat.S_IMODE(status.st_mode))
            os.utime(new.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
        os.rename(part, copy, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(part, dir_fd=folder)
        raise


def set_mode_at(name: str, folder: int, mode: int) -> None:
    """Set the permissions of a file or folder in an opened folder, also where it may not be read.

    Raises:
        OSError: it is a link, or belongs to another user.
    """
    try:
        with closing_descriptor(_open_at(name, _READ, folder)) as opened:
            os.fchmod(opened, mode)
    except PermissionError:  # its mode does not allow reading
        flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
        with closing_descriptor(_open_at(name, flags, folder)) as held:
            os.chmod(f"/proc/self/fd/{held}", mode)


def exists_at(name: str, folder: int) -> bool:
    """Tell whether the folder with descriptor `folder` has an entry `name`."""
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
        # O_NOFOLLOW on a link gives ELOOP, or ENOTDIR together with O_DIRECTORY.
        if _is_link(name, folder):
            raise PathChanged(errno.ELOOP, "is a symbolic link now", name) from None
        raise


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode)
    except OSError:
        return False
