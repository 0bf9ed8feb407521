"""Defines the context that a tool receives: its call, and what all calls of its turn share."""

import math
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from agent_magics.approval.read_rules import ReadRules
from agent_magics.dispatch.catalog.offer import ToolOffer
from agent_magics.dispatch.results.json_text import plain_object
from agent_magics.dispatch.results.sources import TextSource
from agent_magics.dispatch.results.stored import HandleStore, Origin, is_handle
from agent_magics.dispatch.results.values import plain_text
from agent_magics.dispatch.status import CallStatus, TurnStop
from agent_magics.dispatch.turn import (
    AgentServers,
    ChangeTracker,
    LiveDocument,
    LiveResult,
    QuestionGate,
    SubAgents,
)
from agent_magics.protocol.config import RunConfig
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.events import Event, ToolCallUpdated
from agent_magics.protocol.items import Item, Json
from agent_magics.protocol.ops import Answer, DynamicToolResponse
from agent_magics.protocol.tools import ToolOutput
from agent_magics.time_limit import TimeLimit

if TYPE_CHECKING:  # a run that starts no command or server imports neither
    from agent_magics.exec.processes import ProcessManager
    from agent_magics.symbols.servers.project import LanguageServers


_MOST_TITLE = 500  # characters


class LiveKernel(Protocol):
    """The person's own namespace, in which code runs; used only on the thread that waits.

    Attributes:
        document: the open notebook; None where there is none.
    """

    document: LiveDocument | None

    @property
    def namespace(self) -> Mapping[str, Any]:
        """The variables, by name."""

    def keep_code(self, code: str, session_id: str, copied: Sequence[str]) -> None:
        """Record code that runs in scratch, for the person to read; thread-safe.

        Args:
            code: the code.
            session_id: the conversation.
            copied: names of the variables that were copied to scratch.
        """

    async def run(self, code: str, context: "ToolContext") -> LiveResult:
        """Run `code` as a cell, showing its output as it arrives.

        It suspends only if the code itself awaits at top level.
        """


class Emit(Protocol):
    """Emits an event; thread-safe."""

    def __call__(self, kind: type[Event], **fields: Any) -> None:
        """Emit an event of this class with these fields."""


@dataclass(frozen=True, slots=True)
class TurnContext:
    """The data that all calls of one turn share.

    Nothing of it is replaced during the turn; what is collected meanwhile stands in `found`,
    `uses`, `from_code`, `shares`, `question_limits`, `stop`, `handles` and `extra`.

    Attributes:
        emit: emits an event of the turn, stamped with its ids; thread-safe.
        ask: asks a question (an event class and its fields) and waits for the answer.
        call: makes a nested call: `call(name, arguments, parent_call_id)`.
        validate_path: resolves a path as the model wrote it, or raises RespondToModel.
        messages: returns the items so far, read-only.
        main_thread: runs work on the thread that waits for the run: `main_thread(kind, call_id,
            name, run)`; see `engine.foreground.waiting`. None where nobody waits.
        live_kernel: runs the code of `python`; None outside a notebook.
        diff_tracker: records changes in files; None where they are not tracked.
        processes: the conversation's commands; None where none may be started.
        read_rules: returns the present rules on reading files.
        handles: the stored results of the conversation.
        tell_later: adds a message to the model's next request; thread-safe.
        functions: the tools by name, as live code may call them.
        from_code: ids of the calls that run code; calls of that code return whole values.
        shares: by a batch's id, the most characters of the output of each of its calls, and
            whether the model made the batch, so that it needs names of what is cut.
        ask_client: lets an outside client run a call: `ask_client(call_id, tool, arguments,
            seconds)`; None where no client can.
        servers: the agent's MCP servers and their tools; None where it has none.
        sample: makes a model request apart from the conversation: `sample(system, messages,
            most_tokens)`, `messages` as (role, text).
        recorded: returns the output that a call had when the replayed conversation was recorded,
            by its id; None where there is none.
        agents: returns the agent's sub-agents; None where it may have none.
        symbols: returns the language servers of the workspace; None where it has none.
        offer: the tools offered to the model, and those that a search can find.
        found: names of tools that searches of this conversation found, in order.
        uses: how often each tool was called in this conversation.
        question_limits: limits of MCP servers' questions, by name.
        stop: keeps the error by which a nested call ends the turn.
        extra: a dictionary in which tools keep data of their own for the length of the turn.
    """

    session_id: str
    turn_id: str
    agent: str
    config: RunConfig
    env: Mapping[str, str]
    emit: Emit
    ask: Callable[..., Awaitable[Answer]]
    call: Callable[[str, Any, str | None], Coroutine[Any, Any, ToolOutput]]
    validate_path: Callable[[str, str], Path]
    messages: Callable[[], Sequence[Item]]
    main_thread: Callable[..., Awaitable[Any]] | None
    live_kernel: LiveKernel | None = None
    diff_tracker: ChangeTracker | None = None
    processes: "ProcessManager | None" = None
    read_rules: Callable[[], ReadRules] = ReadRules
    handles: HandleStore = field(default_factory=HandleStore)
    tell_later: Callable[[str], None] = lambda text: None
    ask_client: Callable[..., Awaitable[DynamicToolResponse]] | None = None
    servers: AgentServers | None = None
    sample: Callable[..., Awaitable[str]] | None = None
    recorded: Callable[[str], str | None] = lambda call_id: None
    agents: Callable[[], SubAgents | None] = lambda: None
    symbols: "Callable[[], LanguageServers | None]" = lambda: None
    offer: ToolOffer | None = None
    found: dict[str, None] = field(default_factory=dict)
    uses: Counter[str] = field(default_factory=Counter)
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    from_code: set[str] = field(default_factory=set)
    shares: dict[str, tuple[int, bool]] = field(default_factory=dict)
    question_limits: dict[str, QuestionGate] = field(default_factory=dict)
    stop: TurnStop = field(default_factory=TurnStop)
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CallResults:
    """Stores and finds results for one call; what the call has read is noted with each."""

    _store: HandleStore
    _status: CallStatus

    def keep(self, text: str | TextSource) -> str:
        """Store a text and return its name, such as "@r7"; see `HandleStore.keep`."""
        return self._store.keep(text, Origin(self._status.reads, self._status.held))

    def keep_value(self, value: object) -> str:
        """Store an object and return its name; see `HandleStore.keep_value`."""
        return self._store.keep_value(value, Origin(self._status.reads, self._status.held))

    def value_of(self, name: str) -> Any:
        """Return the object or text of a name; see `HandleStore.value_of`."""
        self._status.note_reads(*self._store.reads_of(name))
        return self._store.value_of(name)

    def path_of(self, name: str) -> Path:
        """Return a file with the text of a name; see `HandleStore.path_of`."""
        self._status.note_reads(*self._store.reads_of(name))
        return self._store.path_of(name)


