"""Law: a sub-agent can do nothing that its parent's turn cannot."""

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics import Agent, Call, tool
from agent_magics.approval.rules import RuleBook
from agent_magics.delegation.types import BUILT_IN
from agent_magics.protocol.config import SandboxPolicy
from agent_magics.protocol.events import ApprovalRequested
from agent_magics.protocol.ops import Compact, new_turn_id
from tests.support.models.tree import TreeModel
from tests.support.turns import PATIENCE, outputs
from tests.turns.delegation.test_spawning import reports, spawn, wait

READS = {"read_file", "list_dir", "grep_files", "glob"}


@tool(parallel=True)
def change() -> str:
    """Change something."""
    return "changed"


@tool(mutating=False, parallel=True)
def look() -> str:
    """Look at something."""
    return "seen"


def offered(model, name):
    return {each.spec.name for each in model.requests(name)[0].tools}


def test_explore_only_reads():
    model = TreeModel(main=[spawn(), wait(), "Done."], explore_1=["Ok."])
    with Agent(model, ["data", change, look], approval="never") as agent:
        agent.run_sync("Go.")
        config = agent.sub_agents.agents["explore-1"].turn_config.config
    had = offered(model, "explore_1")
    assert had >= READS | {"look"}
    assert not had & {"change", "shell", "exec_command", "apply_patch", "edit_file", "python"}
    assert config.sandbox is SandboxPolicy.READ_ONLY


def test_what_is_not_offered_cannot_be_called():
    model = TreeModel(
        main=[spawn(), wait(), "Done."],
        explore_1=[Call("write_file", {"path": "x", "content": "no"}), Call("change"), "No."],
    )
    with Agent(model, ["coding", "write_file", change], approval="never") as agent:
        agent.run_sync("Go.")
    assert not Path("x").exists()
    outputs_of = [
        i.output for i in model.requests("explore_1")[-1].history.items if hasattr(i, "output")
    ]
    assert len(outputs_of) == 2
    assert all("no tool" in text.lower() for text in outputs_of)


def test_tools_are_those_of_the_parent_that_are_asked_for():
    model = TreeModel(
        main=[spawn(agent_type="worker", tools=["read-only", "change"]), wait(), "Done."],
        worker_1=["Ok."],
    )
    with Agent(model, ["coding", change], approval="never") as agent:
        agent.run_sync("Go.")
    assert offered(model, "worker_1") - {"view_image"} == READS | {"change"}


@given(
    parent=st.sets(st.sampled_from(["coding", "read-only", "data", "write_file"]), min_size=1),
    kind=st.sampled_from(sorted(BUILT_IN)),
    python=st.sampled_from(["live", "scratch", "off"]),
    sandbox=st.sampled_from(list(SandboxPolicy)),
    approval=st.sampled_from(["untrusted", "on-request", "on-failure", "never"]),
    network=st.booleans(),
)
def test_no_setting_is_wider(parent, kind, python, sandbox, approval, network):
    options = {"python": python, "sandbox": sandbox, "approval": approval, "network": network}
    with Agent(TreeModel(**{f"{kind}_1": ["Ok."]}), [*parent], **options) as agent:
        agent.spawn("Look.", kind).result(PATIENCE)
        turn_config, own = agent.sub_agents.agents[f"{kind}-1"].turn_config, agent.turn_config()
    config, of_parent = turn_config.config, own.config
    assert {e.spec.name for e in turn_config.specs} <= {e.spec.name for e in own.specs}
    assert set(turn_config.registry.names) <= set(own.registry.names)
    order = ["off", "scratch", "live"]
    assert order.index(config.python) <= min(order.index(python), order.index("scratch"))
    assert [*SandboxPolicy].index(config.sandbox) <= [*SandboxPolicy].index(of_parent.sandbox)
    assert config.network <= of_parent.network
    assert (config.approval, config.roots) == (of_parent.approval, of_parent.roots)
    assert config.allow_dangerous == of_parent.allow_dangerous
    assert (turn_config.agents, turn_config.hooks, turn_config.secrets) == (None, None, own.secrets)


def test_its_questions_say_who_asks_and_the_answers_are_its_own():
    asked = []

    def on_question(question):
        asked.append(question)
        return "approve_for_session"

    model = TreeModel(
        main=[
            Call("change"),
            spawn(agent_type="worker"),
            wait(),
            spawn(agent_type="worker"),
            wait(),
            "Done.",
        ],
        worker_1=[Call("change"), Call("change"), "Ok."],
        worker_2=[Call("change"), "Ok."],
    )
    with Agent(model, ["coding", change], approval="untrusted", on_question=on_question) as agent:
        agent.run_sync("Go.")
    asked = [each for each in asked if each.tool == "change"]
    who = [each.reason.partition(" asks: ")[0] for each in asked]
    assert who[1:] == ["default/worker-1", "default/worker-2"]
    assert not who[0].startswith("default/")
    assert all(isinstance(each, ApprovalRequested) for each in asked)
    assert asked[1].scopes == ("approve_for_session",)  # no rule of the project grows from it


