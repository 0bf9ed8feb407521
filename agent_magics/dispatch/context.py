"""What a tool is handed when the engine calls it: where it is, what holds, whom it may ask."""

import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from agent_magics.dispatch.handles import HandleStore, is_handle
from agent_magics.dispatch.offer import ToolOffer
from agent_magics.protocol.config import RunConfig
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.events import Event, ToolCallUpdated
from agent_magics.protocol.items import Item, Json
from agent_magics.protocol.ops import Answer, DynamicToolResponse
from agent_magics.protocol.tools import ToolOutput


class Emit(Protocol):
    """Sends an event; safe from every thread."""

    def __call__(self, kind: type[Event], **fields: Any) -> None:
        """Send an event of this kind with these fields."""
        ...


class Clock(Protocol):
    """A call's time limit."""

    def stopped(self) -> AbstractContextManager[None]:
        """Let no time pass for the call meanwhile; from any thread."""
        ...


@dataclass(frozen=True, slots=True)
class LiveResult:
    """What live code did.

    Attributes:
        output: stdout and stderr, the displayed values as text and the last expression, in order.
        images: ``data:`` addresses of the figures and images it displayed.
        error: the trimmed traceback, or "".
        notes: what the model is told below it: handles, and changes of the namespace.
    """

    output: str
    images: tuple[str, ...] = ()
    error: str = ""
    notes: tuple[str, ...] = ()


class LiveDocument(Protocol):
    """The notebook as it is open in the front end; on the engine's loop.

    A cell is named by its id, and its text as the model knows it by a version, so that nothing
    that a person types meanwhile is overwritten.

    Attributes:
        is_open: whether a front end could answer.
    """

    is_open: bool

    def asker(self, turn_id: str) -> str:
        """Return the id of the cell that a turn runs in; "" where it is none of a notebook."""
        ...

    def remember(self, cell_id: str, source: str) -> str:
        """Keep a cell as the model reads it, and return the version by which it names it."""
        ...

    def read_as(self, cell_id: str, version: str) -> str:
        """Return a cell's text as it was in a version that the model has read."""
        ...

    async def request(self, turn_id: str, op: str, **fields: Any) -> Any:
        """Have the front end do something; raises `RespondToModel` where it does not."""
        ...


class LiveKernel(Protocol):
    """The person's own namespace, as a place to run code; only on the thread that waits.

    Attributes:
        namespace: the variables, by name.
        document: the open notebook; None where there is none.
    """

    namespace: Mapping[str, Any]
    document: LiveDocument | None

    def keep_code(self, code: str, session_id: str, copied: Sequence[str]) -> None:
        """Keep code that runs beside the kernel, for the person to look at; from every thread.

        Args:
            copied: names of the variables that it was given copies of.
        """
        ...

    async def run(self, code: str, context: "ToolContext") -> LiveResult:
        """Run `code` as a cell, showing what it prints and displays as it comes.

        It suspends only if the code itself awaits at top level.
        """
        ...


