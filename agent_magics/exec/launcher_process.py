"""The launcher's process as the kernel holds it: started, heard, ended."""

import contextlib
import json
import os
import queue
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from agent_magics.backends.launcher.wire import receive_message
from agent_magics.protocol.errors import FatalError

ANSWER_LIMIT = 30.0  # seconds the launcher may take for an answer, on a machine that is busy

_ROOT = str(Path(__file__).resolve().parents[3])  # the folder that the package is in
_START = (
    "import sys; sys.path.append({root!r}); "  # at the end: the standard library comes first
    "from agent_magics.backends.launcher.zygote import main; main(int(sys.argv[1]))"
)
# What the launcher's own Python may need; commands get the environment of their request.
_PASSED = ("PATH", "LD_LIBRARY_PATH", "AGENT_MAGICS_TEST_ABI")
_LAST_WORDS = 2000  # characters of what a launcher wrote before it died


class LauncherProcess:
    """The process and the socket to it.

    Attributes:
        connection: the socket.
        pid: of the launcher; the process that was started guards it.
        dead: it was seen that it has ended.
    """

    def __init__(self) -> None:
        self.dead = False
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        try:
            self._start()
        except OSError as error:
            raise FatalError(
                f"The launcher of commands ({sys.executable} -I -S) could not be started: {error}."
            ) from None
        self.pid = self._wait_for_hello()

    def _start(self) -> None:
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as failing:
            self.connection, connection = socket.socketpair()
            theirs.callback(connection.close)
            failing.callback(self.connection.close)
            # Bounded by what a pipe holds: when it is full, the launcher's words are lost.
            self._errors, errors = os.pipe()
            theirs.callback(os.close, errors)
            failing.callback(os.close, self._errors)
            os.set_blocking(self._errors, False)
            os.set_blocking(errors, False)
            self._process = _start_launcher(connection, errors)
            failing.pop_all()

    def hear(self) -> bool:
        """Receive one answer; False where the launcher is gone."""
        try:
            data, _ = receive_message(self.connection)
        except OSError:
            data = b""
        self.dead = self.dead or not data
        self._answers.put(json.loads(data) if data else None)
        return bool(data)

    def next_answer(self) -> dict[str, Any] | None:
        """Wait for the next answer; None where none comes."""
        with contextlib.suppress(queue.Empty):
            return self._answers.get(timeout=ANSWER_LIMIT)
        return None

    def last_words(self) -> str:
        """What it wrote to stderr, as the end of a sentence; "" where it wrote nothing."""
        said = b""
        with contextlib.suppress(OSError):
            said = os.read(self._errors, 64 * 1024)
        text = said.decode("utf-8", "replace")[-_LAST_WORDS:].strip()
        return f"; it said: {text}" if text else ""

    def end(self, timeout: float) -> None:
        """Hang up, at which it kills all that runs and ends; wait for that."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)

    def disown(self) -> None:
        """In a forked child: it is the parent's."""
        self._process.returncode = 0  # not ours to wait for, nor to warn about
        self.close()

    def close(self) -> None:
        """Give the descriptors back; nobody may watch the socket any more."""
        self.dead = True
        self.connection.close()
        errors, self._errors = self._errors, -1
        if errors >= 0:
            os.close(errors)

    def _wait_for_hello(self) -> int:
        self.connection.settimeout(ANSWER_LIMIT)
        try:
            hello, _ = receive_message(self.connection)
            return json.loads(hello)["pid"]
        except (OSError, ValueError, KeyError):
            self._process.kill()
            self._process.wait()
            words = self.last_words()
            self.close()
            raise FatalError(
                f"The launcher of commands ({sys.executable} -I -S) does not run on this "
                f"machine{words}."
            ) from None


def _start_launcher(connection: socket.socket, errors: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _START.format(root=_ROOT), str(connection.fileno())],
        pass_fds=[connection.fileno()],
        env={name: os.environ[name] for name in _PASSED if name in os.environ},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        start_new_session=True,
    )
