"""Servers of asyncio end without losing what came at that moment."""

import asyncio
import gc
import socket

import pytest

from agent_magics.listening import stop_listening


@pytest.mark.parametrize("steps", range(8))
def test_a_connection_at_the_end_is_served_or_refused(steps):
    """However many steps of the loop it came before; a socket that is lost is a warning."""
    served = []

    async def serve(reader, writer):
        served.append(writer)
        writer.close()

    async def end():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname()) as client:
            for _ in range(steps):
                await asyncio.sleep(0)
            await stop_listening(server)
            assert asyncio.all_tasks() == {asyncio.current_task()}
            await asyncio.sleep(0)
            client.setblocking(False)
            try:
                refused = client.recv(1) != b""
            except ConnectionResetError:
                refused = True
            assert bool(served) is not refused

    asyncio.run(end())
    gc.collect()