class ToolContext:
    """One call's view of its turn, for a tool with a parameter annotated `ToolContext`.

    A tool can read everything here and change nothing: the decisions about the call are kept in its
    `CallStatus`.

    Args:
        turn: the data that all calls of the turn share.
        call_id: the call's id, which its events carry.
        name: the tool's name.
        parent_call_id: the call that made this one, or None where the model did.
        status: the decisions about the call.
    """

    __slots__ = ("_call_id", "_name", "_parent_call_id", "_status", "_turn")

    def __init__(
        self,
        turn: TurnContext,
        call_id: str,
        name: str,
        parent_call_id: str | None = None,
        status: CallStatus | None = None,
    ) -> None:
        self._turn = turn
        self._call_id = call_id
        self._name = name
        self._parent_call_id = parent_call_id
        self._status = status or CallStatus()

    @property
    def turn(self) -> TurnContext:
        """The data that all calls of the turn share."""
        return self._turn

    @property
    def call_id(self) -> str:
        """The call's id, which its events carry."""
        return self._call_id

    @property
    def name(self) -> str:
        """The tool's name."""
        return self._name

    @property
    def parent_call_id(self) -> str | None:
        """The id of the call that made this one; None where the model did."""
        return self._parent_call_id

    @property
    def bypass_sandbox(self) -> bool:
        """Whether this attempt may leave the sandbox, by an approved escalation or a rule."""
        return self._status.bypass_sandbox

    @property
    def read_only(self) -> bool:
        """Whether the call is a command known to only read, which needs no folder to write."""
        return self._status.read_only

    @property
    def ready(self) -> Any:
        """The result of the tool's `init`; None where it has none."""
        return self._status.ready

    @property
    def clock(self) -> TimeLimit | None:
        """The call's time limit, paused while a question waits; None where it has none."""
        return self._status.clock

    @property
    def is_late(self) -> bool:
        """Whether the call's time limit has passed."""
        return self.clock is not None and self.clock.is_late

    @property
    def writes(self) -> tuple[str, ...]:
        """The further paths that the call asks to write, as they were judged."""
        return self._status.writes

    @property
    def cancelled(self) -> threading.Event:
        """An event that is set when the turn is interrupted; long work should check or await it."""
        status = self._status
        if status.cancelled is None:
            status.cancelled = threading.Event()
            if status.is_cancelled:
                status.cancelled.set()
        return status.cancelled

    @property
    def is_from_code(self) -> bool:
        """Whether code made this call and gets the value itself, rather than text for a model."""
        return self.parent_call_id in self.turn.from_code

    @property
    def session_id(self) -> str:
        """The id of the conversation."""
        return self.turn.session_id

    @property
    def turn_id(self) -> str:
        """The id of the turn."""
        return self.turn.turn_id

    @property
    def agent(self) -> str:
        """The name of the agent."""
        return self.turn.agent

    @property
    def cwd(self) -> Path:
        """The workspace; relative paths start here."""
        return self.turn.config.cwd

    @property
    def config(self) -> RunConfig:
        """The configuration of the run."""
        return self.turn.config

    @property
    def env(self) -> Mapping[str, str]:
        """The environment variables for commands, without secrets."""
        return self.turn.env

    @property
    def messages(self) -> Sequence[Item]:
        """The conversation so far; read-only."""
        return self.turn.messages()

    @property
    def diff_tracker(self) -> ChangeTracker | None:
        """Records the changes of this call: ``with ctx.diff_tracker.writing(paths): ...``, or None.

        Changes by commands and patches are recorded without a tool's help.
        """
        return self.turn.diff_tracker

    @property
    def extra(self) -> dict[str, Any]:
        """A dictionary in which tools keep data for the length of a turn."""
        return self.turn.extra

    @property
    def processes(self) -> "ProcessManager":
        """The commands of this conversation.

        Raises:
            RuntimeError: none may be started here.
        """
        if self.turn.processes is None:
            raise RuntimeError(f"{self.name} may start no commands here.")
        return self.turn.processes

    @property
    def handles(self) -> CallResults:
        """The stored results of this conversation, such as ``@r7``."""
        return CallResults(self.turn.handles, self._status)

    @property
    def output_budget(self) -> int:
        """The most characters of this call's output for the model."""
        return self.turn.config.output_budget

    def validate_path(self, path: str, mode: Literal["read", "write"] = "read") -> Path:
        """Resolve a path against `cwd`, and check that the run may access it.

        Args:
            path: relative, absolute, starting with ~, or the name of a stored result.
            mode: the kind of access.

        Returns:
            The absolute path without symlinks; of a stored result, its file.

        Raises:
            RespondToModel: the path may not be accessed in this way.
        """
        if is_handle(path):
            if mode == "write":
                raise RespondToModel(f"{path} is a kept result: it can be read, not written.")
            return self.handles.path_of(path)
        found = self.turn.validate_path(path, "judged" if self._status.judged else mode)
        if not self._status.judged and self.turn.read_rules().decision(str(found)) in (
            "prompt",
            "forbid",
        ):
            raise RespondToModel(f"{path} may not be touched ({mode}): a rule is about reading it.")
        return found

    def emit(self, kind: type[Event], **fields: object) -> None:
        """Emit an event of this call; `call_id` is filled in.

        Args:
            kind: the event's class.
            fields: its fields.
        """
        self.turn.emit(kind, call_id=self.call_id, **fields)

    def update(
        self,
        title: str | None = None,
        progress: float | None = None,
        metadata: Mapping[str, Json] | None = None,
    ) -> None:
        """Report the progress of the call; of very many updates some are left out.

        Args:
            title: a short text.
            progress: the share done, from 0 to 1.
            metadata: any further JSON values.
        """
        if not self._status.may_update():
            return
        self.turn.emit(
            ToolCallUpdated,
            call_id=self.call_id,
            name=self.name,
            parent_call_id=self.parent_call_id,
            title=None if title is None else plain_text(title)[:_MOST_TITLE],
            progress=_finite(progress),
            metadata=plain_object(metadata) if metadata else {},
        )

    async def ask(
        self,
        *,
        permission: str,
        patterns: Sequence[str],
        always: Sequence[str] = (),
        metadata: Mapping[str, Json] | None = None,
    ) -> None:
        """Ask for approval of what this call is about to do; return when it is approved.

        Rules of this `permission` come first; the person is asked about the rest, under every
        policy but "never", which refuses.

        Args:
            permission: "command", "read", "write", "network", "mcp" or "tool".
            patterns: the affected paths, hosts, command lines or names.
            always: patterns that a lasting answer allows; none offers no lasting answer.
            metadata: further JSON values that the person is shown.

        Raises:
            RespondToModel: a rule forbids it, or it was denied.
            TurnAbort: the person ended the turn, which ends whoever catches this.
            CancelledError: something else has just ended it.
            ValueError: there is no such permission, or `patterns` is empty.
        """
        permit = self._status.permit
        if permit is None:
            raise RuntimeError("ctx.ask works inside a call that an agent makes.")
        with self._clock_stopped():
            await permit(permission, patterns, always, metadata or {})

    async def call(self, tool: str, arguments: Mapping[str, Json]) -> ToolOutput:
        """Call another tool as part of this call: validated, approved and shown like any other.

        Args:
            tool: the tool's name.
            arguments: its arguments, as JSON values.

        Returns:
            Its output; a failure is an output, too.

        Raises:
            RespondToModel: the turn has ended, so that nobody would answer.
            TurnAbort, FatalError: the call ends the turn, which ends whoever catches this.
            CancelledError: something else has just ended it.
        """
        with self._clock_stopped():
            return await self.turn.call(tool, arguments, self.call_id)

    def _clock_stopped(self) -> AbstractContextManager[None]:
        return nullcontext() if self.clock is None else self.clock.stopped()


def _finite(progress: float | None) -> float | None:
    share = None if progress is None else float(progress)
    return share if share is not None and math.isfinite(share) else None


def status_of(context: ToolContext) -> CallStatus:
    """Return the decisions about the call of a context; for the stages, not for tools."""
    return context._status
