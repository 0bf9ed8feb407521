"""A turn that plans: it can only read, and ends with a plan that the person answers."""

import asyncio
from pathlib import Path

import pytest

from agent_magics import Agent, Call, ScriptedModel, tool
from agent_magics.engine.results.run import summarise
from agent_magics.kernel.cells import is_to_run
from agent_magics.protocol.events import PlanUpdated, UserInputRequested, Warned
from agent_magics.protocol.ops import StartTurn, new_turn_id
from tests.support.turns import of_kind, outputs

PLAN = Call("propose_plan", {"steps": ["Read sales.csv", "Plot it"], "explanation": "Short."})


@tool
def changes() -> str:
    """Change something (the default of a tool)."""
    Path("changed").write_text("yes")
    return "changed"


@tool(mutating=False)
def looks() -> str:
    """Look at something."""
    return "seen"


def plan(agent):
    """Run a turn that plans."""
    op = StartTurn(turn_id=new_turn_id(), content="Plot the sales.")
    setup = agent.turn_config(plan=True)
    return summarise(asyncio.run(agent.foreground().wait(op, setup)))


def planner(*turns, answer=None, **options):
    """Return an agent, and its model."""
    model = ScriptedModel(turns)
    answers = iter(answer or ())
    on_question = (lambda event: {"plan": next(answers)}) if answer else None
    return Agent(model, approval="never", on_question=on_question, **options), model


def test_it_is_offered_nothing_that_may_change_something():
    agent, model = planner("Hm.", tools=["data", changes, looks, "batch"])
    plan(agent)
    names = {each.spec.name for each in model.requests[0].tools}
    assert {"read_file", "grep_files", "looks", "propose_plan", "update_plan"} <= names
    assert not names & {"changes", "shell", "exec_command", "apply_patch", "python", "write_stdin"}
    handler = agent.turn_config(plan=True).registry.handler
    assert not any(handler(name).options.mutating for name in names)
    assert "In this turn you only plan" in model.requests[0].instructions


@pytest.mark.parametrize(
    "call",
    [
        Call("shell", {"command": ["touch", "changed"]}),
        Call("exec_command", {"cmd": "touch changed"}),
        Call("write_file", {"path": "changed", "content": "x"}),
        Call("python", {"code": "open('changed', 'w')"}),
        Call("changes"),
        Call("batch", {"calls": [{"tool": "changes", "arguments": {}}]}),
        Call(
            "batch", {"calls": [{"tool": "shell", "arguments": {"command": ["touch", "changed"]}}]}
        ),
    ],
    ids=["shell", "exec", "write", "python", "tool", "batch", "batched-shell"],
)
def test_what_it_is_not_offered_does_not_run(call):
    agent, _ = planner(call, "Hm.", tools=["data", changes, "batch"], sandbox="danger-full-access")
    plan(agent)
    assert not Path("changed").exists()


def test_the_plan_is_shown_and_run_it_is_reported():
    agent, _ = planner(PLAN, "I end.", answer=["Run it"])
    result = plan(agent)
    (shown,) = of_kind(result, PlanUpdated)
    assert [step.description for step in shown.steps] == ["Read sales.csv", "Plot it"]
    (asked,) = of_kind(result, UserInputRequested)
    assert [each.label for each in asked.questions[0].options] == ["Run it", "Change…", "Drop"]
    assert is_to_run(result)


def test_words_change_it_and_the_last_answer_counts():
    agent, _ = planner(PLAN, PLAN, "I end.", answer=["Weekly, please", "Drop"])
    result = plan(agent)
    first, second = (output for _, output in outputs(agent))
    assert (first, second) == ('{"plan": "Weekly, please"}', '{"plan": "Drop"}')
    assert not is_to_run(result)
    agent, _ = planner(PLAN, PLAN, "I end.", answer=["Change…", "Run it"])
    assert is_to_run(plan(agent))
    agent, _ = planner(PLAN, PLAN, "I end.", answer=["Run it", "Drop"])
    assert not is_to_run(plan(agent))


def test_where_nobody_can_answer_nothing_is_run():
    agent, _ = planner(PLAN, "I end.")
    result = plan(agent)
    ((_, output),) = outputs(agent)
    assert output.startswith("The plan is shown and not run:") and not is_to_run(result)


def test_an_empty_plan_is_an_error():
    agent, _ = planner(Call("propose_plan", {"steps": [" "]}), "I end.")
    assert of_kind(plan(agent), PlanUpdated) == []
    assert "no steps" in outputs(agent)[0][1]


def test_a_replay_takes_the_recorded_answer():
    agent, _ = planner(PLAN, "I end.", answer=["Run it"], record="a.agent.jsonl")
    plan(agent)
    agent.close()
    again = Agent(replay="a.agent.jsonl", approval="never")
    result = plan(again)
    assert is_to_run(result) and of_kind(result, UserInputRequested) == []
    assert of_kind(result, Warned) == []
