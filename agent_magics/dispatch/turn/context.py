"""Holds the data that all calls of one turn share: its configuration, and services for tools."""

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from agent_magics.approval.read_rules import ReadRules
from agent_magics.dispatch.catalog.offer import ToolOffer
from agent_magics.dispatch.results.stored import HandleStore
from agent_magics.dispatch.turn.agents import SubAgents
from agent_magics.dispatch.turn.changes import ChangeTracker
from agent_magics.dispatch.turn.live import LiveKernel
from agent_magics.dispatch.turn.servers import AgentServers, QuestionGate
from agent_magics.protocol.config import RunConfig
from agent_magics.protocol.events import Event
from agent_magics.protocol.items import Item
from agent_magics.protocol.ops import Answer, DynamicToolResponse
from agent_magics.protocol.tools import ToolOutput

if TYPE_CHECKING:  # a run that starts no command or server imports neither
    from agent_magics.exec.processes import ProcessManager
    from agent_magics.symbols.servers.project import LanguageServers


class Emit(Protocol):
    """Emits an event; thread-safe."""

    def __call__(self, kind: type[Event], **fields: Any) -> None:
        """Emit an event of this class with these fields."""


@dataclass(slots=True)
class TurnContext:
    """The data that all calls of one turn share.

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
        ask_client: lets an outside client run a call: `ask_client(call_id, tool, arguments,
            seconds)`; None where no client can.
        servers: the agent's MCP servers and their tools; None where it has none.
        sample: makes a model request apart from the conversation: `sample(system, messages,
            most_tokens)`, `messages` as (role, text).
        recorded: returns the output that a call had when the replayed conversation was recorded,
            by its id; None where there is none.
        agents: the agent's sub-agents; None where it may have none.
        symbols: returns the language servers of the workspace; None where it has none.
        offer: the tools offered to the model, and those that a search can find.
        found: names of tools that searches of this conversation found, in order.
        uses: how often each tool was called in this conversation.
        question_limits: limits of MCP servers' questions, by name.
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
    agents: SubAgents | None = None
    symbols: "Callable[[], LanguageServers | None]" = lambda: None
    offer: ToolOffer | None = None
    found: dict[str, None] = field(default_factory=dict)
    uses: Counter[str] = field(default_factory=Counter)
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    from_code: set[str] = field(default_factory=set)
    question_limits: dict[str, QuestionGate] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
