"""Defines the interfaces of a turn's parts that tools use: servers, sub-agents, files, notebook."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from agent_magics.protocol.ops import Answer

if TYPE_CHECKING:  # a run without servers imports neither
    from agent_magics.mcp.client.manager import McpConnectionManager
    from agent_magics.protocol.mcp import McpServerState


class AgentServers(Protocol):
    """The MCP servers of an agent and their tools."""

    @property
    def manager(self) -> "McpConnectionManager":
        """The connections to the servers."""

    @property
    def states(self) -> "tuple[McpServerState, ...]":
        """The state of each server."""

    @property
    def starting(self) -> list[str]:
        """The names of the servers whose tools are not known yet."""

    def name_of(self, server: str, tool: str) -> str | None:
        """Return the name that the model calls for a server's tool; None where it is not known."""

    def handler(self, name: str) -> object | None:
        """Return the handler of the tool `name`, or None."""

    def list_tools(self, server: str) -> str:
        """Return the tools of a server as text, one line each."""

    async def arrived(self, server: str) -> str:
        """Wait until the tools of a server are known; return why they are not, or ""."""

    async def settled(self) -> None:
        """Wait until no server is starting any more."""

    async def require(self) -> None:
        """Wait for the servers that are configured as required.

        Raises:
            FatalError: one of them is not available.
        """

    def notifications(self, reported: dict[str, str]) -> list[str]:
        """Return the server changes that the model was not notified of yet.

        Args:
            reported: the state last reported in this conversation, by server; updated in place.
        """


class QuestionGate(Protocol):
    """A limit on the questions of one MCP server."""

    async def put(self, ask: Callable[[], Awaitable[Answer]]) -> Answer | None:
        """Ask a question and return its answer; None where the limit refused it."""


@dataclass(frozen=True, slots=True)
class AgentBudget:
    """What a sub-agent may spend; None stands for the limit of its type.

    Attributes:
        requests: to the model, with the one for a summary.
        tokens: input and output of all requests.
        cost: USD of all requests.
        seconds: at work, without waiting for answers.
    """

    requests: int | None = None
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubAgentRequest:
    """What is asked of a new sub-agent; see the tool `spawn_agent` for the fields."""

    task: str
    agent_type: str = "explore"
    name: str = ""
    tools: tuple[str, ...] | None = None
    model: str = ""
    budget: AgentBudget = AgentBudget()
    share: tuple[str, ...] = ()
    call_id: str = ""


class SubAgents(Protocol):
    """The sub-agents of an agent; used on the engine's loop.

    All methods raise `RespondToModel` where they cannot do what is asked; the texts that they
    return are for the model.
    """

    def gets_kernel(self, request: SubAgentRequest) -> bool:
        """Tell whether the Python of such a sub-agent would run in the live kernel."""

    def spawn(self, request: SubAgentRequest) -> str:
        """Start a sub-agent, or queue it where all places are taken."""

    def send(self, name: str, message: str, call_id: str, *, interrupt: bool) -> str:
        """Send a message to a sub-agent; one that has ended goes on with it."""

    async def wait(self, names: tuple[str, ...], seconds: float) -> str:
        """Wait until one of the sub-agents ends."""

    def resume(self, name: str, call_id: str) -> str:
        """Let a sub-agent that was stopped go on with its task."""

    def close(self, name: str) -> str:
        """Stop a sub-agent for good."""

    def list(self) -> str:
        """Return one line about each sub-agent, and the limits."""


@dataclass(frozen=True, slots=True)
class LiveResult:
    """The result of live code.

    Attributes:
        output: stdout and stderr, the displayed values as text and the last expression, in order.
        images: ``data:`` URLs of the figures and images it displayed.
        error: the trimmed traceback, or "".
        notes: text for the model below the output: stored results, changes of the namespace.
    """

    output: str
    images: tuple[str, ...] = ()
    error: str = ""
    notes: tuple[str, ...] = ()


class LiveDocument(Protocol):
    """The notebook that is open in the front end; used on the engine's loop.

    A cell is named by its id, and its text as the model read it by a version, so that nothing is
    overwritten that a person types meanwhile.
    """

    @property
    def is_open(self) -> bool:
        """Whether a front end is connected."""

    def asker(self, turn_id: str) -> str:
        """Return the id of the cell that a turn runs in; "" where there is no such cell."""

    def remember(self, cell_id: str, source: str, kind: str) -> str:
        """Record a cell's text as the model reads it, and return the id of that version."""

    def read_as(self, cell_id: str, version: str) -> str:
        """Return a cell's text in a version that the model has read."""

    def kind_of(self, cell_id: str) -> str:
        """Return the cell's type when the model read it: "code", "markdown" or "raw"."""

    def as_written(self, kind: str, source: str, before: str = "") -> str:
        """Return a model's text in the form safe for a cell whose text was `before`."""

    async def request(self, turn_id: str, op: str, **fields: Any) -> Any:
        """Send a request to the front end; raise `RespondToModel` where it fails."""


class ChangeWatch(Protocol):
    """The workspace while a command or a piece of code runs."""

    def hand_over(self) -> None:
        """Report the changes so far, because it goes on as a session."""

    def take_back(self) -> None:
        """Report what changed since, because a call is about it again."""

    def finish(self) -> None:
        """Report the changes, because it has ended."""


class ChangeTracker(Protocol):
    """Records the changes of calls in files."""

    def writing(self, paths: Sequence[Path]) -> AbstractContextManager[None]:
        """Record the changes of the work inside to these files."""

    def saw(self, path: Path) -> None:
        """Take note that the model has read a file as it is now."""

    def watch(self) -> ChangeWatch:
        """Scan the workspace before a command or a piece of code, and return its watch."""
