"""What a conversation changed in files: a tracker for each turn, one journal for all of them."""

from pathlib import Path

from agent_magics.backends.workspace_journal import ChangeJournal, Way
from agent_magics.backends.workspace_journals import earlier_journal, new_journal
from agent_magics.dispatch.context import Emit
from agent_magics.engine.turn_diff import DiffTracker, conflict_event
from agent_magics.protocol.config import RunConfig
from agent_magics.protocol.events import TurnDiffUpdated


class ChangedFiles:
    """The changes of one conversation's turns.

    Args:
        folder: where journals are kept; None keeps none beyond this process.
        session_id, agent: whose they are.
    """

    def __init__(self, folder: Path | None, session_id: str, agent: str) -> None:
        self._folder = folder
        self._session_id = session_id
        self._agent = agent
        self._journal: ChangeJournal | None = None
        self._trackers: dict[str, DiffTracker] = {}
        self._too_large: set[str] = set()

    def begin(self, turn_id: str, config: RunConfig, emit: Emit) -> DiffTracker:
        """Return what sees the changes of a turn."""
        journal = self.journal_in(config.cwd)
        tracker = DiffTracker(journal, turn_id, config.cwd, config.roots, emit, self._too_large)
        self._trackers[turn_id] = tracker
        return tracker

    def name(self, turn_id: str, title: str) -> None:
        """Say what people know the turn by."""
        self._trackers[turn_id].title = title

    def finish(self, turn_id: str) -> None:
        """Tell all that a turn changed, where it began at all."""
        tracker = self._trackers.pop(turn_id, None)
        if tracker is not None:
            tracker.finish()

    def journal_in(self, cwd: Path) -> ChangeJournal:
        """Return what this conversation changed in files; its turns are in that workspace.

        Where it has changed nothing, an earlier kernel's changes in the same workspace are taken
        up when somebody asks for them; see `journal_to_undo`.
        """
        if self._journal is None:
            self._journal = new_journal(self._folder, self._session_id, self._about(cwd))
        return self._journal

    def journal_to_undo(self, cwd: Path) -> ChangeJournal:
        """Return the same, or where this kernel changed nothing that of the last one that ended."""
        journal = self.journal_in(cwd)
        if journal.is_empty:
            earlier = earlier_journal(self._folder, self._about(cwd))
            if earlier is not None:
                self._journal = journal = earlier
        return journal

    def conflict(self, cwd: Path, way: Way) -> TurnDiffUpdated:
        """Return what was in the way of an undo, as a diff."""
        return conflict_event(self.journal_in(cwd), way.obstacles, cwd)

    def close(self) -> None:
        """Give the journal back."""
        if self._journal is not None:
            self._journal.close()

    def _about(self, cwd: Path) -> dict[str, str]:
        return {"agent": self._agent, "workspace": str(cwd)}
