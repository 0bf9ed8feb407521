"""A conversation's rewind and undo restore the files of its own turns, whatever others did."""

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magics import Agent, Call, FatalError, ScriptedModel
from agent_magics.config_files.places import state_folder
from agent_magics.file_history.journal import MOST_KEPT
from agent_magics.protocol.items import UserMessage
from agent_magics.records.places import rollout_folder
from agent_magics.records.retention import delete


@dataclass
class World:
    """Conversations in one workspace, each with the files that its turns have written.

    Attributes:
        written: the names of these files, by conversation; those of the past that a fork shares,
            too.
        agents: the open ones; the last is the present one.
    """

    place: Path
    written: dict[str, list[str]] = field(default_factory=dict)
    agents: list[Agent] = field(default_factory=list)
    count: int = 0
    script: ScriptedModel = field(default_factory=lambda: ScriptedModel([]))

    def options(self) -> dict[str, object]:
        return {"tools": ["write_file"], "cwd": self.place, "approval": "never"}

    def begin(self) -> None:
        self.agents.append(Agent(self.script, **self.options()))

    @property
    def here(self) -> Agent:
        return self.agents[-1]

    @property
    def files(self) -> list[str]:
        return self.written.setdefault(self.here.conversation_id, [])

    def write(self) -> None:
        self.count += 1
        self.files.append(f"{self.count}.txt")
        self.say(Call("write_file", {"path": f"{self.count}.txt", "content": "1"}), "Done.")

    def talk(self) -> None:
        self.say("Yes.")

    def say(self, *answers: object) -> None:
        self.script._turns.extend(answers)
        assert self.here.run_sync("Go.").status == "completed"

    def reset(self) -> None:
        self.here.reset()

    def fork(self) -> None:
        files = list(self.files)
        self.agents.append(self.here.fork())
        self.files.extend(files)

    def fork_and_close(self) -> None:
        self.fork()
        self.agents.pop(-2).close()

    def restart(self) -> None:
        self.close()
        self.begin()

    def resume_first(self) -> None:
        """Go on with the oldest conversation that nobody else has open."""
        there = [agent.session.conversation.id for agent in self.agents]
        closed = [each for each in self.written if each not in there]
        if closed:
            self.here.session.resume(closed[0], {})

    def close(self) -> None:
        while self.agents:
            self.agents.pop().close()

    def names(self) -> set[str]:
        return {path.name for path in self.place.iterdir()}


STEPS = {
    name: getattr(World, name)
    for name in (
        "begin",
        "write",
        "talk",
        "reset",
        "fork",
        "fork_and_close",
        "restart",
        "resume_first",
    )
}


def resumed(world: World, conversation: str) -> Agent:
    return Agent.resume(conversation, ScriptedModel(["Yes."] * 9), **world.options())


def assert_own(world: World) -> None:
    """Check what each conversation would restore, and let the last one do it."""
    for agent in world.agents:
        assert_way_back(agent, world)
    world.close()
    for conversation in world.written:
        with resumed(world, conversation) as agent:
            assert_way_back(agent, world)
    for conversation, files in reversed(world.written.items()):
        if files:
            with resumed(world, conversation) as agent:
                before = world.names()
                assert {os.path.basename(path) for path in agent.undo().paths} == {files[-1]}
                assert world.names() == before - {files[-1]}
                agent.redo()
                agent.rewind(1).redo()
                assert world.names() == before
                agent.rewind(1)
                assert world.names() == before - set(files)
            break


def assert_way_back(agent: Agent, world: World) -> None:
    files = set(world.written.get(agent.session.conversation.id, []))
    if agent.session.conversation.history.turns:
        way = agent.way_back(1).preview()
        assert {os.path.basename(path) for path in (way.paths if way else ())} == files
        assert not (way and way.obstacles)


