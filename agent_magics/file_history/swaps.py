"""Performs single steps of restoring files, by whole paths and without following links."""

import hashlib
import os

from agent_magics.file_history.states import PathState
from agent_magics.files.beneath import create_file, folder_of, set_mode_at, take_over


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
        set_mode_at(name, folder, mode)


def rename(one: str, other: str) -> None:
    """Replace one file by another atomically."""
    with folder_of(one) as (source, name), folder_of(other) as (target, new_name):
        os.replace(name, new_name, src_dir_fd=source, dst_dir_fd=target)


def unlink(path: str) -> None:
    """Remove a file."""
    with folder_of(path) as (folder, name):
        os.unlink(name, dir_fd=folder)
