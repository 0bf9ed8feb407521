"""The engine's thread: what its tasks raise does not end it."""

import sys

import pytest

from agent_magics.engine.thread import EngineThread

SECONDS = 60


@pytest.fixture
def thread():
    made = EngineThread()
    yield made
    made.loop.call_soon_threadsafe(made.loop.stop)
    made._thread.join(SECONDS)
    made.loop.close()


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt])
def test_a_task_that_exits_ends_itself_alone(thread, raised):
    async def exits():
        raise raised

    async def works():
        return sys.version_info

    with pytest.raises(raised):
        thread.spawn(exits()).result(SECONDS)
    assert thread.spawn(works()).result(SECONDS) == sys.version_info
