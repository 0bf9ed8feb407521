"""A hundred sub-agents leave nothing behind: no thread, descriptor, task or object of ours."""

import asyncio
import gc
from collections import Counter

import pytest

from agent_magics import Agent, Call
from tests.support.descriptors import none_left
from tests.support.models.tree import TreeModel
from tests.support.threads import lasting_threads
from tests.support.turns import PATIENCE

COUNT = 25  # sub-agents of a round, of four
LOOK = Call("list_dir", {"path": "."})


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_hundred_sub_agents_leave_nothing_behind():
    _delegate()  # once, for what a process makes once
    first, threads = _delegate()
    with none_left():
        second, _ = _delegate()
        third, threads_after = _delegate()
    assert threads_after <= threads
    # What a round leaves grows with each; what earlier tests have left comes and goes meanwhile.
    grown = [kind for kind in third if first[kind] < second[kind] < third[kind]]
    assert grown == []


def _delegate():
    """Return our objects that are alive after a round of sub-agents, by type, and the threads."""
    scripts = {f"explore_{n}": [LOOK, "Ok."] for n in range(1, COUNT + 1)}
    with Agent(TreeModel(**scripts), ["coding"], approval="never") as agent:
        engine = agent.session.engine
        handles = [agent.spawn("Look.") for _ in range(COUNT)]
        assert all(handle.result(10 * PATIENCE).text == "Ok." for handle in handles)
    del agent, handles
    assert engine.spawn(_sub_agent_tasks()).result(PATIENCE) == 0
    gc.collect()
    alive = Counter(
        type(each).__name__
        for each in gc.get_objects()
        if str(type(each).__module__).startswith("agent_magics.")
    )
    return alive, lasting_threads()


async def _sub_agent_tasks():
    return sum("sub-agent" in task.get_name() for task in asyncio.all_tasks())
