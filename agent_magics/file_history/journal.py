"""Records a conversation's changes of files on disk, and undoes and redoes them.

Law: each change is recorded with the contents before and after when it is detected, so that none is
lost if the kernel dies. A turn is undone as a whole or not at all; what the person changed since,
or between two changes, is a conflict and is kept.
"""

import json
import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent_magics.file_history.restore import Conflict, Restore, RestoreFailed, plan
from agent_magics.file_history.states import ContentStore, PathChange, PathState
from agent_magics.files.locks import append, hold
from agent_magics.files.paths import read_judge, shown_path
from agent_magics.files.plain_files import load_json, open_plain, read_plain
from agent_magics.protocol.codec import is_typed
from agent_magics.protocol.errors import FatalError
from agent_magics.text.brief import first_of, number_of

# Limit in bytes of the contents that one conversation keeps; the oldest turns are dropped first.
MOST_KEPT = 256 * 1024 * 1024
_MOST_READ = 64 << 20  # bytes of a journal
_MOST_NAMED = 20  # paths in a sentence
FILE = "changes.jsonl"


@dataclass(slots=True)
class _JournalStep:
    """The changes found by one call or scan.

    Attributes:
        certain: False where the person may have made the change too.
        by: the sub-agent that made it; "" is the agent itself.
    """

    changes: tuple[PathChange, ...]
    certain: bool
    by: str = ""


@dataclass(slots=True)
class TurnChanges:
    """The changes of one turn.

    Attributes:
        title: the prompt, shortened, or the call.
        undone: whether it was undone.
        left: paths that were skipped when it was undone.
        doubtful: whether that included what the person may have changed, so that a redo does, too.
    """

    id: str
    title: str
    steps: list[_JournalStep] = field(default_factory=list)
    undone: bool = False
    left: frozenset[str] = frozenset()
    doubtful: bool = False


@dataclass(frozen=True, slots=True)
class _Combined:
    """The changes of some turns as one change of each path.

    Attributes:
        broken: by path, what somebody else changed between two of them.
        doubtful: the paths that were left out, since the person may have changed them.
    """

    changes: Sequence[PathChange]
    broken: Mapping[str, PathChange]
    doubtful: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UndoResult:
    """The result of undoing or redoing turns.

    Attributes:
        turns: the turns undone or redone, the newest first.
        paths: the restored paths.
        obstacles: the conflicts that kept paths from being restored.
        doubtful: paths that were skipped, since the person may have changed them.
        kept_folders: folders that were not removed, since they contain files of the person.
        by: the sub-agent whose changes alone were undone; "" means those of all.
    """

    turns: tuple[TurnChanges, ...]
    paths: tuple[str, ...] = ()
    obstacles: tuple[Conflict, ...] = ()
    doubtful: tuple[str, ...] = ()
    kept_folders: tuple[str, ...] = ()
    by: str = ""

    def in_the_way(self, cwd: Path) -> str:
        """Return the first conflicts with their reasons, as text."""
        reasons = [f"{shown_path(each.change.path, cwd)}: {each.reason}" for each in self.obstacles]
        return first_of(reasons, 5, "; ")

    def left_alone(self, cwd: Path, shown: Callable[[str], str] = str) -> list[str]:
        """Return a sentence for each reason why paths were left alone that nothing obstructs.

        Args:
            cwd: the folder below which paths are shown relative to it.
            shown: makes a path's name ready to be shown, such as `code_span`.
        """
        left = {
            "a session or you changed it": self.doubtful,
            "something is in it": self.kept_folders,
        }
        return [
            f"Left alone, since {why}: "
            + first_of([shown(shown_path(path, cwd)) for path in paths], _MOST_NAMED)
            + "."
            for why, paths in left.items()
            if paths
        ]


