"""Undoes turns of a conversation and their file changes, and redoes them.

It combines the undo of files (`file_history.journal`) with that of the history, by turns.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from agent_magics.engine.conversation import Conversation
from agent_magics.file_history.journal import ChangeJournal, TurnChanges, UndoResult
from agent_magics.files.paths import shown_path
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import Item, UserMessage, text_of
from agent_magics.text.brief import first_of, number_of

_MOST_NAMED = 20
_LEFT = "Files are as turns left them that the person has taken out of this conversation"
_PUT_BACK = "The person has put these turns back into this conversation."
_NOT_MADE = " Their files are not all as they left them; read a file before you change it."


class WayLost(FatalError):
    """What was taken back cannot come back: more was said since."""


class Rewind:
    """The undo of a conversation's last turns.

    Args:
        conversation: the conversation, in which no turn is running.
        cwd: its workspace.
        turn: the first turn to undo, counted from 1; None means the last.

    Attributes:
        turns: the ids of the undone turns, oldest first.
        files: the outcome for the files, once it was done.

    Raises:
        FatalError: there is no such turn.
    """

    def __init__(self, conversation: Conversation, cwd: Path, turn: int | None = None) -> None:
        turns = conversation.history.turns
        number = len(turns) if turn is None else turn
        if not turns:
            raise FatalError("This conversation has no turns yet: there is nothing to go back to.")
        if not 1 <= number <= len(turns):
            had = number_of(len(turns), "turn")
            raise FatalError(f"This conversation has {had}; there is no turn {number}.")
        self._conversation = conversation
        self._cwd = cwd
        self.number = number
        self.turns = turns[number - 1 :]
        self.files: UndoResult | None = None
        self._is_forgotten = False  # what the model knew of the turns
        self._is_told = False  # that files are not as the conversation says
        self._last_undone: TurnChanges | None = None  # when it has gone back
        self._redone: list[UndoResult] = []  # by a redo that the disk refused half-way

    def is_newest(self, conversation: Conversation) -> bool:
        """Tell whether it is of this conversation, and nothing was undone in files since."""
        if self._conversation is not conversation:
            return False
        last = self._journal.last_undone
        return last is None or any(last is each for each in (self._last_undone, *self.undone))

    @property
    def items(self) -> Sequence[Item]:
        """The items that are removed from the conversation."""
        return self._conversation.history.items_since(self.turns[0])

    @property
    def prompts(self) -> Sequence[str]:
        """The texts of the prompts among these items."""
        return self._said_by("user")

    def _said_by(self, role: str) -> Sequence[str]:
        return [
            text_of(item.content)
            for item in self.items
            if isinstance(item, UserMessage) and item.role == role
        ]

    @property
    def _journal(self) -> ChangeJournal:
        return self._conversation.files.journal_in(self._cwd)

    def _count(self) -> int:
        """Return the number of the journal's turns to undo, those in between included."""
        places = [n for n, turn in enumerate(self._journal.turns, 1) if turn.id in self.turns]
        return max(places, default=0)

    def preview(self) -> UndoResult | None:
        """Return the outcome for the files without changing any; None where no turn changed one."""
        count = self._count()
        return self._journal.preview(count) if count else None

    @property
    def lost(self) -> bool:
        """Whether some of the turns changed files of which no copy is kept: these stay."""
        changed = self._conversation.files.changed
        return any(turn in changed and not self._journal.has_kept(turn) for turn in self.turns)

    @property
    def undone(self) -> Sequence[TurnChanges]:
        """The turns that it has undone in files and that were not redone."""
        return [turn for turn in (self.files.turns if self.files else ()) if turn.undone]

    def go_back(self, *, conversation: bool = True, files: bool = True) -> None:
        """Undo the turns; files that the person has changed since are left as they are.

        Args:
            conversation: whether the turns are removed from the conversation.
            files: whether the files are restored.

        Raises:
            FatalError: the disk refused; nothing was done.
        """
        count = self._count()
        if files and count:
            self.files = self._journal.undo(count, rest=True)
        self._last_undone = self._journal.last_undone
        if conversation:
            told = "\n".join(self._said_by("developer")) if self.number > 1 else ""
            self._conversation.take_back(self.turns[0])
            self._is_forgotten = True
            for text in dict.fromkeys(self._conversation.notices):
                if text in told:  # perhaps of turns that stay
                    self._conversation.tell(text)
        self._tell(count, conversation=conversation)

    def _tell(self, count: int, *, conversation: bool) -> None:
        """Notify the model of files that differ from what the conversation says of them."""
        way, tell = self.files, self._conversation.tell
        left = [] if way is None else [*(o.change.path for o in way.obstacles), *way.doubtful]
        if conversation and (self.lost or left or (count and way is None)):
            names = f": {self._names(left)}" if left and not self.lost else ""
            tell(f"{_LEFT}{names}; read a file before you change it.")
            self._is_told = True
        elif way is not None and way.paths and not conversation:
            tell(
                "The person put files back as they were before your last turns: "
                f"{self._names(way.paths)}. Read a file again before you change it."
            )

    def _names(self, paths: Sequence[str]) -> str:
        return first_of([shown_path(path, self._cwd) for path in paths], _MOST_NAMED)

    def redo(self) -> list[UndoResult]:
        """Redo the undone turns; after an error, the rest of them.

        Returns:
            The outcome for the files of each turn; it ends where something is in the way. What
            could not be redone is `undone`.

        Raises:
            WayLost: the conversation has gone on since.
            FatalError: the disk refused.
        """
        history = self._conversation.history
        if self.turns[-1] not in (*history.turns, *history.taken_back):
            raise WayLost("More was said since you went back, so that cannot be taken back.")
        while self._is_forgotten and self.turns[-1] not in history.turns:
            self._conversation.restore()
        # The model that still has the turns is told of the way forth, too.
        and_tell = partial(self._conversation.redo, self._cwd)
        redo = self._journal.redo if self._is_forgotten else and_tell
        try:
            while any(map(self._journal.has, self.undone)):
                self._redone.append(redo())
                if self._redone[-1].obstacles:
                    break
        finally:
            is_left = self._is_forgotten and bool(self.undone)
            if self._is_told or is_left:
                self._conversation.tell(_PUT_BACK + _NOT_MADE * is_left)
            self._is_told = is_left
        done, self._redone = self._redone, []
        return done