@pytest.mark.parametrize(
    "steps",
    [
        ["write", "reset", "write"],
        ["write", "reset", "write", "restart", "write"],
        ["write", "reset", "write", "restart", "write", "restart", "resume_first", "write"],
        ["write", "reset", "begin", "resume_first", "write"],
        ["write", "fork", "write"],
        ["write", "fork_and_close", "talk", "fork", "write"],
        ["write", "fork", "write", "fork_and_close", "write", "resume_first", "write"],
    ],
    ids=" ".join,
)
def test_each_conversation_restores_its_own_files(tmp_path, steps):
    _live(tmp_path, steps)


@settings(max_examples=25)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=9))
def test_each_conversation_restores_its_own_files_after_any_steps(steps):
    with tempfile.TemporaryDirectory() as place:
        _live(Path(place), steps)


def _live(place: Path, steps: list[str]) -> None:
    world = World(place)
    world.begin()
    try:
        for step in steps:
            STEPS[step](world)
        assert_own(world)
    finally:
        world.close()


def _nothing(world: World) -> None:
    world.close()


def _delete_journals(world: World) -> None:
    world.close()
    for conversation in world.written:
        shutil.rmtree(state_folder() / "changes" / conversation)


def _delete_the_forks_parent(world: World) -> None:
    world.close()
    delete(rollout_folder(), next(iter(world.written)))


def _undo_and_write(world: World) -> None:
    world.here.undo()
    world.write()
    world.close()


def _fill(world: World) -> None:
    """Write as if little room were left for copies, so that those of the first turn go."""
    journal = world.here.session.conversation.files.journal_in(world.place)
    journal.store._size = MOST_KEPT
    world.write()


@pytest.mark.parametrize(
    ("steps", "happens", "is_lost"),
    [
        (["write"], _nothing, False),
        (["write"], _delete_journals, True),
        (["talk", "write", "talk"], _delete_journals, True),
        (["talk", "reset", "write"], _undo_and_write, False),
        (["write", "fork"], _nothing, False),
        (["write", "fork"], _delete_the_forks_parent, False),
        (["write", "fork", "write"], _delete_the_forks_parent, False),
        (["write", "write"], _fill, True),
    ],
)
def test_files_of_which_no_copy_is_left_are_told(tmp_path, steps, happens, is_lost):
    world = World(tmp_path)
    world.begin()
    for step in steps:
        STEPS[step](world)
    conversation = world.here.conversation_id
    happens(world)
    with world.here if world.agents else resumed(world, conversation) as agent:
        assert agent.way_back(1).lost == is_lost
        way = agent.rewind(1)
        assert way.lost == is_lost
        before = len(agent.session.conversation.history.items)
        world.script._turns.append("Yes.")
        agent.run_sync("Go.")
        told = agent.session.conversation.history.items[before:-2]
        assert ["Files are as turns left them" in str(each.content) for each in told] == (
            [True] if is_lost else []
        )
    world.agents.clear()


def test_a_new_conversation_can_undo_the_last_ones_turn_until_it_has_changed_files(tmp_path):
    world = World(tmp_path)
    world.begin()
    for step in ("write", "write", "reset", "talk"):
        STEPS[step](world)
    review = world.here.session.conversation.files.journal_to_undo(tmp_path)
    assert len(review.turns) == 2
    assert world.here.undo(2).paths
    assert world.names() == set()
    world.here.redo()
    assert world.names() == {"1.txt"}
    world.write()
    assert world.here.undo().paths == (str(tmp_path / "3.txt"),)
    with pytest.raises(FatalError, match="No turn of this conversation"):
        world.here.undo()
    world.close()


def test_what_a_page_shows_of_an_earlier_conversation_is_reviewed_and_undone_by_itself(tmp_path):
    world = World(tmp_path)
    world.begin()
    world.write()
    turn = world.here.session.conversation.history.turns[-1]
    world.reset()
    review = world.here.session.conversation.review(tmp_path, turn)
    assert review is not None and review.is_last
    world.write()
    assert not review.is_last, "an undo takes back the newer one"
    assert world.here.session.conversation.review(tmp_path, turn) is review
    assert review.revert(1) == ""
    assert world.names() == {"2.txt"}
    world.talk()
    items = world.here.session.conversation.history.items
    assert any(isinstance(each, UserMessage) and "reverted" in str(each.content) for each in items)
    world.close()
