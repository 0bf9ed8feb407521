"""Starts and ends the launcher process, and reads its messages."""

import contextlib
import json
import os
import queue
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from agent_magics.exec.launcher.wire import receive_message
from agent_magics.protocol.errors import FatalError, clause

ANSWER_LIMIT = 30.0  # seconds for an answer of the launcher, enough for a busy machine

_ROOT = str(Path(__file__).resolve().parents[2])  # the folder that the package is in
_START = (
    "import sys; sys.path.append({root!r}); "  # appended, so that the standard library comes first
    "from agent_magics.exec.launcher.zygote import main; main(int(sys.argv[1]))"
)
# Variables for the launcher's own Python; commands get the environment of their request.
_PASSED = ("PATH", "LD_LIBRARY_PATH", "AGENT_MAGICS_TEST_ABI")
_LAST_WORDS = 2000  # characters of a dead launcher's stderr to report


class LauncherProcess:
    """The launcher process and the socket to it.

    Attributes:
        connection: the socket.
        pid: of the launcher; the process that was started is its guardian.
        dead: whether it is known to have ended.
    """

    def __init__(self) -> None:
        self.dead = False
        # The main thread waits here: `SimpleQueue.get` would wait for ever after a slow signal
        # handler (see `engine.foreground.inbox`).
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        try:
            self._start()
        except OSError as error:
            raise FatalError(
                f"The launcher of commands ({sys.executable} -I -S) could not be started: "
                f"{clause(error)}."
            ) from None
        self.pid = self._wait_for_hello()

    def _start(self) -> None:
        with contextlib.ExitStack() as launcher_ends, contextlib.ExitStack() as failing:
            self.connection, connection = socket.socketpair()
            launcher_ends.callback(connection.close)
            failing.callback(self.connection.close)
            # Bounded by the pipe's capacity: when it is full, further output is lost.
            self._errors, errors = os.pipe()
            launcher_ends.callback(os.close, errors)
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
        """Wait for the next answer; None on time-out or if the launcher is gone."""
        with contextlib.suppress(queue.Empty):
            return self._answers.get(timeout=ANSWER_LIMIT)
        return None

    def last_words(self) -> str:
        """Return what it wrote to stderr, as the end of a sentence, or ""."""
        data = b""
        with contextlib.suppress(OSError):
            data = os.read(self._errors, 64 * 1024)
        text = data.decode("utf-8", "replace")[-_LAST_WORDS:].strip()
        return f"; it said: {text}" if text else ""

    def end(self, timeout: float) -> None:
        """Close the connection, upon which it kills all commands and ends; wait for that."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)

    def disown(self) -> None:
        """In a forked child: release the descriptors of the parent's launcher."""
        self._process.returncode = 0  # the parent's child, so neither wait for it nor warn
        self.close()

    def close(self) -> None:
        """Close the descriptors; nobody may watch the socket any more."""
        self.dead = True
        self.connection.close()
        errors, self._errors = self._errors, -1
        if errors >= 0:
            os.close(errors)

    def _wait_for_hello(self) -> int:
        self.connection.settimeout(ANSWER_LIMIT)
        try:
            hello, _ = receive_message(self.connection)
            pid: int = json.loads(hello)["pid"]
            return pid
        except BaseException as error:  # KeyboardInterrupt too
            self._process.kill()
            self._process.wait()
            words = self.last_words()
            self.close()
            if not isinstance(error, OSError | ValueError | KeyError):
                raise
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
