"""A coroutine that runs on a loop of its own, and what it leaves there."""

import asyncio

import pytest

from agent_magics.engine.foreground.sync_bridge import run_to_end


@pytest.mark.parametrize("steps", range(5))
def test_a_task_that_ends_by_itself_while_its_loop_ends_is_no_error(steps):
    async def end_after_steps():
        for _ in range(steps):
            await asyncio.sleep(0)

    async def leave_a_task():
        left.append(asyncio.create_task(end_after_steps()))
        return "done"

    left = []
    assert run_to_end(leave_a_task(), pytest.fail) == "done"
    assert left[0].done()


def test_a_task_that_does_not_end_is_left_and_told(monkeypatch):
    monkeypatch.setattr("agent_magics.engine.foreground.sync_bridge._CLEAN_UP_SECONDS", 0.0)
    told = []

    async def go_on():
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                continue

    async def leave_a_task():
        task = asyncio.create_task(go_on())
        await asyncio.sleep(0)
        return task

    assert not run_to_end(leave_a_task(), lambda: told.append("left")).done()
    assert told == ["left"]
