"""Ports for programs that cannot choose one when they open it: kernels, JupyterLab, servers."""

import functools
import itertools
import os
import random
import socket
from collections.abc import Iterator
from contextlib import suppress

# Linux gives ports from 32768 on to whoever opens any, and to each connection. Each worker has its
# own below them, since what takes a port opens it a moment later.
_FIRST, _BEHIND, _STEP = 20_000, 32_768, 16


@functools.cache
def _order() -> Iterator[int]:
    """Return a worker's ports, again and again.

    In an order that the tests' own seed does not set, and none again before all were given: the
    five of one kernel are chosen before it opens the first.
    """
    own = range(_FIRST + int(os.environ.get("TEST_WORKER", "0")) % _STEP, _BEHIND, _STEP)
    return itertools.cycle(random.SystemRandom().sample(own, len(own)))


def free_port() -> int:
    """Return a port of the loopback interface that no other program is given meanwhile."""
    for port in _order():
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("the order has no end")
