"""Reviews what a turn changed in files, one change at a time: each is kept or reverted.

Law: a revert replaces only lines that are still as the agent left them; see ``file_history.hunks``.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Literal

from agent_magics.file_history.diff import FileDiff, file_diff
from agent_magics.file_history.hunks import ChangedText, Hunk
from agent_magics.file_history.journal import ChangeJournal, TurnChanges
from agent_magics.file_history.states import PathChange, PathState, digest_of, look_at
from agent_magics.files.beneath import PathChanged
from agent_magics.files.paths import read_judge, shown_path
from agent_magics.protocol.errors import FatalError
from agent_magics.text.brief import brief_line

_MOST_NAMED = 60  # characters of a line in a sentence
_FOLDERS = {"folder", "absent"}


@dataclass(slots=True)
class ReviewedChange:
    """One change of a turn that is reviewed by itself.

    Attributes:
        path: the file, relative to the workspace where it is inside.
        diff: the lines as a unified diff shows them, or a sentence for what has no lines.
        state: what the person has done with it.
    """

    path: str
    diff: str
    state: Literal["open", "kept", "reverted"]
    _whole: PathChange
    _text: ChangedText | None = None
    _hunk: Hunk | None = None


class TurnReview:
    """The changes of one turn, to be kept or reverted one by one; thread-safe.

    Args:
        journal: the journal that recorded them.
        turn: the turn.
        cwd: the workspace.
        check: called before a revert; raises FatalError where none can be made now.
        tell: sends the model a message with its next request.
        newest: returns the journal in which an undo finds its turn.

    Attributes:
        changes: in the order of the turn's diff; what the person may have made is not among them.
    """

    def __init__(
        self,
        journal: ChangeJournal,
        turn: TurnChanges,
        cwd: Path,
        check: Callable[[], object],
        tell: Callable[[str], object],
        newest: Callable[[], ChangeJournal],
    ) -> None:
        self._journal, self._turn, self._cwd = journal, turn, cwd
        self._check, self._tell, self._newest = check, tell, newest
        self._lock = RLock()
        own = sorted(journal.own_changes(turn), key=lambda change: change.path)
        self.changes = [change for each in own for change in self._changes_in(each)]

    def _changes_in(self, whole: PathChange) -> list[ReviewedChange]:
        kinds = {whole.before.kind, whole.after.kind}
        if kinds <= _FOLDERS:
            return []  # those that files needed; an undo of the turn removes them
        name = shown_path(whole.path, self._cwd)
        store = self._journal.store.get
        old, left = (store(s.digest) if s.digest else None for s in (whole.before, whole.after))
        diff = file_diff(name, whole.before, whole.after, old, left)
        is_text = kinds == {"file"} and old is not None and left is not None and diff.hunks
        if not is_text or whole.before.mode != whole.after.mode:
            return [ReviewedChange(name, _described(diff), "open", whole)]
        assert old is not None
        assert left is not None
        text = ChangedText(left, old, diff.hunks)
        return [
            ReviewedChange(name, "\n".join(hunk.shown), "open", whole, text, hunk)
            for hunk in text.hunks
        ]

    @property
    def is_last(self) -> bool:
        """Whether no later turn has changed files, so that an undo reverts this one."""
        return self._newest().turns[:1] == [self._turn]

    @property
    def is_undone(self) -> bool:
        """Whether the whole turn was undone."""
        return self._journal.find(self._turn.id) is None

    def keep(self, number: int) -> None:
        """Mark a change as seen.

        Args:
            number: of the change, from 1.

        Raises:
            FatalError: there is no such change.
        """
        with self._lock:
            change = self._find(number)
            if change.state == "open":
                change.state = "kept"

    def revert(self, number: int) -> str:
        """Put the old lines of a change back where the file still holds the new ones.

        Args:
            number: of the change, from 1.

        Returns:
            Why nothing was done; "" where the change is reverted.

        Raises:
            FatalError: there is no such change, a turn is running, or the disk refused.
        """
        with self._lock:
            change = self._find(number)
            if self.is_undone or change.state == "reverted":
                return ""
            self._check()
            if change._text is None:
                why = self._journal.put_back(self._turn, change._whole, self._journal.store.get)
                if why:
                    why = f"Nothing was reverted, since {change.path} is otherwise now: {why}."
            else:
                why = self._revert_lines(change)
            if not why:
                change.state = "reverted"
                self._tell(
                    f"The person reverted a change that you made to {change.path}. Do not make it "
                    "again unless asked, and read the file again before you change it."
                )
            return why

    def _find(self, number: int) -> ReviewedChange:
        if not 1 <= number <= len(self.changes):
            raise FatalError(
                f"There is no change {number}; %agent review lists {len(self.changes)}."
            )
        return self.changes[number - 1]

    def _revert_lines(self, change: ReviewedChange) -> str:
        text, hunk, path = change._text, change._hunk, change._whole.path
        assert text is not None
        assert hunk is not None
        contents: dict[str, bytes] = {}
        now = PathState()
        with suppress(OSError, PathChanged):
            now = look_at(path, read_judge(), lambda d, data: contents.setdefault(d, data) is data)
        data = contents.get(now.digest)
        if data is None:
            return f"Nothing was reverted, since {change.path} cannot be read as a file any more."
        without = text.without(hunk, data)
        if without is None:
            return f"Nothing was reverted, since {_what_changed(change.path, hunk, data)}."
        wanted = PathState("file", now.mode, digest_of(without), len(without))
        contents[wanted.digest] = without
        why = self._journal.put_back(self._turn, PathChange(path, wanted, now), contents.get)
        if why:
            return f"Nothing was reverted, since {change.path} is otherwise now: {why}."
        text.forget(hunk)
        return ""


def _described(diff: FileDiff) -> str:
    """Return what is shown of a change that is kept or reverted as a whole."""
    lines = [line for hunk in diff.hunks for line in hunk]
    is_empty = diff.added == diff.removed == 0
    reason = "It has no lines." if is_empty else "Its lines are not shown."
    return "\n".join(lines) or diff.note or reason


def _what_changed(name: str, hunk: Hunk, now: bytes) -> str:
    """Return what hinders a revert: the first of the agent's lines that is gone, or else."""
    there = set(now.splitlines())
    for line in hunk.new.splitlines():
        if line not in there:
            cut = brief_line(line.decode("utf-8", "replace"), _MOST_NAMED)
            return f"the agent's line “{cut}” is not in {name} any more"
    return f"the lines around this change in {name} are not as the agent left them"
