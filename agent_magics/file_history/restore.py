"""Puts paths back to what they were: all of them or none, and never through a link.

Law: each path is checked to be what it should be, everything new stands ready beside its place, and
only then is anything swapped; each swap is one step, so that a process that is killed leaves every
file old or new. A path that is already as wanted is in order: so what was cut short is finished by
doing it again.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from agent_magics.backends.beneath import (
    PathChanged,
    exists_at,
    folder_of,
    open_folder,
)
from agent_magics.backends.exec.tripwire import shared_tripwire
from agent_magics.backends.workspace_states import (
    ABSENT,
    PathChange,
    PathState,
    Stamp,
    look_in,
    stamp_of,
)
from agent_magics.backends.workspace_swaps import (
    link,
    make,
    make_folder,
    remove_folder,
    rename,
    set_mode,
    staged_name,
    unlink,
)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why one path cannot be put back.

    Attributes:
        now: what stands there; None where that could not be looked at.
    """

    change: PathChange
    reason: str
    now: PathState | None = None


class RestoreFailed(Exception):
    """The disk refused; everything is as it was, but for the paths in `left`."""

    def __init__(self, path: str, reason: str, left: Sequence[str]) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason, self.left = path, reason, list(left)


@dataclass(slots=True)
class _Step:
    """One path on its way back.

    Attributes:
        stamp: of what was looked at; it must be there still when it is swapped.
    """

    change: PathChange
    now: PathState
    stamp: Stamp
    staged: str = ""
    backup: str = ""


@dataclass(slots=True)
class Restore:
    """A way back, checked; made by `plan`.

    Attributes:
        obstacles: what is in the way; without them `apply` may be called.
        done: paths that were put back.
        kept_folders: folders that stay, since something stands in them.
    """

    obstacles: list[Obstacle] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    kept_folders: list[str] = field(default_factory=list)
    _paths: list[str] = field(default_factory=list)
    _going: set[str] = field(default_factory=set)
    _steps: list[_Step] = field(default_factory=list)
    _undo: list[Callable[[], None]] = field(default_factory=list)

    def apply(self, content: Callable[[str], bytes | None]) -> None:
        """Put everything back.

        Args:
            content: returns a kept content by its digest.

        Raises:
            RestoreFailed: nothing is changed, but for what `left` names.
        """
        path = ""
        deepest_first = sorted(self._steps, key=lambda step: step.change.path, reverse=True)
        made_first = deepest_first[::-1]
        try:
            for step in made_first:
                path = step.change.path
                self._stage(step, content)
            for step in deepest_first:
                path = step.change.path
                self._take_away(step)
            for step in made_first:
                path = step.change.path
                self._put(step, content)
            for step in deepest_first:
                path = step.change.path
                self._settle_mode(step)
        except BaseException as error:
            left = self._roll_back()
            if not isinstance(error, OSError):
                raise
            raise RestoreFailed(path, error.strerror or str(error), left) from error
        finally:
            self._clean_up()
        self.done = [step.change.path for step in made_first]
        # It is the person who put it back; else the next command's end would undo that.
        shared_tripwire().accept(self.done)

    # -- the steps ---------------------------------------------------------------------------------

    def _stage(self, step: _Step, content: Callable[[str], bytes | None]) -> None:
        """Make what is to come beside its place; where its folder is to come too, in the end."""
        wanted = step.change.before
        if wanted.kind not in ("file", "link") or _differs_in_mode_only(step):
            return
        data = content(wanted.digest) if wanted.kind == "file" else b""
        if data is None:
            raise OSError("its content is not kept any more")
        name = staged_name(step.change.path)
        try:
            folder = open_folder(os.path.dirname(step.change.path))
        except (FileNotFoundError, NotADirectoryError, PathChanged):  # it is to be made yet
            return
        try:
            step.staged = name
            make(folder, name, wanted, data, os.path.basename(step.change.path))
        finally:
            os.close(folder)

    def _take_away(self, step: _Step) -> None:
        """Remove what is not to be there, or is of another kind than what is to come."""
        now, wanted = step.now, step.change.before
        if now.kind == "absent" or now.kind == wanted.kind or {now.kind, wanted.kind} == _FILES:
            return
        with folder_of(step.change.path) as (folder, name):
            if now.kind == "folder":
                try:
                    os.rmdir(name, dir_fd=folder)
                except OSError:
                    if wanted.kind != "absent":
                        raise
                    self.kept_folders.append(step.change.path)
                    return
                self._undo.append(lambda: make_folder(step.change.path, now.mode))
            else:
                self._check(step, folder, name)
                step.backup = self._backup_of(step.change.path)
                with folder_of(step.backup) as (aside, backup):
                    os.rename(name, backup, src_dir_fd=folder, dst_dir_fd=aside)
                self._undo.append(lambda: rename(step.backup, step.change.path))

    def _put(self, step: _Step, content: Callable[[str], bytes | None]) -> None:
        wanted, path = step.change.before, step.change.path
        if wanted.kind == "absent":
            return
        if wanted.kind == "folder":
            if step.now.kind != "folder":
                make_folder(path, 0o700)
                self._undo.append(lambda: remove_folder(path))
            return
        if not step.staged:
            self._stage(step, content)
        with folder_of(path) as (folder, name):
            if _differs_in_mode_only(step):
                self._check(step, folder, name)
                set_mode(path, wanted.mode)
                self._undo.append(lambda: set_mode(path, step.now.mode))
                return
            if not step.backup and step.now.kind not in ("absent", "folder"):
                self._check(step, folder, name)
                step.backup = f"{os.path.dirname(path)}/{staged_name(path, 'old')}"
                link(folder, name, os.path.basename(step.backup))
            elif not step.backup and exists_at(name, folder):
                raise OSError("something is there now")
            os.replace(step.staged, name, src_dir_fd=folder, dst_dir_fd=folder)
            has_backup = bool(step.backup)
            self._undo.append(lambda: rename(step.backup, path) if has_backup else unlink(path))

    def _settle_mode(self, step: _Step) -> None:
        """Give a folder its mode when all that it holds is in place."""
        wanted, now = step.change.before, step.now
        if wanted.kind == "folder" and (now.kind != "folder" or now.mode != wanted.mode):
            set_mode(step.change.path, wanted.mode)
            if now.kind == "folder":
                self._undo.append(lambda: set_mode(step.change.path, now.mode))

    def _check(self, step: _Step, folder: int, name: str) -> None:
        status = os.lstat(name, dir_fd=folder)
        if stamp_of(status) != step.stamp:
            raise OSError("it changed while it was being put back")

    def _backup_of(self, path: str) -> str:
        """Return where a file waits that goes: not in a folder that goes too."""
        parent = os.path.dirname(path)
        while parent in self._going:
            parent = os.path.dirname(parent)
        return f"{parent}/{staged_name(path, 'old')}"

    def _roll_back(self) -> list[str]:
        left = []
        for step in self._steps:  # first, or the folders made for them could not go
            _unlink_staged(step)
        for undo in reversed(self._undo):
            try:
                undo()
            except OSError as error:
                left.append(str(error.filename or error))
        return left

    def _clear(self) -> None:
        """Remove what a process that was killed here has left; their names are always the same."""
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


