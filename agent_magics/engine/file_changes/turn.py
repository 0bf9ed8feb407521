"""Tracks file changes of a turn: observed around each call, journaled, reported as one diff.

Law: a turn that changes nothing and runs no command costs nothing. Changes that cannot be observed
are named: a workspace that is too large, folders that tools fill, changes outside the workspace.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

from agent_magics.dispatch.context import Emit
from agent_magics.file_history.diff import FileDiff, file_diff
from agent_magics.file_history.journal import ChangeJournal, TurnChanges
from agent_magics.file_history.states import PathChange, PathState, look_at, with_missing_folders
from agent_magics.file_history.writers import Writers
from agent_magics.files.beneath import real_path
from agent_magics.files.paths import read_judge, shown_below, shown_path
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.events import ChangedFile, TurnDiffUpdated, Warned

if TYPE_CHECKING:  # which turns without commands never use
    from agent_magics.file_history.restore import Conflict
    from agent_magics.file_history.workspace import WorkspaceMemory

_MOST_SHOWN = 200_000  # characters of one event's diff

Content = Callable[[str], bytes | None]
# Path -> (its change, by whom), (how that is shown, its diff).
Described = dict[str, tuple[tuple[PathChange, str], tuple[ChangedFile, str]]]


class DiffTracker:
    """The file changes of one turn; thread-safe.

    Args:
        journal: records the changes.
        turn_id: the turn.
        cwd: the workspace; paths are reported relative to it.
        roots: the folders that commands may write.
        emit: sends an event of the turn.
        reported: workspaces that were reported as too large; shared by the conversation.
        agent: the names of the agent and its parent.
        writers: the last writers of files, shared with the parent.
        parent: returns the tracker of the parent's turn, which gets all changes too, or None.
    """

    def __init__(
        self,
        journal: ChangeJournal,
        turn_id: str,
        cwd: Path,
        roots: Sequence[Path],
        emit: Emit,
        reported: set[str],
        *,
        agent: str = "",
        writers: Writers | None = None,
        parent: "Callable[[], DiffTracker | None]" = lambda: None,
    ) -> None:
        self.title = ""
        self._journal, self._turn_id = journal, turn_id
        self._cwd, self._roots = cwd, roots
        self._emit, self._reported = emit, reported
        self._agent, self._writers, self._parent = agent, writers or Writers(), parent
        self._latest: dict[str, PathChange] = {}
        self._whole: dict[str, PathChange] = {}
        self._known: Described = {}
        self._doubtful = self._over = False
        self._lock = Lock()

    # -- seeing ------------------------------------------------------------------------------------

    @contextmanager
    def writing(self, paths: Sequence[Path]) -> Iterator[None]:
        """Record the changes of the work inside to `paths` and to folders made for them.

        Raises:
            RespondToModel: another agent has changed one of the files unknown to this one, which
                is not told of it a second time.
        """
        self._tell_of_others([real_path(Path(path).absolute()) for path in paths])
        watched = with_missing_folders(place for path in paths for place in _places_of(path))
        busy = [memory for memory in self._memories() if memory.is_busy]
        for memory in busy:  # what commands and code have changed there until now comes first
            self._add_found(memory, *memory.changes_at(watched))
        contents: dict[str, bytes] = {}
        judge = read_judge(self._roots)  # once for both scans: it looks up a hundred places
        before = _look(watched, contents, judge)
        try:
            yield
        finally:
            after = _look(watched, contents, judge)
            for memory in busy:
                memory.changes_at(watched)
            changes = [
                PathChange(path, was, after[path])
                for path, was in before.items()
                if was != after.get(path, was)
            ]
            self._add(changes, contents.get)

    def _tell_of_others(self, paths: Sequence[str]) -> None:
        news = self._writers.take_news(self._agent, paths)
        if news:
            changed = "; ".join(
                f"{shown_path(path, self._cwd)} was changed by agent {writer}"
                for path, writer in news.items()
            )
            raise RespondToModel(
                f"Nothing was written: {changed} since you read it. Read it again, or repeat the "
                "call to write all the same."
            )
        self._writers.wrote(self._agent, paths)  # at once: another may come meanwhile

    def saw(self, path: Path) -> None:
        """Record that the model has read a file in its present state."""
        self._writers.saw(self._agent, str(path))

    def watch(self) -> "CommandWatch":
        """Scan the workspace before a command or a piece of code, and return its watch."""
        memories = self._memories()
        watch = CommandWatch(self, memories)
        for memory in memories:
            self._add_found(memory, *memory.begin())
            if memory.too_large:
                self._warn_too_large(memory.root)
        return watch

    def _memories(self) -> "list[WorkspaceMemory]":
        """Return the known states of the workspace, which all turns share."""
        from agent_magics.file_history.workspace import memories_of  # noqa: PLC0415 - late, as above

        return list(memories_of(self._roots))

    def _warn_too_large(self, root: str) -> None:
        if root not in self._reported:
            from agent_magics.file_history.scan import MOST_ENTRIES  # noqa: PLC0415 - late, as above

            self._reported.add(root)
            message = (
                f"{root} holds more than {MOST_ENTRIES:,} files, so what commands and code change "
                "there is not seen and cannot be undone; what file tools change is."
            )
            self._emit(Warned, message=message)

    def _add_found(
        self, memory: "WorkspaceMemory", changes: Sequence[PathChange], certain: bool
    ) -> None:
        self._add(changes, memory.content, certain=certain)

    def _add(
        self,
        found: Sequence[PathChange],
        content: Content,
        *,
        certain: bool = True,
        by: str = "",
    ) -> None:
        # A command beside a sub-agent may find the change that the sub-agent has reported.
        changes = [change for change in found if self._latest.get(change.path) != change]
        if not changes:
            return
        title = self.title or "a call"
        self._journal.add(self._turn_id, title, changes, content, certain=certain, by=by)
        if not by:
            self._writers.wrote(self._agent, (change.path for change in changes))
        parent = self._parent()
        if parent is not None:
            parent._add(changes, content, certain=certain, by=self._agent.rpartition("/")[2])
        with self._lock:
            self._latest.update((change.path, change) for change in changes)
            self._doubtful |= not certain
            for change in changes:
                first = self._whole.get(change.path)
                before = change.before if first is None else first.before
                self._whole[change.path] = PathChange(change.path, before, change.after)
            if not self._over:
                self._report()

    # -- telling -----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Report all changes again at the turn's end, and warn of files that run by themselves."""
        with self._lock:
            self._over = True
            if self._whole:
                self._report(final=True)

    def _report(self, *, final: bool = False) -> None:
        content, changes = self._journal.store.get, _sorted(self._whole.values())
        authors = self._journal.authors([self._turn_id])
        fields = _event_fields(changes, self._cwd, content, self._doubtful, authors, self._known)
        runs = what_runs(changes, self._cwd, content) if final else ()
        self._emit(TurnDiffUpdated, runs=runs, is_last=final, **fields)


