"""Work whose call ends before the thread that is to do it has begun: it is not done."""

import asyncio
from types import SimpleNamespace
from typing import Any

from agent_magics.engine.channels.requests import Work
from agent_magics.engine.foreground.sync_bridge import run_elsewhere
from agent_magics.engine.foreground.waiting import Foreground
from agent_magics.protocol.events import MainThreadWork

ENOUGH = 5  # steps of the loop, in which the work would begin


def ended(ran: list[bool], loop: asyncio.AbstractEventLoop) -> Work:
    """Return work that was handed over as its call ended."""

    async def run() -> None:
        ran.append(True)

    work = Work("w1", "async", run, loop)
    work.end(lambda: None)
    return work


def test_it_is_not_begun_on_the_loop_of_the_thread_that_waits() -> None:
    ran: list[bool] = []

    async def serve() -> None:
        work = ended(ran, asyncio.get_running_loop())
        taken: Any = SimpleNamespace(take=lambda _: work)
        session: Any = SimpleNamespace(channels=SimpleNamespace(work=taken))
        host: Any = None
        Foreground(session, host)._work(
            MainThreadWork(
                seq=1,
                at=0.0,
                turn_id="t1",
                agent="a",
                question_id="w1",
                call_id="c1",
                work="async",
                name="tool",
            )
        )
        for _ in range(ENOUGH):
            await asyncio.sleep(0)

    asyncio.run(serve())
    assert ran == []


def test_it_is_not_begun_on_a_loop_of_its_own() -> None:
    ran: list[bool] = []
    loop = asyncio.new_event_loop()
    run_elsewhere(ended(ran, loop), set())
    loop.close()
    assert ran == []
