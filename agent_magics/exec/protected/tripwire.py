"""Compares protected files before and after a command, and restores them.

Landlock cannot deny a file inside a writable folder (it can only grant), so the paths in
`Confinement.protected` are compared while a command runs, when its calls return and at its end:
changed files are restored, new ones are moved away and kept, and everything is reported. Also
reported are repositories that a command made or moved, if git would run programs because of them,
and folders that could not be read.

Law: nothing is lost and nothing is silent. Changes that the person may have made are reported and
kept: always for the open notebook; otherwise if they happened between two calls, while only
sessions ran, unless git would run programs because of them; and during the call of a command that
the person let write there. All commands share one record of the protected state, kept from the
start of the first to the end of the last; what the kernel writes by itself, and what an approved
command wrote, becomes part of it.
"""

import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache

from agent_magics.config_files.places import state_folder
from agent_magics.exec.launcher.wire import Confinement
from agent_magics.exec.protected.git_changes import makes_git_run
from agent_magics.exec.protected.git_places import is_approved
from agent_magics.exec.protected.installed import Installed
from agent_magics.exec.protected.new_repositories import NewRepositories, OwnRepositories
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
from agent_magics.files.beneath import is_below, real_path
from agent_magics.files.locks import guard_own_writes

_TOLD_ONLY = (".ipynb", ".agent.jsonl")
_LOOKS_EVERY = 0.25  # seconds, while a command runs
_LONGEST_SHARE = 0.05  # maximal share of the time spent on searching, and mostly on comparing
# Seconds between comparisons, even if their share becomes larger: commands can slow them.
_LONGEST_PAUSE = 1.0
_WHOLE = ("hooks", "info")  # of a repository; cleared at once, as a hook may be the last of many
_MOST_WHOLE = 20_000  # entries of such a folder
_MOST_PINS = 200  # descriptors; a workspace may have thousands of repositories
_MOST_NEW = 100  # files that are moved out of it one by one


