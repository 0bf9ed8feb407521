"""Holds the state of a conversation between turns: items, plan, cost, grants, commands."""

import re
import uuid
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from agent_magics.approval.grants import ApprovalStore
from agent_magics.approval.rules import RuleBook
from agent_magics.dispatch.results.sources import Value
from agent_magics.dispatch.results.stored import HandleStore, StoredResult
from agent_magics.dispatch.results.values import describe_value
from agent_magics.dispatch.results.written import write_value
from agent_magics.engine.channels.redaction import redact_text
from agent_magics.engine.context.history import History, Keep
from agent_magics.engine.context.usage import ContextMeter
from agent_magics.engine.cost import Spending
from agent_magics.engine.file_changes.conversation import ChangedFiles
from agent_magics.engine.file_changes.review import TurnReview
from agent_magics.engine.notifications import Notification, describe_end, report_undo
from agent_magics.engine.repetition.detector import RepetitionDetector
from agent_magics.engine.turn_config import TurnConfig
from agent_magics.exec.processes import ProcessManager
from agent_magics.exec.temporary_files import scratch_folder
from agent_magics.file_history.journal import UndoResult
from agent_magics.protocol.events import CellChanged, PlanStep, SubAgentChanged
from agent_magics.protocol.items import Usage
from agent_magics.protocol.records import (
    Entry,
    NoticeWaiting,
    RequestCharged,
    ResultKept,
    ServersTold,
    ToolsFound,
)
from agent_magics.text.secrets import KEY_SHAPES

if TYPE_CHECKING:  # which stands above
    from agent_magics.engine.past.variables import VariableDifference

_KEY = re.compile(KEY_SHAPES)

# Characters of one result's text, and of all of a conversation, that are there after a restart.
MOST_RESULT, MOST_RESULTS = 256 * 1024, 16 * 1024 * 1024


# What goes back with turns beside the history: the plan, the found tools, the reported servers.
_Beside: TypeAlias = tuple[tuple[PlanStep, ...], dict[str, None], dict[str, str]]


