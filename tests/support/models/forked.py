"""Runs model servers as forks of one process that has imported what they need.

That takes longer than all else of a start. The process ends with this one, and its servers too.
"""

import asyncio
import atexit
import functools
import gc
import json
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from agent_magics.exec.launcher import linux
from tests.support import forks

_ROOT = Path(__file__).parents[3]
Serve = Callable[..., Coroutine[Any, Any, None]]
_one_at_a_time = threading.Lock()


class ForkedServer:
    """A process that runs a server until it is killed.

    Args:
        serve: a function of a module that is given `arguments`, tells its port by calling its last
            argument with it, and goes on.
        arguments: what can be pickled.

    Attributes:
        port: where it listens.

    Raises:
        AssertionError: it ended before it told its port, with its error.
    """

    def __init__(self, serve: Serve, *arguments: Any) -> None:
        wanted = pickle.dumps((serve, arguments)).hex()
        with _one_at_a_time:
            template = _template()
            assert template.stdin and template.stdout
            template.stdin.write(f"{wanted}\n")
            template.stdin.flush()
            pid, told = json.loads(template.stdout.readline())
        assert told.isdigit(), f"a server ended before it told its port:\n{told}"
        self._process = os.pidfd_open(pid)
        self.port = int(told)

    def has_ended(self, longest: float) -> bool:
        """Return whether it has ended, after at most so many seconds."""
        return bool(select.select([self._process], [], [], longest)[0])

    def kill(self) -> None:
        """End it, and wait until it has ended."""
        with suppress(ProcessLookupError):  # it has ended itself
            signal.pidfd_send_signal(self._process, signal.SIGKILL)
        select.select([self._process], [], [])
        os.close(self._process)


@functools.cache
def _template() -> subprocess.Popen[str]:
    """Start the process that forks servers; it ends with its standard input."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "tests.support.models.forked"]
    template = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=_ROOT)
    atexit.register(template.communicate)
    return template


def _fork_servers() -> None:
    import tests.support.models.batch_server  # noqa: F401, PLC0415 - and what it imports

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the killed are reaped
    gc.freeze()
    for line in sys.stdin:
        reader, writer = os.pipe()
        be_server = functools.partial(_be_server, os.getpid(), *pickle.loads(bytes.fromhex(line)))
        pid = forks.start(functools.partial(be_server, writer))
        os.close(writer)
        with open(reader, encoding="utf-8") as told:
            os.write(1, f"{json.dumps([pid, told.read()])}\n".encode())


def _be_server(template: int, serve: Serve, arguments: tuple[Any, ...], writer: int) -> None:
    linux.die_with_parent(template, signal.SIGKILL)
    told = open(writer, "wb", buffering=0)  # noqa: SIM115 - closed when the port is told

    def tell(port: int) -> None:
        told.write(b"%d" % port)
        told.close()

    try:
        asyncio.run(serve(*arguments, tell))
    except BaseException:
        if not told.closed:
            told.write(traceback.format_exc().encode())
        raise


if __name__ == "__main__":
    _fork_servers()
