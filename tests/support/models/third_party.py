"""Starts model servers of other projects, each from its own environment in build/servers.

`make servers` installs them. Where one is missing the tests are skipped in one line, but not in CI.
"""

import os
import queue
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support import forks
from tests.support.needs import require
from tests.support.ports import free_port

SERVERS = Path(__file__).parents[2] / "servers"
ENVIRONMENTS = SERVERS.parents[1] / "build" / "servers"
PATIENCE = 180.0  # seconds of silence after which a server does not start any more
TRIES = 3  # somebody else may take the port first


def python_of(name: str) -> Path:
    """Return the Python of a server's environment."""
    require(f"server servers/{name}")
    return ENVIRONMENTS / name / "bin" / "python"


@contextmanager
def running(
    name: str, arguments: Sequence[str], *, ready: str, home: Path, env: dict[str, str]
) -> Iterator[str]:
    """Run ``tests/servers/NAME/serve.py`` and yield the line that says that it is ready.

    The server ends when its standard input is closed, so it does not outlive the tests. Its
    environment is `env` alone.

    Args:
        name: the server's folder in tests/servers.
        arguments: of the program; the text "PORT" stands for a free port.
        ready: a text in that line.
        home: an empty folder that it may write to.
        env: the environment variables.
    """
    command = [str(python_of(name)), str(SERVERS / name / "serve.py"), *arguments]
    for tries_left in reversed(range(TRIES)):
        port = str(free_port())
        process = subprocess.Popen(
            [port if word == "PORT" else word for word in command],
            cwd=home,
            env={"HOME": str(home), "PATH": os.defpath, "PYTHONUNBUFFERED": "1", **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            preexec_fn=forks.bound(),
        )
        with process:
            try:
                output, found = _read_until(process, ready)
                if found is not None:
                    yield found
                    return
            finally:
                process.kill()
        if not tries_left:
            raise AssertionError(f"{name} did not say {ready!r}:\n{''.join(output)[-3000:]}")


def _read_until(process: subprocess.Popen, ready: str) -> tuple[list[str], str | None]:
    """Return the server's output, and the line with `ready`; further output is discarded."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        with suppress(ValueError):  # closed by who has killed the server
            for line in process.stdout:
                lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    output: list[str] = []
    while True:
        try:
            line = lines.get(timeout=PATIENCE)
        except queue.Empty:
            line = None
        if line is None:
            return output, None
        output.append(line)
        if ready in line:
            return output, line.strip()