class Conversation:
    """The state of one conversation; the `Session` runs its turns.

    Args:
        agent: the name of its agent.
        journals: the folder for journals of file changes; None keeps none on disk.
        id: the id of a conversation that is resumed; "" makes a new one.

    Attributes:
        id: its id in records and at providers.
        history: its items, as the model reads them.
        meter: measures how full the model's context is.
        loops: detects that the model repeats itself.
        plan: the model's present plan.
        spending: the tokens and the cost of all its requests.
        store: the approvals that last longer than one call.
        processes: its commands.
        files: the changes of its turns in files.
        handles: its stored results.
        uses: how often each tool was called.
        found: names of tools that searches found, in order.
        reported_servers: the state of each MCP server last reported to the model.
        variables: what it knows of the namespace, by name; see `protocol.events.VariablesKnown`.
        cell_changes: what its turns changed in cells of the notebook, oldest first.
        memory: the table of contents of the notes in its instructions; None until it is made.
        has_code: whether the workspace held code when it began; None until somebody looked.
        differences: how the namespace differed from that when it was resumed.
        sub_agents: those of an earlier kernel, as they were told of last, by name.
        notes: warnings for the person in its next turn.
        notices: what `tell` was given for the model, of all turns.
        typed_keys: texts in prompts that look like keys; sent, but neither shown nor recorded.
    """

    def __init__(self, agent: str, journals: Path | None, id: str = "") -> None:
        self.id = id or uuid.uuid4().hex
        self.agent = agent
        self.history = History()
        self.meter = ContextMeter(self.history)
        self.loops = RepetitionDetector()
        self.plan: tuple[PlanStep, ...] = ()
        self.spending = Spending()
        self.store = ApprovalStore()
        self.processes = ProcessManager()
        self.files = ChangedFiles(journals, self.id, agent)
        self.handles = HandleStore(parent=scratch_folder)
        self.uses: Counter[str] = Counter()
        self.found: dict[str, None] = {}
        self.reported_servers: dict[str, str] = {}
        self.notes: list[str] = []
        self.notices: list[str] = []
        self.sub_agents: dict[str, SubAgentChanged] = {}
        self.variables: dict[str, Any] = {}
        self.cell_changes: list[CellChanged] = []
        self.memory: str | None = None
        self.has_code: bool | None = None
        self.differences: Sequence[VariableDifference] = ()
        self._room_for_results = MOST_RESULTS
        self.typed_keys: set[str] = set()
        self._recorded: tuple[int, dict[str, str]] = 0, {}  # found tools, server states
        self._at_begin: dict[str, _Beside] = {}  # by turn
        self._taken_back: list[_Beside] = []
        self._notifications: deque[Notification] = deque()
        self._rules: RuleBook | None = None

    # -- on record -------------------------------------------------------------------------------

    def record_in(self, keep: Keep, settle: Callable[[], None]) -> None:
        """Record all changes from now on.

        Args:
            keep: records an entry.
            settle: returns when all entries are on disk; called before each request.
        """
        self._recorded = len(self.found), dict(self.reported_servers)

        def take_down(entry: Entry) -> None:
            # What a search found goes before its output, which tells the model of it.
            now = len(self.found), dict(self.reported_servers)
            if now != self._recorded:
                self._recorded = now
                keep(ToolsFound(names=tuple(self.found)))
                keep(ServersTold(told=now[1]))
            keep(entry)

        self.history.keep, self.history.settle = take_down, settle
        self.handles.on_keep = self._keep_result

    def _keep_result(self, name: str, entry: StoredResult) -> None:
        """Take a result down, with its text where that is short enough to be restored."""
        most, source = min(MOST_RESULT, self._room_for_results), entry.source
        kept = ResultKept(name=name, reads=entry.reads, known=entry.known)
        if entry.hooks or source is None:
            kept = replace(kept, what="a result that no hook has let pass")
        elif isinstance(source, Value):
            value = source.get()
            written = write_value(value, most)
            fields = {} if written is None else written._asdict()
            kept = replace(kept, what=describe_value(value), **fields)
        elif not source.grows() and source.size <= most:
            kept = replace(kept, text="".join(source.pieces()))
        self._room_for_results -= len(kept.text or "")
        self.history.keep(kept)

    def know(self, variables: Mapping[str, Any]) -> None:
        """Remember what code has read or made in the namespace; None is a deleted variable."""
        known = {**self.variables, **variables}
        self.variables = {name: each for name, each in known.items() if each is not None}

    def notice_keys(self, words: str) -> None:
        """Find keys in the person's text, so that they are neither shown nor recorded."""
        self.typed_keys.update(_KEY.findall(words))

    def take_notes(self) -> list[str]:
        """Return and remove the warnings for the person."""
        notes, self.notes = self.notes, []
        return notes

    def _beside(self) -> _Beside:
        return self.plan, dict(self.found), dict(self.reported_servers)

    def begin_turn(self, turn_id: str) -> None:
        """Mark the start of a turn, which may be taken back."""
        self._at_begin[turn_id] = self._beside()
        self.history.begin_turn(turn_id)

    def take_back(self, turn_id: str) -> None:
        """Return to the state before a turn: its items are not sent any more."""
        self.history.take_back(turn_id)
        self._taken_back.append(self._beside())
        self.plan, self.found, self.reported_servers = self._at_begin[turn_id]
        self.meter.reset()

    def restore(self) -> bool:
        """Restore what was taken back last; return False where there is nothing."""
        self.meter.reset()
        is_back = self.history.restore()
        if is_back:
            self.plan, self.found, self.reported_servers = self._taken_back.pop()
        return is_back

    def rules_in(self, folder: Path, roots: Sequence[Path] = ()) -> RuleBook:
        """Return the approval rules of a workspace, an absolute path without links.

        Args:
            folder: the workspace.
            roots: other folders in which commands may write.
        """
        known = self._rules
        if known is None or (known.folder, known.roots) != (folder, tuple(roots)):
            self._rules = known = RuleBook(folder, roots)
        return known

    def charge(self, model: str, usage: Usage, *, of_sub_agent: bool = False) -> None:
        """Add a request's usage to the spending."""
        self.history.keep(RequestCharged(model=model, usage=usage, of_sub_agent=of_sub_agent))
        add = self.spending.include if of_sub_agent else self.spending.add
        self.spending = add(model, usage)

    # -- notifications for the model ---------------------------------------------------------------

    def tell(self, text: str, *, is_kept: bool = True) -> None:
        """Add a message to the model's next request; thread-safe.

        Args:
            text: the message.
            is_kept: whether it waits on record, too, in case that the kernel ends before.
        """
        self._notifications.append(Notification(text))
        self.notices.append(text)
        if is_kept:
            self.history.keep(NoticeWaiting(text=text))

    def take_notifications(self, turn_config: TurnConfig) -> list[Notification]:
        """Return and remove the notifications for the model: of commands, servers, and tools."""
        notifications = [describe_end(session) for session in self.processes.take_ended()]
        if turn_config.servers is not None:
            notifications += map(
                Notification, turn_config.servers.notifications(self.reported_servers)
            )
        while self._notifications:
            notifications.append(self._notifications.popleft())
        return [
            replace(note, text=redact_text(turn_config.secrets, note.text))
            for note in notifications
        ]

    # -- what turns changed in files ---------------------------------------------------------------

    def undo(
        self, cwd: Path, count: int, *, force: bool, sessions: bool, sub_agent: str = ""
    ) -> UndoResult:
        """Restore the files that the last turns changed, and notify the model; see the journal.

        Raises:
            FatalError: there are fewer turns, or the disk refused.
        """
        journal = self.files.journal_to_undo(cwd)
        if sub_agent:
            way = journal.undo_sub_agent(sub_agent, rest=force, doubtful=sessions)
        else:
            way = journal.undo(count, rest=force, doubtful=sessions)
        if way.paths:
            self.tell(report_undo(way, cwd, "undid", "Do not make them again unless asked"))
        return way

    def redo(self, cwd: Path) -> UndoResult:
        """Apply the changes of the turn that was undone last again, and notify the model.

        Raises:
            FatalError: there is none, or the disk refused.
        """
        way = self.files.journal_to_undo(cwd).redo()
        if way.paths:
            self.tell(report_undo(way, cwd, "made again", "They hold"))
        return way

    def review(self, cwd: Path, turn_id: str = "") -> TurnReview | None:
        """Return the review of a turn's changes, the last one's without an id; None for none."""
        return self.files.review(turn_id, cwd, self.tell)

    # -- the end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """End its commands and close its files; the journal of file changes stays for undo.

        What still happens in it is not recorded: the record is that of another one from here on.
        """
        self.handles.close()
        self.processes.close()
        self.history.keep = lambda entry: None
