"""What the person does between turns is on record at once, in the record of its conversation.

The engine stands still meanwhile, so that it writes nothing: whoever reads or replaces the record
has to see to it that what waits is written before.
"""

import threading
from collections.abc import Callable
from contextlib import contextmanager

import pytest

from agent_magics import Agent, Call, ScriptedModel, conversations
from agent_magics.engine.thread import shared_engine
from agent_magics.protocol.items import Item, UserMessage
from tests.support.turns import PATIENCE, scripted


@contextmanager
def standing_engine():
    """Keep the engine's thread from doing anything."""
    stands, goes_on = threading.Event(), threading.Event()

    def stand() -> None:
        stands.set()
        assert goes_on.wait(PATIENCE)

    shared_engine().post(stand)
    assert stands.wait(PATIENCE)
    try:
        yield
    finally:
        goes_on.set()


def items_of(agent: Agent) -> list[Item]:
    return list(agent.session.conversation.history.items)


def told(agent: Agent) -> list[str]:
    """Return the notices that the model is given with the agent's next prompt, a line each."""
    before = len(items_of(agent))
    assert agent.run_sync("Go on.").status == "completed"
    later = [each for each in items_of(agent)[before:] if isinstance(each, UserMessage)]
    notes = [str(each.content) for each in later if each.role == "developer"]
    return "\n".join(notes).splitlines()


def resumed(conversation: str) -> Agent:
    return Agent.resume(conversation, ScriptedModel(["Again."]))


def grown(place) -> Agent:
    """Return an agent after two turns, the second of which has written a file."""
    write = Call("write_file", {"path": "a.txt", "content": "1"})
    agent = scripted("One.", write, "Two.", "Again.", "Again.", tools=["write_file"], cwd=place)
    agent.run_sync("one")
    agent.run_sync("two")
    return agent


# What the person does, and how many notices the model is then given.
CHANGES: dict[str, tuple[Callable[[Agent], object], int]] = {
    "rewind": (lambda agent: agent.rewind(), 0),
    "rewind without files": (lambda agent: agent.rewind(1, files=False), 1),
    "rewind and redo": (lambda agent: agent.rewind().redo(), 0),
    "undo": (lambda agent: agent.undo(), 1),
    "undo and redo": (lambda agent: (agent.undo(), agent.redo()), 2),
}
changes = pytest.mark.parametrize(("change", "notices"), CHANGES.values(), ids=CHANGES)


@changes
def test_a_fork_has_what_its_parent_has(tmp_path, change, notices):
    with grown(tmp_path) as agent:
        with standing_engine():
            change(agent)
            fork = agent.fork()
        with fork:
            assert items_of(fork) == items_of(agent)
            notes = told(fork)
            assert notes == told(agent)
            assert len(notes) == notices


@changes
@pytest.mark.parametrize("then", ["reset", "resume"])
def test_a_conversation_that_follows_has_nothing_of_the_last_one(tmp_path, change, notices, then):
    with scripted("Other.", cwd=tmp_path) as other:
        other.run_sync("other")
    with grown(tmp_path) as agent:
        old = agent.conversation_id
        with standing_engine():
            change(agent)
            items = items_of(agent)
            if then == "reset":
                agent.reset()
            else:
                agent.session.resume(other.session.conversation.id, {})
            new, begun = agent.conversation_id, items_of(agent)
    with resumed(old) as again:
        assert items_of(again) == items
        assert len(told(again)) == notices
    with resumed(new) as following:
        assert items_of(following) == begun
        assert told(following) == []


def test_a_name_is_in_the_list_at_once(tmp_path):
    with grown(tmp_path) as agent, standing_engine():
        agent.session.rename(agent.conversation_id, "mine")
        titles = {each.id: each.title for each in conversations()}
        assert titles[agent.conversation_id] == "mine"


def test_what_an_earlier_conversation_is_told_later_is_not_the_present_ones(tmp_path):
    with grown(tmp_path) as agent:
        review = agent.review()
        agent.reset()
        assert review.revert(1) == ""
        new = agent.conversation_id
    with resumed(new) as following:
        assert told(following) == []
