"""An interrupt while a thread blocks for a turn or a map: wherever it arrives, all ends with it."""

import asyncio
import itertools
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from agent_magics import Agent
from agent_magics.engine import session
from agent_magics.engine.foreground import inbox, sync_bridge, waiting
from agent_magics.rows import mapping
from tests.support.models.row_server import RowServer
from tests.support.turns import scripted

# The modules by which a thread waits for a turn, and the function by which it waits for a map.
# Where they call others, the same handler is in force.
TURN = {module.__file__: "" for module in (session, inbox, sync_bridge, waiting)}
MAP = {mapping.__file__: "wait_sync"}


class PressAt:
    """Presses Ctrl-C at the n-th line of some code of this thread."""

    def __init__(self, count: int, where: dict[str | None, str]) -> None:
        self.left, self._where = count, where

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        name = self._where.get(frame.f_code.co_filename)
        if name is None or (name and frame.f_code.co_name != name):
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                signal.raise_signal(signal.SIGINT)
        return self


def presses(call: Callable[[], object], where: dict[str | None, str]) -> Iterator[int]:
    """Call again and again, each time with a press one line later, until the press is too late.

    Yields after each press that ended the call with KeyboardInterrupt. The thread's loop is busy,
    and Python's own handler raises, as in a notebook's cell that blocks.
    """

    async def cell() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # in the place of the runner's
        sys.settrace(press)
        try:
            call()
        finally:
            sys.settrace(None)

    previous = signal.getsignal(signal.SIGINT)
    for count in itertools.count(1):
        press = PressAt(count, where)
        try:
            asyncio.run(cell())
            assert press.left > 0, f"the press at line {count} was lost"
            return
        except KeyboardInterrupt:
            yield count
        finally:
            signal.signal(signal.SIGINT, previous)


@pytest.mark.soak
def test_a_press_ends_the_turn():
    agent = scripted(*["Hello."] * 2000)
    for count in presses(lambda: agent.run_sync("Hi."), TURN):
        # Nothing of the turn goes on: the next one is not refused.
        assert agent.run_sync("And now?").status == "completed", count
    assert count > 50


@pytest.mark.soak
def test_a_press_ends_the_map(tmp_path):
    with (
        RowServer(delay=0.5) as server,
        Agent("gpt-4o-mini", base_url=server.base_url, api_key="sk-a") as agent,
    ):
        loop = agent.session.engine.loop
        for count in presses(lambda: agent.map_sync("{{text}}", ["a"], cache=tmp_path / "a"), MAP):
            ran = [repr(task) for task in asyncio.all_tasks(loop) if "RowMapping" in repr(task)]
            assert not ran, count
    assert count > 10