DOUBTFUL = (
    "Some of this was found while only background sessions ran: they or you changed it. "
    "%agent undo leaves that alone."
)


class CommandWatch:
    """The workspace around one command or piece of code; made by `DiffTracker.watch`."""

    def __init__(self, tracker: DiffTracker, memories: "Sequence[WorkspaceMemory]") -> None:
        self._tracker, self._memories = tracker, memories
        self._is_session = False

    def hand_over(self) -> None:
        """Report the changes so far, because the command goes on as a session."""
        for memory in self._memories:
            self._tracker._add_found(memory, *memory.hand_over())
        self._is_session = True

    def take_back(self) -> None:
        """Report what changed while it went on as a session, because a call is about it again."""
        if self._is_session:
            for memory in self._memories:
                self._tracker._add_found(memory, *memory.take_back())
            self._is_session = False

    def finish(self) -> None:
        """Report the changes, because the command has ended; a second call does nothing."""
        memories, self._memories = self._memories, ()
        for memory in memories:
            self._tracker._add_found(memory, *memory.end(session=self._is_session))


def _places_of(path: str | Path) -> tuple[str, str]:
    """Return the place of a path without links, and if it is a link that of what it leads to."""
    entry = Path(path).absolute()
    return str(Path(real_path(entry.parent), entry.name)), real_path(entry)


def _look(
    paths: Sequence[str], contents: dict[str, bytes], judge: Callable[[str], str]
) -> dict[str, PathState]:
    def keep(digest: str, content: bytes) -> bool:
        contents[digest] = content
        return True

    found = {}
    for path in paths:
        # Behind a link now, or not readable: the tool will report it.
        with suppress(OSError):
            found[path] = look_at(path, judge, keep)
    return found


# -- in words --------------------------------------------------------------------------------------


def diff_event(journal: ChangeJournal, turns: Sequence[TurnChanges], cwd: Path) -> TurnDiffUpdated:
    """Return the net changes of some turns, as an event."""
    changes, content = _sorted(journal.changes_of(turns)), journal.store.get
    authors = journal.authors([turn.id for turn in turns])
    fields = _event_fields(changes, cwd, content, journal.is_doubtful(turns), authors)
    return TurnDiffUpdated(runs=what_runs(changes, cwd, content), **fields)


