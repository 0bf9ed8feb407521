"""Events in, a picture of the turn out: a pure fold, with no I/O and no idea who looks at it.

The picture is a list of blocks in the order in which they began. A block is the JSON object that
is saved in the notebook (`application/vnd.agent-magics.item+json`), and whether it will change
still. Nothing volatile (ids, times, durations) goes into it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent_magics.backends.exec.output import colour_output
from agent_magics.models.catalog import dollars
from agent_magics.protocol.events import (
    ApprovalRequested,
    ElicitationRequested,
    Event,
    ExecCommandBegin,
    ExecCommandEnd,
    ExecCommandOutputDelta,
    HistoryCompacted,
    ItemCompleted,
    LiveOutput,
    McpServerChanged,
    ModelInformed,
    ModelRetry,
    NamespaceChanged,
    PatchApplyEnd,
    PlanUpdated,
    QuestionResolved,
    ReasoningDelta,
    TextDelta,
    TokensCounted,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallPending,
    ToolCallRunning,
    ToolCallUpdated,
    TurnAborted,
    TurnCompleted,
    TurnDiffUpdated,
    TurnFailed,
    TurnStarted,
    Warned,
)
from agent_magics.protocol.items import AssistantMessage, Json
from agent_magics.render.changes import changes_item, same_lines
from agent_magics.render.describe import (
    SAVED_CHARACTERS,
    command_line,
    describe_call,
    describe_cell,
    describe_change,
    describe_form_answer,
    ending,
    json_as_code,
    one_line,
    shorten,
    without_session,
)
from agent_magics.render.pictures import TurnPictures
from agent_magics.render.sources import describe_search, sources_of
from agent_magics.render.waiting import Wait

VERSION = 1

# The key under which the wait before a request stands.
WAIT = "wait"
# What shows that a request has been answered after all.
_AFTER_THOUGHTS = (TextDelta, ItemCompleted, ToolCallPending, TokensCounted)
_ANSWERS = (ReasoningDelta, *_AFTER_THOUGHTS)


_FIGURE = re.compile(r"^\[figure: .*\]\n?", re.MULTILINE)
_LANGUAGES = {
    "python": "python",
    **dict.fromkeys(("shell", "shell_command", "exec_command", "local_shell"), "bash"),
}
_CELL_TOOLS = tuple(
    f"notebook_{name}" for name in ("read", "insert_cell", "edit_cell", "delete_cell", "run_cell")
)
# Their arguments name a session by a number that is drawn anew in every run.
_SESSION_TOOLS = ("write_stdin", "kill_session")
_GOES_ON = "goes on as a session"
_ARRIVED = {
    "person": "approved by the person",
    "program": "approved by the program",
    "beforehand": "approved beforehand",
}


# No numbers: they depend on the lengths of paths, and nbval would compare them.
SUMMARISED = "The conversation had become long: a summary stands for its older part from here on."
PRUNED = "The conversation had become long: old tool outputs are not sent any more."


@dataclass(slots=True)
class Block:
    """One thing to show.

    Attributes:
        key: tells blocks of a turn apart; not saved.
        item: the saved form; `data` instead, for rich outputs such as figures.
        done: it will not change any more.
    """

    key: str
    item: dict[str, Json] = field(default_factory=dict)
    data: Mapping[str, Json] | None = None
    done: bool = False

    @property
    def kind(self) -> str:
        """The item's kind, or "rich"."""
        return str(self.item.get("kind", "rich"))


