"""Budgets of sub-agents are hard, and their requests are charged to their parent."""

import pytest

from agent_magics import Agent, Call, ToolContext, tool
from agent_magics.delegation.budgets import DEFAULT_BUDGET
from agent_magics.dispatch.turn import AgentBudget
from agent_magics.protocol.items import Usage
from tests.support.models.tree import TreeModel
from tests.support.turns import PATIENCE, outputs
from tests.turns.delegation.test_spawning import reports, spawn, stick, wait

USAGE = Usage(input_tokens=900, output_tokens=100)
LOOK = Call("list_dir", {"path": "."})


def tree(child, *main, **options):
    model = TreeModel(USAGE, main=main, explore_1=child)
    return model, Agent(model, ["coding", stick], approval="never", **options)


def test_requests_hold_with_the_summary():
    model, agent = tree([LOOK, LOOK, "So far."], spawn(budget={"requests": 3}), wait(), "Done.")
    with agent:
        agent.run_sync("Go.")
    assert len(model.requests("explore_1")) == 3
    assert model.requests("explore_1")[-1].tools == ()
    assert "(its budget (max_turns=3) is used up)" in reports(agent)[0]
    assert "> So far." in reports(agent)[0]


@pytest.mark.parametrize("most", [2_000, 2_500, 3_900, 4_000, 7_000])
def test_tokens_are_never_exceeded_where_answers_are_alike(most):
    model, agent = tree([LOOK] * 20, spawn(budget={"tokens": most}), wait(), "Done.")
    with agent:
        agent.run_sync("Go.")
    assert 1 <= len(model.requests("explore_1")) * 1_000 <= most


def test_costs_hold():
    _, agent = tree([LOOK] * 20, spawn(budget={"cost": 0.03}), wait(), "Done.")
    with agent:
        agent.run_sync("Go.")
        child = agent.sub_agents.agents["explore-1"]
        assert child.spending.requests > 1
        assert child.spending.cost <= 0.03


def test_what_is_known_of_a_cost_counts_where_the_rest_is_not():
    @tool(mutating=False)
    def uncounted() -> str:
        """Let the server count no tokens from now on."""
        model._usage = Usage()
        return ""

    asked = spawn(budget={"cost": 1.0})
    model = TreeModel(USAGE, main=[asked, wait(), "Done."], explore_1=[Call("uncounted"), LOOK])
    with Agent(model, ["coding", uncounted], approval="never") as agent:
        agent.run_sync("Go.")
        child = agent.sub_agents.agents["explore-1"]
    assert child.spending.cost is None and child.spending.known_cost > 0
    assert child.budget_left.cost == pytest.approx(1.0 - child.spending.known_cost)


def test_seconds_stop_what_is_at_work():
    _, agent = tree([Call("stick")], spawn(budget={"seconds": 0.05}), wait(), "Done.")
    with agent:
        agent.run_sync("Go.")
    assert "has been stopped (its budget (seconds=0.05) is used up)" in reports(agent)[0]


def test_a_model_can_only_lower_the_budget_of_a_type():
    huge = {"requests": 10_000, "tokens": 10**9, "seconds": 10**6}
    _, agent = tree(["Ok."], spawn(budget=huge), wait(), "Done.")
    with agent:
        agent.run_sync("Go.")
        child = agent.sub_agents.agents["explore-1"]
    assert child.budget == DEFAULT_BUDGET


def test_a_program_can_raise_it():
    with Agent(TreeModel(explore_1=["Ok."]), ["coding"], max_turns=5_000) as agent:
        handle = agent.spawn("Look.", budget=AgentBudget(requests=1_000))
        assert handle.result(PATIENCE).text == "Ok."
        assert agent.sub_agents.agents["explore-1"].turn_config.config.max_turns == 1_000


def test_requests_are_charged_to_the_parent():
    _, agent = tree([LOOK, "Ok."], spawn(), wait(), "Done.")
    with agent:
        result = agent.run_sync("Go.")
        spent = agent.session.conversation.spending
    assert result.usage.input_tokens == spent.usage.input_tokens == 5 * 900
    assert spent.requests == 5
    assert result.cost == pytest.approx(spent.cost)


def test_the_budget_of_the_parents_run_ends_its_sub_agents():
    model, agent = tree([LOOK] * 20, spawn(), wait(), "Summary.", max_tokens=6_000)
    with agent:
        result = agent.run_sync("Go.")
    assert result.budget == "max_tokens=6000"
    assert len(model.requests("explore_1")) == 4  # and two of the parent's before its summary
    assert "budget" in agent.sub_agents.agents["explore-1"].problem


def test_a_parent_that_ends_at_its_budget_leaves_none_behind():
    _, agent = tree([Call("stick")], spawn(), Call("list_agents"), "Summary.", max_turns=2)
    with agent:
        assert agent.run_sync("Go.").budget == "max_turns=2"
        child = agent.sub_agents.agents["explore-1"]
        ended = child.ended

        async def end():
            await ended

        agent.session.engine.spawn(end()).result(PATIENCE)
    assert "the budget of the agent it works for (max_turns=2)" in child.problem


def test_the_limits_are_said():
    _, agent = tree(["Ok."], spawn(), wait(), Call("list_agents"), "Done.")
    with agent:
        agent.run_sync("Go.")
    said = outputs(agent)[2][1]
    assert "4 at a time" in said and "1 started of 50" in said and "depth 1" in said
    assert "explore-1: completed; 1 requests, 1,000 tokens" in said


def test_the_time_stands_still_while_a_question_waits():
    timers = []

    def on_question(question):
        if question.tool == "change":
            assert "default/worker-1 asks: " in question.reason
            timers.append(agent.sub_agents.agents["worker-1"].clock._timer)
        return "approve"

    @tool(parallel=True)
    def change(ctx: ToolContext) -> str:
        """Change something."""
        return "changed"

    model = TreeModel(
        main=[spawn(agent_type="worker", budget={"seconds": PATIENCE}), wait(), "Done."],
        worker_1=[Call("change"), "Ok."],
    )
    with Agent(model, ["coding", change], approval="untrusted", on_question=on_question) as agent:
        agent.run_sync("Go.")
        child = agent.sub_agents.agents["worker-1"]
    assert (child.status, child.text) == ("completed", "Ok.")
    assert timers == [None]
