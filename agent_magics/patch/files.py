"""Reads text files to be changed, and replaces several files atomically.

Law: nothing is replaced before all new content is written beside its target; each target is then
replaced in one step, and earlier replacements are undone if a later one fails.
"""

import os
import secrets
import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agent_magics.files.beneath import (
    back_up,
    create_file,
    exists_at,
    folder_of,
    open_folder,
    take_over,
)
from agent_magics.files.locks import own_write
from agent_magics.files.plain_files import read_with_status
from agent_magics.patch.match import Edit
from agent_magics.protocol.errors import RespondToModel, clause, short_message

_MOST_BYTES = 64 << 20  # size limit of a file to change
_BOM = "\ufeff"
_NOTHING_DONE = "Nothing was changed; look at it again and make a new patch."
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link",
}


@dataclass(frozen=True, slots=True)
class TextFile:
    """The content of a text file as lines.

    Attributes:
        raw: the lines without line feeds, but with carriage returns before them.
        terminated: whether the last line has a line break.
        bom: whether it begins with a byte order mark.
    """

    raw: tuple[str, ...] = ()
    terminated: bool = True
    bom: bool = False

    @property
    def lines(self) -> list[str]:
        """The lines without their line breaks."""
        lines = [line.removesuffix("\r") for line in self.raw]
        # Where no line feed follows, a carriage return is part of the line.
        return lines if self.terminated else [*lines[:-1], *self.raw[-1:]]

    def as_written(self, text: str) -> str:
        """Return a text for this file without a byte order mark that the file already has."""
        return text.removeprefix(_BOM) if self.bom else text

    def encode(self) -> bytes:
        """Return the file's bytes."""
        body = "\n".join(self.raw) + ("\n" if self.raw and self.terminated else "")
        return ((_BOM if self.bom else "") + body).encode("utf-8")

    def edited(self, edits: Iterable[Edit]) -> "TextFile":
        """Return the file after `edits`, which are in order and do not overlap.

        A replaced line keeps its kind of line break, an inserted one gets that of the line
        above; a missing line break at the end stays missing only while that line is neither changed
        nor moved.
        """
        raw: list[str] = []
        at = 0
        terminated = self.terminated
        for edit in edits:
            raw += self.raw[at : edit.start]
            for number, line in enumerate(edit.lines):
                like = (
                    min(edit.start + number, edit.end - 1)
                    if edit.end > edit.start
                    else edit.start - 1
                )
                raw.append(line + self._carriage_return(like))
            at = edit.end
            terminated |= at == len(self.raw)
        raw += self.raw[at:]
        return TextFile(tuple(raw), terminated, self.bom)

    def _carriage_return(self, number: int) -> str:
        """Return the carriage return before the line feed of line `number`, or of the nearest
        complete line, or "".
        """
        if number == len(self.raw) - 1 and not self.terminated:
            number -= 1
        number = max(number, 0)
        has_end = number < len(self.raw) - (not self.terminated)
        return "\r" if has_end and self.raw[number].endswith("\r") else ""


@dataclass(frozen=True, slots=True)
class FileState:
    """A file's content and status, as it was read."""

    text: TextFile
    status: os.stat_result
    path: Path


@dataclass(frozen=True, slots=True)
class FileWrite:
    """The new content of one file, or its removal.

    Attributes:
        name: the path as the model wrote it, for messages.
        before: the file as it was read; None where there was none.
        after: the new bytes; None removes the file.
        like: the file whose owner, rights and attributes the new one gets; None for the defaults.
        is_link: whether a symbolic link itself is written; `after` is then its target.
    """

    name: str
    path: Path
    before: FileState | None
    after: bytes | None
    like: FileState | None = None
    is_link: bool = False


def decode_text(data: bytes) -> TextFile:
    """Parse a file's bytes as lines.

    Raises:
        ValueError: the bytes are not UTF-8 text; the message says why.
    """
    if b"\0" in data:
        raise ValueError("it is binary (it holds NUL bytes)")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"it is not UTF-8 text (byte 0x{data[error.start]:02x} at {error.start})"
        ) from None
    bom = text.startswith(_BOM)
    raw = text.removeprefix(_BOM).split("\n")
    terminated = not raw[-1]
    return TextFile(tuple(raw[:-1] if terminated else raw), terminated, bom)


