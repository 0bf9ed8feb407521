"""Ports for programs that cannot choose one when they open it: kernels, JupyterLab, servers."""

import random
import socket
from contextlib import suppress

# Linux gives ports from 32768 on to whoever opens any, and to each connection.
_RANGE = range(20_000, 32_768)
_chance = random.SystemRandom()  # each worker would choose the same ones by the tests' own seed


def free_port() -> int:
    """Return a port of the loopback interface that no other program is given meanwhile."""
    while True:
        port = _chance.choice(_RANGE)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