class ChangeJournal:
    """The changes of one conversation; thread-safe.

    Args:
        folder: where they are stored; created with the first change.
        about: metadata by which the journal is found again: the agent and its workspace.
        on_open: called before the first write.
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
        self._kept: set[str] = set()  # also those that were undone for good
        self._lock = threading.RLock()
        self._fd: int | None = None
        self._owed = b""  # lines that could not be written

    # -- recording
    # ----------------------------------------------------------------------------------

    def add(
        self,
        turn_id: str,
        title: str,
        changes: Sequence[PathChange],
        content: Callable[[str], bytes | None],
        *,
        certain: bool = True,
        by: str = "",
    ) -> None:
        """Record changes.

        Args:
            turn_id: the turn that made them.
            title: the turn's title.
            changes: the changes.
            content: returns a content by its digest.
            certain: whether only the agent can have made them.
            by: the sub-agent that made them; "" is the agent itself.
        """
        with self._lock:
            self._make_room()
            for state in (state for each in changes for state in (each.before, each.after)):
                data = content(state.digest) if state.digest else None
                if data is not None:
                    self.store.put(state.digest, data)
            self._drop_undone()
            self._kept.add(turn_id)
            self._turns.setdefault(turn_id, TurnChanges(turn_id, title))
            self._turns[turn_id].steps.append(_JournalStep(tuple(changes), certain, by))
            rows = [
                {"path": c.path, "before": c.before.to_json(), "after": c.after.to_json()}
                for c in changes
            ]
            row = {"turn": turn_id, "title": title, "certain": certain, "changes": rows}
            self._write({**row, "by": by} if by else row)

    def _drop_undone(self) -> None:
        """Drop the undone turns, always the newest: new changes make a redo impossible."""
        while self._turns and next(reversed(self._turns.values())).undone:
            self._turns.popitem()

    def _make_room(self) -> None:
        """Drop the contents of the oldest turns if too much is stored."""
        while self.store.size > MOST_KEPT // 2 and len(self._turns) > 1:
            oldest = next(iter(self._turns))
            del self._turns[oldest]
            self._kept.discard(oldest)
            with suppress(OSError):
                there = set(os.listdir(f"{self.folder}/contents"))
                self.store.drop(there - self._digests())
            self._write({"forgotten": oldest})

    def _digests(self) -> set[str]:
        return {
            state.digest
            for turn in self._turns.values()
            for step in turn.steps
            for change in step.changes
            for state in (change.before, change.after)
        }

    def _write(self, row: Mapping[str, Any]) -> None:
        self._owed += json.dumps(row).encode("ascii") + b"\n"
        with suppress(OSError):  # without disk access, undo still works within this kernel
            append(self.opened(), self._owed)
            self._owed = b""

    def opened(self) -> int:
        """Return the descriptor of the file, opened and locked: its conversation goes on here."""
        self._fd = self._open() if self._fd is None else self._fd
        return self._fd

    def _open(self) -> int:
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        # The lock shows other kernels that this one is alive, so that they do not use the journal.
        opened = open_plain(f"{self.folder}/{FILE}", os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            hold(opened)
            self._on_open()
            # Else after an end of line, since a kernel may have been killed within one.
            first = b"" if os.fstat(opened).st_size else json.dumps(self.about).encode("ascii")
            append(opened, first + b"\n")
        except BaseException:
            os.close(opened)
            raise
        return opened

    def close(self) -> None:
        """Close the file; the changes stay on disk."""
        with self._lock:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None

    # -- queries -----------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether no turn has changed anything, including undone ones."""
        return not self._turns

    @property
    def last_undone(self) -> TurnChanges | None:
        """The turn that was undone last, and not redone."""
        with self._lock:  # the oldest of them
            return next((turn for turn in self._turns.values() if turn.undone), None)

    @property
    def turns(self) -> list[TurnChanges]:
        """The turns that changed files and were not undone, the newest first."""
        with self._lock:
            return [turn for turn in reversed(self._turns.values()) if not turn.undone]

    def latest(self, count: int | None = None) -> list[TurnChanges]:
        """Return the last turns that changed files, or all of them; the newest first.

        Raises:
            FatalError: there are fewer, or none.
        """
        turns = self.turns
        if not turns:
            raise FatalError("No turn of this conversation changed files.")
        if count is not None and not 1 <= count <= len(turns):
            there = number_of(len(turns), "turn")
            raise FatalError(f"Only {there} of this conversation changed files; not {count:,}.")
        return turns[:count]

    def changes_of(self, turns: Sequence[TurnChanges]) -> Sequence[PathChange]:
        """Return the combined change of each path by these turns."""
        return self._compose(turns, doubtful=True).changes

    def find(self, turn_id: str) -> TurnChanges | None:
        """Return a turn that changed files; None where it changed none, or was undone."""
        turn = self._turns.get(turn_id)
        return None if turn is None or turn.undone else turn

    def has_kept(self, turn_id: str) -> bool:
        """Tell whether what a turn changed can be undone, or was."""
        return turn_id in self._kept

    def has(self, turn: TurnChanges) -> bool:
        """Tell whether a turn can be undone, or redone where it was; see `_drop_undone`."""
        return self._turns.get(turn.id) is turn

    def own_changes(self, turn: TurnChanges) -> list[PathChange]:
        """Return the combined change of each path that only the agent can have changed."""
        with self._lock:
            whole = self._compose([turn], doubtful=False)
            others = {*whole.broken, *whole.doubtful}
            return [each for each in whole.changes if each.path not in others]

    def authors(self, turn_ids: Iterable[str]) -> dict[str, str]:
        """Return for each path that sub-agents changed in these turns by whom: "by worker-1"."""
        with self._lock:
            by = dict[str, dict[str, None]]()
            for turn_id in turn_ids:
                for step in self._turns[turn_id].steps if turn_id in self._turns else ():
                    for change in step.changes:
                        by.setdefault(change.path, {})[step.by] = None
        return {
            path: f"{'also ' * ('' in names)}by {', '.join(filter(None, names))}"
            for path, names in by.items()
            if any(names)
        }

    @property
    def sub_agents(self) -> list[str]:
        """The sub-agents that changed files in turns that were not undone."""
        names = dict.fromkeys(step.by for turn in self.turns for step in turn.steps)
        return [name for name in names if name]

    @staticmethod
    def is_doubtful(turns: Sequence[TurnChanges]) -> bool:
        """Tell whether the person may have made some of their changes."""
        return any(not step.certain for turn in turns for step in turn.steps)

    def _compose(self, turns: Sequence[TurnChanges], *, doubtful: bool) -> _Combined:
        """Combine the changes of turns; `doubtful` counts those that the person may have made."""
        chosen = {turn.id: turn for turn in turns}
        whole: dict[str, PathChange] = {}
        broken: dict[str, PathChange] = {}
        left = []
        for step in (s for each in self._turns if each in chosen for s in chosen[each].steps):
            if not step.certain and not doubtful:
                left += [change.path for change in step.changes]
                continue
            for change in step.changes:
                first = whole.get(change.path)
                if first is not None and first.after != change.before:
                    between = PathChange(change.path, first.after, change.before)
                    broken.setdefault(change.path, between)
                before = change.before if first is None else first.before
                whole[change.path] = PathChange(change.path, before, change.after)
        found = [change for change in whole.values() if change.before != change.after]
        return _Combined(found, broken, tuple(dict.fromkeys(left)))

    # -- undo and redo -----------------------------------------------------------------------------

    def undo_sub_agent(
        self, name: str, *, rest: bool = False, doubtful: bool = False
    ) -> UndoResult:
        """Undo what one sub-agent changed in all turns; all of it, or nothing.

        That is recorded as further changes of the sub-agent, so the turns can still be undone.

        Args:
            name: the sub-agent.
            rest, doubtful: see `undo`.

        Returns:
            The result, as that of `undo`.

        Raises:
            FatalError: it changed nothing, or a file could not be written.
        """
        with self._lock:
            turns = [turn for turn in self.turns if any(step.by == name for step in turn.steps)]
            own = [
                replace(turn, steps=[step for step in turn.steps if step.by == name])
                for turn in turns
            ]
            whole = self._compose(own, doubtful=doubtful)
            if not (whole.changes or whole.broken or whole.doubtful):
                raise FatalError(f"No change of files by a sub-agent {name} is there to undo.")
            result = self._go(own, whole, rest)
            obstacles = tuple(self._with_author(each, name) for each in result.obstacles)
            held = {*(each.change.path for each in obstacles), *result.kept_folders}
            if rest or not obstacles:
                undone = [each.reverse for each in whole.changes if each.path not in held]
                self.add(turns[0].id, turns[0].title, undone, self.store.get, by=name)
            return replace(result, turns=tuple(turns), obstacles=obstacles, by=name)

    def _with_author(self, conflict: Conflict, name: str) -> Conflict:
        """Return a conflict that names the agent that changed the path, if one did."""
        others = [
            step.by or "the agent"
            for turn in self.turns
            for step in turn.steps
            if step.by != name and any(c.path == conflict.change.path for c in step.changes)
        ]
        if not others or not conflict.reason.startswith("you "):
            return conflict
        return replace(conflict, reason=conflict.reason.replace("you", others[-1], 1))

    def undo(self, count: int = 1, *, rest: bool = False, doubtful: bool = False) -> UndoResult:
        """Undo the changes of the last turns; all of them, or none.

        Args:
            count: number of turns.
            rest: skip conflicts, and undo the rest.
            doubtful: undo also changes that the person may have made, while only sessions ran.

        Returns:
            The result; with obstacles and without paths, nothing was changed.

        Raises:
            FatalError: there are fewer turns, or a file could not be written.
        """
        with self._lock:
            turns = self.latest(count)
            result = self._go(turns, self._compose(turns, doubtful=doubtful), rest)
            if not result.obstacles or rest:
                left = [each.change.path for each in result.obstacles]
                self._mark(turns, undone=True, left=left, doubtful=doubtful)
            return result

    def preview(self, count: int) -> UndoResult:
        """Return what undoing the last turns would restore, without changing anything."""
        with self._lock:
            turns = self.turns[:count]
            whole = self._compose(turns, doubtful=False)
            _, obstacles = self._plan(whole)
            held = {each.change.path for each in obstacles}
            paths = tuple(each.path for each in whole.changes if each.path not in held)
            return UndoResult(tuple(turns), paths, tuple(obstacles), whole.doubtful)

    def redo(self) -> UndoResult:
        """Redo the turn that was undone last.

        Raises:
            FatalError: there is nothing to redo, or a file could not be written.
        """
        with self._lock:
            turn = self.last_undone
            if turn is None:
                raise FatalError("There is no undone turn that could be made again.")
            turns, left = [turn], turn.left
            whole = self._compose(turns, doubtful=turn.doubtful)
            turned = [each.reverse for each in whole.changes if each.path not in left]
            broken = {path: each for path, each in whole.broken.items() if path not in left}
            result = self._go(turns, replace(whole, changes=turned, broken=broken), rest=False)
            if not result.obstacles:
                self._mark(turns, undone=False)
            return result

    def put_back(
        self, turn: TurnChanges, change: PathChange, content: Callable[[str], bytes | None]
    ) -> str:
        """Restore one path, as a further change of the turn that had changed it.

        Args:
            turn: the turn.
            change: the present state of the path, as `after`, and the wanted one, as `before`.
            content: returns the contents of both by their digests.

        Returns:
            Why nothing was done; "" where the path is restored.

        Raises:
            FatalError: it could not be written.
        """
        with self._lock:
            restore = plan([change], read_judge(), lambda digest: content(digest) is not None)
            if restore.obstacles:
                return restore.obstacles[0].reason
            _apply(restore, content)
            # Among later turns it stands alone: each path's changes stay in their order.
            is_last = self.turns[0] is turn
            turn_id = turn.id if is_last else f"{turn.id}:{len(self._turns)}"
            self.add(turn_id, turn.title, [change.reverse], content)
            return ""

    def _plan(self, whole: _Combined) -> tuple[Restore, list[Conflict]]:
        """Return the changes that restore the files, and the conflicts."""
        unbroken = [change for change in whole.changes if change.path not in whole.broken]
        restore = plan(unbroken, read_judge(), lambda digest: self.store.get(digest) is not None)
        between = [
            Conflict(change, "you changed it between two of these changes", change.after)
            for change in whole.broken.values()
        ]
        return restore, [*between, *restore.obstacles]

    def _go(self, turns: Sequence[TurnChanges], whole: _Combined, rest: bool) -> UndoResult:
        restore, obstacles = self._plan(whole)
        doubtful = whole.doubtful
        if obstacles and not rest:
            return UndoResult(tuple(turns), (), tuple(obstacles), doubtful)
        _apply(restore, self.store.get)
        kept = tuple(restore.kept_folders)
        return UndoResult(tuple(turns), tuple(restore.done), tuple(obstacles), doubtful, kept)

    def _mark(
        self,
        turns: Sequence[TurnChanges],
        *,
        undone: bool,
        left: Sequence[str] = (),
        doubtful: bool = False,
    ) -> None:
        for turn in turns:
            turn.undone, turn.left, turn.doubtful = undone, frozenset(left), doubtful
        key = "undone" if undone else "redone"
        row = {key: [turn.id for turn in turns], "left": list(left)}
        self._write({**row, "doubtful": True} if doubtful else row)

    # -- from disk ---------------------------------------------------------------------------------

    def load(self) -> "ChangeJournal":
        """Read the file of an earlier kernel; an incomplete last line is skipped."""
        about, *lines = _lines_in(self.folder)
        with self._lock:
            self.about = load_json(about)
            for line in lines:
                with suppress(ValueError, KeyError, TypeError):
                    self._take(load_json(line))
        return self

    def share(self, folder: str, turns: Collection[str]) -> None:
        """Copy what these turns have in another journal: that of the forked conversation."""
        about, *lines = _lines_in(folder)
        contents = ContentStore(f"{folder}/contents", MOST_KEPT)
        with self._lock:
            self.about = load_json(about)
            for line in lines:
                with suppress(ValueError, KeyError, TypeError, AttributeError):
                    row = load_json(line)
                    turn = row.get("turn", "")  # a revert among later turns is "ID:NUMBER"
                    if not turn or turn.partition(":")[0] in turns:
                        self._take(row)
                        self._write(row)
            for digest in self._digests():
                content = contents.get(digest)
                if content is not None:
                    self.store.put(digest, content)

    def _take(self, row: Mapping[str, Any]) -> None:
        """Apply a line of the file; one that no journal writes changes nothing.

        Raises:
            KeyError, TypeError, ValueError: it is such a line.
        """
        if "forgotten" in row:
            self._turns.pop(row["forgotten"], None)
            self._kept.discard(row["forgotten"])
        elif "changes" in row:
            changes = tuple(map(_as_change, row["changes"]))
            step = _JournalStep(changes, row["certain"], row.get("by", ""))
            turn = TurnChanges(row["turn"], row["title"])
            if not (is_typed(step) and is_typed(turn)):
                raise ValueError("a value of another type")
            self._drop_undone()
            self._kept.add(turn.id)
            self._turns.setdefault(turn.id, turn).steps.append(step)
        else:
            is_undone, left = "undone" in row, frozenset(row["left"])
            doubtful = row.get("doubtful") is True
            for name in row["undone" if is_undone else "redone"]:
                if name in self._turns:
                    found = self._turns[name]
                    found.undone, found.left, found.doubtful = is_undone, left, doubtful


def _lines_in(folder: str) -> list[bytes]:
    return read_plain(f"{folder}/{FILE}", _MOST_READ).splitlines() or [b""]


def _as_change(row: Mapping[str, Any]) -> PathChange:
    before, after = PathState.from_json(row["before"]), PathState.from_json(row["after"])
    change = PathChange(row["path"], before, after)
    if not all(map(is_typed, (change, before, after))):
        raise ValueError("a value of another type")
    root, *parts = change.path.split("/")
    is_whole = root == "" and parts and not {"", ".", ".."}.intersection(parts)
    names = map(os.fsencode, (change.path, before.target, after.target))
    are_modes = before.mode | after.mode in range(0o10000)
    if not (is_whole and are_modes) or any(b"\0" in name for name in names):
        raise ValueError("no path or mode of a file")
    return change


def _apply(restore: Restore, content: Callable[[str], bytes | None]) -> None:
    try:
        restore.apply(content)
    except RestoreFailed as failure:
        left = f" Look at {', '.join(failure.left)}." if failure.left else ""
        done = "not all of it could be put as it was." if left else "nothing was changed."
        raise FatalError(
            f"{failure.path} cannot be put back ({failure.reason}); {done}{left}"
        ) from failure
