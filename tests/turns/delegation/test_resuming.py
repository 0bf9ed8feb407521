"""Sub-agents of a conversation that is resumed: ended ones are known, stopped ones can go on."""

import shutil

import pytest

from agent_magics import Agent, Call, conversations, tool
from agent_magics.delegation.pool import AT_A_TIME, _spent
from agent_magics.kernel.commands.conversations.sub_agents import SUB_AGENTS
from agent_magics.kernel.overview import _helpers
from agent_magics.protocol.events import SubAgentChanged
from agent_magics.protocol.items import Usage, UserMessage
from agent_magics.records.places import rollout_folder
from tests.support.models.tree import TreeModel
from tests.support.turns import PATIENCE, outputs, sticking
from tests.turns.delegation.test_messages import notebook_of
from tests.turns.delegation.test_spawning import _done, agent_with, reports, spawn, wait


def test_a_stopped_one_goes_on_after_a_restart():
    begun, stick = sticking()
    model = TreeModel(
        main=[[spawn(), spawn("Stick.")], wait(), "The first has ended."],
        explore_1=["Found."],
        explore_2=[Call("stick"), "Done after all."],
    )
    with agent_with(model, stick) as agent:
        agent.run_sync("Go.")
        assert begun.wait(PATIENCE)
        conversation = agent.conversation_id
    again = TreeModel(
        main=[
            Call("list_agents"),
            Call("resume_agent", {"id": "explore-2"}),
            wait(),
            spawn("More."),
            wait(),
            "Done.",
        ],
        explore_2=["Done after all."],
        explore_3=["More."],
    )
    with Agent.resume(conversation, again, ["coding", stick], approval="never") as agent:
        assert agent.run_sync("Go on.").text == "Done."
        said = [text for _, text in outputs(agent)]
    assert any("explore-1: completed" in text and "explore-2: stopped" in text for text in said), (
        said
    )
    assert "> Done after all." in "\n".join(reports(agent))
    prompts = [
        e.content
        for e in again.requests("explore_2")[0].history.items
        if isinstance(e, UserMessage)
    ]
    assert prompts == [
        "Task of default/explore-2:\nStick.",
        "Message to default/explore-2:\nGo on with your task.",
    ]
    assert "explore-3" in agent.sub_agents.agents


def test_records_of_sub_agents_are_their_own_and_not_listed():
    with agent_with(TreeModel(main=[spawn(), wait(), "Done."], explore_1=["Ok."])) as agent:
        agent.run_sync("Go.")
        conversation = agent.conversation_id
        child = agent.sub_agents.agents["explore-1"].id
    listed = {each.id for each in conversations()}
    assert conversation in listed and child not in listed
    with Agent.resume(child, TreeModel(main=["Yes."]), ["coding"]) as alone:
        assert alone.run_sync("Are you there?").text == "Yes."


def test_what_was_spent_counts_after_a_restart():
    usage = Usage(input_tokens=100, output_tokens=10)
    model = TreeModel(
        usage,
        main=[spawn(budget={"requests": 4, "tokens": 5000}), wait(), "Done."],
        explore_1=[Call("list_dir", {"path": "."}), "Found."],
    )
    with agent_with(model) as agent:
        agent.run_sync("Go.")
        conversation = agent.conversation_id
    again = TreeModel(
        usage,
        main=[
            Call("list_agents"),
            Call("send_input", {"id": "explore-1", "message": "More?"}),
            wait(),
            Call("send_input", {"id": "explore-1", "message": "And more?"}),
            "Done.",
        ],
        explore_1=[Call("list_dir", {"path": "."}), "Summary."],
    )
    with Agent.resume(conversation, again, ["coding"], approval="never") as agent:
        agent.run_sync("Go on.")
        said = [text for _, text in outputs(agent)]
        child = agent.sub_agents.agents["explore-1"]
    assert any("explore-1: completed; 2 requests, 220 tokens" in text for text in said), said
    assert child.budget.requests == 4 and child.budget.tokens == 5000
    assert "its budget is used up" in said[-1]


@pytest.mark.parametrize(("requests", "cost"), [(0, None), (2, 0.5), (2, None)])
def test_a_cost_is_known_after_a_restart_where_it_was_before(requests, cost):
    last = SubAgentChanged(sub_agent="a", status="queued", requests=requests, cost=cost)
    spent = _spent(last).add("gpt-5.5", Usage(1000, 100))
    assert (spent.cost is None) == (requests > 0 and cost is None)


def killed(tmp_path, monkeypatch, **spawned):
    """Return a conversation as it is on disk when its kernel is killed with a sub-agent at work."""
    begun, stick = sticking()
    model = TreeModel(main=[spawn("Stick.", **spawned), "On its way."], explore_1=[Call("stick")])
    with agent_with(model, stick) as agent:
        agent.run_sync("Go.")
        assert begun.wait(PATIENCE)
        shutil.copytree(rollout_folder(), tmp_path / "killed/agent-magics/sessions")
        conversation = agent.conversation_id
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "killed"))
    return conversation


