"""Files that several agents change: attributed in the diff, told before the second writes."""

import threading

import pytest

from agent_magics import Call, tool
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.events import TurnDiffUpdated
from tests.support.models.tree import TreeModel
from tests.support.turns import PATIENCE, of_kind, outputs, sticking
from tests.turns.delegation.test_spawning import agent_with, reports, spawn, wait


def patch(before, after, path="a.txt"):
    text = f"*** Begin Patch\n*** Update File: {path}\n@@\n-{before}\n+{after}\n*** End Patch"
    return Call("apply_patch", {"patch": text})


def worker(task="Change it."):
    return spawn(task, agent_type="worker")


def said_to(model, name):
    """Return the outputs that a sub-agent's model got."""
    items = model.requests(name)[-1].history.items
    return [str(item.output) for item in items if hasattr(item, "output")]


def agent_in(tmp_path, model, *functions):
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "b.txt").write_text("uno\n")
    return agent_with(model, *functions, cwd=tmp_path)


def test_the_turns_diff_says_which_agent_changed_what(tmp_path):
    model = TreeModel(
        main=[worker(), wait(), patch("uno", "due", "b.txt"), "Done."],
        worker_1=[patch("one", "two"), "Changed."],
    )
    with agent_in(tmp_path, model) as agent:
        last = of_kind(agent.run_sync("Go."), TurnDiffUpdated)[-1]
        assert {file.path: file.note for file in last.files} == {
            "a.txt": "by worker-1",
            "b.txt": "",
        }
        assert "-one\n+two" in last.diff
        journal = agent.session.conversation.files.journal_in(tmp_path)
        journal.undo()  # of the turn, with what its sub-agents did
    assert (tmp_path / "a.txt").read_text() == "one\n"
    assert (tmp_path / "b.txt").read_text() == "uno\n"


def test_what_both_changed_is_undone_together(tmp_path):
    model = TreeModel(
        main=[worker(), wait(), Call("read_file", {"path": "a.txt"}), patch("two", "three"), "."],
        worker_1=[patch("one", "two"), "Changed."],
    )
    with agent_in(tmp_path, model) as agent:
        last = of_kind(agent.run_sync("Go."), TurnDiffUpdated)[-1]
        assert [file.note for file in last.files] == ["also by worker-1"]
        assert (tmp_path / "a.txt").read_text() == "three\n"  # it had read it: nothing was told
        agent.session.conversation.files.journal_in(tmp_path).undo()
    assert (tmp_path / "a.txt").read_text() == "one\n"


def test_the_changes_of_one_are_undone_alone_and_the_model_is_told(tmp_path):
    begun, stick = sticking()
    model = TreeModel(
        main=[[worker(), worker()], wait("worker-1"), "On its way.", "I see."],
        worker_1=[patch("one", "two"), "Changed."],
        worker_2=[patch("uno", "due", "b.txt"), Call("stick")],
    )
    with agent_in(tmp_path, model, stick) as agent:
        agent.run_sync("Go.")
        assert begun.wait(PATIENCE)
        with pytest.raises(FatalError, match="worker-2 is at work; stop it first"):
            agent.undo(sub_agent="worker-2")
        way = agent.undo(sub_agent="worker-1")
        assert way.paths == (str(tmp_path / "a.txt"),)
        agent.run_sync("And?")
        said = "\n".join(reports(agent))
        assert "undid the changes to files of your sub-agent worker-1: a.txt." in said
    assert (tmp_path / "a.txt").read_text() == "one\n"
    assert (tmp_path / "b.txt").read_text() == "due\n"


def test_what_one_changed_that_a_program_began_is_undone_as_well(tmp_path):
    model = TreeModel(
        worker_1=[patch("one", "two"), "Changed."], worker_2=[patch("uno", "due", "b.txt"), "So."]
    )
    with agent_in(tmp_path, model) as agent:
        for task in ("Change a.", "Change b."):
            assert agent.spawn(task, "worker").result(PATIENCE).status == "completed"
        assert "-uno\n+due" in agent.diff(1) and "-one\n+two" in agent.diff(2)
        agent.undo(sub_agent="worker-1")
        assert (tmp_path / "a.txt").read_text() == "one\n"
        assert (tmp_path / "b.txt").read_text() == "due\n"
        assert [turn.title for turn in agent.undo().turns] == ["Change b."]
    assert (tmp_path / "b.txt").read_text() == "uno\n"


def test_the_parent_is_told_before_it_writes_and_may_go_on(tmp_path):
    again = patch("two", "three")
    model = TreeModel(
        main=[worker(), wait(), again, again, "Done."], worker_1=[patch("one", "two"), "Changed."]
    )
    with agent_in(tmp_path, model) as agent:
        agent.run_sync("Go.")
        first, second = [text for _, text in outputs(agent)][2:4]
    assert "Nothing was written: a.txt was changed by agent default/worker-1" in first
    assert "Nothing was written" not in second
    assert (tmp_path / "a.txt").read_text() == "three\n"


def test_of_two_sub_agents_the_second_is_told(tmp_path):
    read, written = threading.Event(), threading.Event()

    @tool(mutating=False, parallel=True)
    def begin() -> str:
        """Wait until the other one has read."""
        assert read.wait(PATIENCE)
        return "ok"

    @tool(mutating=False, parallel=True)
    def done() -> str:
        """Tell the other one."""
        written.set()
        return "ok"

    @tool(mutating=False, parallel=True)
    def look() -> str:
        """Wait until the other one has written."""
        read.set()
        assert written.wait(PATIENCE)
        return "ok"

    model = TreeModel(
        main=[[worker(), worker()], wait("worker-1"), wait("worker-2"), "Done."],
        worker_1=[Call("begin"), patch("one", "two"), Call("done"), "First."],
        worker_2=[
            Call("read_file", {"path": "a.txt"}),
            Call("look"),
            patch("two", "three"),
            Call("read_file", {"path": "a.txt"}),
            patch("two", "three"),
            "Second.",
        ],
    )
    with agent_in(tmp_path, model, begin, done, look) as agent:
        result = agent.run_sync("Go.")
    told = said_to(model, "worker_2")
    assert "was changed by agent default/worker-1" in told[2]
    assert "was changed by agent" not in told[4]
    assert (tmp_path / "a.txt").read_text() == "three\n"
    last = of_kind(result, TurnDiffUpdated)[-1]
    assert [file.note for file in last.files] == ["by worker-1, worker-2"]


def test_an_agent_alone_is_told_nothing(tmp_path):
    model = TreeModel(main=[patch("one", "two"), patch("two", "three"), "Done."])
    with agent_in(tmp_path, model) as agent:
        last = of_kind(agent.run_sync("Go."), TurnDiffUpdated)[-1]
        assert "Nothing was written" not in str(outputs(agent))
    assert [file.note for file in last.files] == [""]
