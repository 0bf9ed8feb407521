"""What the turns of a conversation changed in files, kept on disk, and the way back and forth.

Law: each change is written down with the contents before and after when it is seen, so that a
kernel that dies loses none. A turn is taken back as a whole or not at all; what a person changed
since, or between two changes, is in the way and stays.
"""

import fcntl
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from agent_magics.backends.paths import read_judge
from agent_magics.backends.workspace_restore import Obstacle, RestoreFailed, plan
from agent_magics.backends.workspace_states import (
    ContentStore,
    PathChange,
    PathState,
)
from agent_magics.protocol.errors import FatalError

# Bytes of contents that one conversation keeps; of the oldest turns they go first.
MOST_KEPT = 256 * 1024 * 1024
FILE = "changes.jsonl"


@dataclass(slots=True)
class _Step:
    """What one call, or one look, changed.

    Attributes:
        certain: False where the person may have made the change too.
    """

    changes: tuple[PathChange, ...]
    certain: bool


@dataclass(slots=True)
class TurnChanges:
    """What one turn changed.

    Attributes:
        title: the prompt, shortened, or the call.
        undone: it was taken back.
        left: paths that were left alone when it was taken back.
    """

    id: str
    title: str
    steps: list[_Step] = field(default_factory=list)
    undone: bool = False
    left: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Way:
    """What came of taking turns back, or making them again.

    Attributes:
        turns: which, the newest first.
        paths: what was put back.
        obstacles: what was in the way.
        doubtful: paths left alone, since the person may have changed them.
        kept_folders: folders that stay, since something of the person's stands in them.
    """

    turns: tuple[TurnChanges, ...]
    paths: tuple[str, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()
    doubtful: tuple[str, ...] = ()
    kept_folders: tuple[str, ...] = ()


class ChangeJournal:
    """The changes of one conversation; safe from every thread.

    Args:
        folder: where they are kept; made with the first change.
        about: what finds this journal again: the agent and its workspace.
        on_open: called when it begins to be written.
    """

    def __init__(
        self,
        folder: str,
        about: Mapping[str, str] | None = None,
        on_open: Callable[[], None] = lambda: None,
    ) -> None:
        self.folder = folder
        self._on_open = on_open
        self.about = dict(about or {})
        self.store = ContentStore(f"{folder}/contents", MOST_KEPT)
        self._turns: dict[str, TurnChanges] = {}
        self._lock = threading.RLock()
        self._fd: int | None = None

    # -- writing down ------------------------------------------------------------------------------

    def add(
        self,
        turn_id: str,
        title: str,
        changes: Sequence[PathChange],
        content: Callable[[str], bytes | None],
        *,
        certain: bool = True,
    ) -> None:
        """Write down what was changed.

        Args:
            turn_id: the turn that it counts for.
            title: what that turn is called.
            changes: what changed.
            content: returns the contents that the changes name.
            certain: nobody but the agent can have done it.
        """
        with self._lock:
            self._make_room()
            for state in (state for each in changes for state in (each.before, each.after)):
                data = content(state.digest) if state.digest else None
                if data is not None:
                    self.store.put(state.digest, data)
            for turn in [turn for turn in self._turns.values() if turn.undone]:
                del self._turns[turn.id]  # what comes now stands in place of what could be redone
            self._turns.setdefault(turn_id, TurnChanges(turn_id, title))
            self._turns[turn_id].steps.append(_Step(tuple(changes), certain))
            rows = [
                {"path": c.path, "before": c.before.to_json(), "after": c.after.to_json()}
                for c in changes
            ]
            self._write({"turn": turn_id, "title": title, "certain": certain, "changes": rows})

    def _make_room(self) -> None:
        """Forget the contents of the oldest turns where too much is kept."""
        while self.store.size > MOST_KEPT // 2 and len(self._turns) > 1:
            oldest = next(iter(self._turns))
            del self._turns[oldest]
            needed = {
                state.digest
                for turn in self._turns.values()
                for step in turn.steps
                for change in step.changes
                for state in (change.before, change.after)
            }
            with suppress(OSError):
                there = set(os.listdir(f"{self.folder}/contents"))
                self.store.drop(there - needed)
            self._write({"forgotten": oldest})

    def _write(self, row: Mapping[str, Any]) -> None:
        with suppress(OSError):  # without a disk it still holds for as long as the kernel lives
            if self._fd is None:
                self._fd = self._open()
            os.write(self._fd, json.dumps(row).encode("ascii") + b"\n")

    def _open(self) -> int:
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        opened = os.open(f"{self.folder}/{FILE}", flags, 0o600)
        # Who holds the lock is alive: no other kernel takes this journal up.
        with suppress(OSError):
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._on_open()
        if os.fstat(opened).st_size == 0:
            os.write(opened, json.dumps(self.about).encode("ascii") + b"\n")
        return opened

    def close(self) -> None:
        """Give the file back; the changes stay on disk."""
        with self._lock:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None

    # -- looking -----------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether no turn has changed anything, taken back or not."""
        return not self._turns

    @property
    def turns(self) -> list[TurnChanges]:
        """The turns that changed files and were not taken back, the newest first."""
        with self._lock:
            return [turn for turn in reversed(self._turns.values()) if not turn.undone]

    def changes_of(self, turns: Sequence[TurnChanges]) -> list[PathChange]:
        """Return what these turns did to each path, all in all."""
        return self._compose(turns, doubtful=True)[0]

    @staticmethod
    def is_doubtful(turns: Sequence[TurnChanges]) -> bool:
        """Tell whether the person may have made some of their changes."""
        return any(not step.certain for turn in turns for step in turn.steps)

    def _compose(
        self, turns: Sequence[TurnChanges], *, doubtful: bool
    ) -> tuple[list[PathChange], dict[str, PathChange], tuple[str, ...]]:
        """Return the changes by path, those that somebody else broke into, and what is doubtful."""
        chosen = {turn.id for turn in turns}
        whole: dict[str, PathChange] = {}
        broken: dict[str, PathChange] = {}
        left = []
        for step in (s for t in self._turns.values() if t.id in chosen for s in t.steps):
            if not step.certain and not doubtful:
                left += [change.path for change in step.changes]
                continue
            for change in step.changes:
                first = whole.get(change.path)
                if first is not None and first.after != change.before:
                    broken.setdefault(
                        change.path, PathChange(change.path, first.after, change.before)
                    )
                before = change.before if first is None else first.before
                whole[change.path] = PathChange(change.path, before, change.after)
        found = [change for change in whole.values() if change.before != change.after]
        return found, broken, tuple(dict.fromkeys(left))

    # -- back and forth ----------------------------------------------------------------------------

    def undo(self, count: int = 1, *, rest: bool = False, doubtful: bool = False) -> Way:
        """Put back what the last turns changed; all of it, or nothing.

        Args:
            count: how many turns.
            rest: leave alone what is in the way, and put back the rest.
            doubtful: put back also what the person may have changed, while only sessions ran.

        Returns:
            What came of it; with obstacles and without paths, nothing was changed.

        Raises:
            FatalError: there are not so many turns, or the disk refused.
        """
        with self._lock:
            turns = self.turns[:count]
            if len(turns) < count or not turns:
                there = len(turns)
                raise FatalError(
                    "No turn of this conversation changed files."
                    if not there
                    else f"Only {there} turn{'s' * (there > 1)} of this conversation changed files."
                )
            changes, broken, left = self._compose(turns, doubtful=doubtful)
            way = self._go(turns, changes, broken, left, rest)
            if not way.obstacles or rest:
                self._mark(turns, undone=True, left=[each.change.path for each in way.obstacles])
            return way

    def redo(self) -> Way:
        """Make the turns again that the last undo took back.

        Raises:
            FatalError: there is nothing to make again, or the disk refused.
        """
        with self._lock:
            undone = [turn for turn in reversed(self._turns.values()) if turn.undone]
            if not undone:
                raise FatalError("There is no undone turn that could be made again.")
            turns = undone[-1:]  # the oldest of them was undone last
            composed, broken, left = self._compose(turns, doubtful=False)
            turned = [
                PathChange(change.path, change.after, change.before)
                for change in composed
                if change.path not in turns[0].left
            ]
            way = self._go(turns, turned, broken, left, rest=False)
            if not way.obstacles:
                self._mark(turns, undone=False)
            return way

    def _go(
        self,
        turns: Sequence[TurnChanges],
        changes: Sequence[PathChange],
        broken: Mapping[str, PathChange],
        doubtful: tuple[str, ...],
        rest: bool,
    ) -> Way:
        whole = [change for change in changes if change.path not in broken]
        restore = plan(whole, read_judge(), lambda digest: self.store.get(digest) is not None)
        obstacles = [
            Obstacle(change, "you changed it between two of these changes", change.after)
            for change in broken.values()
        ]
        obstacles += restore.obstacles
        if obstacles and not rest:
            return Way(tuple(turns), (), tuple(obstacles), doubtful)
        try:
            restore.apply(self.store.get)
        except RestoreFailed as failure:
            left = f" Look at {', '.join(failure.left)}." if failure.left else ""
            done = "not all of it could be put as it was." if left else "nothing was changed."
            raise FatalError(
                f"{failure.path} cannot be put back ({failure.reason}); {done}{left}"
            ) from failure
        kept = tuple(restore.kept_folders)
        return Way(tuple(turns), tuple(restore.done), tuple(obstacles), doubtful, kept)

    def _mark(
        self, turns: Sequence[TurnChanges], *, undone: bool, left: Sequence[str] = ()
    ) -> None:
        for turn in turns:
            turn.undone, turn.left = undone, frozenset(left)
        word = "undone" if undone else "redone"
        self._write({word: [turn.id for turn in turns], "left": list(left)})

    # -- from disk ---------------------------------------------------------------------------------

    def load(self) -> "ChangeJournal":
        """Read what an earlier kernel has written; a line cut short by its death is left out."""
        with self._lock, open(f"{self.folder}/{FILE}", encoding="ascii") as file:
            self.about = json.loads(file.readline())
            for line in file:
                with suppress(ValueError, KeyError, TypeError):
                    self._take(json.loads(line))
        return self

    def _take(self, row: Mapping[str, Any]) -> None:
        if "forgotten" in row:
            self._turns.pop(row["forgotten"], None)
        elif "changes" in row:
            changes = tuple(
                PathChange(
                    each["path"],
                    PathState.from_json(each["before"]),
                    PathState.from_json(each["after"]),
                )
                for each in row["changes"]
            )
            for turn in [turn for turn in self._turns.values() if turn.undone]:
                del self._turns[turn.id]
            turn = self._turns.setdefault(row["turn"], TurnChanges(row["turn"], row["title"]))
            turn.steps.append(_Step(changes, row["certain"]))
        else:
            undone = "undone" in row
            for name in row["undone" if undone else "redone"]:
                if name in self._turns:
                    self._turns[name].undone = undone
                    self._turns[name].left = frozenset(row["left"])
