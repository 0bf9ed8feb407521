"""Wherever sub-agents are, `wait` gives up at its time-out, and an interrupt ends all of them.

How long both take is measured by `benchmarks/delegation.py`.
"""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from agent_magics import Call, tool
from tests.support.models.tree import TreeModel
from tests.support.turns import PATIENCE, StuckModel, outputs, sticking
from tests.turns.delegation.test_spawning import agent_with, spawn, wait

WAITS = [wait(timeout_ms=1), [Call("gave_up"), wait(timeout_ms=3_600_000)]]
WORKER = spawn(agent_type="worker")
HELD = "echo > here; exec sleep 3600"
CODE = "open('here', 'w').close()\nimport time\ntime.sleep(3600)"


@tool(parallel=True)
def change() -> str:
    """Change something."""
    return "changed"


async def in_a_request(run):
    model = TreeModel(main=[spawn(), *WAITS])
    model.models["explore_1"] = stuck = StuckModel()
    await run(model, stuck.streaming.wait)


async def in_a_tool_and_queued(run):
    begun, stick = sticking()
    scripts = {f"explore_{n}": [Call("stick")] for n in range(1, 7)}
    await run(TreeModel(main=[[spawn()] * 6, *WAITS], **scripts), begun.wait, stick)


async def in_a_question(run):
    asked = threading.Event()

    async def on_question(question):
        if question.tool != "change":
            return "approve"
        asked.set()
        return await asyncio.Event().wait()

    model = TreeModel(main=[WORKER, *WAITS], worker_1=[Call("change")])
    await run(model, asked.wait, change, approval="untrusted", on_question=on_question)


async def in_a_command(run):
    os.mkfifo("here")
    held = Call("shell", {"command": ["bash", "-c", HELD]})
    model = TreeModel(main=[WORKER, *WAITS], worker_1=[held])
    await run(model, Path("here").read_text, sandbox="danger-full-access")


async def in_scratch(run):
    os.mkfifo("here")
    held = Call("python", {"code": CODE, "where": "scratch"})
    model = TreeModel(main=[WORKER, *WAITS], worker_1=[held])
    await run(model, Path("here").read_text, "python")


@pytest.mark.parametrize(
    "moment",
    [
        in_a_request,
        in_a_tool_and_queued,
        in_a_question,
        in_a_command,
        pytest.param(in_scratch, marks=pytest.mark.needs("tier 1")),
    ],
)
def test_wait_gives_up_and_an_interrupt_ends_all(moment):
    async def run(model, reached, *functions, **options):
        waited = threading.Event()

        @tool(mutating=False, parallel=True)
        def gave_up() -> str:
            """Note that the first `wait` has returned."""
            waited.set()
            return ""

        with agent_with(model, gave_up, *functions, **options) as agent:
            running = asyncio.create_task(agent.run("Go."))
            for event in (reached, waited.wait):
                await asyncio.wait_for(asyncio.to_thread(event), PATIENCE)
            ends = await interrupted(agent, running)
            assert any("None has ended within 0.001 s" in text for _, text in outputs(agent))
        assert ends == {"stopped"}

    asyncio.run(moment(run))


def test_an_interrupt_ends_those_that_are_on_the_way():
    async def run(count):
        begun, stick = sticking()
        scripts = {f"explore_{n}": ["Ok."] for n in range(1, count + 1)}
        model = TreeModel(main=[[*[spawn()] * count, Call("stick")]], **scripts)
        with agent_with(model, stick) as agent:
            running = asyncio.create_task(agent.run("Go."))
            await asyncio.to_thread(begun.wait, PATIENCE)
            return await interrupted(agent, running)

    for count in (1, 4, 5, 40):
        assert asyncio.run(run(count)) <= {"stopped", "completed"}


async def interrupted(agent, running):
    """Interrupt a run; return the states of its sub-agents once nothing of them is left."""
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    agent.session.engine.spawn(_end(agent.sub_agents)).result(PATIENCE)
    return {child.status for child in agent.sub_agents.agents.values()}


async def _end(pool):
    while left := [*pool._work.values(), *pool._closing.values()]:
        await asyncio.wait(left)
