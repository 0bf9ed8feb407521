"""Puts protected files back as they were, and moves away what was not there before.

Law: nothing is deleted, and no link is followed: a process that still runs could have put one in
the way, and what is written through it would land elsewhere.
"""

import errno
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from agent_magics.backends.beneath import exists_at, folder_of
from agent_magics.backends.exec.snapshot import Entry, Snapshot, take

OnlyTold = Callable[[str, Entry | None, Entry | None], str]


@dataclass(frozen=True, slots=True)
class Finding:
    """One protected thing that a command had changed.

    Attributes:
        path: the file or folder.
        change: "changed", "removed" or "new".
        done: "restored", "moved" (away), or "" where it could only be told.
        kept: where the changed or new one is now, or "".
        why: what is to be said where nothing was done.
    """

    path: str
    change: str
    done: str = ""
    kept: str = ""
    why: str = ""

    @property
    def settles_what_is_below(self) -> bool:
        """Whether nothing need be said of what a folder held: it went with it, or is lost."""
        return self.change == "new" or (self.change == "removed" and not self.done)

    def __str__(self) -> str:
        kept = f" (kept as {self.kept})" if self.kept else ""
        if self.done == "restored":
            return f"restored {self.path}, which was {self.change}{kept}"
        if self.done == "moved":
            return f"moved {self.path} away, which is {self.change}{kept}"
        return f"{self.path} is {self.change}: {self.why}"


class Quarantine:
    """The folder for what is taken out of the workspace; it is made when first needed."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def take(self, name: str, folder: int, shown: str) -> str:
        """Move `name` out of an opened folder; return where it is now.

        It loses its name at once, so that nothing runs it; across file systems only files move on
        from there.

        Raises:
            OSError: it cannot be moved at all.
        """
        aside = f"{name}.quarantined-{secrets.token_hex(4)}"
        os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
        try:
            target = os.path.join(self._new_folder(), name)
            try:
                os.rename(aside, target, src_dir_fd=folder)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                _copy_file(aside, folder, target)
                os.unlink(aside, dir_fd=folder)
        except OSError:
            return os.path.join(os.path.dirname(shown), aside)
        return target

    def _new_folder(self) -> str:
        name = f"{time.strftime('%Y-%m-%d')}-{secrets.token_hex(4)}"
        folder = os.path.join(self._folder, name)
        os.makedirs(folder, mode=0o700)
        return folder


def _copy_file(name: str, folder: int, target: str) -> None:
    """Copy a regular file out of an opened folder.

    Raises:
        OSError: it is no regular file, or the copy failed.
    """
    source = os.open(
        name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
    )
    with open(source, "rb") as file:
        if not stat.S_ISREG(os.fstat(source).st_mode):
            raise OSError(errno.EXDEV, "only regular files are copied")
        with open(target, "xb") as copy:
            shutil.copyfileobj(file, copy)


def put_back(
    place: str,
    root: str,
    before: Snapshot,
    now: Snapshot,
    quarantine: Quarantine,
    *,
    only_told: OnlyTold = lambda path, was, is_now: "",
) -> list[Finding]:
    """Make what is at `place` equal to `before` again.

    Args:
        place: the protected path.
        root: the writable folder that it is in.
        before: how it should be.
        now: how it is.
        quarantine: where what changed is kept.
        only_told: says why a difference is left as it is and only told: the person's own programs
            may have made it; "" puts it back.

    Returns:
        What differed, and what was done about it.
    """
    found = _move_links_above(place, root, quarantine)
    if found:  # what was seen through the link is not there any more
        now = take(place, {})
    for path in sorted(before.keys() | now.keys()):
        was, is_now = before.get(path), now.get(path)
        if was is not None and is_now is not None and is_now.is_like(was):
            continue
        if path.endswith(".agent.jsonl") and (was is None or _goes_on(was, is_now)):
            continue  # we record into it ourselves
        if any(path.startswith(f"{done.path}/") for done in found if done.settles_what_is_below):
            continue
        if why := only_told(path, was, is_now):
            change = "new" if was is None else "removed" if is_now is None else "changed"
            found.append(Finding(path, change, why=why))
        elif was is None:
            found.append(move_away(path, quarantine))
        else:
            found.append(_restore(path, was, is_now, quarantine))
    return found


def _goes_on(was: Entry, is_now: Entry | None) -> bool:
    return is_now is not None and was.is_continued_by(is_now)


def move_away(path: str, quarantine: Quarantine) -> Finding:
    """Move something new into quarantine."""
    try:
        with folder_of(path) as (folder, name):
            return Finding(path, "new", "moved", quarantine.take(name, folder, path))
    except OSError as error:
        return Finding(path, "new", why=f"it could not be moved away ({error.strerror})")


def _restore(path: str, was: Entry, is_now: Entry | None, quarantine: Quarantine) -> Finding:
    change = "removed" if is_now is None else "changed"
    if stat.S_ISREG(was.mode) and was.content is None:
        return Finding(path, change, why="it was too large to be kept, so it is not restored")
    kept = ""
    try:
        with folder_of(path) as (folder, name):
            if stat.S_ISDIR(was.mode) and is_now is not None and stat.S_ISDIR(is_now.mode):
                _set_mode(name, folder, was.mode)
                return Finding(path, change, "restored")
            made = _make_beside(name, folder, was)
            try:
                if exists_at(name, folder):
                    kept = quarantine.take(name, folder, path)
                os.rename(made, name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                _discard(made, folder, was.mode)
                raise
        return Finding(path, change, "restored", kept)
    except FileNotFoundError:
        return Finding(path, change, why="its folder is gone, so it was not restored")
    except OSError as error:
        return Finding(path, change, why=f"it could not be restored ({error.strerror})")


def _make_beside(name: str, folder: int, was: Entry) -> str:
    """Make what was there under another name; a rename then puts it in place in one step."""
    made = f".{name}.{secrets.token_hex(4)}"
    if stat.S_ISDIR(was.mode):
        os.mkdir(made, 0o700, dir_fd=folder)
    elif stat.S_ISLNK(was.mode):
        os.symlink(was.content or b"", os.fsencode(made), dir_fd=folder)
        return made
    else:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(made, flags, 0o600, dir_fd=folder), "wb") as file:
            file.write(was.content or b"")
    _set_mode(made, folder, was.mode)
    return made


def _set_mode(name: str, folder: int, mode: int) -> None:
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fchmod(descriptor, stat.S_IMODE(mode))
    finally:
        os.close(descriptor)


def _discard(name: str, folder: int, mode: int) -> None:
    with suppress(OSError):
        (os.rmdir if stat.S_ISDIR(mode) else os.unlink)(name, dir_fd=folder)


def _move_links_above(place: str, root: str, quarantine: Quarantine) -> list[Finding]:
    """Move away a link that stands where a folder between `root` and `place` stood.

    What is below it is then what the link's maker chose, such as the hooks of another repository.
    """
    above = os.path.dirname(place)
    links = []
    while above.startswith(f"{root}/"):
        if os.path.islink(above):
            links.append(above)
        above = os.path.dirname(above)
    return [move_away(link, quarantine) for link in reversed(links)]
