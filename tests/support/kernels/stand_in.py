"""Stands for a kernel that `forked.py` forks: passes signals on to it, and ends when it does."""

import json
import os
import signal
import socket
import sys

address, *arguments = sys.argv[1:]
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as template:
    template.connect(address)
    wanted = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}
    socket.send_fds(template, [json.dumps(wanted).encode()], [1, 2])
    kernel = int(template.recv(20))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os.killpg(kernel, number))
    # Nothing comes where the template was killed.
    sys.exit(int(template.recv(20) or 1))
