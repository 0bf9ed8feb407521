"""Compares protected files before and after a command, and restores them.

Landlock cannot deny a file inside a writable folder (it can only grant), so the paths in
`Confinement.protected` are compared while a command runs, when its calls return and at its end:
changed files are restored, new ones are moved away and kept, and everything is reported. Also
reported are repositories that a command made or moved, if git would run programs because of them,
and folders that could not be read.

Law: nothing is lost and nothing is silent. Changes that the person may have made are reported and
kept: always for the open notebook; otherwise if they happened between two calls, while only
sessions ran, unless git would run programs because of them. All commands share one record of the
protected state, kept from the start of the first to the end of the last; writes of an approved call
become part of it.
"""

import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from agent_magics.config_files.places import state_folder
from agent_magics.exec.launcher.wire import Confinement
from agent_magics.exec.protected.git_changes import (
    makes_git_run,
)
from agent_magics.exec.protected.installed import Installed
from agent_magics.exec.protected.new_repositories import NewRepositories
from agent_magics.exec.protected.put_back import (
    Finding,
    Quarantine,
    clear_of_new,
    modes_above,
    open_closed,
    put_back,
)
from agent_magics.exec.protected.snapshot import (
    MOST_ENTRIES,
    Snapshot,
    SnapshotEntry,
    is_in,
    take,
    up_to_a_common_end,
)
from agent_magics.files.beneath import is_below

_TOLD_ONLY = (".ipynb", ".agent.jsonl")
_LOOKS_EVERY = 0.25  # seconds, while a command runs
_LONGEST_SHARE = 0.05  # maximal share of the time spent on searching, and mostly on comparing
# Seconds between comparisons, even if their share becomes larger: commands can slow them.
_LONGEST_PAUSE = 1.0
_WHOLE = ("hooks", "info")  # of a repository; cleared at once, as a hook may be the last of many
_MOST_WHOLE = 20_000  # entries of such a folder
_MOST_NEW = 100  # files that are moved out of it one by one


@dataclass(slots=True)
class _ProtectedPath:
    """One protected path, and its state when the first of the running commands began.

    Attributes:
        root: the writable folder that contains it.
        parent: identity and rights of its parent folder, None where that does not exist.
        above: modes of the folders that contain it, up to `root`.
        enforced: identity of the file or folder that all running commands have mounted read-only,
            so that only the person can change it; None where one has not. A mount ends in silence
            once the person replaces the file: then another stands there.
        holders: number of running commands.
        pending: paths in `before` that could not be restored yet.
    """

    path: str
    root: str
    before: Snapshot = field(default_factory=dict)
    parent: tuple[int, ...] | None = None
    above: dict[str, int] = field(default_factory=dict)
    enforced: tuple[int, ...] | None = None
    holders: int = 0
    pending: frozenset[str] = frozenset()

    @property
    def most(self) -> int:
        """The number of entries at which its snapshots are cut."""
        return _MOST_WHOLE if os.path.basename(self.path) in _WHOLE else MOST_ENTRIES

    @property
    def modes(self) -> dict[str, int]:
        """The intended modes of all that it contains and of the folders above."""
        return self.above | {path: entry.mode for path, entry in self.before.items()}

    def look(self, most: int) -> tuple[Snapshot, tuple[int, ...] | None]:
        """Return its present state, cut at `most` entries, and what `parent` is now."""
        return take(self.path, self.before, most), _identity(os.path.dirname(self.path))

    def remember(self) -> None:
        """Record the current state as the intended one."""
        self.above = modes_above(self.path, self.root)
        now, self.parent = self.look(self.most)
        missing = {path for path in self.before.keys() - now.keys() if is_in(path, self.pending)}
        self.before = now | {path: self.before[path] for path in missing}


