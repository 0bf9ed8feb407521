"""Ports for programs that cannot choose one when they open it: kernels, JupyterLab, servers."""

import itertools
import os
import random
import socket
from contextlib import suppress

# Linux gives ports from 32768 on to whoever opens any, and to each connection. Each worker has its
# own below them, since what takes a port opens it a moment later.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 16
_RANGE = range(20_000 + _WORKER, 32_768, 16)
# In an order that the tests' own seed does not set, and none again before all were given: the five
# of one kernel are chosen before it opens the first.
_ORDER = itertools.cycle(random.SystemRandom().sample(_RANGE, len(_RANGE)))


def free_port() -> int:
    """Return a port of the loopback interface that no other program is given meanwhile."""
    for port in _ORDER:
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("the order has no end")
