"""Restores paths to earlier states: all of them or none, and never through a link.

Law: each path is checked to have the expected state, and all new content is prepared beside its
target, before anything is replaced; each replacement is atomic, so that after a crash every file is
in its old or new state. A path already in its target state is skipped, so an interrupted restore is
completed by repeating it.
"""

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from agent_magics.file_history.states import ABSENT, PathChange, PathState, Stamp, look_in, stamp_of
from agent_magics.file_history.swaps import (
    make,
    make_folder,
    remove_folder,
    rename,
    set_mode,
    staged_name,
    unlink,
)
from agent_magics.files.beneath import PathChanged, back_up, exists_at, folder_of, open_folder
from agent_magics.files.locks import own_write
from agent_magics.protocol.errors import clause


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why one path cannot be restored.

    Attributes:
        now: the current state of the path; None where it could not be read.
    """

    change: PathChange
    reason: str
    now: PathState | None = None


class RestoreFailed(Exception):
    """A file could not be written; everything is unchanged, except for the paths in `left`."""

    def __init__(self, path: str, reason: str, left: Sequence[str]) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason, self.left = path, reason, list(left)


@dataclass(slots=True)
class _Restoration:
    """The restoration of one path.

    Attributes:
        stamp: of the state that was checked; it must be the same at the replacement.
    """

    change: PathChange
    now: PathState
    stamp: Stamp
    staged: str = ""
    backup: str = ""


@dataclass(slots=True)
class Restore:
    """A checked set of restorations; made by `plan`.

    Attributes:
        obstacles: conflicts; without any, `apply` may be called.
        done: the restored paths.
        kept_folders: folders that were not removed, since they are not empty.
    """

    obstacles: list[Conflict] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    kept_folders: list[str] = field(default_factory=list)
    _paths: list[str] = field(default_factory=list)
    _going: set[str] = field(default_factory=set)
    _steps: list[_Restoration] = field(default_factory=list)
    _undo: list[tuple[_Restoration, Callable[[], None]]] = field(default_factory=list)
    _final_modes: dict[str, int] = field(default_factory=dict)

    def apply(self, content: Callable[[str], bytes | None]) -> None:
        """Restore everything.

        Args:
            content: returns a stored content by its digest.

        Raises:
            RestoreFailed: nothing is changed, except for the paths in `left`.
        """
        with own_write(*(step.change.path for step in self._steps)):
            self._apply(content)

    def _apply(self, content: Callable[[str], bytes | None]) -> None:
        path = ""
        deepest_first = sorted(self._steps, key=lambda step: step.change.path, reverse=True)
        made_first = deepest_first[::-1]
        passes: tuple[tuple[list[_Restoration], Callable[[_Restoration], None]], ...] = (
            (made_first, self._open),
            (made_first, lambda step: self._stage(step, content)),
            (deepest_first, self._take_away),
            (made_first, lambda step: self._put(step, content)),
            (deepest_first, self._settle_mode),
        )
        try:
            for steps, do in passes:
                for step in steps:
                    path = step.change.path
                    do(step)
        except BaseException as error:
            left = self._roll_back()
            if not isinstance(error, OSError):
                raise
            raise RestoreFailed(path, clause(error), left) from error
        finally:
            self._clean_up()
            self._close_folders()
        self.done = [step.change.path for step in made_first]

    # -- the steps ---------------------------------------------------------------------------------

    def _open(self, step: _Restoration) -> None:
        """Let the contents of a folder be changed whose mode does not allow that."""
        if step.now.kind == "folder" and not _is_open(step.now.mode):
            self._set_folder_mode(step.change.path, step.now.mode)

    def _set_folder_mode(self, path: str, mode: int) -> None:
        """Set a folder's mode; what would keep this user out of it waits for the end."""
        set_mode(path, mode | stat.S_IRWXU)
        self._final_modes[path] = mode

    def _stage(self, step: _Restoration, content: Callable[[str], bytes | None]) -> None:
        """Create new content beside its target, unless its folder does not exist yet."""
        wanted = step.change.before
        if wanted.kind not in ("file", "link") or _differs_in_mode_only(step):
            return
        data = content(wanted.digest) if wanted.kind == "file" else b""
        if data is None:
            raise OSError("its content is not kept any more")
        name = staged_name(step.change.path)
        try:
            folder = open_folder(os.path.dirname(step.change.path))
        except (FileNotFoundError, NotADirectoryError, PathChanged):  # its folder is created later
            return
        try:
            step.staged = name
            make(folder, name, wanted, data, os.path.basename(step.change.path))
        finally:
            os.close(folder)

    def _take_away(self, step: _Restoration) -> None:
        """Remove a path that shall not exist, or whose kind shall change."""
        now, wanted = step.now, step.change.before
        if now.kind == "absent" or now.kind == wanted.kind or {now.kind, wanted.kind} == _FILES:
            return
        with folder_of(step.change.path) as (folder, name):
            if now.kind == "folder":
                try:
                    self._do(
                        step,
                        lambda: os.rmdir(name, dir_fd=folder),
                        lambda: make_folder(step.change.path, now.mode | stat.S_IRWXU),
                    )
                except OSError:
                    if wanted.kind != "absent":
                        raise
                    self.kept_folders.append(step.change.path)
            else:
                self._check(step, folder, name)
                backup = step.backup = self._backup_of(step.change.path)
                with folder_of(backup) as (aside, other):
                    self._do(
                        step,
                        lambda: os.rename(name, other, src_dir_fd=folder, dst_dir_fd=aside),
                        lambda: rename(backup, step.change.path),
                    )

    def _put(self, step: _Restoration, content: Callable[[str], bytes | None]) -> None:
        wanted, path = step.change.before, step.change.path
        if wanted.kind == "absent":
            return
        if wanted.kind == "folder":
            if step.now.kind != "folder":
                self._do(step, lambda: make_folder(path), lambda: remove_folder(path))
            return
        if not step.staged:
            self._stage(step, content)
        with folder_of(path) as (folder, name):
            if _differs_in_mode_only(step):
                self._check(step, folder, name)
                now = step.now
                self._do(
                    step, lambda: set_mode(path, wanted.mode), lambda: set_mode(path, now.mode)
                )
                return
            if not step.backup and step.now.kind not in ("absent", "folder"):
                self._check(step, folder, name)
                step.backup = f"{os.path.dirname(path)}/{staged_name(path, 'old')}"
                back_up(name, os.path.basename(step.backup), folder)
            elif not step.backup and exists_at(name, folder):
                raise OSError("something is there now")
            backup = step.backup
            self._do(
                step,
                lambda: os.replace(step.staged, name, src_dir_fd=folder, dst_dir_fd=folder),
                lambda: rename(backup, path) if backup else unlink(path),
            )

    def _settle_mode(self, step: _Restoration) -> None:
        """Set a folder's mode after its contents are in place."""
        path, wanted, now = step.change.path, step.change.before, step.now
        if wanted.kind == "folder" and (now.kind != "folder" or now.mode != wanted.mode):
            self._do(
                step,
                lambda: self._set_folder_mode(path, wanted.mode),
                # One that was made is removed as a whole.
                lambda: self._set_folder_mode(path, now.mode) if now.kind == "folder" else None,
            )

    def _do(self, step: _Restoration, do: Callable[[], None], undo: Callable[[], None]) -> None:
        """Do a single change, which `undo` reverses; noted first, as an interrupt may come between.

        So `undo` changes nothing where `do` has not changed anything.
        """
        self._undo.append((step, undo))
        try:
            do()
        except OSError:  # nothing was changed
            self._undo.pop()
            raise

    def _check(self, step: _Restoration, folder: int, name: str) -> None:
        status = os.lstat(name, dir_fd=folder)
        if stamp_of(status) == step.stamp:
            return
        # What is done to one name of a file (a hard link) changes the stamp of the others.
        expected = (step.now, step.change.before)
        if status.st_nlink > 1 and look_in(folder, name, step.change.path) in expected:
            return
        raise OSError("it changed while it was being put back")

    def _backup_of(self, path: str) -> str:
        """Return the path of a removed file's backup, in a folder that is not removed too."""
        parent = os.path.dirname(path)
        while parent in self._going:
            parent = os.path.dirname(parent)
        return f"{parent}/{staged_name(path, 'old')}"

    def _roll_back(self) -> list[str]:
        left = []
        for step in self._steps:  # first, so that the folders created for them can be removed
            _unlink_staged(step)
        for step, undo in reversed(self._undo):
            try:
                undo()
            except OSError:
                aside = f" (its content is in {step.backup})" if step.backup else ""
                left.append(f"{step.change.path}{aside}")
                step.backup = ""  # it stays
        return left

    def _clear(self) -> None:
        """Remove files left by a killed process; their names are deterministic."""
        for path in self._paths:
            folder = os.path.dirname(path)
            beside = [f"{folder}/{staged_name(path, what)}" for what in _WHATS]
            for left in (*beside, self._backup_of(path)):
                with suppress(OSError):
                    unlink(left)

    def _clean_up(self) -> None:
        for step in self._steps:
            _unlink_staged(step)
            if step.backup:
                with suppress(OSError):
                    unlink(step.backup)

    def _close_folders(self) -> None:
        for path, mode in sorted(self._final_modes.items(), reverse=True):
            try:
                # A file may have taken its place.
                if not _is_open(mode) and stat.S_ISDIR(os.lstat(path).st_mode):
                    set_mode(path, mode)
            except FileNotFoundError:  # it was removed
                continue
            except OSError as error:
                raise RestoreFailed(path, clause(error), [path]) from error


