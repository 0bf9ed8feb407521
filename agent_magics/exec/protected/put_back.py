"""Restores protected files, and moves new ones away.

Law: nothing is deleted but compiled modules, which Python writes anew, and no link is followed: a
running process could have placed a link so that a write would go elsewhere.
"""

import errno
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice

from agent_magics.exec.protected.snapshot import (
    MOST_ENTRIES,
    Snapshot,
    SnapshotEntry,
    folders_above,
    is_compiled,
    is_in,
    take,
    unwatched,
)
from agent_magics.exec.temporary_files import remove_tree
from agent_magics.files.beneath import (
    closing_descriptor,
    create_file,
    exists_at,
    folder_of,
    open_folder,
    set_mode_at,
)
from agent_magics.files.plain_files import open_plain, stamp_of
from agent_magics.protocol.errors import clause

MOST_KEPT = 256 << 20  # bytes in quarantine
MOST_FOLDERS = 1_000
_DEEPEST = 200  # levels of a folder that is moved into it
_LONGEST_STEM = 50  # characters of a name that a longer one begins with; four bytes each at most

OnlyReported = Callable[[str, SnapshotEntry | None, SnapshotEntry | None], str]


@dataclass(frozen=True, slots=True)
class Finding:
    """One protected file or folder that a command had changed.

    Attributes:
        path: the file or folder.
        change: "changed", "removed" or "new".
        done: "restored", "moved" (away), or "" where it is only reported.
        kept: where the changed or new one is now, or "".
        why: the reason where nothing was done, or less than was wanted.
        pending: whether it is to be restored as soon as that is possible.
    """

    path: str
    change: str
    done: str = ""
    kept: str = ""
    why: str = ""
    pending: bool = False

    @property
    def settles_what_is_below(self) -> bool:
        """Whether findings below this folder are redundant: they were moved with it, or are
        missing with it.
        """
        return self.done == "moved" or (self.change != "changed" and not self.done)

    def __str__(self) -> str:
        kept = f" (kept as {self.kept})" if self.kept else ""
        if self.done == "restored":
            return f"restored {self.path}, which was {self.change}{kept}"
        if self.done == "moved":
            why = f"; {self.why}" if self.why else ""
            return f"moved {self.path} away, which is {self.change}{kept}{why}"
        return f"{self.path} is {self.change}: {self.why}"