_FILES = {"file", "link"}
_WHATS = ("new", "old")


def plan(
    changes: Sequence[PathChange],
    why_secret: Callable[[str], str],
    kept: Callable[[str], bool],
) -> Restore:
    """Return how `changes` are taken back, and what is in the way.

    Args:
        changes: one for each path: what it should be now (`after`) and what it is to be (`before`).
        why_secret: says why a file's content is not looked at, or "".
        kept: tells whether a content is there.
    """
    restore = Restore()
    by_path = {change.path: change for change in changes}
    restore._paths = list(by_path)
    restore._going = {
        path
        for path, change in by_path.items()
        if change.after.kind == "folder" != change.before.kind
    }
    restore._clear()  # before the look: a second name that goes changes a file's time stamp
    for change in changes:
        try:
            now, stamp = _look(change.path, why_secret)
        except PathChanged:
            if not _is_below_link(change.path, by_path):
                restore.obstacles.append(Obstacle(change, "a folder on its path is a link now"))
                continue
            now, stamp = ABSENT, ()
        except OSError as error:
            restore.obstacles.append(Obstacle(change, f"it cannot be read ({error.strerror})"))
            continue
        if now == change.before:
            continue
        if reason := _why_not(change, now, kept, by_path):
            restore.obstacles.append(Obstacle(change, reason, now))
        else:
            restore._steps.append(_Step(change, now, stamp))
    return restore


def _why_not(
    change: PathChange,
    now: PathState,
    kept: Callable[[str], bool],
    by_path: Mapping[str, PathChange],
) -> str:
    before, after = change.before, change.after
    # Between two kinds nothing is there for a moment, also for good where the process was killed.
    between = now.kind == "absent" and before.kind != after.kind
    # And a folder has its mode last, when all that it holds is there.
    is_folder = now.kind == "folder" and "folder" in (before.kind, after.kind)
    if now != after and not between and not is_folder:
        return "you changed it since" if now.kind != "absent" else "you removed it since"
    if not before.can_be_made:
        return f"what it was is not kept ({before.why or 'it is no regular file'})"
    if before.kind == "file" and not kept(before.digest):
        return "what it was is not kept any more"
    return _why_no_folder(change.path, by_path) if before.kind != "absent" else ""


def _is_below_link(path: str, by_path: Mapping[str, PathChange]) -> bool:
    """Tell whether a folder above is a link because that is part of what is put back."""
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


def _differs_in_mode_only(step: _Step) -> bool:
    now, wanted = step.now, step.change.before
    return now.kind == wanted.kind == "file" and now.digest == wanted.digest != ""


def _unlink_staged(step: _Step) -> None:
    if step.staged:
        with suppress(OSError):
            unlink(f"{os.path.dirname(step.change.path)}/{step.staged}")
