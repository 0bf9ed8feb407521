"""Budgets: when a run has had enough, and what it says then."""

import pytest

from agent_magics.engine.budget import NO_SUMMARY, REACHED, SUMMARY, Budget
from agent_magics.protocol.config import RunConfig
from agent_magics.protocol.events import TokensCounted, Warned
from agent_magics.protocol.items import Usage


def spent(budget_of, *usages, model="gpt-5.5"):
    told = []
    budget = Budget(RunConfig(**budget_of), lambda kind, **fields: told.append((kind, fields)))
    for usage in usages:
        budget.add(model, usage)
    return budget, told


@pytest.mark.parametrize(
    ("limits", "usages", "reached"),
    [
        ({"max_turns": 2}, [Usage(1, 1)], ""),
        ({"max_turns": 2}, [Usage(1, 1)] * 2, "max_turns=2"),
        ({"max_tokens": 100}, [Usage(90, 9)], ""),
        ({"max_tokens": 100}, [Usage(90, 10)], "max_tokens=100"),
        ({"max_cost": 0.01}, [], ""),
        ({"max_cost": 0.01}, [Usage(1000, 100)], ""),
        ({"max_cost": 0.01}, [Usage(1000, 100)] * 2, "max_cost=0.01"),
        ({"max_cost": 0.01}, [Usage(1, 1, reported_cost=0.02)], "max_cost=0.01"),
        ({"max_cost": 0.01}, [Usage()], "max_cost=0.01"),  # nobody counts the money
    ],
)
def test_when_a_budget_is_used_up(limits, usages, reached):
    budget, _ = spent(limits, *usages)
    assert budget.is_used_up(len(usages)) == bool(reached)
    assert budget.reached == reached


def test_what_is_said_names_the_budget_what_was_spent_and_what_to_do():
    budget, _ = spent({"max_turns": 1}, Usage(1, 1))
    assert budget.is_used_up(1)
    said = budget.fill(REACHED)
    assert "max_turns=1" in said
    assert "1 request to the model" in said
    assert "raise max_turns" in said
    assert "max_turns=1" in budget.fill(SUMMARY)
    assert budget.fill(NO_SUMMARY, " (no network)") == "The model gave no summary (no network)."


@pytest.mark.parametrize(
    ("limits", "usages", "warnings"),
    [
        ({"max_tokens": 10}, [], 0),
        ({"max_tokens": 10}, [Usage(), Usage()], 1),
        ({"max_tokens": 10}, [Usage(1, 1)], 0),
        ({}, [Usage()], 0),
    ],
)
def test_a_server_that_counts_no_tokens_is_warned_of_once(limits, usages, warnings):
    _, told = spent(limits, *usages)
    assert [kind for kind, _ in told].count(TokensCounted) == len(usages)
    messages = [fields["message"] for kind, fields in told if kind is Warned]
    assert len(messages) == warnings
    assert all("max_tokens=10" in message for message in messages)
