"""Defines the interface to an agent's sub-agents, as tools use it."""

from dataclasses import dataclass
from typing import Protocol


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
