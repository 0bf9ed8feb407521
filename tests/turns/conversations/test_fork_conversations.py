"""A fork has an id of its own and shares the past on disk; the parent goes on."""

import errno
import resource
from contextlib import contextmanager

import pytest

from agent_magics import Agent, Call, FatalError, ScriptedModel, conversations, tool
from agent_magics.engine.channels.rollout import Rollout
from agent_magics.protocol.items import UserMessage
from agent_magics.records.places import rollout_folder
from agent_magics.records.retention import delete
from tests.support.turns import assert_valid, scripted


@tool(mutating=False)
def look(what: str) -> str:
    """Look at something."""
    return f"saw {what}"


def prompts(agent: Agent) -> list[str]:
    items = agent.session.conversation.history.items
    return [item.content for item in items if isinstance(item, UserMessage)]


def records_of(conversation: str) -> list:
    return list(rollout_folder().rglob(f"{conversation}.jsonl"))


def grown(*names: str) -> Agent:
    script = [part for name in names for part in (Call("look", {"what": name}), f"Seen {name}.")]
    agent = scripted(*script, *["Again."] * 9, tools=[look])
    for name in names:
        agent.run_sync(name)
    return agent


@pytest.mark.parametrize("turn", [None, 0, 1, 2, 3])
def test_both_go_on_from_where_it_was_forked(turn):
    with grown("one", "two", "three") as agent, agent.fork(turn, name="other") as fork:
        assert fork.conversation_id != agent.conversation_id
        assert (fork.name, fork.config.approval) == ("other", "never")
        kept = ["one", "two", "three"][:turn]
        assert prompts(fork) == kept
        agent.run_sync("mine")
        fork.run_sync("theirs")
        assert prompts(agent) == ["one", "two", "three", "mine"]
        assert prompts(fork) == [*kept, "theirs"]
        assert_valid(fork)
    for each, last in ((agent, "mine"), (fork, "theirs")):
        conversation = each.session.conversation.id
        with Agent.resume(conversation, ScriptedModel([]), [look]) as resumed:
            assert prompts(resumed)[-1] == last
            assert resumed.conversation_id == conversation


def test_a_fork_of_a_fork_outlives_its_parents_and_takes_no_copies():
    with grown("one", "two") as agent, agent.fork(name="a") as first:
        first.run_sync("three")
        with first.fork(1, name="b") as second, first.fork(name="c") as third:
            second.run_sync("four")
            third.run_sync("five")
            assert prompts(second) == ["one", "four"]
            assert prompts(third) == ["one", "two", "three", "five"]
    [mine] = records_of(agent.session.conversation.id)[:1]
    assert mine.stat().st_nlink == 4, "one file, by four names"
    for gone in (agent, first):
        delete(rollout_folder(), gone.session.conversation.id)
    for each in (second, third):
        with Agent.resume(each.session.conversation.id, ScriptedModel([]), [look]) as resumed:
            assert prompts(resumed) == prompts(each)
    titles = {each.id: each.title for each in conversations()}
    assert [titles[each.session.conversation.id] for each in (second, third)] == ["b", "c"]
    assert first.session.conversation.id not in titles


def test_a_turn_that_is_not_there_is_one_sentence():
    with grown("one") as agent:
        for turn in (-1, 2):
            with pytest.raises(FatalError, match="has 1 ended turn; there is no turn"):
                agent.fork(turn)


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["begin", "write"])
def test_a_fork_that_is_interrupted_or_refused_leaves_nothing_on_disk(monkeypatch, step, failure):
    real = getattr(Rollout, step)
    with grown("one") as agent:
        before = sorted(rollout_folder().rglob("*"))

        def fail(rollout, *args):
            if rollout.path in before:
                return real(rollout, *args)
            raise failure

        with monkeypatch.context() as patched:
            patched.setattr(Rollout, step, fail)
            with pytest.raises((FatalError, KeyboardInterrupt)):
                agent.session.fork(name="other")
        assert sorted(rollout_folder().rglob("*")) == before


def test_the_turn_at_work_is_not_in_the_fork():
    forks = []

    @tool
    def split() -> str:
        """Fork in the middle of a turn."""
        forks.append(agent.fork())
        return "done"

    agent = scripted("One.", Call("split", {}), "Two.", tools=[split])
    agent.run_sync("one")
    agent.run_sync("two")
    assert prompts(agent) == ["one", "two"]
    assert prompts(forks[0]) == ["one"]
    agent.close()
    forks[0].close()


@contextmanager
def full_disk():
    """Let this process write no byte more into any file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


USES = {
    "fork": lambda session, other: session.fork(name="new"),
    "rename": lambda session, other: session.rename(other, "new"),
    "resume": lambda session, other: session.resume(other, {}),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_full_disk_is_one_sentence_and_leaves_no_record_open(use):
    with grown("one") as other:
        conversation = other.conversation_id
    with records_of(conversation)[0].open("ab") as record:
        record.write(b'{"type": "TurnStarted", damaged\n')
    with grown("two") as agent:
        with full_disk(), pytest.raises(FatalError, match="File too large") as caught:
            use(agent.session, conversation)
        use(agent.session, conversation)  # though the error that was caught holds its frames
        assert caught.value


def test_a_fork_that_cannot_be_resumed_is_closed(tmp_path, monkeypatch):
    closed = []

    def close(agent):
        closed.append(agent.name)
        close_agent(agent)

    close_agent = Agent.close
    monkeypatch.setattr(Agent, "close", close)
    with grown("one") as agent:
        monkeypatch.setattr("agent_magics.composition.agent.rollout_folder", lambda: tmp_path)
        with pytest.raises(FatalError, match="there is no record of it"):
            agent.fork(name="new")
        assert closed == ["new"]