def read_state(name: str, path: Path) -> FileState | None:
    """Read the file at `path` as text; None where it does not exist.

    Raises:
        RespondToModel: it exists, but is not a readable regular file of UTF-8 text.
    """
    if ".ipynb" in (path.suffix.lower(), Path(name).suffix.lower()):
        raise RespondToModel(
            f"{name} is a notebook, which is not changed as text: use the notebook tools for the "
            "one that is open, and Python (nbformat) or a command for others"
        )
    if str(name).endswith("/"):
        raise RespondToModel(f"{name} is the name of a folder; give the file's")
    if _status(name, path) is None:
        return None
    try:
        with folder_of(str(path)) as (folder, entry):
            data, status = read_with_status(entry, _MOST_BYTES, folder=folder)
        return FileState(decode_text(data), status, path)
    except ValueError as error:
        why = f"{short_message(error)}; change or remove it with Python or a command"
        raise RespondToModel(f"{name} cannot be patched: {why}") from None
    except OSError as error:
        raise RespondToModel(f"{name} cannot be read: {clause(error)}") from None


def read_link(name: str, path: Path) -> FileState | None:
    """Read the symbolic link at `path`, with its target as the text; None where there is none.

    Raises:
        RespondToModel: it cannot be examined.
    """
    try:
        with folder_of(str(path)) as (folder, entry):
            status = os.lstat(entry, dir_fd=folder)
            if not stat.S_ISLNK(status.st_mode):
                return None
            leads_to = os.readlink(entry, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RespondToModel(f"{name} cannot be looked at: {clause(error)}") from None
    return FileState(TextFile((leads_to,), terminated=False), status, path)


def is_read_only(status: os.stat_result) -> bool:
    """Tell whether no write permission is set, as in mode 0444."""
    return stat.S_ISREG(status.st_mode) and not status.st_mode & 0o222


def _status(name: str, path: Path, *, is_link: bool = False) -> os.stat_result | None:
    """Return the status of a regular file, None where it does not exist; refuse other kinds."""
    try:
        with folder_of(str(path)) as (folder, entry):
            return _status_in(folder, entry, name, is_link=is_link)
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise RespondToModel(f"{name}: a part of its path is a file, not a folder") from None
    except OSError as error:
        raise RespondToModel(f"{name} cannot be looked at: {clause(error)}") from None


def _status_in(
    folder: int, entry: str, name: str, *, is_link: bool = False
) -> os.stat_result | None:
    try:
        status = os.lstat(entry, dir_fd=folder)
    except FileNotFoundError:
        return None
    if not (is_link and stat.S_ISLNK(status.st_mode)):
        _refuse_irregular(name, status)
    return status


def _refuse_irregular(name: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "no regular file")
        raise RespondToModel(f"{name} is {kind}; only regular files can be patched")


def write_all(writes: Sequence[FileWrite]) -> None:
    """Write all of `writes`, or leave everything unchanged.

    Raises:
        RespondToModel: a file changed since it was read, or could not be written; nothing is
            changed.
    """
    with own_write(*(write.path for write in writes)):
        _write_all(writes)


def _write_all(writes: Sequence[FileWrite]) -> None:
    for write in writes:
        _check_unchanged(write, partial(_status, write.name, write.path, is_link=write.is_link))
    swap = _Swap()
    name = ""
    try:
        for step in (swap.stage, swap.commit):
            for write in writes:
                name = write.name
                step(write)
    except BaseException as error:
        left = swap.roll_back()
        reason = clause(error)
        if left and isinstance(error, Exception):
            raise RespondToModel(
                f"The patch failed at {name} ({reason}), and not all of it could be undone; "
                f"tell the person to look at {', '.join(left)}."
            ) from error
        if isinstance(error, OSError):
            raise RespondToModel(
                f"The patch was not applied: {name} cannot be written ({reason}); "
                "nothing was changed."
            ) from error
        raise
    finally:
        try:
            swap.clean_up()
        finally:
            swap.close()


def _check_unchanged(write: FileWrite, look: Callable[[], os.stat_result | None]) -> None:
    try:
        now = look()
    except RespondToModel as problem:
        raise RespondToModel(
            f"The patch was not applied: {clause(problem)}. {_NOTHING_DONE}"
        ) from None
    before = write.before.status if write.before else None
    if _signature(now) != _signature(before):
        raise RespondToModel(
            f"The patch was not applied: {write.name} was changed by someone else in the meantime. "
            f"{_NOTHING_DONE}"
        )


def _signature(status: os.stat_result | None) -> tuple[int, ...]:
    if status is None:
        return ()
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode)


