"""Ports for programs that cannot choose one when they open it: kernels, JupyterLab, servers."""

import os
import random
import socket
from contextlib import suppress

# Linux gives ports from 32768 on to whoever opens any, and to each connection. Each worker has its
# own, since what takes a port opens it a moment later: with common ones two may
# choose the same.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 16
_RANGE = range(20_000 + _WORKER, 32_768, 16)
_chance = random.SystemRandom()  # each worker would choose the same ones by the tests' own seed


def free_port() -> int:
    """Return a port of the loopback interface that no other program is given meanwhile."""
    while True:
        port = _chance.choice(_RANGE)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