def conflict_event(
    journal: ChangeJournal, obstacles: "Sequence[Conflict]", cwd: Path
) -> TurnDiffUpdated:
    """Return the conflicts of an undo: the diff from the agent's state to the present one."""
    contents: dict[str, bytes] = {}
    judge = read_judge()
    for obstacle in obstacles:
        if obstacle.now is not None:
            with suppress(OSError):
                _look([obstacle.change.path], contents, judge)
    changes = [PathChange(o.change.path, o.change.after, o.now) for o in obstacles if o.now]

    def content(digest: str) -> bytes | None:
        return contents.get(digest) or journal.store.get(digest)

    return TurnDiffUpdated(**_event_fields(_sorted(changes), cwd, content, doubtful=False))


def _sorted(changes: Iterable[PathChange]) -> list[PathChange]:
    return sorted(changes, key=lambda change: change.path)


def _event_fields(
    changes: Sequence[PathChange],
    cwd: Path,
    content: Content,
    doubtful: bool,
    authors: Mapping[str, str] | None = None,
    known: Described | None = None,
) -> dict[str, Any]:
    """Return the fields of the event."""
    described = describe(changes, cwd, content, known, authors)
    return {
        "diff": _joined([text for _, text in described]),
        "files": tuple(file for file, _ in described),
        "notes": (DOUBTFUL,) if doubtful else (),
    }


def describe(
    changes: Sequence[PathChange],
    cwd: Path,
    content: Content,
    known: Described | None = None,
    authors: Mapping[str, str] | None = None,
) -> list[tuple[ChangedFile, str]]:
    """Return each net change with its diff.

    Args:
        changes: the state before and after of each path.
        cwd: the folder to which paths are relative; it holds no link.
        content: returns a stored content by its digest.
        known: what was described before; new descriptions are added.
        authors: a note on each path that sub-agents have changed.
    """
    known = {} if known is None else known
    folders = {change.path for change in changes if change.before.kind == change.after.kind}
    holding = _folders_above(changes) - folders
    found = []
    for change in changes:
        if change.before == change.after:
            continue
        if change.path in holding and _makes_or_removes_folder(change):  # listed by what is in it
            continue
        seen = change, (authors or {}).get(change.path, "")
        earlier = known.get(change.path)
        if earlier is None or earlier[0] != seen:
            diff = _diff(change, cwd, content)
            shown = _changed_file(change, diff, cwd, seen[1])
            earlier = known[change.path] = seen, (shown, diff.text)
        found.append(earlier[1])
    return found


def _diff(change: PathChange, cwd: Path, content: Content) -> FileDiff:
    old, new = (content(s.digest) if s.digest else None for s in (change.before, change.after))
    diff = file_diff(shown_below(Path(change.path), cwd), change.before, change.after, old, new)
    # A content may have none to be copied from, or its copy found the disk full.
    if change.before.can_be_made and (old is not None or not change.before.digest):
        return diff
    return replace(diff, note="; ".join(filter(None, (diff.note, "cannot be undone"))))


def _makes_or_removes_folder(change: PathChange) -> bool:
    return {change.before.kind, change.after.kind} == {"folder", "absent"}


def _folders_above(changes: Sequence[PathChange]) -> set[str]:
    found: set[str] = set()
    for change in changes:
        folder = change.path.rpartition("/")[0]
        while folder not in found:  # at the latest "", above the root
            found.add(folder)
            folder = folder.rpartition("/")[0]
    return found


def _changed_file(change: PathChange, diff: FileDiff, cwd: Path, author: str) -> ChangedFile:
    kinds = change.before.kind, change.after.kind
    kind: Literal["added", "changed", "removed"] = "changed"
    if "absent" in kinds:
        kind = "added" if kinds[0] == "absent" else "removed"
    path = shown_below(Path(change.path), cwd) + ("/" if "folder" in kinds else "")
    note = "; ".join(filter(None, (diff.note, author)))
    return ChangedFile(path, kind, diff.added, diff.removed, note)


def _joined(texts: Sequence[str]) -> str:
    whole = "".join(texts)
    if len(whole) <= _MOST_SHOWN:
        return whole
    cut = whole.rfind("\n", 0, _MOST_SHOWN) + 1
    return f"{whole[:cut]}… {len(whole) - cut:,} characters more …\n"


def what_runs(changes: Sequence[PathChange], cwd: Path, content: Content) -> tuple[str, ...]:
    """Return a warning for each changed file that other programs run automatically."""
    # Late: it needs TOML and 30 patterns, and most turns change nothing.
    from agent_magics.file_history.triggers import why_it_runs  # noqa: PLC0415

    found = []
    for change in changes:
        path = shown_below(Path(change.path), cwd)
        why = why_it_runs(path, change, content) if change.before != change.after else ""
        if why:
            found.append(f"{path} runs by itself: {why}.")
    return tuple(found)
