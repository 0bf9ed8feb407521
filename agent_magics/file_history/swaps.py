"""Performs single steps of restoring files, by whole paths and without following links."""

import hashlib
import os
import stat

from agent_magics.file_history.states import PathState
from agent_magics.files.beneath import closing_descriptor, create_file, folder_of, take_over


def staged_name(path: str, what: str = "new") -> str:
    """Return the temporary name of the new or old version of `path`.

    It is deterministic, so that files left by a killed process are found and removed.
    """
    digest = hashlib.blake2b(f"{what}:{path}".encode("utf-8", "surrogateescape"), digest_size=8)
    return f".agent-undo-{digest.hexdigest()}.tmp"


def make(folder: int, name: str, wanted: PathState, data: bytes, like: str) -> None:
    """Create a file or a link in an opened folder, with what `like` has beside content and mode."""
    if wanted.kind == "link":
        os.symlink(wanted.target, name, dir_fd=folder)
        return
    with open(create_file(name, folder), "wb") as file:
        file.write(data)
        take_over(file.fileno(), like, folder)
        os.fchmod(file.fileno(), wanted.mode)


def make_folder(path: str, mode: int = 0o700) -> None:
    """Create a folder."""
    with folder_of(path) as (folder, name):
        os.mkdir(name, 0o700, dir_fd=folder)
    if mode != 0o700:
        set_mode(path, mode)


def remove_folder(path: str) -> None:
    """Remove an empty folder."""
    with folder_of(path) as (folder, name):
        os.rmdir(name, dir_fd=folder)


def set_mode(path: str, mode: int) -> None:
    """Set the permissions of a file or folder."""
    with folder_of(path) as (folder, name):
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            opened = os.open(name, flags, dir_fd=folder)
        except PermissionError:  # its mode does not allow reading
            _set_unreadable_mode(folder, name, mode)
            return
        try:
            os.fchmod(opened, mode)
        finally:
            os.close(opened)


def _set_unreadable_mode(folder: int, name: str, mode: int) -> None:
    held = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    with closing_descriptor(held):
        if not stat.S_ISLNK(os.fstat(held).st_mode):
            os.chmod(f"/proc/self/fd/{held}", mode)


def rename(one: str, other: str) -> None:
    """Replace one file by another atomically."""
    with folder_of(one) as (source, name), folder_of(other) as (target, new_name):
        os.replace(name, new_name, src_dir_fd=source, dst_dir_fd=target)


def unlink(path: str) -> None:
    """Remove a file."""
    with folder_of(path) as (folder, name):
        os.unlink(name, dir_fd=folder)