class Tripwire:
    """The record of protected files shared by all commands of this process; thread-safe.

    Args:
        quarantine: the folder for files moved out of the workspace; created when needed.
        every: seconds between two comparisons while a command runs; None compares only on request.
    """

    def __init__(self, quarantine: str, every: float | None = _LOOKS_EVERY) -> None:
        self._quarantine = Quarantine(quarantine)
        self._places: dict[str, _ProtectedPath] = {}
        self._calls = 0  # commands that run within their call; the others are sessions
        self._lock = threading.Lock()
        self._watches: set[FileWatch] = set()
        self._installed = Installed()
        self._tell: Callable[[list[Finding]], None] | None = None  # of the newest command
        self._every = every
        self._thread: threading.Thread | None = None
        self._armed = threading.Event()

    def arm(
        self,
        confinement: Confinement | None,
        tell: Callable[[list[Finding]], None] | None = None,
    ) -> "FileWatch":
        """Record the state of everything protected; to be called before the command starts.

        Args:
            confinement: the command's confinement; None for an unconfined one, whose changes are
                accepted.
            tell: called at once, on a separate thread, with findings while the command runs, and
                with those about this kernel's environment also later; must not use the watch; None
                keeps the former for the next comparison.
        """
        with self._lock:
            held = [place for place in self._places.values() if place.holders]
            # Changes by sessions so far are neither accepted nor attributed to this command.
            found = [finding for place in held for finding in self._restore(place)]
            self._calls += 1
            if confinement is None:
                return FileWatch(self, None, None, found, tell)
            # Where other commands write that may have begun before a place was there.
            others = tuple({place.root for place in held})
            places = [self._hold(path, confinement, others) for path in confinement.protected]
            watch = FileWatch(self, places, NewRepositories(confinement), found, tell)
            self._tell = tell or self._tell
        if confinement.tier < 2:  # in tier 2 the environment is mounted read-only
            self._installed.begin(watch, confinement.writable)
        self._look_after(watch)
        return watch

    def _look_after(self, watch: "FileWatch") -> None:
        if self._every is None:
            return
        self._watches.add(watch)
        if self._thread is None or not self._thread.is_alive():  # an error has ended it
            name = "agent-tripwire"
            self._thread = threading.Thread(target=self._keep_looking, name=name, daemon=True)
            self._thread.start()
        self._armed.set()

    def _keep_looking(self) -> None:
        """Compare while commands run, so that a planted file exists only for moments."""
        took = due = 0.0
        while self._armed.wait():
            time.sleep(min(max(self._every or 0.0, took / _LONGEST_SHARE), _LONGEST_PAUSE))
            began = time.monotonic()
            watches = list(self._watches)
            if not watches and not self._installed.is_due:
                self._armed.clear()
                watches = list(self._watches)  # one added in between
            for watch in watches:
                watch.look(searches=False)
            took = time.monotonic() - began
            if began >= due:
                for watch in watches:
                    watch.look()
                self.look_at_environment()
                ended = time.monotonic()
                due = ended + (ended - began - took) / _LONGEST_SHARE

    def look_at_environment(self) -> None:
        """Search for what commands have changed in this kernel's environment, and report it."""
        found = self._installed.examine()
        if found and self._tell is not None:
            self._tell(found)

    def accept(self, paths: Iterable[str] | None = None) -> None:
        """Record the current state as the intended one, because an approved call wrote it.

        Args:
            paths: what was written; None for anything.
        """
        written = None if paths is None else list(paths)
        with self._lock:
            for place in self._places.values():
                touched = written is None or any(_touch(path, place.path) for path in written)
                if place.holders and touched:
                    place.remember()

    def _hold(self, path: str, confinement: Confinement, others: tuple[str, ...]) -> _ProtectedPath:
        root = max((r for r in confinement.writable if is_below(path, (r,))), key=len, default=path)
        place = self._places.setdefault(path, _ProtectedPath(path, root))
        if not place.holders:
            place.remember()
            place.enforced = None if is_below(path, others) else _identity(path)
        # Neither a missing path nor a link can be mounted over.
        mounted = bool(place.before) and not os.path.islink(path)
        if confinement.tier < 2 or not mounted or place.enforced != _identity(path):
            place.enforced = None
        place.holders += 1
        return place

    def compare(
        self, places: Sequence[_ProtectedPath], tree: NewRepositories | None
    ) -> list[Finding]:
        """Restore what changed, and search for new repositories in `tree`; return the findings."""
        with self._lock:
            found = [finding for place in places for finding in self._restore(place)]
            return found if tree is None else found + tree.examine(self._quarantine)

    def leave_call(self) -> None:
        """Record that a command's call has returned, whether the command has ended or not."""
        with self._lock:
            self._calls -= 1

    def release(self, watch: "FileWatch", places: Sequence[_ProtectedPath]) -> None:
        """Remove one command that has ended."""
        self._watches.discard(watch)
        self._installed.end(watch)
        with self._lock:
            for place in places:
                place.holders -= 1

    def _restore(self, place: _ProtectedPath) -> list[Finding]:
        before, most = place.before, place.most
        may_clear = most == _MOST_WHOLE and place.path in before
        if may_clear:
            most = min(most, len(before) + _MOST_NEW + 1)
        now, parent = place.look(most)
        moved = parent != place.parent
        if now == before and not moved:
            place.pending = frozenset()
            return []
        if place.enforced and place.enforced == _identity(place.path) and not moved:
            place.remember()
            return []
        if opened := open_closed(place.modes, self._quarantine):
            now, parent = place.look(most)
        cleared = None
        if may_clear and len(now) - len(before) > _MOST_NEW:
            cleared = clear_of_new(place.path, before, self._quarantine)
            most = len(before) + MOST_ENTRIES if cleared else place.most
            now = take(place.path, before, most)
        # What was enforced the person has replaced, also while calls run.
        is_commands = self._calls and (moved or not place.enforced)
        may = _why_a_person_may if is_commands else _why_a_person_may_between_calls
        found = opened + put_back(
            *(place.path, place.root, *up_to_a_common_end(before, now, most), self._quarantine),
            only_told=lambda path, was, is_now: (
                "" if is_now is None and is_in(path, place.pending) else may(path, was, is_now)
            ),
        )
        # Not read again: later changes by a running process must not be accepted.
        place.before = _after(before, now, found)
        place.parent = parent
        known, place.pending = place.pending, frozenset(f.path for f in found if f.pending)
        found = [f for f in found if f.done or not f.pending or f.path not in known]  # told once
        if cleared:
            found.insert(0, cleared)
        if place.path in before and len(before) < most <= len(now):
            found.append(Finding(place.path, "changed", why="it has too many files to be compared"))
        return found


