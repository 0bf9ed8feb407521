"""How the kernel waits for the worker that takes a sub-agent."""

import asyncio
from types import SimpleNamespace

import pytest

from agent_magics._version import __version__
from agent_magics.elsewhere.session import SessionElsewhere
from agent_magics.rows.engines.link import Link

LIMIT = 10.0


class SlowEngine:
    """An engine whose task has begun, and connects when the test wants."""

    place = "place"  # in the working folder, since the address of a socket is 107 bytes at most

    def __init__(self):
        self.begun, self.accepted = asyncio.Event(), asyncio.Event()
        self.invitation = self.ended = None

    async def listen(self, serve):
        async def accept(reader, writer):
            self.accepted.set()
            await serve(reader, writer)

        return await asyncio.start_unix_server(accept, self.place), self.place

    async def start(self, task, invitation, given):
        self.invitation = invitation
        self.ended = asyncio.get_running_loop().create_future()
        self.begun.set()
        return self.ended


@pytest.mark.parametrize("why", ["cancelled", "ended"])
def test_a_worker_that_comes_when_nobody_waits_is_sent_away(why):
    async def go():
        engine = SlowEngine()
        session = SimpleNamespace(_description=None)
        waiting = asyncio.create_task(SessionElsewhere._worker(session, engine))
        await engine.begun.wait()
        link = Link(*await asyncio.open_unix_connection(engine.place))
        await engine.accepted.wait()
        if why == "cancelled":
            waiting.cancel()
        else:
            engine.ended.set_result("")
        await asyncio.wait({waiting})
        link.send("hello", engine.invitation.token, 1, __version__)
        with pytest.raises(EOFError):
            await asyncio.wait_for(link.read(), LIMIT)
        await link.end()
        assert waiting.cancelled() or waiting.exception()

    asyncio.run(go())
