"""Starts model servers that are not ours, each from its own environment in build/servers.

`make servers` installs them. Where one is missing the tests are skipped in one line, but not in CI.
"""

import os
import queue
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parents[1] / "build" / "servers"
PATIENCE = 180.0  # seconds of silence after which a server does not start any more
TRIES = 3  # somebody else may take the port first


def python_of(name: str) -> Path:
    """Return the Python of a server's environment; skip the test, or in CI fail it, without one."""
    python = ENVIRONMENTS / name / "bin" / "python"
    if not (ENVIRONMENTS / f"{name}.stamp").is_file():
        missing = f"the server {name} is not installed: make servers"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    return python


def free_port() -> int:
    """Return a port of the loopback that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


@contextmanager
def running(
    name: str, arguments: Sequence[str], *, ready: str, home: Path, env: dict[str, str]
) -> Iterator[str]:
    """Run ``tests/servers/NAME/serve.py`` and yield the line in which it says that it is ready.

    The server ends when its standard input does, so it does not outlive the tests whatever happens
    to them. Of the environment it gets nothing but `env`.

    Args:
        arguments: of the program; the text "PORT" stands for a free port.
        ready: what the line holds.
        home: an empty folder that it may write to.
    """
    command = [str(python_of(name)), str(HERE / name / "serve.py"), *arguments]
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
        )
        with process:
            try:
                said, found = _read_until(process, ready)
                if found is not None:
                    yield found
                    return
            finally:
                process.kill()
        if not tries_left:
            raise AssertionError(f"{name} did not say {ready!r}:\n{''.join(said)[-3000:]}")


def _read_until(process: subprocess.Popen, ready: str) -> tuple[list[str], str | None]:
    """Return what the server said, and the line with `ready`; what follows is read and dropped."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    said: list[str] = []
    while True:
        try:
            line = lines.get(timeout=PATIENCE)
        except queue.Empty:
            line = None
        if line is None:
            return said, None
        said.append(line)
        if ready in line:
            return said, line.strip()
