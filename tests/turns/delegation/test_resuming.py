"""Sub-agents of a conversation that is resumed: ended ones are known, stopped ones can go on."""

import threading

from agent_magics import Agent, Call, ToolContext, conversations, tool
from agent_magics.protocol.items import Usage, UserMessage
from tests.support.models.tree import TreeModel
from tests.support.turns import PATIENCE, outputs
from tests.turns.delegation.test_spawning import agent_with, reports, spawn, wait


def test_a_stopped_one_goes_on_after_a_restart():
    begun = threading.Event()

    @tool(mutating=False, parallel=True)
    def stick(ctx: ToolContext) -> str:
        """Return when the turn is stopped."""
        begun.set()
        assert ctx.cancelled.wait(PATIENCE)
        return ""

    model = TreeModel(
        main=[[spawn(), spawn("Stick.")], "On its way.", Call("list_agents"), "They are there."],
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
    assert prompts == ["Task of default/explore-2:\nStick.", "Go on with your task."]
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
        main=[spawn(budget={"requests": 3, "tokens": 5000}), wait(), "Done."],
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
    assert child.budget.requests == 3 and child.budget.tokens == 5000
    assert "its budget is used up" in said[-1]