class _Swap:
    """A transaction: files staged beside their targets, backups of replaced files, created folders.

    Each folder is opened once, without following a link, and everything in it is done through its
    descriptor, so that nothing elsewhere is affected if the folder is replaced meanwhile.
    """

    def __init__(self) -> None:
        self._folders: dict[Path, int] = {}
        self._staged: dict[Path, str] = {}
        self._backups: list[tuple[FileWrite, str | None]] = []
        self._litter: list[tuple[int, str]] = []
        self._made: list[tuple[int, str]] = []

    def stage(self, write: FileWrite) -> None:
        """Write the new content beside its target, without changing the target."""
        if write.after is None:
            return
        # A folder is created only for a new file: if it is missing, so is a file to change.
        folder = self._folder_of(write.path, self._make_folder if write.before is None else None)
        staged = self._staged[write.path] = self._new_name(folder)
        if write.is_link:
            os.symlink(os.fsdecode(write.after), staged, dir_fd=folder)
            return
        # 0o666, so that the person's umask applies to a new file, as in any editor.
        handle = create_file(staged, folder, 0o666)
        with open(handle, "wb") as file:
            file.write(write.after)
            if write.like is not None:
                self._take_over(handle, write.like)

    def commit(self, write: FileWrite) -> None:
        """Replace one target, after recording how to undo that."""
        folder, name = self._folder_of(write.path), write.path.name
        is_link = write.is_link
        _check_unchanged(write, lambda: _status_in(folder, name, write.name, is_link=is_link))
        backup = self._new_name(folder) if write.before else None
        self._backups.append((write, backup))
        if backup and write.after is None:
            os.rename(name, backup, src_dir_fd=folder, dst_dir_fd=folder)
        elif backup:
            back_up(name, backup, folder)
        if write.after is not None:
            staged = self._staged[write.path]
            os.replace(staged, name, src_dir_fd=folder, dst_dir_fd=folder)
            self._litter.remove((folder, staged))

    def roll_back(self) -> list[str]:
        """Undo the commits in reverse order; return what could not be undone and where it is."""
        left = []
        for write, backup in reversed(self._backups):
            folder = self._folders[write.path.parent]
            try:
                if backup is None:
                    self._take_back(write, folder)
                elif exists_at(backup, folder):
                    os.replace(backup, write.path.name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                before = (
                    f"its old content is in {write.path.parent}/{backup}" if backup else "it is new"
                )
                left.append(f"{write.name} ({before})")
                self._litter = [each for each in self._litter if each[1] != backup]
        self.clean_up()
        for folder, name in reversed(self._made):
            with suppress(OSError):
                os.rmdir(name, dir_fd=folder)
        return left

    def _take_back(self, write: FileWrite, folder: int) -> None:
        """Remove a new file if this transaction created it: then its staged name no longer
        exists.
        """
        if not exists_at(self._staged[write.path], folder):
            with suppress(FileNotFoundError):
                os.unlink(write.path.name, dir_fd=folder)

    def clean_up(self) -> None:
        """Remove temporary files, the rest of them too where an interrupt comes meanwhile."""
        try:
            while self._litter:
                folder, name = self._litter[-1]
                with suppress(OSError):
                    os.unlink(name, dir_fd=folder)
                self._litter.pop()
        except BaseException:
            self.clean_up()
            raise

    def close(self) -> None:
        """Close the folders' descriptors."""
        for folder in (*self._folders.values(), *(folder for folder, _ in self._made)):
            os.close(folder)

    def _take_over(self, handle: int, like: FileState) -> None:
        with suppress(OSError):  # its folder is gone
            take_over(handle, like.path.name, self._folder_of(like.path))
        os.fchmod(handle, stat.S_IMODE(like.status.st_mode))

    def _folder_of(self, path: Path, on_missing: Callable[[str, int], None] | None = None) -> int:
        folder = self._folders.get(path.parent)
        if folder is None:
            folder = open_folder(str(path.parent), on_missing=on_missing)
            self._folders[path.parent] = folder
        return folder

    def _make_folder(self, name: str, parent: int) -> None:
        # Noted first: an interrupt may come right after it was made.
        self._made.append((os.dup(parent), name))
        try:
            os.mkdir(name, dir_fd=parent)
        except OSError:  # it was not, or by someone else
            os.close(self._made.pop()[0])
            raise

    def _new_name(self, folder: int) -> str:
        name = f".agent-patch-{secrets.token_hex(8)}.tmp"
        self._litter.append((folder, name))
        return name
