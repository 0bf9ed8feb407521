"""Servers of asyncio begin and end without being lost, or losing what came at that moment."""

import asyncio
import gc
import socket

import pytest

from agent_magics.listening import start_listening, stop_listening


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


@pytest.mark.parametrize("steps", range(1, 8))
@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_a_server_whose_start_is_cancelled_does_not_listen(kind, steps):
    """However many steps of the loop its start has taken; who gets the server closes it."""

    def served(_reader, writer):
        writer.close()

    async def begin():
        if kind == "tcp":
            made = asyncio.start_server(served, "127.0.0.1", 0, start_serving=False)
        else:
            made = asyncio.start_unix_server(served, "place", start_serving=False)
        (await start_listening(made)).close()

    async def cancelled():
        watched = asyncio.get_running_loop()._selector.get_map()
        before = len(watched)
        beginning = asyncio.create_task(begin())
        for _ in range(steps):
            await asyncio.sleep(0)
        beginning.cancel()
        await asyncio.wait({beginning})
        assert len(watched) == before

    asyncio.run(cancelled())


@pytest.mark.parametrize("steps", range(1, 4))
def test_a_server_whose_end_is_cancelled_does_not_listen(steps):
    async def cancelled():
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        ending = asyncio.create_task(stop_listening(server))
        for _ in range(steps):
            await asyncio.sleep(0)
        ending.cancel()
        await asyncio.wait({ending})
        assert not server.is_serving()

    asyncio.run(cancelled())
