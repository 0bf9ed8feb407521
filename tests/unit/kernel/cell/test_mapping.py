"""How a cell that maps ends when the person interrupts it."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from agent_magics.kernel.cell.mapping import MapCell

ENOUGH = 5  # steps of the loop, in which each task comes to where it waits


async def steps() -> None:
    for _ in range(ENOUGH):
        await asyncio.sleep(0)


class Mapping:
    """A map that has not begun to ask, as one whose rows are still being read."""

    is_going_on = False

    async def wait(self, _: object) -> None:
        self.is_going_on = True
        try:
            await asyncio.Event().wait()
        finally:
            self.is_going_on = False


@pytest.mark.parametrize("presses", [0, 1, 2])
def test_a_map_that_is_interrupted_twice_does_not_go_on_alone(presses: int) -> None:
    async def run() -> bool:
        mapping = Mapping()
        shell: Any = SimpleNamespace(display_pub=None)
        host: Any = SimpleNamespace(type_in=None)
        agent: Any = SimpleNamespace(mapping=lambda *_, **__: mapping)
        running = asyncio.create_task(MapCell(shell, host, agent).run("say it", []))
        await steps()
        for _ in range(presses):
            running.cancel()
            await steps()
        return mapping.is_going_on

    assert asyncio.run(run()) == (presses < 2)  # the first one waits for answers under way