class FileWatch:
    """The watch over one command; made by `Tripwire.arm`."""

    def __init__(
        self,
        tripwire: Tripwire,
        places: Sequence[_ProtectedPath] | None,
        tree: NewRepositories | None,
        found: list[Finding],
        tell: Callable[[list[Finding]], None] | None,
    ) -> None:
        self._tripwire, self._places, self._tree = tripwire, places, tree
        self._found = found
        self._tell = tell
        self._lock = threading.Lock()
        self._in_call = True
        self._is_over = False

    def look(self, *, searches: bool = True) -> None:
        """Compare now, while the command runs, and report the findings.

        Args:
            searches: whether new repositories are searched for, which may take long.
        """
        # Told under the lock: what `finish` returns must come after what was told before.
        with self._lock:
            found = self._compare(searches=searches)
            if found and self._tell is None:
                self._found = found
            elif found and self._tell is not None:
                self._tell(found)

    def check(self) -> list[Finding]:
        """Compare now, because the command continues as a session; return the findings."""
        with self._lock:
            found = self._compare()
            self._leave_call()
            return found

    def finish(self) -> list[Finding]:
        """Compare for the last time, because the command has ended; a second call does nothing."""
        with self._lock:
            if self._is_over:
                return []
            found = self._compare()
            self._leave_call()
            if self._places is None:
                self._tripwire.accept()
            else:
                self._tripwire.release(self, self._places)
            self._is_over = True
            return found

    def _compare(self, *, searches: bool = True) -> list[Finding]:
        found, self._found = self._found, []
        if self._places is None or self._tree is None or self._is_over:
            return found
        return found + self._tripwire.compare(self._places, self._tree if searches else None)

    def _leave_call(self) -> None:
        if self._in_call:
            self._tripwire.leave_call()
        self._in_call = False


def _why_a_person_may(path: str, was: SnapshotEntry | None, is_now: SnapshotEntry | None) -> str:
    """Return why a difference is only reported even if a command made it within its call, or ""."""
    return "by the command, or saved meanwhile" if path.endswith(_TOLD_ONLY) else ""


def _why_a_person_may_between_calls(
    path: str, was: SnapshotEntry | None, is_now: SnapshotEntry | None
) -> str:
    """Return the same for a change while only sessions ran."""
    if path.endswith(_TOLD_ONLY):
        return _why_a_person_may(path, was, is_now)
    return "" if makes_git_run(path, was, is_now) else "by a session that runs, or by yourself"


def _after(before: Snapshot, now: Snapshot, found: Sequence[Finding]) -> Snapshot:
    """Return the new intended state: the old one, except for differences that are only reported,
    and not because they cannot be undone yet.
    """
    reported = {finding.path for finding in found if not finding.done and not finding.pending}
    if not reported:
        return before
    kept = {path: entry for path, entry in before.items() if not is_in(path, reported)}
    return kept | {path: entry for path, entry in now.items() if is_in(path, reported)}


@lru_cache(maxsize=1)
def shared_tripwire() -> Tripwire:
    """Return this process's record of protected files."""
    return Tripwire(str(state_folder() / "quarantine"))


def _identity(folder: str) -> tuple[int, ...] | None:
    """Return which folder it is, and whether its owner may look into it."""
    try:
        status = os.lstat(folder)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mode & (stat.S_IRUSR | stat.S_IXUSR)


def _touch(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")