@dataclass(slots=True)
class _ProtectedPath:
    """One protected path, and its state when the first of the running commands began.

    Attributes:
        root: the writable folder that contains it.
        parent: identity and rights of its parent folder, None where that does not exist.
        above: modes of the folders that contain it, up to `root`.
        is_bound: whether it was protected already when each of the running commands began.
        enforced: identity of the file or folder that all running commands have mounted read-only,
            so that only the person can change it; None where one has not. A mount ends in silence
            once the person replaces the file: then another stands there.
        holders: number of running commands.
        pending: paths in `before` that could not be restored yet.
        is_being_written: whether the kernel itself writes it just now.
    """

    path: str
    root: str
    before: Snapshot = field(default_factory=dict)
    parent: tuple[int, ...] | None = None
    above: dict[str, int] = field(default_factory=dict)
    is_bound: bool = True
    enforced: tuple[int, ...] | None = None
    holders: int = 0
    pending: frozenset[str] = frozenset()
    is_being_written: bool = False

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
        now, parent = self.look(self.most)
        # In another folder nothing is missing, as in a repository that the person has made anew.
        pending = self.pending if parent and parent == self.parent else frozenset[str]()
        missing = {path for path in self.before.keys() - now.keys() if is_in(path, pending)}
        self.parent = parent
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
        # Enforced files, opened, since their numbers would be given to what replaces them.
        self._pins: dict[str, int] = {}
        self._calls: set[FileWatch] = set()  # of commands within their call; others are sessions
        self._lock = threading.RLock()
        self._watches: set[FileWatch] = set()  # of those that are compared while they run
        self._found: list[Finding] = []  # for the next comparison
        self._installed = Installed()
        self._own = OwnRepositories()
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
            tree = NewRepositories(confinement) if confinement else None
            # Where other commands write that may have begun before a place was there.
            others = tuple({place.root for place in held})
            places = []
            if confinement and tree:
                places = [self._place(path, confinement, others) for path in confinement.protected]
                self._own.note(confinement.writable, tree.before)
            watch = FileWatch(self, confinement, places, tree, found, tell)
            for place in places:  # counted last: until here an error leaves nothing
                place.holders += 1
            self._calls.add(watch)
            if confinement is None:
                return watch
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

    def planted_for_git(self, folders: Iterable[str]) -> list[Finding]:
        """Return what may make git run a program, and that a command may have planted in these
        folders.

        It may be anywhere: git also looks into what a repository names as its submodules.
        """
        return self._own.others_in(folders)

    @contextmanager
    def writing(self, paths: Sequence[str]) -> Iterator[None]:
        """Record what is written meanwhile as the intended state; nothing is compared until then.

        Args:
            paths: what the kernel writes.
        """
        written = [f"{real_path(os.path.dirname(path))}/{os.path.basename(path)}" for path in paths]
        with self._lock:
            held = [place for place in self._places.values() if place.holders]
            places = [
                place
                for place in held
                if not place.is_being_written and any(_touch(path, place.path) for path in written)
            ]
            try:
                for place in places:  # changes by commands so far are not accepted
                    self._found += self._restore(place)
                    place.is_being_written = True
                yield
            finally:
                for place in places:
                    place.remember()
                    place.is_being_written = False

    def _place(
        self, path: str, confinement: Confinement, others: tuple[str, ...]
    ) -> _ProtectedPath:
        root = max((r for r in confinement.writable if is_below(path, (r,))), key=len, default=path)
        place = self._places.setdefault(path, _ProtectedPath(path, root))
        if not place.holders:
            place.remember()
            place.is_bound = not is_below(path, others)
            if place.is_bound and confinement.tier >= 2:
                self._enforce(place)
        # Neither a missing path nor a link can be mounted over.
        mounted = bool(place.before) and not os.path.islink(path)
        if confinement.tier < 2 or not mounted or place.enforced != _identity(path):
            self._relax(place)
        return place

    def _enforce(self, place: _ProtectedPath) -> None:
        """Record which file or folder is mounted at a place."""
        self._relax(place)
        place.enforced = _identity(place.path)
        if len(self._pins) < _MOST_PINS:
            with suppress(OSError):
                if stat.S_ISREG(os.lstat(place.path).st_mode):
                    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
                    self._pins[place.path] = os.open(place.path, flags)

    def _relax(self, place: _ProtectedPath) -> None:
        """Record that nothing is mounted at a place any more, or not for all commands."""
        place.enforced = None
        if (pin := self._pins.pop(place.path, None)) is not None:
            os.close(pin)

    def compare(
        self, places: Sequence[_ProtectedPath], tree: NewRepositories | None
    ) -> list[Finding]:
        """Restore what changed, and search for new repositories in `tree`; return the findings."""
        with self._lock:
            found, self._found = self._found, []
            found += [finding for place in places for finding in self._restore(place)]
            return found if tree is None else found + tree.examine(self._quarantine)

    def enter_call(self, watch: "FileWatch") -> None:
        """Record that a call about a session begins."""
        with self._lock:
            self._calls.add(watch)

    def leave_call(self, watch: "FileWatch") -> None:
        """Record that a command's call has returned, whether the command has ended or not.

        What the person let it write is accepted.
        """
        with self._lock:
            for place in self._places.values() if watch in self._calls else ():
                if place.holders and watch.may_write(place.path):
                    self._found += self._only_tell(place)
            self._calls.discard(watch)

    def release(self, watch: "FileWatch", places: Sequence[_ProtectedPath]) -> None:
        """Remove one command that has ended."""
        self._watches.discard(watch)
        self._installed.end(watch)
        with self._lock:
            for place in places:
                place.holders -= 1
                if not place.holders:
                    self._relax(place)

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
        if any(watch.may_write(place.path) for watch in self._calls):
            return self._only_tell(place)
        if opened := open_closed(place.modes, self._quarantine):
            now, parent = place.look(most)
        cleared = None
        if may_clear and len(now) - len(before) > _MOST_NEW:
            cleared = clear_of_new(place.path, before, self._quarantine)
            most = len(before) + MOST_ENTRIES if cleared else place.most
            now = take(place.path, before, most)
        # What was enforced the person has replaced, also while calls run; what came after a command
        # began may be its own work, as a clone is.
        is_commands = self._calls and (moved or (place.is_bound and not place.enforced))
        may = _why_a_person_may if is_commands else _why_a_person_may_between_calls
        awaited: Set[str] = set() if moved else place.pending
        if parent is None:  # its folder may come back with all of it
            awaited = {place.path}
        found = opened + put_back(
            *(place.path, place.root, *up_to_a_common_end(before, now, most), self._quarantine),
            only_told=lambda path, was, is_now: (
                "" if is_now is None and is_in(path, awaited) else may(path, was, is_now)
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

    def _only_tell(self, place: _ProtectedPath) -> list[Finding]:
        """Accept what changed in the call of a command that may write it; return it."""
        now, place.parent = place.look(place.most)
        snapshots = up_to_a_common_end(place.before, now, place.most)
        why = "by a command that you let write there, or meanwhile"
        # Below itself: nothing above it is looked at, and moved away.
        found = put_back(
            *(place.path, place.path, *snapshots, self._quarantine), only_told=lambda *_: why
        )
        place.before = _after(place.before, now, found)
        return found


class FileWatch:
    """The watch over one command; made by `Tripwire.arm`."""

    def __init__(
        self,
        tripwire: Tripwire,
        confinement: Confinement | None,
        places: Sequence[_ProtectedPath],
        tree: NewRepositories | None,
        found: list[Finding],
        tell: Callable[[list[Finding]], None] | None,
    ) -> None:
        self._tripwire, self._confinement = tripwire, confinement
        self._places, self._tree = places, tree
        self._found = found
        self._tell = tell
        self._lock = threading.Lock()
        self._is_over = False

    def may_write(self, path: str) -> bool:
        """Tell whether the person let the command write a protected path."""
        confined = self._confinement
        if confined is None:
            return True
        return is_approved(path, set(confined.writable).difference(confined.workspace))

    def enter_call(self) -> None:
        """Record that a call sends something to the command, which continued as a session."""
        with self._lock:
            if self._is_over:
                return
            self._found = self._compare(searches=False)  # not this call's
            self._tripwire.enter_call(self)

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
            self._tripwire.leave_call(self)
            return found

    def finish(self) -> list[Finding]:
        """Compare for the last time, because the command has ended; a second call does nothing."""
        with self._lock:
            if self._is_over:
                return []
            found = self._compare()
            self._tripwire.leave_call(self)
            self._tripwire.release(self, self._places)
            self._is_over = True
            return found

    def _compare(self, *, searches: bool = True) -> list[Finding]:
        found, self._found = self._found, []
        if self._tree is None or self._is_over:
            return found
        return found + self._tripwire.compare(self._places, self._tree if searches else None)


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


# In a forked child: a thread of the parent may hold its locks, and its commands are the parent's.
os.register_at_fork(after_in_child=shared_tripwire.cache_clear)
guard_own_writes(lambda paths: shared_tripwire().writing(paths))


def _identity(folder: str) -> tuple[int, ...] | None:
    """Return which folder it is, and whether its owner may look into it."""
    try:
        status = os.lstat(folder)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mode & (stat.S_IRUSR | stat.S_IXUSR)


def _touch(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")