def _is_open(mode: int) -> bool:
    """Tell whether a folder's owner may look into it and change its contents."""
    return mode & stat.S_IRWXU == stat.S_IRWXU


_FILES = {"file", "link"}
_WHATS = ("new", "old")


def plan(
    changes: Sequence[PathChange],
    why_secret: Callable[[str], str],
    kept: Callable[[str], bool],
) -> Restore:
    """Check how to reverse `changes`, and find the conflicts.

    Args:
        changes: one for each path: its expected state (`after`) and its target state (`before`).
        why_secret: returns why a file's content must not be read, or "".
        kept: tells whether the content of a digest is stored.
    """
    restore = Restore()
    by_path = {change.path: change for change in changes}
    restore._paths = list(by_path)
    restore._going = {
        path
        for path, change in by_path.items()
        if change.after.kind == "folder" != change.before.kind
    }
    restore._clear()  # before the check: removing a hard link changes a file's ctime
    for change in changes:
        try:
            now, stamp = _look(change.path, why_secret)
        except PathChanged:
            if not _is_below_link(change.path, by_path):
                restore.obstacles.append(Conflict(change, "a folder on its path is a link now"))
                continue
            now, stamp = ABSENT, ()
        except OSError as error:
            restore.obstacles.append(Conflict(change, f"it cannot be read ({clause(error)})"))
            continue
        if now == change.before:
            continue
        if reason := _why_not(change, now, kept, by_path):
            restore.obstacles.append(Conflict(change, reason, now))
        else:
            restore._steps.append(_Restoration(change, now, stamp))
    return restore