class _Session:
    """What a session has printed since its call returned; of much, the end."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self._left_out = 0
        self._text = ""

    def add(self, text: str) -> list[Block]:
        self._text += text
        if len(self._text) > SAVED_CHARACTERS:
            kept = ending(self._text, SAVED_CHARACTERS)
            self._left_out += len(self._text) - len(kept)
            self._text = kept
        marker = f"… {self._left_out} characters left out …\n" if self._left_out else ""
        self.block.item["output"] = marker + colour_output(self._text)
        return [self.block]


class TurnView:
    """The blocks of one turn."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._calls: dict[str, Block] = {}
        self._questions: dict[str, str] = {}
        self._forms: dict[str, str] = {}  # the calls whose servers ask something
        self._denied: set[str] = set()
        self._text: Block | None = None
        self._typed = False
        self._plan: Block | None = None
        self._plan_calls: set[str] = set()
        self._rich: dict[str, list[Mapping[str, Json]]] = {}
        self._pictures = TurnPictures()
        self._sessions: dict[str, _Session] = {}
        self._wait: tuple[Block, Wait] | None = None
        self._thoughts: Block | None = None
        self._diff: TurnDiffUpdated | None = None

    @property
    def waits(self) -> bool:
        """Whether a request has failed and its answer has not come yet."""
        return self._wait is not None

    def count_down(self, seconds: float) -> list[Block]:
        """Tell how long it takes until a failed request is made again.

        Args:
            seconds: from now.

        Returns:
            The block that has changed, if one has.
        """
        if self._wait is None:
            return []
        block, wait = self._wait
        return [block] if wait.count_down(seconds) else []

    def apply(self, event: Event) -> list[Block]:
        """Take an event in and return the blocks that are new or changed."""
        if isinstance(event, TurnDiffUpdated):
            self._diff = event  # it is shown at the turn's end
            return []
        ended: list[Block] = []
        if self._wait is not None and isinstance(event, _ANSWERS):
            ended = self._end_wait("answered")
        if self._thoughts is not None and isinstance(event, _AFTER_THOUGHTS):
            ended.append(self._end_thoughts())
        return [*ended, *self._apply(event)]

    def _apply(self, event: Event) -> list[Block]:
        match event:
            case TextDelta() | ReasoningDelta():
                said = isinstance(event, TextDelta)
                return [self._add_text(event.text) if said else self._add_thought(event.text)]
            case ItemCompleted(item=AssistantMessage() as message):
                return self._end_text(message)
            case ToolCallPending():
                return self._begin_call(event)
            case ToolCallRunning() | ToolCallUpdated():
                return self._show_progress(event)
            case ToolCallCompleted() | ToolCallFailed():
                return self._end_call(event)
            case ExecCommandBegin() | ExecCommandOutputDelta() | ExecCommandEnd():
                return self._follow_command(event)
            case PatchApplyEnd() | LiveOutput() | NamespaceChanged():
                return self._show_work(event)
            case ApprovalRequested() | ElicitationRequested():
                is_form = isinstance(event, ElicitationRequested)
                asked = self._forms if is_form else self._questions
                asked[event.question_id] = event.call_id
                return []
            case QuestionResolved():
                return self._note_answer(event)
        return self._show_turn(event)

    # -- text ------------------------------------------------------------------------------------

    def _add_text(self, text: str) -> Block:
        if self._text is None:
            self._text = self._new("text", {"kind": "text", "text": ""})
        self._text.item["text"] = str(self._text.item["text"]) + text
        return self._text

    def _add_thought(self, text: str) -> Block:
        if self._thoughts is None:
            item: dict[str, Json] = {"kind": "reasoning", "text": "", "left_out": 0}
            self._thoughts = self._new("reasoning", item)
        item = self._thoughts.item
        whole = str(item["text"]) + text
        kept = ending(whole, SAVED_CHARACTERS) if len(whole) > SAVED_CHARACTERS else whole
        item["text"] = kept
        item["left_out"] = int(str(item["left_out"])) + len(whole) - len(kept)
        return self._thoughts

    def _end_thoughts(self) -> Block:
        block, self._thoughts = self._thoughts or Block(""), None
        block.done = True
        return block

    def _end_text(self, message: AssistantMessage) -> list[Block]:
        if not message.text.strip() and self._text is None:
            return []
        block = self._text or self._new("text", {"kind": "text", "text": ""})
        text = json_as_code(message.text) if self._typed else message.text
        block.item["text"], block.done = text, True
        sources = sources_of(message.citations)
        if sources:
            block.item["sources"] = sources
        self._text = None
        return [block]

    # -- calls -----------------------------------------------------------------------------------

    def _begin_call(self, event: ToolCallPending) -> list[Block]:
        if event.name == "update_plan":
            # The checklist says it all; the call itself is shown only if it fails.
            self._plan_calls.add(event.call_id)
            return []
        return [self._call_block(event.call_id, event.name, event.arguments)]

    def _call_block(self, call_id: str, name: str, arguments: str) -> Block:
        describe = describe_cell if name in _CELL_TOOLS else describe_call
        title = describe(arguments)
        if name == "web_search":
            title, arguments = describe_search(arguments, done=False), ""
        if name in _SESSION_TOOLS:
            title, arguments = without_session(arguments)
        block = self._new(
            f"call:{call_id}",
            {
                "kind": "tool",
                "name": name,
                "title": title,
                "status": "running",
                "arguments": arguments,
                "language": _LANGUAGES.get(name, "json"),
                "output": "",
                "exit_code": None,
                "note": "",
            },
        )
        self._calls[call_id] = block
        return block

    def _show_progress(self, event: ToolCallRunning | ToolCallUpdated) -> list[Block]:
        block = self._calls.get(event.call_id)
        if block is None or isinstance(event, ToolCallRunning):
            return []
        if block.item["name"] == "python" and event.metadata.get("where") == "scratch":
            block.item["name"] = "python (scratch)"
        share = "" if event.progress is None else f"{event.progress:.0%}"
        news = " ".join(filter(None, (event.title, share)))
        if news:
            block.item["output"] = news
        return [block]

    def _end_call(self, event: ToolCallCompleted | ToolCallFailed) -> list[Block]:
        ok = isinstance(event, ToolCallCompleted)
        if event.call_id in self._plan_calls and ok:
            return []
        block = self._calls.pop(event.call_id, None)
        if block is None:
            block = self._call_block(event.call_id, event.name, "")
            self._calls.pop(event.call_id)
        denied = event.call_id in self._denied
        shown = event.details.get("output")
        # A tool that says itself what people see has shown its figures, too.
        output, pictures = self._pictures.read(shown if isinstance(shown, str) else event.output)
        block.item["status"] = "completed" if ok else "denied" if denied else "failed"
        rich = self._rich.pop(event.call_id, ())
        if rich:
            # The figures follow; the words that stand for them are for the model.
            output = _FIGURE.sub("", output)
        block.item["output"] = shorten(output)
        block.item["exit_code"] = event.details.get("exit_code")
        if isinstance(action := event.details.get("action"), Mapping):
            block.item["title"] = describe_search(action, done=ok)
        if isinstance(session := event.details.get("session"), str):
            block.item["title"] = ": ".join(filter(None, (one_line(session), block.item["title"])))
        block.done = True
        return [block, *map(self._rich_block, (*rich, *pictures))]

    def _rich_block(self, data: Mapping[str, Json]) -> Block:
        block = self._new("rich", {}, done=True)
        block.data = data
        return block

    def _show_work(self, event: PatchApplyEnd | LiveOutput | NamespaceChanged) -> list[Block]:
        block = self._calls.get(event.call_id)
        if block is None:
            return []
        if isinstance(event, LiveOutput):
            # Shown below its call, also where calls are shown only when they have ended.
            self._rich.setdefault(event.call_id, []).append(event.data)
            return []
        if isinstance(event, NamespaceChanged):
            words = (str(block.item["note"]), *describe_change(event))
            block.item["note"] = "; ".join(filter(None, words))
            return []
        block.item["kind"], block.item["diff"] = "patch", event.diff
        return [block]

    def _note_answer(self, event: QuestionResolved) -> list[Block]:
        if event.question_id in self._forms:
            block = self._calls.get(self._forms.pop(event.question_id))
            if block is None or event.decision == "closed":
                return []
            words = (str(block.item["note"]), describe_form_answer(event))
            block.item["note"] = "; ".join(filter(None, words))
            return [block]
        call_id = self._questions.pop(event.question_id, "")
        block = self._calls.get(call_id)
        if event.decision in ("deny", "abort", "closed"):
            self._denied.add(call_id)
        if block is None or not event.decision.startswith("approve"):
            return []
        block.item["note"] = _ARRIVED.get(event.by, "")
        return [block]

    # -- commands, and sessions: those that outlive their call, and perhaps their turn -----------

    def _follow_command(
        self, event: ExecCommandBegin | ExecCommandOutputDelta | ExecCommandEnd
    ) -> list[Block]:
        session = self._sessions.get(event.session_id)
        match event:
            case ExecCommandBegin(session_id=name):
                return self._begin_session(event) if name else []
            case ExecCommandOutputDelta() if session is not None:
                return session.add(event.text)
            case ExecCommandEnd():
                return [] if session is None else self._end_session(event)
        block = self._calls.get(event.call_id)
        if block is None or event.session_id:
            return []
        # The stream itself goes to the stream widget; here only the tail, for other fronts.
        text = colour_output(str(block.item["output"]) + event.text)
        block.item["output"] = text[-SAVED_CHARACTERS:]
        return [block]

    def _begin_session(self, event: ExecCommandBegin) -> list[Block]:
        """Begin a block of its own for what a command does after its call has returned."""
        call = self._calls.get(event.call_id)
        if call is not None:
            call.item["note"] = ", ".join(filter(None, (str(call.item["note"]), _GOES_ON)))
        block = self._new(
            f"session:{event.session_id}",
            {
                "kind": "tool",
                "name": "session",
                "title": one_line(command_line(event.command)),
                "status": "running",
                "arguments": "",
                "language": "bash",
                "output": "",
                "exit_code": None,
                "note": "",
            },
        )
        self._sessions[event.session_id] = _Session(block)
        return [block] if call is None else [call, block]

    def _end_session(self, event: ExecCommandEnd) -> list[Block]:
        block = self._sessions.pop(event.session_id).block
        killed = event.exit_code is None
        block.item["status"] = "completed" if killed or event.exit_code == 0 else "failed"
        block.item["exit_code"] = event.exit_code
        block.item["note"] = "killed" if killed else ""
        block.done = True
        return [block]

    # -- the rest ---------------------------------------------------------------------------------

    def _show_plan(self, event: PlanUpdated) -> Block:
        if self._plan is None:
            self._plan = self._new("plan", {})
        self._plan.item = {
            "version": VERSION,
            "kind": "plan",
            "steps": [
                {"id": step.id, "description": step.description, "status": step.status}
                for step in event.steps
            ],
            "explanation": event.explanation,
        }
        return self._plan

    def _show_turn(self, event: Event) -> list[Block]:
        match event:
            case TurnStarted(output=kind):
                self._typed = bool(kind)
            case PlanUpdated():
                return [self._show_plan(event)]
            case TurnCompleted():
                return [*self._end_open(), *self._show_changes(), *self._show_usage(event)]
            case TurnAborted() | TurnFailed():
                return self._show_failure(event)
            case ModelInformed(shown=shown):
                return [self._notice("info", shown)] if shown else []
            case Warned(message=message):
                return [self._notice("warning", message)]
            case McpServerChanged(status="failed" | "needs login", message=message):
                return [self._notice("info", message)]
            case HistoryCompacted(summary=summary):
                return [self._notice("info", SUMMARISED if summary else PRUNED)]
            case ModelRetry():
                return [self._show_wait(event)]
        return []

    def _show_failure(self, event: TurnAborted | TurnFailed) -> list[Block]:
        stopped = isinstance(event, TurnAborted)
        blocks = [
            *self._end_wait("stopped" if stopped else "failed"),
            *self._end_open(),
            *self._show_changes(),
        ]
        said = f"{event.reason[:1].upper()}{event.reason[1:]}." if stopped else event.error
        return [*blocks, self._notice("warning" if stopped else "error", said)]

    def _show_changes(self) -> list[Block]:
        """Show what the turn changed in files, at its end; what a patch shows is not repeated."""
        if self._diff is None or not self._diff.files:
            return []
        shown = [block for block in self.blocks if block.item.get("diff")]
        alone = len(shown) == 1 and same_lines(str(shown[0].item["diff"]), self._diff.diff)
        return [self._new("changes", changes_item(self._diff, bare=alone), done=True)]

    def _show_usage(self, event: TurnCompleted) -> list[Block]:
        usage = event.usage
        if not (usage.input_tokens or usage.output_tokens):
            return []
        cost = f"price of {event.unpriced} not known" if event.unpriced else "cost not known"
        item: dict[str, Json] = {
            "kind": "usage",
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cached_tokens": usage.cached_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
            "requests": event.requests,
            "cost": cost if event.cost is None else dollars(event.cost),
        }
        return [self._new("usage", item, done=True)]

    def _show_wait(self, event: ModelRetry) -> Block:
        if self._wait is None:
            block = self._new(WAIT, {"kind": "notice", "level": "warning", "text": ""})
            self._wait = block, Wait(block.item)
        block, wait = self._wait
        wait.begin(event)
        return block

    def _end_wait(self, how: str) -> list[Block]:
        if self._wait is None:
            return []
        (block, wait), self._wait = self._wait, None
        wait.end(how)
        block.done = True
        return [block]

    def _end_open(self) -> list[Block]:
        """The turn is over: nothing but its sessions changes any more."""
        going_on = [session.block for session in self._sessions.values()]
        ended = [block for block in self.blocks if not block.done and block not in going_on]
        asked = {*self._denied, *self._questions.values()}
        for call_id, block in self._calls.items():
            block.item["status"] = "denied" if call_id in asked else "failed"
            if call_id not in asked:
                block.item["output"] = str(block.item["output"]) or "Interrupted."
        for block in ended:
            block.done = True
        self._text = self._thoughts = None
        self._calls.clear()
        return ended

    def _notice(self, level: str, text: str) -> Block:
        return self._new("notice", {"kind": "notice", "level": level, "text": text}, done=True)

    def _new(self, key: str, item: dict[str, Json], *, done: bool = False) -> Block:
        saved: dict[str, Json] = {"version": VERSION, **item} if item else {}
        block = Block(f"{key}#{len(self.blocks)}", saved, done=done)
        self.blocks.append(block)
        return block