def test_a_question_between_turns_waits_for_the_next_one():
    released, asked = threading.Event(), []

    @tool(mutating=False, parallel=True)
    def hold() -> str:
        """Return when the turn of the parent has ended."""
        assert released.wait(PATIENCE)
        return "held"

    def on_question(question):
        asked.append((released.is_set(), question.tool))
        return "approve"

    model = TreeModel(
        main=[spawn(agent_type="worker"), "On its way.", wait(), "Done."],
        worker_1=[Call("hold"), Call("change"), "Changed."],
    )
    options = {"approval": "untrusted", "on_question": on_question}
    with Agent(model, ["coding", change, hold], **options) as agent:
        assert agent.run_sync("Go.").text == "On its way."
        released.set()
        assert agent.run_sync("And?").text == "Done."
    assert asked == [(False, "spawn_agent"), (True, "change")]
    assert "> Changed." in reports(agent)[-1]


def test_a_denial_is_the_sub_agents_own():
    model = TreeModel(
        main=[spawn(agent_type="worker"), wait(), Call("look"), "Done."],
        worker_1=[Call("change"), "It was denied."],
    )
    options = {
        "approval": "untrusted",
        "on_question": lambda q: "approve" if q.tool == "spawn_agent" else "deny",
    }
    with Agent(model, ["coding", change, look], **options) as agent:
        assert agent.run_sync("Go.").text == "Done."
    assert "> It was denied." in reports(agent)[0]


RULES = """
[[rule]]
permission = "tool"
pattern = "change"
decision = "{decision}"
agent = "{agent}"
"""


@pytest.mark.parametrize(
    ("agent", "decision", "holds"),
    [
        ("main", "forbid", True),
        ("main", "prompt", True),
        ("main", "allow", False),
        ("main/*", "allow", True),
        ("*", "allow", True),
        ("other", "forbid", False),
        ("worker-1", "forbid", False),
    ],
)
def test_a_rule_that_restricts_holds_for_sub_agents_one_that_allows_only_if_it_says_so(
    agent, decision, holds, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    from agent_magics.config_files.places import user_rules_file  # noqa: PLC0415

    file = user_rules_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(RULES.format(agent=agent, decision=decision))
    found = RuleBook(tmp_path).decide("tool", "change", "main/worker-1")
    assert (found is not None and found.decision == decision) is holds


def test_hooks_hold_for_sub_agents():
    seen = []

    class Watch:
        def before_tool(self, invocation):
            seen.append((invocation.context.agent, invocation.tool))

    model = TreeModel(main=[spawn(), wait(), "Done."], explore_1=[Call("look"), "Ok."])
    with Agent(model, ["coding", look], approval="never", hooks=[Watch()]) as agent:
        agent.run_sync("Go.")
    assert ("default/explore-1", "look") in seen


def test_results_are_shared_and_brought_back():
    @tool(mutating=False, parallel=True)
    def table() -> str:
        """Return a long text."""
        return "row\n" * 20_000

    brought = []
    model = TreeModel(
        main=[
            *(Call("table"), spawn(share=["@r1", "conversation"]), wait(), "Done."),
            *("A summary.", lambda request: Call("read_file", {"path": brought[0]}), "Read."),
        ],
        explore_1=[Call("look"), Call("table"), "The rows are in @r2; @r9 is no result."],
    )
    with Agent(model, ["coding", look, table], approval="never") as agent:
        agent.run_sync("Here is a table.")
        prompt = model.requests("explore_1")[0].history.items[0].content
        assert "A result is shared with you as @r1." in prompt
        assert "Person: Here is a table." in prompt
        said = reports(agent)[0]
        assert "@r9 of explore-1 is no result" in said
        name = said.partition("The rows are in ")[2].partition(";")[0]
        assert agent.session.conversation.handles.value_of(name) == "row\n" * 20_000
        brought.append(name)
        op = Compact(turn_id=new_turn_id())
        agent.foreground().wait_blocking(op, agent.turn_config())
        agent.run_sync("Read it.")  # it outlives the sub-agent and what was summarised
        assert "row" in outputs(agent)[-1][1]
    assert not [text for _, text in outputs(agent) if "There is no @r" in str(text)]