def _why_not(
    change: PathChange,
    now: PathState,
    kept: Callable[[str], bool],
    by_path: Mapping[str, PathChange],
) -> str:
    before, after = change.before, change.after
    # A path that changes its kind is absent for a moment, or after a crash until it is completed.
    between = now.kind == "absent" and before.kind != after.kind
    # A folder gets its mode last, after its contents.
    is_folder = now.kind == "folder" and "folder" in (before.kind, after.kind)
    if now != after and not between and not is_folder:
        return "you changed it since" if now.kind != "absent" else "you removed it since"
    if not before.can_be_made:
        return f"what it was is not kept ({before.why or 'it is no regular file'})"
    if before.kind == "file" and not kept(before.digest):
        return "what it was is not kept any more"
    return _why_no_folder(change.path, by_path) if before.kind != "absent" else ""


def _is_below_link(path: str, by_path: Mapping[str, PathChange]) -> bool:
    """Tell whether a parent folder is a link that is itself being restored."""
    while path := path.rpartition("/")[0]:
        if path in by_path and by_path[path].after.kind == "link":
            return True
    return False


def _why_no_folder(path: str, by_path: Mapping[str, PathChange]) -> str:
    parent = os.path.dirname(path)
    made = by_path.get(parent)
    if os.path.isdir(parent) or (made is not None and made.before.kind == "folder"):
        return ""
    return "its folder is gone"


def _look(path: str, why_secret: Callable[[str], str]) -> tuple[PathState, Stamp]:
    try:
        with folder_of(path) as (folder, name):
            state = look_in(folder, name, path, why_secret)
            if state.kind == "absent":
                return ABSENT, ()
            return state, stamp_of(os.lstat(name, dir_fd=folder))
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT, ()


def _differs_in_mode_only(step: _Restoration) -> bool:
    now, wanted = step.now, step.change.before
    return now.kind == wanted.kind == "file" and now.digest == wanted.digest != ""


def _unlink_staged(step: _Restoration) -> None:
    if step.staged:
        with suppress(OSError):
            unlink(f"{os.path.dirname(step.change.path)}/{step.staged}")
