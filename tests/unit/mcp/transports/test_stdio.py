"""How a server program is let go of."""

import asyncio
import os
import sys

import pytest

from agent_magics.exec.servers import LogRing
from agent_magics.mcp.transports.stdio import StdioTransport
from agent_magics.protocol.mcp import McpServerConfig
from tests.support.descriptors import none_left
from tests.support.mcp.links import LIMIT

# It ends neither with its input nor by SIGTERM.
HELLO = '{"jsonrpc":"2.0","method":"notifications/message"}'
STUBBORN = (
    f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print({HELLO!r}, flush=True)\n"
    "while True: signal.pause()"
)


def hear(*_):
    """Take what the transport tells of."""


@pytest.mark.needs("machine Linux")
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_an_end_that_is_cancelled_leaves_neither_the_program_nor_its_pipes(tmp_path, steps):
    config = McpServerConfig("stubborn", sys.executable, ("-S", "-c", STUBBORN))

    async def go():
        log = LogRing(str)
        transport = StdioTransport(config, os.environ, tmp_path, log, hear, hear)
        incoming, _ = await transport.__aenter__()
        await incoming.receive()  # it runs
        ending = asyncio.create_task(transport.__aexit__())
        for _ in range(steps):
            await asyncio.sleep(0)
        ending.cancel()
        await asyncio.wait({ending})
        assert ending.cancelled()
        assert await asyncio.to_thread(transport._process.wait, LIMIT)

    asyncio.run(go())  # the first one also starts the launcher
    with none_left():
        asyncio.run(go())
