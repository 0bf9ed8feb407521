"""Builds the blocks of tool calls: arguments, outputs, figures, and the decisions about them."""

import re
from collections.abc import Mapping

from agent_magics.protocol import events
from agent_magics.protocol.items import Json
from agent_magics.render.blocks.display import Blocks, DisplayBlock, add_note
from agent_magics.render.blocks.frames import without_frames
from agent_magics.render.describe import (
    SAVED_DIFF,
    describe_call,
    describe_cell,
    describe_change,
    describe_form_answer,
    one_line,
    shorten,
    shorten_arguments,
    without_session,
)
from agent_magics.render.pictures import TurnPictures
from agent_magics.render.sources import describe_search

_FIGURE = re.compile(r"^\[figure: .*\]\n?", re.MULTILINE)
_LANGUAGES = {
    "python": "python",
    **dict.fromkeys(("shell", "shell_command", "exec_command", "local_shell"), "bash"),
}
_CELL_TOOLS = tuple(
    f"notebook_{name}" for name in ("read", "insert_cell", "edit_cell", "delete_cell", "run_cell")
)
# Their arguments name a session by a number that differs in every run.
_SESSION_TOOLS = ("write_stdin", "kill_session")
_PROPOSES = "propose_plan"
_ARRIVED = {
    "person": "approved by the person",
    "program": "approved by the program",
    "beforehand": "approved beforehand",
}


