"""How the pipes of a server are connected, also by a task that is cancelled at any step of it."""

import asyncio
import os
from types import SimpleNamespace
from typing import Any

import pytest

from agent_magics.exec.servers import connect_pipes

LIMIT = 10.0
STEPS = range(1, 12)  # of the loop; connecting takes some seven


async def read_pipe(descriptor: int) -> tuple[asyncio.StreamReader, asyncio.BaseTransport]:
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0)
    )
    return reader, transport


async def texts_of_later_pipes(number: int) -> list[bytes]:
    """Return what readers of new pipes, which have the numbers of closed ones, receive."""
    texts = []
    for _ in range(number):
        reading, writing = os.pipe()
        os.write(writing, b"theirs")
        os.close(writing)
        reader, transport = await read_pipe(reading)
        texts.append(await asyncio.wait_for(reader.read(), LIMIT))
        transport.close()
    return texts


async def cancelled_after(steps: int) -> list[Any]:
    problems: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: problems.append(told))
    (server_in, stdin), (stdout, server_out), (stderr, server_err) = os.pipe(), os.pipe(), os.pipe()
    process: Any = SimpleNamespace(pipes=(stdin, stdout, stderr))
    protocols = [asyncio.BaseProtocol(), asyncio.Protocol(), asyncio.Protocol()]
    connecting = asyncio.create_task(connect_pipes(process, *protocols))
    for _ in range(steps):
        await asyncio.sleep(0)
    connecting.cancel()
    try:
        for transport in await connecting:
            transport.close()
    except asyncio.CancelledError:
        pass
    # Its standard input has ended: nothing holds the pipe any more.
    reader, transport = await read_pipe(server_in)
    assert await asyncio.wait_for(reader.read(), LIMIT) == b""
    transport.close()
    assert await texts_of_later_pipes(3) == [b"theirs"] * 3
    os.close(server_out)
    os.close(server_err)
    return problems


@pytest.mark.parametrize("steps", STEPS)
def test_a_cancelled_start_leaves_no_pipe_that_takes_what_is_anothers(steps: int) -> None:
    assert asyncio.run(cancelled_after(steps)) == []
