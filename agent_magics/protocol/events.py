"""Defines the events that the engine emits: frozen dataclasses, converted to JSON by ``codec``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from agent_magics.protocol.items import Content, Item, Json, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of all events: `seq` counts them in a session, `at` is seconds since the epoch."""

    seq: int = 0
    at: float = 0.0
    turn_id: str = ""
    agent: str = ""


# -- the session and its turns ---------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfigured(Event):
    """First event of a session: its model, workspace, policies and tools."""

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

    `output` is the type that the answer must have ("list[Row]"), or "" for plain text.
    """

    prompt: str
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCompleted(Event):
    """The turn ended with a final answer.

    Attributes:
        text: the answer, or the model's summary where a budget ended the run.
        cost: USD of all its requests; None where the cost of one is unknown.
        unpriced: the model whose price is unknown, or "".
        budget: the budget that ended the run ("max_turns=3"), or "" where the model ended it.
    """

    text: str
    usage: Usage = Usage()
    requests: int = 0
    cost: float | None = None
    unpriced: str = ""
    budget: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnAborted(Event):
    """The turn was stopped by the person, or by an answer to a question."""

    reason: str
    usage: Usage = Usage()
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFailed(Event):
    """The turn ended with an error; `error` is one sentence for the person.

    `text` is the model's answer where that answer did not have the wanted type.
    """

    error: str
    usage: Usage = Usage()
    cost: float | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class QueuedPrompt:
    """A prompt that waits for the end of the one at work."""

    id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptsQueued(Event):
    """The prompts that wait, the next one first, as they are after a change."""

    prompts: tuple[QueuedPrompt, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptAdded(Event):
    """Words of the person joined the turn under way: said meanwhile, or queued before."""

    text: str


# -- the model's response --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta(Event):
    """A fragment of the answer; several deltas of the provider's stream may be merged into one."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningDelta(Event):
    """A fragment of the reasoning summary."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemCompleted(Event):
    """The model has completed an item of its response."""

    item: Item


# -- tool calls ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallArriving(Event):
    """The model is still writing the arguments of a call: `size` bytes so far.

    `file` is the one that a patch or its path is about, "" where that is not known.
    """

    name: str
    size: int
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallEvent(Event):
    """Base of a tool call's states: pending -> running -> completed | failed."""

    call_id: str
    name: str
    parent_call_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallPending(ToolCallEvent):
    """A call was received; `arguments` is the model's text, JSON or freeform."""

    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallChanged(ToolCallEvent):
    """The arguments of a call were replaced before it ran, by whoever approved it or by a hook.

    Attributes:
        arguments: the new arguments, in the same form as the model's.
        by: who replaced them.
    """

    arguments: str
    by: Literal["approver", "hook"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallRunning(ToolCallEvent):
    """A call has been validated, approved where needed, and has started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallUpdated(ToolCallEvent):
    """Progress of a running call: a title, a fraction done (0 to 1), any `metadata`."""

    title: str | None = None
    progress: float | None = None
    metadata: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallCompleted(ToolCallEvent):
    """A call succeeded; `output` is for the model, `details` for people."""

    output: Content
    details: Mapping[str, Json] = field(default_factory=dict)
    duration: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallFailed(ToolCallEvent):
    """A call failed; `output` says why, for the model."""

    output: Content
    details: Mapping[str, Json] = field(default_factory=dict)
    duration: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecCommandBegin(Event):
    """A command starts, or (with `session_id`) a started one continues in the background.

    Its later output and its end carry that `session_id`. They may arrive during a later turn, but
    keep the identifiers of the turn and the call that started the command.
    """

    call_id: str
    command: tuple[str, ...]
    cwd: str
    session_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecCommandOutputDelta(Event):
    """A fragment of a command's output, in order of arrival; each is sent once."""

    call_id: str
    text: str
    stream: Literal["stdout", "stderr"] = "stdout"
    session_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecCommandEnd(Event):
    """A command has ended; `exit_code` is None where this package killed it."""

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
    """A parsed and approved patch is about to be applied."""

    call_id: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchApplyEnd(Event):
    """A patch was applied, or failed and left all files unchanged."""

    call_id: str
    success: bool
    diff: str = ""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """A step of the plan."""

    id: str
    description: str
    status: Literal["pending", "in_progress", "completed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanUpdated(Event):
    """The model's plan has changed; `steps` is the whole new plan."""

    steps: tuple[PlanStep, ...]
    explanation: str = ""


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """One file that a turn changed.

    Attributes:
        path: relative to the workspace where it is inside.
        change: the kind of change.
        added, removed: numbers of lines; None where they cannot be counted.
        note: a remark to show beside it: a changed mode, why its lines are not shown.
    """

    path: str
    change: Literal["added", "changed", "removed"]
    added: int | None = 0
    removed: int | None = 0
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnDiffUpdated(Event):
    """All changes to files in this turn so far; sent after each change and at the turn's end.

    Attributes:
        diff: the unified diff, truncated if very long.
        files: the changed files, by path.
        runs: warnings about changed files that other programs execute; filled at the turn's end.
        notes: changes that were not recorded, or cannot be undone.
        is_last: whether the turn ends with it; the record of a session has this one alone.
    """

    diff: str
    files: tuple[ChangedFile, ...] = ()
    runs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    is_last: bool = False


# -- questions: each is answered by an Op with the same id -------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Event):
    """Base of the events that wait for an answer."""

    question_id: str
    call_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequested(Question):
    """Asks whether a call may run; `target` is what the call would access.

    Attributes:
        arguments: all of the call as the model wrote it; the diff where it changes a text file.
        scopes: lasting answers that may be given besides approve, deny and abort.
        covers: scope -> what exactly it would allow, in words.
        editable: text that may be edited and approved, such as the command line.
        dangerous: whether a mistake would destroy something; a front end should then suggest
            "deny".
        labels: decision -> its button, where the question is about no call; then "approve", "deny"
            and "abort" are offered under these names.
    """

    tool: str
    target: str
    arguments: str
    reason: str
    scopes: tuple[str, ...] = ()
    covers: Mapping[str, str] = field(default_factory=dict)
    editable: str = ""
    dangerous: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UserOption:
    """An answer to choose."""

    label: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class UserQuestion:
    """A question: `header` is its subject in a word or two, `multi` allows several options,
    `free_text` words of the person's own.
    """

    id: str
    question: str
    header: str = ""
    options: tuple[UserOption, ...] = ()
    multi: bool = False
    free_text: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class UserInputRequested(Question):
    """The model asks the person one to four questions.

    A program answers with a dict of each question's id to a label, a list of labels, or text.
    """

    questions: tuple[UserQuestion, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ElicitationRequested(Question):
    """An MCP server asks the person for input, by a form's `schema` or by a `url` to visit."""

    server: str
    message: str
    schema: Mapping[str, Json] = field(default_factory=dict)
    url: str = ""


FormRequested: TypeAlias = UserInputRequested | ElicitationRequested
"""The questions that are answered by filling in a form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicToolCallRequest(Event):
    """Asks the client that registered a tool to run it and to answer by `call_id`."""

    call_id: str
    tool: str
    arguments: Json = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MainThreadWork(Question):
    """Asks the thread that waits for the run to run a function or live-kernel code."""

    work: Literal["sync", "async", "python"]
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionResolved(Event):
    """A question was answered; `by` is "person", "program", "policy" or "beforehand"."""

    question_id: str
    decision: str
    by: str
    feedback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalDecided(Event):
    """Records in the audit log whether a call may run, who decided it and why.

    Attributes:
        decision: "run", "refuse", or the answer that was given.
        by: "policy", "rule", "grant" (an earlier lasting answer), or who answered: "person",
            "program", "beforehand".
        basis: the policy's name, the rule and its file, or what the grant was given for.
        scope: how long an answer holds: "once", "cell", "session", "project".
        fingerprints: digests of the decided actions; equal ones mean the same call under the same
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
    """A sub-agent started, went on, or ended; in the turn that began its work, if one did.

    Attributes:
        sub_agent: its name, unique in the conversation.
        status: "queued", "running", or how it ended: "completed", "failed", "stopped".
        agent_type: its type, such as "explore".
        task: what it was asked to do.
        doing: the call that it is at, while it runs.
        text: its last message, or why it failed, once it has ended.
        steps: its calls so far, one line each.
        problem: why it did not end by itself, or the budget that ended it; "" otherwise.
        tools: those that were asked for; None means all of its type's.
        model: the one that was asked for; "" means its type's.
        seconds, requests, tokens, cost: spent so far; a cost of None is not known.
        conversation: the id of its own record.
        call_id: the call that began its work.
        budget: what it may spend, by the names of these fields; a limit that is missing is none.
    """

    sub_agent: str
    status: str
    agent_type: str = ""
    task: str = ""
    doing: str = ""
    text: str = ""
    problem: str = ""
    steps: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    model: str = ""
    seconds: float = 0.0
    requests: int = 0
    tokens: int = 0
    cost: float | None = None
    conversation: str = ""
    call_id: str = ""
    budget: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """Whether the sub-agent does not work any more."""
        return self.status not in ("queued", "running")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRetry(Event):
    """Request number `attempt` of `tries` failed; the next one follows after `delay` seconds."""

    reason: str
    attempt: int
    delay: float
    tries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensCounted(Event):
    """Token usage of the request that has just ended, and of the turn so far, with its cost in
    USD.
    """

    request: Usage
    turn: Usage
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryCompacted(Event):
    """The history sent to the model was shortened; the session's record keeps all of it.

    Attributes:
        items_before, items_after: numbers of items in a request before and after.
        tokens_before, tokens_after: their tokens, partly estimated.
        pruned: number of old tool outputs that were each replaced by one line.
        summary: the model's summary of the older part; "" where only outputs were pruned.
    """

    items_before: int
    items_after: int
    tokens_before: int = 0
    tokens_after: int = 0
    pruned: int = 0
    summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceChanged(Event):
    """Names that live code added, changed or deleted in the notebook's namespace."""

    call_id: str = ""
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CellChanged(Event):
    """A tool changed a cell of the open notebook; `%agent rewind` restores it by this.

    Attributes:
        cell: its id.
        cell_type: "code", "markdown" or "raw".
        before, after: its text; None where there is no such cell. Both are the same where only its
            outputs were replaced.
        above: the id of the cell above it; "" at the top, and where its place is not changed.
        index: its place in the notebook, from 0, for when that cell is gone.
        step: the name under which the page keeps the cell as it was before, with its outputs.
    """

    call_id: str = ""
    cell: str
    cell_type: str
    before: str | None
    after: str | None
    above: str = ""
    index: int = 0
    step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VariablesKnown(Event):
    """What the conversation knows of variables that live code has read or made.

    Attributes:
        variables: by name: "what" it is (type and shape), its "schema" as a fingerprint, and the
            cell that made it ("made_by"); None where it was deleted.
    """

    call_id: str = ""
    variables: Mapping[str, Mapping[str, Json] | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInformed(Event):
    """An unrequested notification was sent to the model, such as the end of a background command.

    `shown` is the part shown to people, without values that differ from run to run; "" shows
    nothing.
    """

    message: str
    shown: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned(Event):
    """A warning for the person; the run continues."""

    message: str


TURN_ENDS = (TurnCompleted, TurnAborted, TurnFailed)