class CallBlocks:
    """The blocks of one turn's tool calls."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._running: dict[str, DisplayBlock] = {}
        self._questions: dict[str, str] = {}
        self._forms: dict[str, str] = {}  # open forms, by call
        self._denied: set[str] = set()
        self._changed: dict[str, str] = {}  # who changed which call
        self._plans: set[str] = set()
        self._proposals: dict[str, str] = {}  # calls that are to stand below the plan they propose
        self._titles: dict[str, str] = {}  # titles to which elapsed seconds are added
        self._rich: dict[str, list[Mapping[str, Json]]] = {}
        self._pictures = TurnPictures()

    def running(self, call_id: str) -> DisplayBlock | None:
        """Return the block of a running call; None where there is none."""
        return self._running.get(call_id)

    def begin_call(self, event: events.ToolCallPending) -> list[DisplayBlock]:
        """Add the block of a call."""
        if event.name == "update_plan":
            # The checklist shows the plan; the call itself is shown only if it fails.
            self._plans.add(event.call_id)
            return []
        if event.name == _PROPOSES:
            self._proposals[event.call_id] = event.arguments
            return []
        return [self._open(event.call_id, event.name, event.arguments)]

    @property
    def proposes(self) -> bool:
        """Whether the next plan is proposed by a call whose block is not open yet."""
        return bool(self._proposals)

    def open_proposals(self) -> list[DisplayBlock]:
        """Add the blocks of calls whose plan is being shown; their questions come next."""
        proposals, self._proposals = self._proposals, {}
        return [self._open(call_id, _PROPOSES, text) for call_id, text in proposals.items()]

    def _open(self, call_id: str, name: str, arguments: str) -> DisplayBlock:
        title, arguments = _titled(name, arguments)
        language = _LANGUAGES.get(name, "json")
        block = self._blocks.begin_call(f"call:{call_id}", name, title, arguments, language)
        self._running[call_id] = block
        return block

    def show_progress(
        self, event: events.ToolCallChanged | events.ToolCallRunning | events.ToolCallUpdated
    ) -> list[DisplayBlock]:
        """Show the progress of a call, and changes that a hook or a person made to it."""
        block = self._running.get(event.call_id)
        if block is None or isinstance(event, events.ToolCallRunning):
            return []
        if isinstance(event, events.ToolCallChanged):  # shows the changed call, and who changed it
            self._changed[event.call_id] = event.by
            block.item["title"], block.item["arguments"] = _titled(event.name, event.arguments)
            block.item["note"] = _with_change(str(block.item["note"]), event.by)
            return [block]
        if block.item["name"] == "python" and event.metadata.get("where") == "scratch":
            block.item["name"] = "python (scratch)"
        if "seconds" in event.metadata:
            title = self._titles.setdefault(event.call_id, str(block.item["title"]))
            counted = f"{event.metadata['seconds']} s of {event.metadata['of']:g} s"
            block.item["title"] = f"{title} ({counted})"
            return [block]
        share = "" if event.progress is None else f"{event.progress:.0%}"
        progress = " ".join(filter(None, (event.title, share)))
        if progress:
            block.item["output"] = progress
        return [block]

    def end_call(
        self, event: events.ToolCallCompleted | events.ToolCallFailed
    ) -> list[DisplayBlock]:
        """Show a call's output, and its figures below it."""
        ok = isinstance(event, events.ToolCallCompleted)
        if event.call_id in self._plans and ok:
            return []
        block = self._running.pop(event.call_id, None)
        if block is not None and event.call_id in self._titles:
            block.item["title"] = self._titles.pop(event.call_id)
        if block is None:
            block = self._open(event.call_id, event.name, self._proposals.pop(event.call_id, ""))
            self._running.pop(event.call_id)
        denied = event.call_id in self._denied or event.details.get("not_run")
        shown = event.details.get("output")
        # A tool with an output of its own for people has shown its figures, too.
        output, pictures = self._pictures.read(shown if isinstance(shown, str) else event.output)
        block.item["status"] = "completed" if ok else "denied" if denied else "failed"
        rich = self._rich.pop(event.call_id, ())
        if rich:
            # Figures and tables follow; the text in their place is for the model.
            output = without_frames(_FIGURE.sub("", output), rich)
        block.item["output"] = shorten(output)
        block.item["exit_code"] = event.details.get("exit_code")
        if isinstance(note := event.details.get("note"), str):
            add_note(block, note)
        if isinstance(action := event.details.get("action"), Mapping):
            block.item["title"] = describe_search(action, done=ok)
        if isinstance(session := event.details.get("session"), str):
            block.item["title"] = ": ".join(
                filter(None, (one_line(session), str(block.item["title"] or "")))
            )
        block.done = True
        alt = ": ".join(filter(None, (f"Picture from {event.name}", str(block.item["title"]))))
        return [block, *(self._blocks.add_rich(data, alt) for data in (*rich, *pictures))]

    def show_work(
        self, event: events.PatchApplyEnd | events.LiveOutput | events.NamespaceChanged
    ) -> list[DisplayBlock]:
        """Show a call's changes in files and variables; keep its figures for its end."""
        block = self._running.get(event.call_id)
        if block is None:
            return []
        if isinstance(event, events.LiveOutput):
            # Shown below its call, also where calls are shown only when they have ended.
            self._rich.setdefault(event.call_id, []).append(event.data)
            return []
        if isinstance(event, events.NamespaceChanged):
            add_note(block, *describe_change(event))
            return []
        block.item["kind"], block.item["diff"] = "patch", shorten(event.diff, SAVED_DIFF)
        return [block]

    def follow_question(
        self, event: events.Question | events.QuestionResolved
    ) -> list[DisplayBlock]:
        """Show how a question about a call was answered; a question has no block of its own."""
        match event:
            case events.ApprovalRequested():
                self._questions[event.question_id] = event.call_id
            case events.UserInputRequested() | events.ElicitationRequested():
                self._forms[event.question_id] = event.call_id
            case events.QuestionResolved():
                return self._note_answer(event)
        return []

    def _note_answer(self, event: events.QuestionResolved) -> list[DisplayBlock]:
        if event.question_id in self._forms:
            block = self._running.get(self._forms.pop(event.question_id))
            if block is None or event.decision == "closed":
                return []
            add_note(block, describe_form_answer(event))
            return [block]
        call_id = self._questions.pop(event.question_id, "")
        block = self._running.get(call_id)
        if event.decision in ("deny", "abort", "closed"):
            self._denied.add(call_id)
        if block is None or not event.decision.startswith("approve"):
            return []
        block.item["note"] = _with_change(_ARRIVED.get(event.by, ""), self._changed.get(call_id))
        return [block]

    def end(self) -> None:
        """End the turn: calls that still run will not end."""
        decided = {*self._denied, *self._questions.values()}
        for call_id, block in self._running.items():
            block.item["status"] = "denied" if call_id in decided else "failed"
            block.item["title"] = self._titles.pop(call_id, block.item["title"])
            if call_id not in decided:
                add_note(block, "not finished")
        self._running.clear()


def _titled(name: str, arguments: str) -> tuple[str, str]:
    """Return the headline of a call, and the part of its arguments that is shown."""
    if name == "web_search":
        return describe_search(arguments, done=False), ""
    if name in _SESSION_TOOLS:
        return without_session(arguments)
    describe = describe_cell if name in _CELL_TOOLS else describe_call
    return describe(arguments), shorten_arguments(arguments)


def _with_change(note: str, by: str | None) -> str:
    """Add who changed a call to the note on who approved it."""
    if by == "approver":
        return f"changed and {note}" if note else "changed"
    return "; ".join(filter(None, (note, by and "changed by a hook")))
