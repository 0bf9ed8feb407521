"""A hundred sub-agents leave nothing behind: no thread, descriptor, task or object of ours."""

import asyncio
import gc
import os
import threading
from collections import Counter

import pytest

from agent_magics import Agent, Call
from tests.support.models.tree import TreeModel
from tests.support.turns import PATIENCE

COUNT, ROUNDS = 25, 4
# Threads of pools, which stay for the next work and are of a limited number.
POOLS = ("asyncio_", "agent-tool")
LOOK = Call("list_dir", {"path": "."})


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_hundred_sub_agents_leave_nothing_behind():
    scripts = {f"explore_{n}": [LOOK, "Ok."] for n in range(1, COUNT + 1)}
    counts, objects = [], []
    for _ in range(ROUNDS):
        with Agent(TreeModel(**scripts), ["coding"], approval="never") as agent:
            engine = agent.session.engine
            handles = [agent.spawn("Look.") for _ in range(COUNT)]
            assert all(handle.result(10 * PATIENCE).text == "Ok." for handle in handles)
        del agent, handles
        tasks = engine.spawn(_sub_agent_tasks()).result(PATIENCE)
        gc.collect()
        alive = Counter(
            type(each).__name__
            for each in gc.get_objects()
            if str(type(each).__module__).startswith("agent_magics.")
        )
        threads = [each for each in threading.enumerate() if not each.name.startswith(POOLS)]
        counts.append((len(os.listdir("/proc/self/fd")), len(threads), tasks))
        objects.append(alive)
    assert counts[-1] == counts[1]
    assert counts[-1][2] == 0
    assert not objects[-1] - objects[1]  # what earlier tests have left may end meanwhile


async def _sub_agent_tasks():
    return sum("sub-agent" in task.get_name() for task in asyncio.all_tasks())
