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
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial

from agent_magics.config_files.places import state_folder
from agent_magics.exec.launcher.wire import Confinement
from agent_magics.exec.protected.git_changes import makes_git_run
from agent_magics.exec.protected.git_places import is_approved
from agent_magics.exec.protected.installed import Installed
from agent_magics.exec.protected.new_repositories import NewRepositories, OwnRepositories
from agent_magics.exec.protected.place import ProtectedPlace
from agent_magics.exec.protected.put_back import Finding, Quarantine
from agent_magics.exec.protected.snapshot import SnapshotEntry
from agent_magics.files.beneath import is_below, real_path
from agent_magics.files.locks import guard_own_writes

_TOLD_ONLY = (".ipynb", ".agent.jsonl")
_LOOKS_EVERY = 0.25  # seconds, while a command runs
_LONGEST_SHARE = 0.05  # maximal share of the time spent on searching, and mostly on comparing
# Seconds between comparisons, even if their share becomes larger: commands can slow them.
_LONGEST_PAUSE = 1.0
_MOST_PINS = 400  # descriptors; a workspace may have thousands of repositories
_LET = "by a command that you let write there, or meanwhile"

_Tell = Callable[[list[Finding]], None]


class Tripwire:
    """The record of protected files shared by all commands of this process; thread-safe.

    Args:
        quarantine: the folder for files moved out of the workspace; created when needed.
        every: seconds between two comparisons while a command runs; None compares only on request.

    Attributes:
        repositories: those that no command made.
    """

    def __init__(self, quarantine: str, every: float | None = _LOOKS_EVERY) -> None:
        self._quarantine = Quarantine(quarantine)
        self._places: dict[str, ProtectedPlace] = {}
        # What all running commands have mounted read-only, opened: or what replaces it could get
        # its number.
        self._pins: dict[str, int] = {}
        self._calls: set[FileWatch] = set()  # of commands within their call; others are sessions
        self._lock = threading.RLock()
        self._watches: set[FileWatch] = set()  # of those that are compared while they run
        self._found: list[Finding] = []  # for the next comparison
        self._installed = Installed()
        self.repositories = OwnRepositories()
        self._tell: _Tell | None = None  # of the newest command
        self._every = every
        self._thread: threading.Thread | None = None
        self._armed = threading.Event()

    def arm(self, confinement: Confinement | None, tell: _Tell | None = None) -> "FileWatch":
        """Record the state of everything protected; to be called before the command starts.

        Args:
            confinement: the command's confinement; None for an unconfined one, whose changes are
                accepted.
            tell: called at once, on a separate thread, with findings while the command runs, and
                with those about this kernel's environment also later; must not use the watch; None
                keeps the former for the next comparison.
        """
        with self._lock:
            # Changes by sessions so far are neither accepted nor attributed to this command.
            self._found = self.compare(self._held)
            if confinement is None:
                watch = FileWatch(self, None, (), None, tell)
                self._calls.add(watch)
                return watch
            tree = NewRepositories(confinement)
            # Where other commands write that may have begun before a place was there.
            others = tuple({place.root for place in self._held})
            places = [self._place(path, confinement, others) for path in confinement.protected]
            self.repositories.note(confinement.writable, tree.before)
            watch = FileWatch(self, confinement, places, tree, tell)
            for place in places:  # counted last: until here an error leaves nothing
                place.holders += 1
            self._calls.add(watch)
            self._tell = tell or self._tell
            if confinement.tier < 2:  # in tier 2 the environment is mounted read-only
                self._installed.begin(watch, confinement.writable)
            self._look_after(watch)
            return watch

    @property
    def _held(self) -> list[ProtectedPlace]:
        """The places of the commands that run."""
        return [place for place in self._places.values() if place.holders]

    def _place(
        self, path: str, confinement: Confinement, others: tuple[str, ...]
    ) -> ProtectedPlace:
        root = max((r for r in confinement.writable if is_below(path, (r,))), key=len, default=path)
        place = self._places.setdefault(path, ProtectedPlace(path, root))
        if place.holders:
            place.widen(root)
        else:
            place.root = root
            place.remember()
            place.is_bound = not is_below(path, others)
            self._unpin(path)
            if place.is_bound and confinement.tier >= 2:
                self._pin(path)
        if confinement.tier < 2 or not self._is_mounted(path):
            self._unpin(path)
        return place

    def _pin(self, path: str) -> None:
        """Open what a command will have mounted read-only; what is missing, or a link, is not."""
        if len(self._pins) < _MOST_PINS and not os.path.islink(path):
            with suppress(OSError):
                self._pins[path] = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)

    def _unpin(self, path: str) -> None:
        if (pin := self._pins.pop(path, None)) is not None:
            os.close(pin)

    def _is_mounted(self, path: str) -> bool:
        """Tell whether there stands what all running commands have mounted read-only, so that only
        the person can change it. A mount ends in silence once the person replaces the file.
        """
        with suppress(KeyError, OSError):
            return os.path.samestat(os.fstat(self._pins[path]), os.lstat(path))
        return False

    # -- while commands run ------------------------------------------------------------------------

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
            self._armed.clear()  # before it looks who is there: who comes then sets it again
            began = time.monotonic()
            watches = list(self._watches)
            if watches or self._installed.is_due:
                self._armed.set()
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

    @contextmanager
    def writing(self, paths: Sequence[str]) -> Iterator[None]:
        """Record what is written meanwhile as the intended state; nothing is compared until then.

        Args:
            paths: what the kernel writes.
        """
        written = [f"{real_path(os.path.dirname(path))}/{os.path.basename(path)}" for path in paths]
        with self._lock:
            held = [place for place in self._held if not place.is_being_written]
            places = [place for place in held if place.overlaps(written)]
            try:
                for place in places:  # changes by commands so far are not accepted
                    self._found += self._compare_place(place)
                    place.is_being_written = True
                yield
            finally:
                for place in places:
                    place.remember()
                    place.is_being_written = False

    # -- for `FileWatch` ---------------------------------------------------------------------------

    def compare(
        self, places: Sequence[ProtectedPlace], tree: NewRepositories | None = None
    ) -> list[Finding]:
        """Restore what changed, and search for new repositories in `tree`; return the findings."""
        with self._lock:
            for place in places:
                self._found += self._compare_place(place)
            self._found += tree.examine(self._quarantine) if tree else []
            found, self._found = self._found, []
            return found

    def keep(self, found: Sequence[Finding]) -> None:
        """Keep findings for the next comparison."""
        with self._lock:
            self._found += found

    def enter_call(self, watch: "FileWatch") -> None:
        """Record that a call about a session begins; what changed before is not its work."""
        with self._lock:
            self._found = self.compare(watch.places)
            self._calls.add(watch)

    def leave_call(self, watch: "FileWatch") -> list[Finding]:
        """Compare because a command's call returns, whether the command has ended or not.

        What the person let it write is accepted.
        """
        with self._lock:
            found = self.compare(watch.places, watch.tree)
            for place in self._held if watch in self._calls else ():
                if watch.may_write(place.path):
                    self._found += place.accept(self._quarantine, _LET)
            self._calls.discard(watch)
            return found

    def release(self, watch: "FileWatch") -> None:
        """Remove one command that has ended."""
        self._installed.end(watch)
        with self._lock:
            self._watches.discard(watch)
            for place in watch.places:
                place.holders -= 1
                if not place.holders:
                    self._unpin(place.path)

    def _compare_place(self, place: ProtectedPlace) -> list[Finding]:
        """Restore a place, or accept what changed there, by who may have changed it."""
        has_moved = place.has_moved()
        if not has_moved and not place.has_changed():
            place.pending = frozenset()
            return []
        if not has_moved and self._is_mounted(place.path):
            place.remember()
            return []
        if any(watch.may_write(place.path) for watch in self._calls):
            return place.accept(self._quarantine, _LET)
        # What was mounted the person has replaced, also while calls run; what came after a command
        # began may be its own work, as a clone is.
        is_commands = has_moved or (place.is_bound and place.path not in self._pins)
        only_told = partial(_why_only_told, by_command=bool(self._calls) and is_commands)
        return place.restore(self._quarantine, only_told)


