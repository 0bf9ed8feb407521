"""Begins and ends servers of asyncio: none is lost, nor connections that come at the end."""

import asyncio
from collections.abc import Awaitable

_MOMENT = 0.001  # seconds


async def start_listening(made: Awaitable[asyncio.Server]) -> asyncio.Server:
    """Let a server that was made with ``start_serving=False`` accept connections; return it.

    Where asyncio makes and starts it at once, a task that is cancelled then does not get it, and it
    listens for ever.
    """
    server = await made
    try:
        await server.start_serving()
    except BaseException:
        server.close()
        raise
    return server


async def stop_listening(server: asyncio.Server) -> None:
    """Close a server; each connection that it has accepted is served, and all others are refused.

    `Server.close` fails those that came in the same round of the loop: CPython's `Server._attach`
    raises then, and leaves the socket open. A timer goes on after all that a round has accepted,
    and before what the next one accepts.
    """
    try:
        await asyncio.sleep(_MOMENT)
    finally:
        server.close()
    await asyncio.sleep(_MOMENT)  # asyncio begins to serve them
