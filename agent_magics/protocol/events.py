"""Everything the engine tells the outside; frozen, typed, to JSON and back (see ``codec``)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from agent_magics.protocol.items import Content, Item, Json, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base: `seq` counts the events of a session, `at` is seconds since the epoch."""

    seq: int = 0
    at: float = 0.0
    turn_id: str = ""
    agent: str = ""


# -- the session and its turns ---------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfigured(Event):
    """First event of a session: what it runs with."""

    session_id: str
    model: str
    cwd: str
    approval: str
    sandbox: str
    tools: tuple[str, ...] = ()
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted(Event):
    """A turn (one cell, one `run`) begins.

    `output` names the type that the answer is to have ("list[Row]"), "" is plain text.
    """

    prompt: str
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCompleted(Event):
    """The model has said its last word.

    Attributes:
        text: the answer, or where a budget ended the run the model's summary.
        cost: USD of all its requests; None where the cost of one is not known.
        unpriced: the model whose price is not known, "" where all is known.
        budget: the budget that ended the run ("max_turns=3"), "" where the model did.
    """

    text: str
    usage: Usage = Usage()
    requests: int = 0
    cost: float | None = None
    unpriced: str = ""
    budget: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnAborted(Event):
    """The person stopped the turn, or an answer did."""

    reason: str
    usage: Usage = Usage()
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFailed(Event):
    """The turn could not go on; `error` is one sentence for the person.

    `text` is the model's answer where the failure was that it did not fit the wanted type.
    """

    error: str
    usage: Usage = Usage()
    cost: float | None = None
    text: str = ""


# -- what the model says ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta(Event):
    """More of the answer; several deltas of the wire may come as one."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningDelta(Event):
    """More of the reasoning summary."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemCompleted(Event):
    """A whole item has come from the model."""

    item: Item