class Quarantine:
    """The folder for files moved out of the workspace; created when first needed.

    Beyond its limits the oldest are removed.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._bytes_left = self._folders_left = 0
        self.aside: set[str] = set()  # what could only be renamed where it was

    def take(self, name: str, folder: int, shown: str, by: str = "") -> str:
        """Move `name` out of an opened folder; return its new path.

        It is renamed at once, so that nothing runs it, but only once; across file systems only
        files are moved further, and nothing that is larger than all that is kept.

        Args:
            name: a file, folder or link.
            folder: the descriptor of its folder.
            shown: its path.
            by: the name of what takes its place at once, or "".

        Raises:
            OSError: it cannot be moved at all, or not further than it was.
        """
        aside = name
        if by or shown not in self.aside:
            aside = f"{name[:_LONGEST_STEM]}.quarantined-{secrets.token_hex(4)}"
            os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
        if by:
            os.rename(by, name, src_dir_fd=folder, dst_dir_fd=folder)
        try:
            status = os.stat(aside, dir_fd=folder, follow_symlinks=False)
            size = status.st_size
            if stat.S_ISDIR(status.st_mode):
                size = _size_of(os.path.join(os.path.dirname(shown), aside), _fail)
            if size > MOST_KEPT:
                raise OSError(errno.EFBIG, "it is too large to be kept")
            target = os.path.join(self._new_folder(size), name)
            try:
                os.rename(aside, target, src_dir_fd=folder)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                _copy_file(aside, folder, target)
                os.unlink(aside, dir_fd=folder)
        except OSError:
            if aside == name:
                raise
            target = os.path.join(os.path.dirname(shown), aside)
            self.aside.add(target)
        self.aside.discard(shown)
        return target

    def _make_room(self, size: int) -> None:
        """Remove the oldest entries where `size` bytes more exceed the limits.

        What is kept is looked at only then, and a quarter is removed at once: a command can make
        many files.
        """
        self._bytes_left -= size
        self._folders_left -= 1
        if self._bytes_left >= 0 and self._folders_left >= 0:
            return
        with suppress(OSError):
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            kept = sorted(os.scandir(self._folder), key=lambda entry: entry.stat().st_mtime_ns)
            sizes = [_size_of(entry.path) for entry in kept]
            left, count = sum(sizes), len(kept)
            is_full = left + size > MOST_KEPT or count >= MOST_FOLDERS
            share = 0.75 if is_full else 1.0
            for entry, its_size in zip(kept, sizes, strict=True):
                if left + size <= MOST_KEPT * share and count < MOST_FOLDERS * share:
                    break
                remove_tree(entry.path)
                if not os.path.lexists(entry.path):
                    left, count = left - its_size, count - 1
            self._bytes_left = MOST_KEPT - left - size
            self._folders_left = MOST_FOLDERS - count - 1

    def _new_folder(self, size: int) -> str:
        self._make_room(size)
        name = f"{time.strftime('%Y-%m-%d')}-{secrets.token_hex(4)}"
        folder = os.path.join(self._folder, name)
        os.makedirs(folder, mode=0o700)
        return folder


def _size_of(folder: str, onerror: Callable[[OSError], None] | None = None) -> int:
    """Return the bytes of all files below a folder, links not followed.

    Args:
        folder: the folder.
        onerror: called where a part of it cannot be read, or is nested too deeply to be removed.
    """
    size = 0
    for place, _, names in os.walk(folder, onerror=onerror):
        if onerror is not None and place.count("/") - folder.count("/") > _DEEPEST:
            onerror(OSError(errno.ELOOP, "it is nested too deeply"))
        size += sum(os.lstat(os.path.join(place, name)).st_size for name in names)
    return size


def _fail(error: OSError) -> None:
    raise error


def _copy_file(name: str, folder: int, target: str) -> None:
    """Copy a regular file out of an opened folder.

    Raises:
        OSError: it is not a regular file, or the copy failed.
    """
    with open(open_plain(name, folder=folder), "rb") as file, open(target, "xb") as copy:
        shutil.copyfileobj(file, copy)


def put_back(
    place: str,
    root: str,
    before: Snapshot,
    now: Snapshot,
    quarantine: Quarantine,
    *,
    only_told: OnlyReported = lambda path, was, is_now: "",
) -> list[Finding]:
    """Restore the content of `place` to `before`.

    Args:
        place: the protected path.
        root: the writable folder that contains it.
        before: the intended state.
        now: the current state.
        quarantine: where changed files are kept.
        only_told: returns why a difference is only reported and not undone (the person's own
            programs may have made it), or "".

    Returns:
        The differences, and what was done about each.
    """
    found = _move_replacements_above(place, root, quarantine)
    settled = {each.path for each in found}
    replaced: set[str] = set()
    if found:  # `now` was read through a link
        now = take(place, {})
    for path in _differences(before, now):
        was, is_now = before.get(path), now.get(path)
        if path.endswith(".agent.jsonl") and (was is None or was.is_continued_by(is_now)):
            continue  # this package records into it
        is_within = is_in(path, replaced)
        if is_in(path, settled) or (is_within and was is None):
            continue
        if not is_within and (why := only_told(path, was, is_now)):
            change = "new" if was is None else "removed" if is_now is None else "changed"
            finding = Finding(path, change, why=why)
        elif was is None:
            finding = move_away(path, quarantine)
        else:
            finding = _restore(path, was, is_now, quarantine)
        found.append(finding)
        if finding.settles_what_is_below:
            settled.add(path)
        elif finding.kept:
            replaced.add(path)
    return found


def _differences(before: Snapshot, now: Snapshot) -> Iterator[str]:
    """Yield the paths of what is not the same; compiled modules among it are removed instead."""
    for path in sorted(before.keys() | now.keys()):
        was, is_now = before.get(path), now.get(path)
        if was is not None and is_now is not None and is_now.is_like(was):
            continue
        if is_compiled(path):
            remove_compiled(path)
        else:
            yield path


def modes_above(place: str, root: str) -> dict[str, int]:
    """Return the modes of the folders from that of `place` up to `root`, by path."""
    found = {}
    for path in _folders_above(place, root):
        with suppress(OSError):  # it is missing
            found[path] = os.lstat(path).st_mode
    return found


def open_closed(modes: Mapping[str, int], quarantine: Quarantine) -> list[Finding]:
    """Restore the modes of folders that their owner may no longer read, change or enter.

    In a folder that cannot be read a hook is in no snapshot, and yet git would run it; in one that
    cannot be changed nothing can be restored.

    Args:
        modes: the intended modes, by path; those of others than folders are left out.
        quarantine: see `put_back`.

    Returns:
        A finding for each of these folders.
    """
    found = []
    for path, mode in sorted(modes.items()):
        with suppress(OSError):  # it is missing, or below a folder that stays closed
            now = os.lstat(path).st_mode
            if stat.S_ISDIR(mode) and stat.S_ISDIR(now) and mode & ~now & stat.S_IRWXU:
                found.append(_restore(path, SnapshotEntry(mode), SnapshotEntry(now), quarantine))
    return found


def move_away(path: str, quarantine: Quarantine) -> Finding:
    """Move something new into quarantine."""
    try:
        with folder_of(path) as (folder, name):
            return Finding(path, "new", "moved", quarantine.take(name, folder, path))
    except OSError as error:
        why = f"it could not be moved away ({clause(error)})"
        return Finding(path, "new", why=why, pending=path not in quarantine.aside)


def remove_compiled(path: str) -> None:
    """Remove a compiled module, or all that are in a folder."""
    with suppress(OSError):
        for name in os.listdir(path) if path.endswith("/__pycache__") else ():
            remove_compiled(f"{path}/{name}")
    with suppress(OSError), folder_of(path) as (parent, name):
        os.unlink(name, dir_fd=parent)


def _restore(
    path: str, was: SnapshotEntry, is_now: SnapshotEntry | None, quarantine: Quarantine
) -> Finding:
    change = "removed" if is_now is None else "changed"
    if stat.S_ISREG(was.mode) and was.content is None:
        return Finding(path, change, why="it was too large to be kept, so it is not restored")
    kept = ""
    try:
        with folder_of(path) as (folder, name):
            if stat.S_ISDIR(was.mode) and is_now is not None and stat.S_ISDIR(is_now.mode):
                set_mode_at(name, folder, stat.S_IMODE(was.mode))
                return Finding(path, change, "restored")
            try:
                made = _make_beside(name, folder, was)
            except OSError as error:  # a full disk, such as a command can make
                if is_now is None:
                    raise
                why = f"it could not be written again ({clause(error)})"
                kept = quarantine.take(name, folder, path)
                return Finding(path, change, "moved", kept, why, pending=True)
            kept = _exchange(name, made, folder, was, path, quarantine)
        return Finding(path, change, "restored", kept)
    except FileNotFoundError:
        why = "its folder is gone, so it was not restored"  # it may have been moved for a while
        return Finding(path, change, why=why, pending=True)
    except OSError as error:
        why = f"it could not be restored ({clause(error)})"
        return Finding(path, change, why=why, pending=True)


def _exchange(
    name: str, made: str, folder: int, was: SnapshotEntry, path: str, quarantine: Quarantine
) -> str:
    """Put what was made beside `name` in its place; return where what stood there is now, or ""."""
    try:
        if exists_at(name, folder):
            return quarantine.take(name, folder, path, made)
        os.rename(made, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        _discard(made, folder, was.mode)
        raise
    return ""


def clear_of_new(place: str, before: Snapshot, quarantine: Quarantine) -> Finding | None:
    """Move all that is new directly in a folder away at once, however much it is.

    The folder itself is moved away; what stood in it before, known by its name only where it is
    large or deep, is moved back into a new one. That changes time stamps: those in `before` follow.

    Returns:
        The finding; None where no new folder could be made.
    """
    was = before[place]
    try:
        with folder_of(place) as (folder, name):
            made = _make_beside(name, folder, was)
            kept = _exchange(name, made, folder, was, place, quarantine)
    except OSError:
        return None
    names = {path[len(place) + 1 :].partition("/")[0] for path in before.keys() - {place}}
    with suppress(OSError):
        names.update(islice(unwatched(place, os.listdir(kept)), MOST_ENTRIES))
        with (
            closing_descriptor(open_folder(kept)) as source,
            closing_descriptor(open_folder(place)) as target,
        ):
            for each in names:
                with suppress(OSError):  # the command has removed it
                    known, stamp = before.get(f"{place}/{each}"), _stamp_at(each, source)
                    os.rename(each, each, src_dir_fd=source, dst_dir_fd=target)
                    if known is not None and known.signature == stamp:
                        signature = _stamp_at(each, target)
                        before[f"{place}/{each}"] = replace(known, signature=signature)
    return Finding(place, "changed", "restored", kept)


def _stamp_at(name: str, folder: int) -> tuple[int, ...]:
    return stamp_of(os.stat(name, dir_fd=folder, follow_symlinks=False))


def _make_beside(name: str, folder: int, was: SnapshotEntry) -> str:
    """Create the old version under a temporary name, to be renamed into place atomically."""
    made = f".{name[:_LONGEST_STEM]}.{secrets.token_hex(4)}"
    if stat.S_ISLNK(was.mode):
        os.symlink(was.content or b"", os.fsencode(made), dir_fd=folder)
        return made
    try:
        if stat.S_ISDIR(was.mode):
            os.mkdir(made, 0o700, dir_fd=folder)
        else:
            with open(create_file(made, folder), "wb") as file:
                file.write(was.content or b"")
        set_mode_at(made, folder, stat.S_IMODE(was.mode))
    except OSError:
        _discard(made, folder, was.mode)
        raise
    return made


def _discard(name: str, folder: int, mode: int) -> None:
    with suppress(OSError):
        (os.rmdir if stat.S_ISDIR(mode) else os.unlink)(name, dir_fd=folder)


def _move_replacements_above(place: str, root: str, quarantine: Quarantine) -> list[Finding]:
    """Move away links and files that replaced folders between `root` and `place`.

    Whoever made one chose what stands behind it, for example the hooks of another repository: a
    file `.git` names it.
    """
    above = (path for path in _folders_above(place, root) if path != root)
    wrong = [path for path in above if os.path.islink(path) or os.path.isfile(path)]
    return [move_away(each, quarantine) for each in reversed(wrong)]


def _folders_above(place: str, root: str) -> Iterator[str]:
    """Yield the folders from that of `place` up to `root`."""
    for path in folders_above(place) if place != root else ():
        yield path
        if path == root:
            return
