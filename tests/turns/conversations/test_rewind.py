"""Back to before a turn, and forth: conversation and files, never over a person's changes."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from agent_magics import Agent, Call, FatalError, ScriptedModel, ToolContext, tool
from agent_magics.protocol.events import CellChanged, VariablesKnown, Warned
from agent_magics.protocol.items import Item, UserMessage
from tests.support.descriptors import none_left
from tests.support.turns import assert_valid, scripted


def prompts(agent: Agent) -> list[str]:
    items = agent.session.conversation.history.items
    said = [item for item in items if isinstance(item, UserMessage)]
    return [item.content for item in said if item.role == "user"]


@pytest.fixture
def place(tmp_path) -> Path:
    (tmp_path / "a.txt").write_text("0")
    return tmp_path


def writer(place: Path, *more: str) -> Agent:
    """Return an agent that has written 1, 2 and 3 into a.txt, and 3 into new.txt."""
    script = []
    for number in "123":
        script += [Call("write_file", {"path": "a.txt", "content": number}), f"{number}."]
    script[-1:] = [Call("write_file", {"path": "new.txt", "content": "3"}), "3."]
    agent = scripted(*script, *more, tools=["write_file"], cwd=place)
    for number in "123":
        assert agent.run_sync(f"write {number}").status == "completed"
    return agent


@pytest.mark.parametrize("turn", [None, 1, 2, 3])
def test_back_and_forth(place, turn):
    with writer(place, "More.") as agent:
        before = list(agent.session.conversation.history.items)
        way = agent.rewind(turn)
        number = turn or 3
        assert (place / "a.txt").read_text() == str(number - 1)
        assert not (place / "new.txt").exists()
        assert prompts(agent) == [f"write {n}" for n in range(1, number)]
        way.redo()
        assert ((place / "a.txt").read_text(), (place / "new.txt").read_text()) == ("3", "3")
        assert list(agent.session.conversation.history.items) == before
        assert_valid(agent)


@pytest.mark.parametrize("turn", [1, 2, 3])
def test_a_way_forth_that_the_disk_refuses_stays_open(place, monkeypatch, turn):
    real, calls = os.replace, []

    def refuse_one(old, new, **folders):
        calls.extend([new] * (new == "a.txt"))
        if new == "a.txt" and len(calls) == turn:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(old, new, **folders)

    with writer(place) as agent:
        before = list(agent.session.conversation.history.items)
        way = agent.rewind(1)
        with monkeypatch.context() as patched:
            patched.setattr(os, "replace", refuse_one)
            with pytest.raises(FatalError, match="No space left"):
                way.redo()
        assert (place / "a.txt").read_text() == str(turn - 1)
        assert [len(each.turns) for each in way.redo()] == [1, 1, 1]
        assert ((place / "a.txt").read_text(), (place / "new.txt").read_text()) == ("3", "3")
        assert list(agent.session.conversation.history.items) == before
        assert way.redo() == []


@pytest.mark.parametrize("then", ["nothing", "redo", "more"])
def test_a_way_back_is_on_record(place, then):
    with writer(place, "More.") as agent:
        way = agent.rewind(2)
        if then == "redo":
            way.redo()
        elif then == "more":
            agent.run_sync("else")
            with pytest.raises(FatalError, match="More was said"):
                way.redo()
        items = list(agent.session.conversation.history.items)
    with Agent.resume(agent.session.conversation.id, ScriptedModel([])) as resumed:
        assert list(resumed.session.conversation.history.items) == items
        if then == "nothing":  # its files can be redone in another kernel, too
            assert resumed.session.conversation.restore()
            assert resumed.redo().paths


def test_parts_can_be_left_out_and_the_model_is_told(place):
    with writer(place, "More.", "More.") as agent:
        agent.rewind(3, files=False)
        assert (place / "a.txt").read_text() == "3"
        agent.run_sync("Go on.")
        told = agent.session.conversation.history.items[-3]
        assert (told.role, "Files are as turns left them" in told.content) == ("developer", True)
        agent.rewind(2, conversation=False)
        assert (place / "a.txt").read_text() == "1"
        assert prompts(agent) == ["write 1", "write 2", "Go on."]


def test_a_turn_that_is_not_there_is_told_so(place):
    with scripted("1.", tools=[], cwd=place) as agent:
        for turn in (None, 1):
            with pytest.raises(FatalError, match="no turns yet: there is nothing to go back to"):
                agent.way_back(turn)
        agent.run_sync("Go.")
        with pytest.raises(FatalError, match=r"has 1 turn; there is no turn 2\."):
            agent.way_back(2)


def undo_another(agent: Agent) -> None:
    agent.undo()


def redo_one(agent: Agent) -> None:
    agent.redo()


def go_back_further(agent: Agent) -> None:
    agent.rewind(1)


def make_a_file(agent: Agent) -> None:
    agent.call_sync("write_file", {"path": "b.txt", "content": "1"})


def make_a_file_of_ones_own(agent: Agent) -> None:
    (agent.config.cwd / "new.txt").write_text("mine")


@pytest.mark.parametrize(
    ("between", "is_made"),
    [
        (undo_another, True),
        (redo_one, True),
        (go_back_further, True),
        (make_a_file, False),
        (make_a_file_of_ones_own, False),
    ],
)
def test_a_way_forth_makes_its_own_turns_again_or_says_that_it_cannot(place, between, is_made):
    with writer(place, "More.") as agent:
        before = list(agent.session.conversation.history.items)
        way = agent.rewind(2)
        between(agent)
        done = way.redo()
        assert len({each.turns[0].id for each in done}) == len(done)
        assert (way.redo() == []) == (is_made or between is make_a_file)
        assert list(agent.session.conversation.history.items) == before
        assert (not way.undone, (place / "a.txt").read_text() == "3") == (is_made, is_made)
        told = said_before(agent, "Go on.")[len(before) :]
        assert any("files are not all as" in each.content for each in told) != is_made


def test_files_that_are_left_alone_since_they_may_be_the_persons_are_told(place):
    @tool
    def leave(*, ctx: ToolContext) -> str:
        """Write while only a session runs."""
        watch = ctx.diff_tracker.watch()
        watch.hand_over()
        (place / "new.txt").write_text("1")
        watch.finish()
        return "Ok."

    with scripted(Call("leave"), "Done.", "More.", tools=[leave], cwd=place) as agent:
        agent.run_sync("Go.")
        assert agent.rewind().files.doubtful == (str(place / "new.txt"),)
        assert "new.txt" in said_before(agent, "Go on.")[-1].content


@pytest.mark.parametrize("restarts", [False, True])
def test_an_undo_of_a_turn_that_stays_is_told_again_where_its_notice_goes(place, restarts):
    with writer(place, *["More."] * 3) as agent:
        agent.run_sync("talk")
        agent.undo(3)
        agent.run_sync("talk on")
        with resumed(agent) if restarts else agent as agent:
            agent.rewind(4)
            assert "undid" in said_before(agent, "Go on.")[-1].content


def test_a_conversation_in_whose_place_another_comes_keeps_no_file_open(place):
    with writer(place, "More.") as agent, none_left(2):  # those of the present one
        first = agent.conversation_id
        agent.reset()
        second = agent.conversation_id
        for each in (first, second) * 3:
            agent.session.resume(each, {})
            agent.call_sync("write_file", {"path": "b.txt", "content": each})


def test_what_a_closed_agent_does_is_not_recorded_and_it_says_so(place):
    with scripted(*["Yes."] * 2, tools=[], cwd=place) as agent:
        quiet = agent.run_sync("one")
        agent.close()
        agent.close()
        said = [each.message for each in agent.run_sync("two").events if isinstance(each, Warned)]
        assert not any(isinstance(each, Warned) for each in quiet.events)
        assert len(said) == 1 and "not recorded" in said[0]


def test_what_a_person_changed_stays_and_is_named(place):
    with writer(place) as agent:
        (place / "a.txt").write_text("mine")
        seen = agent.way_back(1).preview()
        assert [each.change.path for each in seen.obstacles] == [str(place / "a.txt")]
        assert seen.paths == (str(place / "new.txt"),)
        way = agent.rewind(1)
        assert (place / "a.txt").read_text() == "mine"
        assert not (place / "new.txt").exists()
        assert [each.change.path for each in way.files.obstacles] == [str(place / "a.txt")]
        assert prompts(agent) == []


def test_commands_are_taken_back_too(place):
    call = Call("shell_command", {"command": "echo 9 > a.txt; mkdir d; echo x > d/x"})
    options = {"sandbox": "danger-full-access", "cwd": place}
    with scripted(call, "Ok.", tools=["shell_command"], **options) as agent:
        agent.run_sync("Go.")
        assert (place / "d/x").exists()
        agent.rewind()
        assert (place / "a.txt").read_text() == "0"
        assert not (place / "d").exists()


def test_changed_cells_are_on_record(place):
    change = {"cell": "c", "cell_type": "code", "before": "x = 1", "after": "x = 2", "step": "s"}

    @tool
    def edit_it(*, ctx: ToolContext) -> str:
        """Edit."""
        ctx.emit(CellChanged, **change)
        return "Ok."

    with scripted(
        Call("edit_it", {}), "Done.", tools=[edit_it], approval="never", cwd=place
    ) as agent:
        agent.run_sync("Go.")
        (made,) = agent.session.conversation.cell_changes
        assert made.turn_id == agent.session.conversation.history.turns[-1]
    with Agent.resume(agent.session.conversation.id, ScriptedModel([])) as resumed:
        (known,) = resumed.session.conversation.cell_changes
        assert replace(known, seq=0, at=0.0, agent="") == made


def test_a_turn_that_is_not_there_is_one_sentence(place):
    with writer(place) as agent:
        for turn in (0, 4):
            with pytest.raises(FatalError, match="has 3 turns"):
                agent.rewind(turn)


# -- what the model was told before, and what stands beside the history ----------------------------


@tool
def know_it(*, ctx: ToolContext) -> str:
    """Know a variable, which a new kernel does not have."""
    ctx.emit(VariablesKnown, variables={"frame": {"type": "int"}})
    return "Ok."


def resumed(agent: Agent) -> Agent:
    agent.close()
    conversation = agent.session.conversation.id
    return Agent.resume(conversation, ScriptedModel(["More."] * 4), [know_it], cwd=agent.config.cwd)


def after_an_undo(agent: Agent) -> Agent:
    agent.undo()
    return agent


def after_an_undo_and_a_resume(agent: Agent) -> Agent:
    return resumed(after_an_undo(agent))


def after_files_were_put_back(agent: Agent) -> Agent:
    agent.rewind(conversation=False)
    return agent


def after_a_rewind_that_left_files(agent: Agent) -> Agent:
    agent.rewind(files=False)
    return agent


def after_the_variables_are_gone(agent: Agent) -> Agent:
    return resumed(agent)


def said_before(agent: Agent, prompt: str) -> list[Item]:
    """Return what the request with this prompt says before it."""
    assert agent.run_sync(prompt).status == "completed"
    items = list(agent.session.conversation.history.sent)
    return items[: items.index(UserMessage(prompt))]


@pytest.mark.parametrize(
    "happens",
    [
        after_an_undo,
        after_an_undo_and_a_resume,
        after_files_were_put_back,
        after_a_rewind_that_left_files,
        after_the_variables_are_gone,
    ],
)
@pytest.mark.parametrize("restarts", [False, True])
def test_what_happened_before_a_turn_is_told_also_after_it_was_taken_back(place, happens, restarts):
    script = [Call("know_it"), Call("write_file", {"path": "a.txt", "content": "1"}), "1."]
    tools = [know_it, "write_file"]
    with scripted(*script, *["More."] * 4, tools=tools, cwd=place) as agent:
        agent.run_sync("write 1")
        with happens(agent) as agent:
            before = said_before(agent, "Go on badly.")
            assert before[-1].role == "developer"
            agent.rewind()
            with resumed(agent) if restarts else agent as agent:
                told = said_before(agent, "Go on well.")
    assert told[: len(before)] == before


def beside(agent: Agent) -> tuple[object, ...]:
    known = agent.session.conversation
    return known.plan, list(known.found), dict(known.reported_servers)


@pytest.mark.parametrize("turn", [1, 2, 3])
@pytest.mark.parametrize("forth", [False, True])
def test_plan_found_tools_and_told_servers_go_back_with_their_turns(place, turn, forth):
    @tool
    def learn(what: str, *, ctx: ToolContext) -> str:
        """Learn of a tool and of a server."""
        ctx.turn.found[what] = None
        agent.session.conversation.reported_servers["things"] = what
        return "Ok."

    script = []
    for number in "123":
        plan = [{"id": "a", "description": f"Step {number}", "status": "pending"}]
        script += [Call("update_plan", {"steps": plan}), Call("learn", {"what": number}), "Done."]
    with scripted(*script, tools=["update_plan", learn], cwd=place) as agent:
        known = [beside(agent)]
        for number in "123":
            agent.run_sync(number)
            known.append(beside(agent))
        assert len({str(each) for each in known}) == 4
        way = agent.rewind(turn)
        assert beside(agent) == known[turn - 1]
        if forth:
            way.redo()
        now = beside(agent)
        assert now == known[3 if forth else turn - 1]
    with resumed(agent) as again:
        assert beside(again) == now


@pytest.mark.parametrize("said", [False, True])
def test_a_way_forth_is_told_where_the_way_back_was(place, said):
    with writer(place, *["More."] * 4) as agent:
        way = agent.rewind(2, conversation=False)
        if said:
            assert "put files back" in said_before(agent, "Go on.")[-1].content
        way.redo()
        told = said_before(agent, "And on.")[-1].content.splitlines()
        assert ["put files back" in each for each in told[: 1 - said]] == [True] * (1 - said)
        later = told[1 - said :]
        assert len(later) == 2 and all("made again the changes" in each for each in later)


def test_turns_that_are_in_the_conversation_again_are_not_called_taken_out(place):
    with writer(place, "More.") as agent:
        way = agent.rewind(2, files=False)
        way.redo()
        told = said_before(agent, "Go on.")[-1].content.splitlines()
        assert ["taken out of this conversation" in each for each in told] == [True, False]
        assert "these turns back" in told[1]