@dataclass(slots=True)
class TurnContext:
    """What all calls of one turn share.

    Attributes:
        emit: sends an event of the turn, stamped with its ids; safe from every thread.
        ask: puts a question (an event class and its fields) and waits for the answer.
        call: makes a nested call: `call(name, arguments, parent_call_id)`.
        validate_path: turns a path as the model wrote it into a real one, or raises RespondToModel.
        messages: the history so far, read-only.
        main_thread: runs work on the thread that waits for the run: `main_thread(kind, call_id,
            name, run)`; see `engine.foreground`. None where nobody waits.
        live_kernel: where `python` runs; None outside a notebook.
        diff_tracker: sees what calls change in files: an `engine.turn_diff.DiffTracker`; None
            where nothing is tracked.
        processes: the conversation's commands, a `backends.exec.processes.ProcessManager`; None
            where none may be started.
        handles: what was too long to be read at once, under the names that the model knows.
        tell_later: tells the model a text with its next request; safe from every thread.
        functions: the tools by name, as live code may call them.
        from_code: ids of the calls that run code; what they call returns whole values.
        ask_client: has an outside client answer a call: `ask_client(call_id, tool, arguments,
            seconds)`; None where no client can be.
        servers: the tools of the agent's MCP servers, a `tools.mcp_joining.McpTools`; None where it
            has none.
        sample: asks the model beside the conversation: `sample(system, messages, most_tokens)`,
            `messages` as (role, text).
        offer: what the model is offered, and what can be found.
        found: names that searches of this conversation found, in order.
        uses: how often each tool was called in this conversation.
    """

    session_id: str
    turn_id: str
    agent: str
    config: RunConfig
    env: Mapping[str, str]
    emit: Emit
    ask: Callable[..., Awaitable[Answer]]
    call: Callable[[str, Any, str | None], Awaitable[ToolOutput]]
    validate_path: Callable[[str, str], Path]
    messages: Callable[[], Sequence[Item]]
    main_thread: Callable[..., Awaitable[Any]] | None
    live_kernel: LiveKernel | None = None
    diff_tracker: Any = None
    processes: Any = None
    handles: HandleStore = field(default_factory=HandleStore)
    tell_later: Callable[[str], None] = lambda text: None
    ask_client: Callable[..., Awaitable[DynamicToolResponse]] | None = None
    servers: Any = None
    sample: Callable[..., Awaitable[str]] | None = None
    offer: ToolOffer | None = None
    found: dict[str, None] = field(default_factory=dict)
    uses: Counter[str] = field(default_factory=Counter)
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    from_code: set[str] = field(default_factory=set)
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class ToolContext:
    """One call's view of its turn; a tool asks for it with a parameter annotated `ToolContext`.

    Attributes:
        bypass_sandbox: this attempt may leave the sandbox: an approved escalation, or a rule.
        read_only: a command known to only read: it needs no question, and no folder to write.
        permit: puts `ask` to rules, policy and person; set when the call is judged.
        judged: what the call touches went through approval already.
        gate: waits for the call's place among the others; None where it has none to wait for.
        ready: what the tool's `init` returned; None where it has none.
        clock: the call's time limit, which stands still while a question waits.
    """

    turn: TurnContext
    call_id: str
    name: str
    parent_call_id: str | None = None
    bypass_sandbox: bool = False
    read_only: bool = False
    judged: bool = False
    permit: Callable[..., Awaitable[None]] | None = None
    gate: Callable[[], Awaitable[None]] | None = None
    ready: Any = None
    clock: Clock | None = None
    _cancelled: threading.Event | None = None
    _is_cancelled: bool = False

    @property
    def cancelled(self) -> threading.Event:
        """Set when the turn is interrupted; long work looks at it, or waits for it."""
        if self._cancelled is None:
            # Made when first looked at: most calls never look, and an Event costs 2 us.
            self._cancelled = threading.Event()
            if self._is_cancelled:
                self._cancelled.set()
        return self._cancelled

    def cancel(self) -> None:
        """Tell the tool that the turn is over."""
        # In this order, against the order in `cancelled`, no thread can miss it.
        self._is_cancelled = True
        if self._cancelled is not None:
            self._cancelled.set()

    @property
    def is_from_code(self) -> bool:
        """Whether code made this call, which wants the value itself and not what a model reads."""
        return self.parent_call_id in self.turn.from_code

    @property
    def session_id(self) -> str:
        """Id of the conversation."""
        return self.turn.session_id

    @property
    def turn_id(self) -> str:
        """Id of the turn."""
        return self.turn.turn_id

    @property
    def agent(self) -> str:
        """Name of the agent."""
        return self.turn.agent

    @property
    def cwd(self) -> Path:
        """The workspace; relative paths start here."""
        return self.turn.config.cwd

    @property
    def config(self) -> RunConfig:
        """What holds for this run."""
        return self.turn.config

    @property
    def env(self) -> Mapping[str, str]:
        """The environment that commands get, already scrubbed."""
        return self.turn.env

    @property
    def messages(self) -> Sequence[Item]:
        """The conversation so far; read-only."""
        return self.turn.messages()

    @property
    def diff_tracker(self) -> Any:
        """Sees what this call changes: ``with ctx.diff_tracker.writing(paths): ...``, or None.

        Commands and patches are seen without a tool's help.
        """
        return self.turn.diff_tracker

    @property
    def extra(self) -> dict[str, Any]:
        """A place for tools to keep things for the length of a turn."""
        return self.turn.extra

    @property
    def processes(self) -> Any:
        """The commands of this conversation."""
        return self.turn.processes

    @property
    def handles(self) -> HandleStore:
        """The kept results of this conversation, such as ``@r7``."""
        return self.turn.handles

    @property
    def output_budget(self) -> int:
        """Characters of this call's output that the model reads."""
        return self.turn.config.output_budget

    def validate_path(self, path: str, mode: Literal["read", "write"] = "read") -> Path:
        """Return `path` resolved against `cwd`; the name of a kept result leads to its file.

        Raises:
            RespondToModel: the path may not be touched in this way.
        """
        if is_handle(path):
            if mode == "write":
                raise RespondToModel(f"{path} is a kept result: it can be read, not written.")
            return self.handles.path_of(path)
        return self.turn.validate_path(path, "judged" if self.judged else mode)

    def emit(self, kind: type[Event], **fields: Any) -> None:
        """Send an event of this call; `call_id` is filled in."""
        self.turn.emit(kind, call_id=self.call_id, **fields)

    def update(
        self,
        title: str | None = None,
        progress: float | None = None,
        metadata: Mapping[str, Json] | None = None,
    ) -> None:
        """Tell how far the call is: a title, a share done from 0 to 1, anything in `metadata`."""
        self.turn.emit(
            ToolCallUpdated,
            call_id=self.call_id,
            name=self.name,
            parent_call_id=self.parent_call_id,
            title=title,
            progress=progress,
            metadata=metadata or {},
        )

    async def ask(
        self,
        *,
        permission: str,
        patterns: Sequence[str],
        always: Sequence[str] = (),
        metadata: Mapping[str, Json] | None = None,
    ) -> None:
        """Ask for what this call is about to do; returns when it may.

        Rules of this `permission` come first; what they leave open is put to the person, under
        every policy but "never", which refuses.

        Args:
            permission: "command", "read", "write", "network", "mcp" or "tool".
            patterns: what is touched: paths, hosts, command lines, names.
            always: patterns that a lasting answer allows; none offers no lasting answer.
            metadata: what the person is shown beside it.

        Raises:
            RespondToModel: a rule forbids it, or it was denied.
            TurnAbort: the person ended the turn instead of answering.
            ValueError: there is no such permission, or `patterns` is empty.
        """
        if self.permit is None:
            raise RuntimeError("ctx.ask works inside a call that an agent makes.")
        with nullcontext() if self.clock is None else self.clock.stopped():
            await self.permit(permission, patterns, always, metadata or {})

    async def call(self, tool: str, arguments: Mapping[str, Json]) -> ToolOutput:
        """Call another tool as part of this call: validated, approved and shown like any other."""
        if self.clock is None:
            return await self.turn.call(tool, arguments, self.call_id)
        with self.clock.stopped():
            return await self.turn.call(tool, arguments, self.call_id)
