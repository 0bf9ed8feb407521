"""Performs single steps of restoring files, by whole paths and without following links."""

import hashlib
import os
import shutil
import stat
from contextlib import suppress

from agent_magics.file_history.states import PathState
from agent_magics.files.beneath import closing_descriptor, folder_of, open_file


def staged_name(path: str, what: str = "new") -> str:
    """Return the temporary name of the new or old version of `path`.

    It is deterministic, so that files left by a killed process are found and removed.
    """
    digest = hashlib.blake2b(f"{what}:{path}".encode("utf-8", "surrogateescape"), digest_size=8)
    return f".agent-undo-{digest.hexdigest()}.tmp"


def make(folder: int, name: str, wanted: PathState, data: bytes, like: str) -> None:
    """Create a file or a link in an opened folder, with the owner of the file named `like`."""
    if wanted.kind == "link":
        os.symlink(wanted.target, name, dir_fd=folder)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(name, flags, 0o600, dir_fd=folder), "wb") as file:
        file.write(data)
        # Only root may change a file's owner.
        with suppress(PermissionError, FileNotFoundError):
            status = os.lstat(like, dir_fd=folder)
            if stat.S_ISREG(status.st_mode):
                os.fchown(file.fileno(), status.st_uid, status.st_gid)
        os.fchmod(file.fileno(), wanted.mode)


def make_folder(path: str, mode: int) -> None:
    """Create a folder."""
    with folder_of(path) as (folder, name):
        os.mkdir(name, 0o700, dir_fd=folder)
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


def link(folder: int, name: str, backup: str) -> None:
    """Create a hard link to a file as a backup; a copy where hard links are not supported."""
    try:
        os.link(name, backup, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError:
        if stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode):
            os.symlink(os.readlink(name, dir_fd=folder), backup, dir_fd=folder)
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with (
            open(open_file(name, folder), "rb") as old,
            open(os.open(backup, flags, 0o600, dir_fd=folder), "wb") as new,
        ):
            shutil.copyfileobj(old, new)
            os.fchmod(new.fileno(), stat.S_IMODE(os.fstat(old.fileno()).st_mode))


def rename(one: str, other: str) -> None:
    """Replace one file by another atomically."""
    with folder_of(one) as (source, name), folder_of(other) as (target, new_name):
        os.replace(name, new_name, src_dir_fd=source, dst_dir_fd=target)


def unlink(path: str) -> None:
    """Remove a file."""
    with folder_of(path) as (folder, name):
        os.unlink(name, dir_fd=folder)
