"""Defines the types of sub-agents: what each is for, its tools and its budget."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agent_magics.delegation.budgets import DEFAULT_BUDGET
from agent_magics.dispatch.turn import AgentBudget, SubAgentRequest
from agent_magics.engine.session import Session
from agent_magics.engine.thread import EngineThread
from agent_magics.engine.turn_config import TurnConfig
from agent_magics.protocol.records import RecordBegun

# What a sub-agent and a type may be named.
LONGEST_NAME = 32
NAME = re.compile(rf"[a-z][a-z0-9-]{{0,{LONGEST_NAME - 1}}}")


@dataclass(frozen=True, slots=True)
class AgentType:
    """A kind of sub-agent.

    Attributes:
        description: what it is for, as the model reads it.
        tools: names of tools and sets; None means all that its parent has.
        reads_only: whether it gets only tools that change nothing, in a read-only sandbox.
        gets_kernel: whether its Python runs in the live kernel, one such sub-agent at a time.
        model: its model; "" means its parent's.
        instructions: added to those of its parent.
        budget: what it may spend.
    """

    name: str
    description: str
    tools: tuple[str, ...] | None = None
    reads_only: bool = False
    gets_kernel: bool = False
    model: str = ""
    instructions: str = ""
    budget: AgentBudget = DEFAULT_BUDGET


class AgentPlace(Protocol):
    """Another process in which a sub-agent works."""

    def session(
        self,
        engine: EngineThread,
        folder: Path | None,
        begin: Callable[[str], RecordBegun],
        turn_config: TurnConfig,
        request: SubAgentRequest,
    ) -> Session:
        """Return the session of a sub-agent, whose turns run there.

        Args:
            engine, folder, begin: see `Session`.
            turn_config: the configuration that it would have here.
            request: what is asked of it.

        Raises:
            RespondToModel: it asks for what is not there.
            FatalError: it cannot be sent.
        """
        ...


EXPLORE = AgentType(
    "explore",
    "looks things up and reports; it reads, and changes nothing",
    reads_only=True,
    instructions="You can read and search, and change nothing. Report what you found, and where.",
)
WORKER = AgentType(
    "worker",
    "does a part of the work, with your tools; its Python runs in scratch unless you share kernel",
    instructions="Do the task and nothing else. Report what you did, and what is left.",
)
BUILT_IN = {each.name: each for each in (EXPLORE, WORKER)}
