"""What a sub-agent may spend: budgets are completed, compared, checked, and kept in records."""

from collections.abc import Mapping
from dataclasses import asdict, astuple, fields, replace

from agent_magics.dispatch.turn import AgentBudget
from agent_magics.protocol.errors import RespondToModel

DEFAULT_BUDGET = AgentBudget(requests=50, tokens=1_000_000, seconds=900)
# One to work with, and one for the summary.
_LEAST_REQUESTS = 2


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


def checked_budget(budget: AgentBudget) -> AgentBudget:
    """Return the requested budget, completed and checked.

    Raises:
        RespondToModel: a limit is not above zero.
    """
    if any(limit is not None and not limit > 0 for limit in astuple(budget)):
        raise RespondToModel(f"budget: every limit must be above 0; got {budget}.")
    return replace(budget, requests=max(budget.requests or _LEAST_REQUESTS, _LEAST_REQUESTS))


def is_used_up(left: AgentBudget) -> bool:
    """Tell whether what is left of a budget is too little for a sub-agent to go on with."""
    if left.requests is not None and left.requests < _LEAST_REQUESTS:
        return True
    return any(limit is not None and limit <= 0 for limit in (left.tokens, left.cost, left.seconds))


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
    pairs = zip(astuple(one), astuple(other), strict=True)
    set_ones = ([limit for limit in pair if limit is not None] for pair in pairs)
    return AgentBudget(*(min(limits, default=None) for limits in set_ones))
