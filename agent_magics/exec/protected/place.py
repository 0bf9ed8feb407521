"""One protected path: its intended state, and how it gets back to it."""

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field

from agent_magics.exec.protected.put_back import (
    Finding,
    OnlyReported,
    Quarantine,
    clear_of_new,
    modes_above,
    open_closed,
    put_back,
)
from agent_magics.exec.protected.snapshot import (
    MOST_ENTRIES,
    Snapshot,
    is_in,
    take,
    up_to_a_common_end,
)
from agent_magics.files.beneath import is_below

_CLEARED = ("hooks", "info")  # of a repository; at once, as a hook may be the last of many
_MOST_CLEARED = 20_000  # entries of such a folder
_MOST_NEW = 100  # files that are moved out of it one by one


@dataclass(slots=True)
class ProtectedPlace:
    """A protected path, and its state when the first of the running commands began.

    Attributes:
        root: the outermost writable folder of the running commands that contains it.
        before: the intended state.
        parent: identity and rights of its parent folder, None where that does not exist.
        above: modes of the folders that contain it, up to `root`.
        pending: paths in `before` that could not be restored yet.
        is_bound: whether it was protected already when each of the running commands began.
        holders: number of running commands.
        is_being_written: whether the kernel itself writes it just now.
    """

    path: str
    root: str
    before: Snapshot = field(default_factory=dict)
    parent: tuple[int, ...] | None = None
    above: dict[str, int] = field(default_factory=dict)
    pending: frozenset[str] = frozenset()
    is_bound: bool = True
    holders: int = 0
    is_being_written: bool = False

    @property
    def _most(self) -> int:
        """The number of entries at which its snapshots are cut."""
        return _MOST_CLEARED if os.path.basename(self.path) in _CLEARED else MOST_ENTRIES

    @property
    def _enough(self) -> int:
        """The number of entries by which it is known whether to clear it."""
        if self._most == MOST_ENTRIES or self.path not in self.before:
            return self._most
        return min(self._most, len(self.before) + _MOST_NEW + 1)

    def overlaps(self, paths: Sequence[str]) -> bool:
        """Tell whether one of the paths is it, or above or below it."""
        return is_below(self.path, paths) or any(is_below(path, (self.path,)) for path in paths)

    def widen(self, root: str) -> None:
        """Have folders count that contain it, up to another writable one."""
        if len(root) < len(self.root):
            self.root, self.above = root, modes_above(self.path, root) | self.above

    def remember(self) -> None:
        """Record the current state as the intended one."""
        self.above = modes_above(self.path, self.root)
        now, parent = take(self.path, self.before, self._most), self._find_parent()
        # In another folder nothing is missing, as in a repository that the person has made anew.
        pending = self.pending if parent and parent == self.parent else frozenset[str]()
        missing = {path for path in self.before.keys() - now.keys() if is_in(path, pending)}
        self.parent = parent
        self.before = now | {path: self.before[path] for path in missing}

    def has_moved(self) -> bool:
        """Tell whether its parent is another folder now, or one that cannot be looked into."""
        return self._find_parent() != self.parent

    def has_changed(self) -> bool:
        """Tell whether it differs from the intended state."""
        return take(self.path, self.before, self._enough) != self.before

    def accept(self, quarantine: Quarantine, why: str) -> list[Finding]:
        """Make the current state the intended one; return the differences, with this reason."""
        now, self.parent = take(self.path, self.before, self._most), self._find_parent()
        snapshots = up_to_a_common_end(self.before, now, self._most)
        # Below itself: nothing above it is looked at, and moved away.
        found = put_back(self.path, self.path, *snapshots, quarantine, only_told=lambda *_: why)
        self.before = after(self.before, now, found)
        return found

    def restore(self, quarantine: Quarantine, only_told: OnlyReported) -> list[Finding]:
        """Restore the intended state; differences for which `only_told` has a reason join it."""
        found = open_closed(self.above | {p: e.mode for p, e in self.before.items()}, quarantine)
        most, parent = self._enough, self._find_parent()
        now = take(self.path, self.before, most)
        if most < self._most and len(now) == most:
            cleared = clear_of_new(self.path, self.before, quarantine)
            found += [cleared] if cleared else []
            most = len(self.before) + MOST_ENTRIES if cleared else self._most
            now = take(self.path, self.before, most)
        awaited = self.pending if parent == self.parent else frozenset[str]()
        if parent is None:  # its folder may come back with all of it
            awaited = frozenset({self.path})
        found += put_back(
            *(self.path, self.root, *up_to_a_common_end(self.before, now, most), quarantine),
            only_told=lambda path, was, is_now: (
                "" if is_now is None and is_in(path, awaited) else only_told(path, was, is_now)
            ),
        )
        is_cut = self.path in self.before and len(self.before) < most <= len(now)
        # Not read again: later changes by a running process must not be accepted.
        self.before = after(self.before, now, found)
        self.parent = parent
        known, self.pending = self.pending, frozenset(each.path for each in found if each.pending)
        found = [f for f in found if f.done or not f.pending or f.path not in known]  # told once
        if is_cut:
            found.append(Finding(self.path, "changed", why="it has too many files to be compared"))
        return found

    def _find_parent(self) -> tuple[int, ...] | None:
        """Return which folder contains it now, and whether its owner may look into that."""
        try:
            status = os.lstat(os.path.dirname(self.path))
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_mode & (stat.S_IRUSR | stat.S_IXUSR)


def after(before: Snapshot, now: Snapshot, found: Sequence[Finding]) -> Snapshot:
    """Return the new intended state: the old one, except for differences that are only reported,
    and not because they cannot be undone yet.
    """
    reported = {finding.path for finding in found if not finding.done and not finding.pending}
    if not reported:
        return before
    kept = {path: entry for path, entry in before.items() if not is_in(path, reported)}
    return kept | {path: entry for path, entry in now.items() if is_in(path, reported)}