class FileWatch:
    """The watch over one command; made by `Tripwire.arm`.

    Attributes:
        places: the protected paths that it could change.
        tree: the repositories that it could make; None where it is not confined.
    """

    def __init__(
        self,
        tripwire: Tripwire,
        confinement: Confinement | None,
        places: Sequence[ProtectedPlace],
        tree: NewRepositories | None,
        tell: _Tell | None,
    ) -> None:
        self._tripwire, self._confinement = tripwire, confinement
        self.places, self.tree = places, tree
        self._tell = tell or tripwire.keep
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
            if not self._is_over:
                self._tripwire.enter_call(self)

    def look(self, *, searches: bool = True) -> None:
        """Compare now, while the command runs, and report the findings.

        Args:
            searches: whether new repositories are searched for, which may take long.
        """
        # Told under the lock: what `finish` returns must come after what was told before.
        with self._lock:
            if self._is_over:
                return
            if found := self._tripwire.compare(self.places, self.tree if searches else None):
                self._tell(found)

    def check(self) -> list[Finding]:
        """Compare now, because the command continues as a session; return the findings."""
        with self._lock:
            return [] if self._is_over else self._tripwire.leave_call(self)

    def finish(self) -> list[Finding]:
        """Compare for the last time, because the command has ended; a second call does nothing."""
        with self._lock:
            if self._is_over:
                return []
            found = self._tripwire.leave_call(self)
            self._tripwire.release(self)
            self._is_over = True
            return found


def _why_only_told(
    path: str, was: SnapshotEntry | None, is_now: SnapshotEntry | None, *, by_command: bool
) -> str:
    """Return why a difference is only reported, since the person may have made it, or ""."""
    if path.endswith(_TOLD_ONLY):
        return "by the command, or saved meanwhile"
    if by_command or makes_git_run(path, was, is_now):
        return ""
    return "by a session that runs, or by yourself"


@lru_cache(maxsize=1)
def shared_tripwire() -> Tripwire:
    """Return this process's record of protected files."""
    return Tripwire(str(state_folder() / "quarantine"))


# In a forked child: a thread of the parent may hold its locks, and its commands are the parent's.
os.register_at_fork(after_in_child=shared_tripwire.cache_clear)
guard_own_writes(lambda paths: shared_tripwire().writing(paths))