def test_one_that_goes_on_after_a_kill_has_the_tools_and_the_model_it_was_given(
    tmp_path, monkeypatch
):
    conversation = killed(tmp_path, monkeypatch, tools=["list_dir", "stick"], model="gpt-5-mini")

    @tool(mutating=False, parallel=True)
    def stick() -> str:
        """Return."""
        return ""

    resume = Call("resume_agent", {"id": "explore-1"})
    model = TreeModel(main=[resume, wait(), "Done."], explore_1=["Ok."])
    with Agent.resume(conversation, model, ["coding", stick], approval="never") as agent:
        agent.run_sync("Go on.")
        config = agent.sub_agents.agents["explore-1"].turn_config.config
    [request] = model.requests("explore_1")
    assert {each.spec.name for each in request.tools} == {"list_dir", "stick"}
    assert config.model == "gpt-5-mini"


def test_one_of_an_earlier_kernel_that_cannot_go_on_hides_no_other(tmp_path, monkeypatch):
    conversation = killed(tmp_path, monkeypatch, tools=["stick"])
    listed, resumed = Call("list_agents"), Call("resume_agent", {"id": "explore-1"})
    unknown = Call("resume_agent", {"id": "nobody"})
    model = TreeModel(main=[spawn(), listed, resumed, listed, unknown, "Done."], explore_2=["Ok."])
    with Agent.resume(conversation, model, ["coding"], approval="never") as agent:
        agent.run_sync("Go on.")
        said = [text for _, text in outputs(agent)][-4:]
    for text in (said[0], said[2]):
        assert "explore-1: stopped (its kernel has ended)" in text and "explore-2: " in text
        assert "2 started of" in text
    assert "cannot have stick" in said[1]
    assert said[3].endswith("there are: explore-1, explore-2.")


def test_the_person_sees_those_of_an_earlier_kernel(tmp_path, monkeypatch):
    conversation = killed(tmp_path, monkeypatch)
    with Agent.resume(conversation, TreeModel(), ["coding"]) as agent:
        text = SUB_AGENTS.act(notebook_of(agent), [])
        helpers = [*_helpers(agent)]
    assert "explore-1" in text and "stopped (its kernel has ended)" in text
    assert "0 at work, 4 at a time; 1 started of" in text
    assert [each["name"] for each in helpers] == ["explore-1"]


@pytest.mark.parametrize("at", ["work", "the end"])
def test_those_that_a_program_began_are_known_and_their_names_taken(at, tmp_path):
    begun, stick = sticking()
    ends = [Call("stick")] if at == "work" else []
    write = [Call("write_file", {"path": name, "content": name}) for name in ("a", "b")]
    tools = ["coding", "write_file", stick]
    model = TreeModel(worker_1=[write[0], *ends, "Written."])
    with Agent(model, tools, approval="never", cwd=tmp_path) as agent:
        handle = agent.spawn("Write a.", "worker")
        if at == "work":
            assert begun.wait(PATIENCE)
        else:
            assert handle.result(PATIENCE).text == "Written."
        conversation = agent.conversation_id
    again = TreeModel(worker_2=[write[1], "Written."])
    with Agent.resume(conversation, again, tools, approval="never", cwd=tmp_path) as agent:
        [state] = agent.sub_agents.states
        assert (state.sub_agent, state.status) == (
            "worker-1",
            "stopped" if at == "work" else "completed",
        )
        assert agent.spawn("Write b.", "worker").result(PATIENCE).text == "Written."
        agent.undo(sub_agent="worker-2")
    assert {each.name for each in tmp_path.iterdir()} == {"a"}


@pytest.mark.parametrize("waits", [False, True], ids=["at work", "without a place"])
def test_one_at_work_ends_where_another_conversation_is_resumed_in_its_place(waits):
    begun, stick = sticking()
    others = AT_A_TIME if waits else 0
    script = {f"explore_{n}": [Call("stick")] for n in range(1, others + 2)}
    model = TreeModel(main=["One.", [spawn("Stick.")] * (others + 1), "On its way."], **script)
    with agent_with(model, stick) as agent:
        agent.run_sync("Hello.")
        first = agent.conversation_id
        agent.reset()
        agent.run_sync("Go.")
        assert begun.wait(PATIENCE)
        children = [*agent.sub_agents.agents.values()]
        agent.session.resume(first, {})
        for child in children:
            agent.session.engine.spawn(_done(child.ended)).result(PATIENCE)
            assert (child.status, child.problem) == ("stopped", "its conversation has ended")
        assert agent.sub_agents.states == []


@pytest.mark.parametrize("is_of_program", [True, False], ids=["a program's", "a turn's"])
def test_one_at_work_when_its_conversation_ends_belongs_to_no_other(is_of_program):
    begun, stick = sticking()
    model = TreeModel(main=[spawn("Stick."), "On its way."], explore_1=[Call("stick")])
    others = {each.id for each in conversations()}
    with agent_with(model, stick) as agent:
        if is_of_program:
            agent.spawn("Stick.")
        else:
            agent.run_sync("Go.")
        assert begun.wait(PATIENCE)
        child, before = agent.sub_agents.agents["explore-1"], agent.conversation_id
        agent.reset()
        agent.session.engine.spawn(_done(child.ended)).result(PATIENCE)
        assert child.status == "stopped"
    assert {each.id for each in conversations()} - others == {before}
