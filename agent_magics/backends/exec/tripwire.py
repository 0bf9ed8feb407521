"""Sees to it that protected files are after a command what they were before.

Inside a writable folder Landlock cannot hold a file (it grants, it does not take back), so what
`Confinement.protected` names is compared after each command: what changed is put back, what is new
is moved away and kept, and all of it is told.

Law: nothing is lost and nothing is silent. What the person may have changed themselves is told and
stays: the open notebook always; the rest where it changed between two calls, while only sessions
ran, unless git would run something by it. All commands share one memory of how things were, kept
from the first that starts to the last that ends; what an approved call writes becomes part of it.
"""

import os
import re
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice

from agent_magics.backends.exec.put_back import Finding, Quarantine, move_away, put_back
from agent_magics.backends.exec.snapshot import Entry, Snapshot, take
from agent_magics.backends.launcher.wire import Confinement
from agent_magics.backends.own_places import is_below

_TOLD_ONLY = (".ipynb", ".agent.jsonl")
_BARE_REPOSITORY = ("HEAD", "objects", "refs")
_MOST_CONFIGURATION = 64 * 1024  # bytes
# What in a repository's configuration makes git run a program, or read more configuration.
_RUNS_PROGRAMS = re.compile(
    r"(?im)^\s*\[\s*(?:include|includeif|alias)\b|^\s*(?:fsmonitor|hookspath|sshcommand|pager|editor"
    r"|askpass|command|textconv|clean|smudge|process|helper|program|gitproxy|external)\s*="
)


@dataclass(slots=True)
class _Place:
    """One protected path, and how it was when the first of the running commands began.

    Attributes:
        root: the writable folder that it is in.
        parent: identity of the folder it stands in, None where that is not there.
        enforced: all commands that run have it mounted read-only: who changes it is the person.
        holders: how many commands run.
    """

    path: str
    root: str
    before: Snapshot = field(default_factory=dict)
    parent: tuple[int, int] | None = None
    enforced: bool = True
    holders: int = 0

    def remember(self) -> None:
        """Take what is there now as right."""
        self.parent = _identity(os.path.dirname(self.path))
        self.before = take(self.path, self.before)


@dataclass(frozen=True, slots=True)
class _Root:
    """A writable folder, and whether it was a repository before the command."""

    path: str
    had_git: bool
    was_bare: bool


class Tripwire:
    """The memory that all commands of this process share; safe from every thread.

    Args:
        quarantine: the folder for what is taken out of the workspace; made when needed.
    """

    def __init__(self, quarantine: str) -> None:
        self._quarantine = Quarantine(quarantine)
        self._places: dict[str, _Place] = {}
        self._calls = 0  # commands that run within their call; the others are sessions
        self._lock = threading.Lock()

    def arm(self, confinement: Confinement | None) -> "Watch":
        """Remember how everything protected is now; call it before the command starts.

        Args:
            confinement: what the command is confined to; None for one that was let out: what that
                one changes is accepted.
        """
        with self._lock:
            held = [place for place in self._places.values() if place.holders]
            # What sessions did until now is not taken for right, nor for this command's doing.
            found = [finding for place in held for finding in self._restore(place)]
            if confinement is None:
                places, roots = None, []
            else:
                places = [self._hold(path, confinement) for path in confinement.protected]
                *folders, _ = confinement.writable  # the last one is for temporary files
                roots = [_as_root(path) for path in folders]
            self._calls += 1
            return Watch(self, places, roots, found)

    def accept(self, paths: Iterable[str] | None = None) -> None:
        """Take what is there now as right, because an approved call wrote it.

        Args:
            paths: what was written; None for anything.
        """
        written = None if paths is None else list(paths)
        with self._lock:
            for place in self._places.values():
                touched = written is None or any(_touch(path, place.path) for path in written)
                if place.holders and touched:
                    place.remember()

    def _hold(self, path: str, confinement: Confinement) -> _Place:
        root = max((r for r in confinement.writable if is_below(path, (r,))), key=len, default=path)
        place = self._places.setdefault(path, _Place(path, root))
        if not place.holders:
            place.remember()
            place.enforced = True
        # Nothing can be mounted over what is not there.
        place.enforced &= confinement.tier >= 2 and bool(place.before)
        place.holders += 1
        return place

    def compare(self, places: Sequence[_Place], roots: Sequence[_Root]) -> list[Finding]:
        """Put back what changed; return what that was."""
        with self._lock:
            found = [finding for place in places for finding in self._restore(place)]
            return found + [finding for root in roots for finding in self._examine(root)]

    def leave_call(self) -> None:
        """Take note that a command's call is over, whether the command is or not."""
        with self._lock:
            self._calls -= 1

    def release(self, places: Sequence[_Place]) -> None:
        """Forget one command that has ended."""
        with self._lock:
            for place in places:
                place.holders -= 1

    def _restore(self, place: _Place) -> list[Finding]:
        now, parent = take(place.path, place.before), _identity(os.path.dirname(place.path))
        moved = parent != place.parent
        if now == place.before and not moved:
            return []
        if place.enforced and not moved:
            place.before = now
            return []
        found = put_back(
            *(place.path, place.root, place.before, now, self._quarantine),
            only_told=_why_a_person_may if self._calls else _why_a_person_may_between_calls,
        )
        # Not looked at anew: what a process that still runs does from here on is not yet right.
        place.before = _after(place.before, now, found)
        place.parent = parent
        return found

    def _examine(self, root: _Root) -> list[Finding]:
        """Look for a repository that was made where there was none, to make git run something."""
        found = []
        if not root.was_bare and _is_bare(root.path):
            # Without HEAD git no longer takes the workspace's own top folder for a repository.
            found.append(move_away(f"{root.path}/HEAD", self._quarantine))
        if not root.had_git and (why := _what_git_would_run(f"{root.path}/.git")):
            found.append(Finding(f"{root.path}/.git", "new", why=why))
        return found


