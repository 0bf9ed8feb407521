"""Defines the types of sub-agents: what each is for, its tools and its budget."""

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Protocol, TypeVar

from agent_magics.dispatch.turn import AgentBudget, SubAgentRequest
from agent_magics.engine.session import Session
from agent_magics.engine.thread import EngineThread
from agent_magics.engine.turn_config import TurnConfig
from agent_magics.protocol.records import RecordBegun

_Limit = TypeVar("_Limit", int, float)

# What a sub-agent and a type may be named.
LONGEST_NAME = 32
NAME = re.compile(rf"[a-z][a-z0-9-]{{0,{LONGEST_NAME - 1}}}")
DEFAULT_BUDGET = AgentBudget(requests=50, tokens=1_000_000, seconds=900)


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
        setup: TurnConfig,
        request: SubAgentRequest,
    ) -> Session:
        """Return the session of a sub-agent, whose turns run there.

        Args:
            engine, folder, begin: see `Session`.
            setup: the configuration that it would have here.
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


def completed(budget: AgentBudget, by: AgentBudget) -> AgentBudget:
    """Return a budget with its missing limits filled in from another one."""
    return replace(
        budget,
        **{
            each.name: getattr(by, each.name)
            for each in fields(AgentBudget)
            if getattr(budget, each.name) is None
        },
    )


def limits_of(budget: AgentBudget) -> dict[str, float]:
    """Return the limits that a budget has, by name, as records hold them."""
    return {key: limit for key, limit in asdict(budget).items() if limit is not None}


def budget_of(limits: Mapping[str, float]) -> AgentBudget:
    """Return the budget that `limits_of` described."""
    requests, tokens = limits.get("requests"), limits.get("tokens")
    return AgentBudget(
        None if requests is None else int(requests),
        None if tokens is None else int(tokens),
        limits.get("cost"),
        limits.get("seconds"),
    )


def least(one: AgentBudget, other: AgentBudget) -> AgentBudget:
    """Return the stricter of two budgets, limit by limit."""
    return AgentBudget(
        _least(one.requests, other.requests),
        _least(one.tokens, other.tokens),
        _least(one.cost, other.cost),
        _least(one.seconds, other.seconds),
    )


def _least(one: _Limit | None, other: _Limit | None) -> _Limit | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
