"""Events in, a picture of the turn out: a pure fold, with no I/O and no idea who looks at it.

The picture is a list of blocks in the order in which they began. A block is the JSON object that
is saved in the notebook (`application/vnd.agent-magics.item+json`), and whether it will change
still. Nothing volatile (ids, times, durations) goes into it.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent_magics.backends.exec.output import colour_output
from agent_magics.protocol.events import (
    ApprovalRequested,
    Event,
    ExecCommandBegin,
    ExecCommandEnd,
    ExecCommandOutputDelta,
    ItemCompleted,
    LiveOutput,
    ModelInformed,
    ModelRetry,
    PatchApplyEnd,
    PlanUpdated,
    QuestionResolved,
    TextDelta,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallPending,
    ToolCallRunning,
    ToolCallUpdated,
    TurnAborted,
    TurnCompleted,
    TurnFailed,
    Warned,
)
from agent_magics.protocol.items import AssistantMessage, Json, text_of

VERSION = 1

# What is kept of one call's output in the notebook; the model may have read more.
SAVED_CHARACTERS = 4_000

_FIGURE = re.compile(r"^\[figure: .*\]\n?", re.MULTILINE)
_PATCHED = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+?)\s*$", re.MULTILINE)
_LANGUAGES = {
    "python": "python",
    **dict.fromkeys(("shell", "shell_command", "exec_command", "local_shell"), "bash"),
}
# Their arguments name a session by a number that is drawn anew in every run.
_SESSION_TOOLS = ("write_stdin", "kill_session")
_GOES_ON = "goes on as a session"
_UNFINISHED_COLOUR = re.compile(r"\x1b(?:\[[0-9;]*)?$")
_ARRIVED = {
    "person": "approved by the person",
    "program": "approved by the program",
    "beforehand": "approved beforehand",
}


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
            kept = _ending(self._text, SAVED_CHARACTERS)
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
        self._denied: set[str] = set()
        self._text: Block | None = None
        self._plan: Block | None = None
        self._plan_calls: set[str] = set()
        self._rich: dict[str, list[Mapping[str, Json]]] = {}
        self._sessions: dict[str, _Session] = {}

    def apply(self, event: Event) -> list[Block]:
        """Take an event in and return the blocks that are new or changed."""
        match event:
            case TextDelta():
                return [self._add_text(event.text)]
            case ItemCompleted(item=AssistantMessage(text=text)):
                return self._end_text(text)
            case ToolCallPending():
                return self._begin_call(event)
            case ToolCallRunning() | ToolCallUpdated():
                return self._show_progress(event)
            case ToolCallCompleted() | ToolCallFailed():
                return self._end_call(event)
            case ExecCommandBegin() | ExecCommandOutputDelta() | ExecCommandEnd():
                return self._follow_command(event)
            case PatchApplyEnd() | LiveOutput():
                return self._show_work(event)
            case ApprovalRequested():
                self._questions[event.question_id] = event.call_id
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

    def _end_text(self, text: str) -> list[Block]:
        if not text.strip() and self._text is None:
            return []
        block = self._text or self._new("text", {"kind": "text", "text": ""})
        block.item["text"], block.done = text, True
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
        title = describe_call(arguments)
        if name in _SESSION_TOOLS:
            title, arguments = _without_session(arguments)
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
        output = shown if isinstance(shown, str) else text_of(event.output)
        block.item["status"] = "completed" if ok else "denied" if denied else "failed"
        rich = self._rich.pop(event.call_id, ())
        if rich:
            # The figures follow; the words that stand for them are for the model.
            output = _FIGURE.sub("", output)
        block.item["output"] = shorten(output)
        block.item["exit_code"] = event.details.get("exit_code")
        if isinstance(session := event.details.get("session"), str):
            block.item["title"] = ": ".join(filter(None, (_one_line(session), block.item["title"])))
        block.done = True
        return [block, *map(self._rich_block, rich)]

    def _rich_block(self, data: Mapping[str, Json]) -> Block:
        block = self._new("rich", {}, done=True)
        block.data = data
        return block

    def _show_work(self, event: PatchApplyEnd | LiveOutput) -> list[Block]:
        block = self._calls.get(event.call_id)
        if block is None:
            return []
        if isinstance(event, LiveOutput):
            # Shown below its call, also where calls are shown only when they have ended.
            self._rich.setdefault(event.call_id, []).append(event.data)
            return []
        block.item["kind"], block.item["diff"] = "patch", event.diff
        return [block]

    def _note_answer(self, event: QuestionResolved) -> list[Block]:
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
                "title": _one_line(command_line(event.command)),
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
            case PlanUpdated():
                return [self._show_plan(event)]
            case TurnCompleted(usage=usage, requests=requests):
                ended = self._end_open()
                if usage.input_tokens or usage.output_tokens:
                    item: dict[str, Json] = {
                        "kind": "usage",
                        "input_tokens": usage.input_tokens,
                        "output_tokens": usage.output_tokens,
                        "cached_tokens": usage.cached_tokens,
                        "requests": requests,
                    }
                    ended.append(self._new("usage", item, done=True))
                return ended
            case TurnAborted(reason=reason):
                said = f"{reason[:1].upper()}{reason[1:]}."
                return [*self._end_open(), self._notice("warning", said)]
            case TurnFailed(error=error):
                return [*self._end_open(), self._notice("error", error)]
            case ModelInformed(shown=shown):
                return [self._notice("info", shown)] if shown else []
            case Warned(message=message):
                return [self._notice("warning", message)]
            case ModelRetry(reason=reason, attempt=attempt):
                return [self._notice("warning", f"{reason}; trying again (attempt {attempt}).")]
        return []

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
        self._text = None
        self._calls.clear()
        return ended

    def _notice(self, level: str, text: str) -> Block:
        return self._new("notice", {"kind": "notice", "level": level, "text": text}, done=True)

    def _new(self, key: str, item: dict[str, Json], *, done: bool = False) -> Block:
        saved: dict[str, Json] = {"version": VERSION, **item} if item else {}
        block = Block(f"{key}#{len(self.blocks)}", saved, done=done)
        self.blocks.append(block)
        return block


def describe_call(arguments: str) -> str:
    """Say in one line what a call is about, from its arguments."""
    try:
        return _describe(json.loads(arguments), arguments)
    except (ValueError, RecursionError):  # no JSON, or nested too deeply
        return _files_of(arguments)


def _describe(parsed: object, arguments: str) -> str:
    if not isinstance(parsed, dict):
        return _one_line(arguments)
    command = parsed.get("command")
    if isinstance(command, list):
        return _one_line(shlex.join(map(str, command)))
    if isinstance(parsed.get("patch"), str):
        return _files_of(parsed["patch"])
    for name in ("command", "cmd", "code", "pattern", "query", "path"):
        if isinstance(parsed.get(name), str):
            return _one_line(parsed[name])
    return _one_line(", ".join(f"{key}={json.dumps(value)}" for key, value in parsed.items()))


def _files_of(patch: str) -> str:
    """Name what a patch touches; what is no patch is shown as it is."""
    files = [f"{verb.lower()} {path}" for verb, path in _PATCHED.findall(patch)]
    return _one_line(", ".join(files) or patch)


def _one_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    first = lines[0].strip() if lines else ""
    shown = first if len(first) <= 100 else first[:99] + "…"
    return shown + (f" … ({len(lines)} lines)" if len(lines) > 1 else "")


def command_line(command: Sequence[str]) -> str:
    """Return a command as people write it: of a script for a shell, the script alone."""
    if len(command) == 3 and command[1] in ("-c", "-lc"):
        return command[2]
    return shlex.join(command)


def _without_session(arguments: str) -> tuple[str, str]:
    """Return what is typed, as a title, and the arguments without the session's number."""
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        return "", arguments
    rest = {name: value for name, value in parsed.items() if name != "session_id"}
    typed = json.dumps(parsed["chars"], ensure_ascii=False) if parsed.get("chars") else ""
    return _one_line(typed), json.dumps(rest, ensure_ascii=False)


def shorten(text: str, limit: int = SAVED_CHARACTERS) -> str:
    """Keep head and tail of `text`, saying how much was left out."""
    if len(text) <= limit:
        return text
    head = _UNFINISHED_COLOUR.sub("", text[: limit // 2])
    tail = _ending(text[limit // 2 :], limit // 2)
    return f"{head}\n… {len(text) - len(head) - len(tail)} characters left out …\n{tail}"


def _ending(text: str, limit: int) -> str:
    """Return the end of `text`, from a line's start where one is near: no colour is cut in two."""
    start = max(0, len(text) - limit)
    line = text.find("\n", max(0, start - 1), start + limit // 4) + 1
    return text[line or start :]