class Watch:
    """One command under watch; made by `Tripwire.arm`."""

    def __init__(
        self,
        tripwire: Tripwire,
        places: Sequence[_Place] | None,
        roots: Sequence[_Root],
        found: list[Finding],
    ) -> None:
        self._tripwire, self._places, self._roots = tripwire, places, roots
        self._found = found
        self._lock = threading.Lock()
        self._in_call = True
        self._is_over = False

    def check(self) -> list[Finding]:
        """Compare now, because the command goes on as a session; return what had changed."""
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
                self._tripwire.release(self._places)
            self._is_over = True
            return found

    def _compare(self) -> list[Finding]:
        found, self._found = self._found, []
        if self._places is None or self._is_over:
            return found
        return found + self._tripwire.compare(self._places, self._roots)

    def _leave_call(self) -> None:
        if self._in_call:
            self._tripwire.leave_call()
        self._in_call = False


def _why_a_person_may(path: str, was: Entry | None, is_now: Entry | None) -> str:
    """Say why a difference is only told even if a command made it within its call."""
    return "by the command, or saved meanwhile" if path.endswith(_TOLD_ONLY) else ""


def _why_a_person_may_between_calls(path: str, was: Entry | None, is_now: Entry | None) -> str:
    """The same for what changed while only sessions ran."""
    if path.endswith(_TOLD_ONLY):
        return _why_a_person_may(path, was, is_now)
    return "" if _makes_git_run(path, was, is_now) else "by a session that runs, or by yourself"


def _makes_git_run(path: str, was: Entry | None, is_now: Entry | None) -> bool:
    if is_now is None:
        return False
    folder, name = os.path.split(path)
    if name in ("config", "config.worktree"):
        new = (is_now.content or b"").splitlines()
        old = set((was.content or b"").splitlines()) if was is not None else set()
        added = b"\n".join(line for line in new if line not in old)
        return bool(_RUNS_PROGRAMS.search(added.decode("utf-8", "replace")))
    return name == "hooks" or "/hooks/" in f"{folder}/"


def _after(before: Snapshot, now: Snapshot, found: Sequence[Finding]) -> Snapshot:
    """Return how a place should be from now on: as it was, but for what could only be told."""
    told = [finding.path for finding in found if not finding.done]
    if not told:
        return before
    kept = {path: entry for path, entry in before.items() if not is_below(path, told)}
    return kept | {path: entry for path, entry in now.items() if is_below(path, told)}


@lru_cache(maxsize=1)
def shared_tripwire() -> Tripwire:
    """Return this process's memory of protected files."""
    import platformdirs  # noqa: PLC0415 - 5 ms that only the first command pays

    state = platformdirs.user_state_dir("agent-magics", appauthor=False)
    return Tripwire(os.path.join(state, "quarantine"))


def _as_root(path: str) -> _Root:
    return _Root(path, os.path.lexists(f"{path}/.git"), _is_bare(path))


def _is_bare(folder: str) -> bool:
    return all(os.path.lexists(f"{folder}/{name}") for name in _BARE_REPOSITORY)


def _what_git_would_run(dot_git: str) -> str:
    """Return what a new repository makes git run, in words, or ""."""
    if not os.path.isdir(dot_git):
        return ""
    hooks: list[str] = []
    try:
        with os.scandir(f"{dot_git}/hooks") as entries:
            hooks = [e.name for e in islice(entries, 100) if not e.name.endswith(".sample")]
        with open(f"{dot_git}/config", encoding="utf-8", errors="replace") as file:
            runs = _RUNS_PROGRAMS.search(file.read(_MOST_CONFIGURATION))
    except OSError:
        runs = None
    if hooks:
        return f"git will run its hooks ({', '.join(sorted(hooks))}); look at them first"
    return "its configuration makes git run programs; look at it first" if runs else ""


def _identity(folder: str) -> tuple[int, int] | None:
    try:
        status = os.lstat(folder)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _touch(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")