# -- tool calls ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallEvent(Event):
    """Base of a call's life: pending -> running -> completed | failed."""

    call_id: str
    name: str
    parent_call_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallPending(ToolCallEvent):
    """The call is known; `arguments` is what the model wrote, JSON text or freeform."""

    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallRunning(ToolCallEvent):
    """Checked, approved where that was needed, and now at work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallUpdated(ToolCallEvent):
    """News from inside the call: a title, a share done (0 to 1), anything in `metadata`."""

    title: str | None = None
    progress: float | None = None
    metadata: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallCompleted(ToolCallEvent):
    """The call has succeeded; `output` is what the model reads, `details` what people see."""

    output: Content
    details: Mapping[str, Json] = field(default_factory=dict)
    duration: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallFailed(ToolCallEvent):
    """The call did not do what was asked; `output` tells the model why."""

    output: Content
    details: Mapping[str, Json] = field(default_factory=dict)
    duration: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecCommandBegin(Event):
    """A command starts; with `session_id`, one that has started goes on as this session.

    What it prints from then on, and its end, come with that `session_id`: some time, perhaps in
    a later turn, and still under the turn and the call that started it.
    """

    call_id: str
    command: tuple[str, ...]
    cwd: str
    session_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecCommandOutputDelta(Event):
    """More of a command's output, in arrival order and as it came; never sent again."""

    call_id: str
    text: str
    stream: Literal["stdout", "stderr"] = "stdout"
    session_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecCommandEnd(Event):
    """A command has ended; `exit_code` is None where we killed it."""

    call_id: str
    exit_code: int | None
    duration: float
    session_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOutput(Event):
    """A rich output of live-kernel code (a figure, a displayed value), as a MIME bundle."""

    call_id: str
    data: Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchApplyBegin(Event):
    """A patch has been parsed and approved and is about to be written."""

    call_id: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchApplyEnd(Event):
    """A patch has been written, or left everything as it was."""

    call_id: str
    success: bool
    diff: str = ""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One step of the plan."""

    id: str
    description: str
    status: Literal["pending", "in_progress", "completed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanUpdated(Event):
    """The plan as it now stands."""

    steps: tuple[PlanStep, ...]
    explanation: str = ""


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """One file that a turn changed.

    Attributes:
        path: relative to the workspace where it is inside.
        change: what became of it.
        added, removed: lines; None where they cannot be counted.
        note: what is to be said beside it: its mode, why its lines are not shown.
    """

    path: str
    change: Literal["added", "changed", "removed"]
    added: int | None = 0
    removed: int | None = 0
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnDiffUpdated(Event):
    """All changes to files in this turn, as one unified diff; sent after a change, and at the end.

    Attributes:
        diff: the unified diff; of a very long one, the beginning.
        files: what changed, by path.
        runs: sentences about changed files that run by themselves; known at the turn's end.
        notes: what was not seen, or cannot be put back.
    """

    diff: str
    files: tuple[ChangedFile, ...] = ()
    runs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


# -- questions: each is answered by an Op with the same id -------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Event):
    """Base of what waits for an answer."""

    question_id: str
    call_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequested(Question):
    """May this call run? `target` is what it would touch.

    Attributes:
        arguments: all of the call as the model wrote it; where it changes text, the diff.
        scopes: the lasting answers that may be given beside approve / deny / abort.
        covers: scope -> what exactly it would allow, in words.
        editable: the text that may be changed and approved, such as the command line.
    """

    tool: str
    target: str
    arguments: str
    reason: str
    scopes: tuple[str, ...] = ()
    covers: Mapping[str, str] = field(default_factory=dict)
    editable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserInputRequested(Question):
    """The model asks the person something."""

    question: str
    options: tuple[str, ...] = ()
    multiple: bool = False
    allow_text: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ElicitationRequested(Question):
    """An MCP server asks the person something, with a form's schema or an address to visit."""

    server: str
    message: str
    schema: Mapping[str, Json] = field(default_factory=dict)
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicToolCallRequest(Event):
    """A tool that an outside client registered is called; the client answers by call id."""

    call_id: str
    tool: str
    arguments: Json = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MainThreadWork(Question):
    """Work for the thread that waits for the run: a person's function, or live-kernel code."""

    work: Literal["sync", "async", "python"]
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionResolved(Event):
    """A question has its answer; `by` says who gave it (person, program, policy, beforehand)."""

    question_id: str
    decision: str
    by: str
    feedback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalDecided(Event):
    """Whether a call may run was decided: the line of the audit.

    Attributes:
        decision: "run", "refuse", or the answer that was given.
        by: "policy", "rule", "grant" (an earlier lasting answer), or who answered: "person",
            "program", "beforehand".
        basis: the policy's name, the rule and its file, or what the grant was given for.
        scope: how long an answer holds: "once", "cell", "session", "project".
        fingerprints: what was decided about; equal ones are the same call under the same
            circumstances.
        sandbox: "inside", "outside", or "" where no command runs.
    """

    call_id: str
    tool: str
    target: str
    decision: str
    by: str
    basis: str = ""
    scope: str = "once"
    fingerprints: tuple[str, ...] = ()
    sandbox: str = ""
    reason: str = ""


# -- the rest ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServerChanged(Event):
    """An MCP server started, failed, or ended."""

    server: str
    status: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubAgentChanged(Event):
    """A sub-agent started, went on, or ended."""

    sub_agent: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRetry(Event):
    """Request number `attempt` of `tries` failed; the next one follows after `delay` seconds."""

    reason: str
    attempt: int
    delay: float
    tries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensCounted(Event):
    """Tokens of the request that has just ended, and of the turn so far with its cost in USD."""

    request: Usage
    turn: Usage
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryCompacted(Event):
    """What is sent of the conversation became shorter; this record keeps all of it.

    Attributes:
        items_before, items_after: how many items a request carried before, and carries now.
        tokens_before, tokens_after: their tokens, partly estimated.
        pruned: old tool outputs that one line stands for.
        summary: the model's summary of the older part; "" where only outputs were taken out.
    """

    items_before: int
    items_after: int
    tokens_before: int = 0
    tokens_after: int = 0
    pruned: int = 0
    summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceChanged(Event):
    """Names that live code added, changed or deleted in the person's namespace."""

    call_id: str = ""
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInformed(Event):
    """The model was told something that it had not asked for, such as the end of a session.

    `shown` is what people are shown of it, without what differs from run to run; "" is nothing.
    """

    message: str
    shown: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned(Event):
    """Something the person should know and the run survives."""

    message: str


TURN_ENDS = (TurnCompleted, TurnAborted, TurnFailed)
