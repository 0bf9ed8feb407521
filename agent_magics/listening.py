"""Ends servers of asyncio without losing the connections that come at that moment."""

import asyncio

_MOMENT = 0.001  # seconds


async def stop_listening(server: asyncio.Server) -> None:
    """Close a server; each connection that it has accepted is served, and all others are refused.

    `Server.close` fails those that came in the same round of the loop: CPython's `Server._attach`
    raises then, and leaves the socket open. A timer goes on after all that a round has accepted,
    and before what the next one accepts.
    """
    await asyncio.sleep(_MOMENT)
    server.close()
    await asyncio.sleep(_MOMENT)  # asyncio begins to serve them
