"""Holds the configuration of a turn, which the app builds.

Here are also the interfaces to a turn's sub-agents, and to the agent that a sub-agent works for.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from agent_magics.approval.read_rules import ReadRules
from agent_magics.dispatch.catalog.offer import ToolOffer
from agent_magics.dispatch.context import LiveKernel, TurnContext
from agent_magics.dispatch.hooks import Hooks
from agent_magics.dispatch.registry import ToolHandler, ToolRegistry
from agent_magics.dispatch.stages.orchestrator import Settled
from agent_magics.dispatch.turn import AgentServers, SubAgents
from agent_magics.engine.budget import Budget
from agent_magics.engine.file_changes.conversation import SharesChanges
from agent_magics.engine.results.structured import OutputType
from agent_magics.models.base import Model
from agent_magics.protocol.config import RunConfig
from agent_magics.protocol.items import Usage
from agent_magics.protocol.ops import Answer, DynamicToolResponse
from agent_magics.protocol.tools import ConfiguredToolSpec
from agent_magics.text.secrets import Secrets

if TYPE_CHECKING:
    from agent_magics.symbols.servers.project import LanguageServers


class Delegates(Protocol):
    """The sub-agents of an agent, as its session uses them; on the engine's loop."""

    def of_turn(self, turn_config: "TurnConfig", context: TurnContext, budget: Budget) -> SubAgents:
        """Return the sub-agents as the tools of a turn that begins see them."""

    def end_turn(self, turn_id: str, stopped: str) -> None:
        """Handle the end of a turn.

        Args:
            turn_id: the turn.
            stopped: why its sub-agents must end as well; "" lets them go on.
        """


class Parent(SharesChanges, Protocol):
    """The agent that a sub-agent works for, as the turns of the sub-agent use it."""

    async def ask(self, kind: Any, **fields: Any) -> Answer:
        """Ask the person a question in a turn of the parent."""

    @property
    def main_thread(self) -> Callable[..., Awaitable[Any]] | None:
        """Runs work on the thread that waits for the parent's run; None where nobody waits."""

    @property
    def ask_client(self) -> Callable[..., Awaitable[DynamicToolResponse]] | None:
        """Lets an outside client of the parent run a call; None where no client can."""

    def charge(self, model: str, usage: Usage) -> None:
        """Charge a request of the sub-agent to the parent."""


@dataclass(kw_only=True, frozen=True, slots=True, eq=False)
class TurnConfig:
    """The configuration of a turn; the same for all turns between which nothing changes.

    Attributes:
        specs: the tools that were there when it was built.
        offer: selects those that a request carries, also of tools that join later.
        secrets: texts to redact in tools' outputs, events and records.
        asker: whose calls these are, for approvals; see `grants.Grant`.
        agents: its sub-agents.
        parent: the agent that it works for as a sub-agent.
        symbols: makes the language servers from the rules on reading.
        settled: the approval of tools whose calls are all judged alike, as far as it is known.
    """

    config: RunConfig
    open_model: Callable[[], Model]
    offer: ToolOffer
    registry: ToolRegistry
    specs: Sequence[ConfiguredToolSpec]
    env: Mapping[str, str]
    validate_path: Callable[[str, str], Path]
    secrets: tuple[str, ...] = field(default=(), repr=False)
    live_kernel: LiveKernel | None = None
    hooks: Hooks | None = None
    warnings: Callable[[], Sequence[str]] = tuple
    output: OutputType | None = None
    servers: AgentServers | None = None
    asker: str = ""
    agents: Delegates | None = None
    parent: Parent | None = None
    symbols: "Callable[[Callable[[], ReadRules]], LanguageServers | None]" = lambda rules: None
    settled: dict[ToolHandler, Settled] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        # Not those that are too short to be one. The longest first: a key may be the beginning of
        # another.
        long_enough = {secret for secret in self.secrets if len(secret) >= 8}
        longest_first = Secrets(sorted(long_enough, key=len, reverse=True))
        object.__setattr__(self, "secrets", longest_first)

    def hiding(self, secrets: Collection[str]) -> "TurnConfig":
        """Return this with more secrets to redact."""
        return replace(self, secrets=(*self.secrets, *secrets)) if secrets else self
