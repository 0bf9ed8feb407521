"""Tracks file changes of a conversation: a tracker for each turn, one journal for all."""

from collections.abc import Callable
from copy import copy
from functools import partial
from pathlib import Path
from typing import Protocol

from agent_magics.dispatch.context import Emit
from agent_magics.engine.file_changes.review import TurnReview
from agent_magics.engine.file_changes.turn import DiffTracker, conflict_event, diff_event
from agent_magics.file_history.journal import ChangeJournal, UndoResult
from agent_magics.file_history.journals import earlier_journal, new_journal
from agent_magics.file_history.writers import Writers
from agent_magics.protocol.config import RunConfig
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.events import TurnDiffUpdated

_MOST_REVIEWS = 50


class SharesChanges(Protocol):
    """The agent that a sub-agent works for, as the tracker of the sub-agent's changes uses it."""

    @property
    def writers(self) -> Writers:
        """The last writers of files."""

    def find_tracker(self) -> DiffTracker | None:
        """Return the tracker of the turn that began the work, if one did."""


class ChangedFiles:
    """The file changes of one conversation's turns.

    Args:
        folder: the folder for journals; None keeps them in this process only.
        session_id, agent: the conversation and its agent.

    Attributes:
        writers: the last writers of files, among the agent and its sub-agents.
        changed: the turns that changed files, whether or not that is kept.
    """

    def __init__(self, folder: Path | None, session_id: str, agent: str) -> None:
        self._folder = folder
        self._session_id = session_id
        self._agent = agent
        self._journal: ChangeJournal | None = None
        self._earlier: list[ChangeJournal] = []  # of the conversations before it, newest first
        self.changed: set[str] = set()
        self._trackers: dict[str, DiffTracker] = {}
        self._reviews: dict[str, TurnReview] = {}
        self._too_large: set[str] = set()
        self.writers = Writers()

    def begin(
        self, turn_id: str, config: RunConfig, emit: Emit, parent: SharesChanges | None = None
    ) -> DiffTracker:
        """Return the tracker of a turn's changes; a parent's turn gets those of a sub-agent too."""
        tracker = DiffTracker(
            self.journal_in(config.cwd),
            turn_id,
            config.cwd,
            config.roots,
            emit,
            self._too_large,
            agent=self._agent,
            writers=self.writers if parent is None else parent.writers,
            parent=(lambda: None) if parent is None else parent.find_tracker,
        )
        self._trackers[turn_id] = tracker
        return tracker

    def name(self, turn_id: str, title: str) -> None:
        """Set the title under which people see the turn."""
        self._trackers[turn_id].title = title

    def finish(self, turn_id: str) -> None:
        """Report all changes of a turn, where it began at all."""
        tracker = self._trackers.pop(turn_id, None)
        if tracker is not None:
            tracker.finish()

    def journal_in(self, cwd: Path) -> ChangeJournal:
        """Return this conversation's journal for its workspace.

        Where it has changed nothing, the changes of an earlier kernel in the same workspace are
        found by `journal_to_undo`.
        """
        if self._journal is None:
            self._journal = new_journal(self._folder, self._session_id, self._about(cwd))
        return self._journal

    def following(self, session_id: str) -> "ChangedFiles":
        """Return the file changes of the conversation that takes this one's place in the kernel.

        It has a journal of its own; running turns, reviews and writers go on.
        """
        following = copy(self)
        following._earlier = [*filter(None, [self._journal]), *self._earlier]
        following._session_id, following._journal = session_id, None
        following.changed = set()
        return following

    def journal_to_undo(self, cwd: Path) -> ChangeJournal:
        """Return this conversation's journal, or if it is empty that of the last ended one."""
        own = self.journal_in(cwd)
        if own.is_empty and all(each.is_empty for each in self._earlier):
            found = earlier_journal(self._folder, self._about(cwd))
            self._earlier += [found] if found is not None else []
        return next((each for each in (own, *self._earlier) if not each.is_empty), own)

    def diff(self, turn: int, cwd: Path) -> str:
        """Return the changes of a turn as a unified diff.

        Args:
            turn: counted back among the turns that changed files; 1 is the last.
            cwd: the workspace.

        Raises:
            FatalError: there is no such turn.
        """
        journal = self.journal_to_undo(cwd)
        return diff_event(journal, journal.latest(turn)[-1:], cwd).diff

    def review(self, turn_id: str, cwd: Path, tell: Callable[[str], object]) -> TurnReview | None:
        """Return the review of a turn's changes, the same one each time; None for none.

        Args:
            turn_id: the turn; "" means the last one that changed files.
            cwd: the workspace.
            tell: sends the model a message with its next request.

        Raises:
            FatalError: the turn is running.
        """
        journal = self.journal_to_undo(cwd)
        turn = next(iter(journal.turns), None)
        if turn_id:
            known = ((each, each.find(turn_id)) for each in (self.journal_in(cwd), *self._earlier))
            journal, turn = next((pair for pair in known if pair[1]), (journal, None))
        if turn is None:
            return self._reviews.get(turn_id)  # undone, perhaps
        if turn.id in self._trackers:
            self._check_rest()
        if turn.id not in self._reviews:
            newest = partial(self.journal_to_undo, cwd)
            self._reviews[turn.id] = TurnReview(journal, turn, cwd, self._check_rest, tell, newest)
            if len(self._reviews) > _MOST_REVIEWS:
                del self._reviews[next(iter(self._reviews))]
        return self._reviews[turn.id]

    def _check_rest(self) -> None:
        if self._trackers:
            raise FatalError(f"Agent {self._agent!r} is at work; wait for it, or interrupt it.")

    def conflict(self, cwd: Path, way: UndoResult) -> TurnDiffUpdated:
        """Return the conflicts of an undo as a diff."""
        return conflict_event(self.journal_to_undo(cwd), way.obstacles, cwd)

    def close(self) -> None:
        """Close the journals; what still is written opens them again."""
        for each in filter(None, [self._journal, *self._earlier]):
            each.close()

    def _about(self, cwd: Path) -> dict[str, str]:
        return {"agent": self._agent, "workspace": str(cwd)}
