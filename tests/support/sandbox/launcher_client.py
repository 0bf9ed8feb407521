"""A minimal client of the launcher, with which the launcher's own tests start it."""

import fcntl
import json
import os
import select
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from agent_magics.exec.launcher.wire import (
    Ended,
    Failed,
    Reply,
    SpawnRequest,
    Started,
    decode_reply,
    encode_request,
    receive_message,
    send_message,
)

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
_IMPORT = (
    f"import os, sys; sys.path.append({str(ROOT)!r}); "
    "from agent_magics.exec.launcher.zygote import main, linux; import resource; "
)
# The files of Python may be readable by root only, so the user is changed after the imports. That
# makes a process undumpable, which would hide whether the launcher does it.
_BECOME = (
    "resource.setrlimit(resource.RLIMIT_NPROC, ({most}, {most})); "
    "os.setgroups([]); os.setgid({uid}); os.setuid({uid}); linux.prctl(4, 1); "
)


class LauncherClient:
    """Starts a launcher; a context manager that ends it.

    Args:
        env: its environment.
        uid: the user it becomes.
        processes: RLIMIT_NPROC of that user.

    Attributes:
        hello: its first message.
        guardian: process id of its guardian, which is what was started.
        pid: process id of the launcher itself.
        tier: the highest tier of confinement that this machine has.
        reason: why it is not higher.
    """

    def __init__(
        self, env: dict[str, str] | None = None, uid: int | None = None, processes: int = 10_000
    ):
        self.socket, far_end = socket.socketpair()
        fd = far_end.fileno()
        become = "" if uid is None else _BECOME.format(uid=uid, most=processes)
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", f"{_IMPORT}{become}main({fd})"],
            pass_fds=[fd],
            env=env or {},
            stdin=subprocess.DEVNULL,
            cwd="/",
        )
        far_end.close()
        self.hello = json.loads(receive_message(self.socket)[0])
        self.guardian = self._process.pid
        self.pid = self.hello["pid"]
        self._probed: dict[str, Any] = {}

    def __enter__(self) -> "LauncherClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, and wait until the launcher and all its commands have ended."""
        self.socket.close()
        self.wait()

    def wait(self) -> int:
        """Wait until the launcher has ended."""
        return self._process.wait(timeout=30)

    @property
    def tier(self) -> int:
        return self.probe()["tier"]

    @property
    def reason(self) -> str:
        return self.probe()["reason"]

    def probe(self) -> dict[str, Any]:
        """Return the machine's capabilities; cached."""
        if not self._probed:
            send_message(self.socket, json.dumps({"probe": True}).encode())
            self._probed = json.loads(receive_message(self.socket)[0])["probe"]
        return self._probed

    def spawn(
        self, argv: Sequence[str], *, env: dict[str, str] | None = None, **fields: object
    ) -> "Command":
        """Start a command; `fields` are those of a SpawnRequest."""
        fields.setdefault("cwd", "/")
        request = SpawnRequest(argv=tuple(argv), env=ENVIRONMENT if env is None else env, **fields)
        return Command(self.socket, request)

    def run(self, argv: Sequence[str], **fields: object) -> "Command":
        """Run a command to its end."""
        command = self.spawn(argv, **fields)
        command.finish()
        return command


class Command:
    """One command, with pipes (stdout and stderr in one), or a terminal of 30 rows and 100 columns.

    Attributes:
        replies: the supervisor's messages.
        output: the command's output.
        lost: whether the supervisor ended without an Ended message.
    """

    def __init__(self, launcher: socket.socket, request: SpawnRequest, folder: int | None = None):
        self.replies: list[Reply] = []
        self.output = b""
        self.lost = False
        self.control, far_end = socket.socketpair()
        if request.tty:
            self.stdout, slave = os.openpty()
            self.stdin = os.dup(self.stdout)
            fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
            streams = [slave] * 3
        else:
            reader, self.stdin = os.pipe()
            self.stdout, writer = os.pipe()
            streams = [reader, writer, writer]
        opened = os.open(request.cwd, os.O_PATH) if folder is None else folder
        send_message(launcher, encode_request(request), [far_end.fileno(), opened, *streams])
        far_end.close()
        for fd in {opened, *streams}:
            os.close(fd)

    @property
    def pid(self) -> int:
        """Process id of the program; waits for its start."""
        while not self.replies:
            self._hear()
        assert isinstance(self.replies[0], Started), self.replies
        return self.replies[0].pid

    @property
    def failure(self) -> Failed:
        """The message why nothing was run."""
        assert isinstance(self.replies[0], Failed), self.replies
        return self.replies[0]

    @property
    def ended(self) -> Ended:
        """The message how it ended."""
        assert isinstance(self.replies[-1], Ended), self.replies
        return self.replies[-1]

    def say(self, word: bytes) -> None:
        """Send a control byte."""
        self.control.sendall(word)

    def read_until(self, text: bytes) -> None:
        """Read output until `text` is in it."""
        while text not in self.output:
            piece = self._read()
            assert piece, f"the output ended without {text!r}: {self.output!r}"

    def finish(self, timeout: float = 30) -> None:
        """Wait until the supervisor has ended; collect replies and output."""
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(self.stdout, select.POLLIN)
        waiting = {self.control.fileno(), self.stdout}
        while waiting:
            ready = poll.poll(timeout * 1000)
            assert ready, f"nothing came for {timeout} s: {self.replies} {self.output!r}"
            for fd, _ in ready:
                ended = not (self._read() if fd == self.stdout else self._hear())
                if ended:
                    waiting.remove(fd)
                    poll.unregister(fd)
        self.close()

    def close(self) -> None:
        """Close the connection: for its supervisor, the kernel has ended."""
        self.control.close()
        for fd in (self.stdin, self.stdout):
            if fd >= 0:
                os.close(fd)
        self.stdin = self.stdout = -1

    def _read(self) -> bytes:
        try:
            piece = os.read(self.stdout, 65536)
        except OSError:  # EIO: nobody has the terminal open any more
            piece = b""
        self.output += piece
        return piece

    def _hear(self) -> bool:
        try:
            data, _ = receive_message(self.control)
        except OSError:
            data = b""
        if data:
            self.replies.append(decode_reply(data))
        else:
            self.lost = not isinstance(self.replies[-1:] and self.replies[-1], Ended | Failed)
        return bool(data)


def watch(pids: Iterable[int]) -> list[int]:
    """Return descriptors that signal the end of processes; ended processes have none."""
    pidfds = []
    for pid in pids:
        with suppress(ProcessLookupError):
            pidfds.append(os.pidfd_open(pid))
    return pidfds


def wait_until_ended(pidfds: Iterable[int], timeout: float = 20) -> None:
    """Wait until the processes of these descriptors have ended; close them."""
    for fd in pidfds:
        ended, _, _ = select.select([fd], [], [], timeout)
        assert ended, f"a process lives on: {Path(f'/proc/self/fdinfo/{fd}').read_text('ascii')}"
        os.close(fd)


def family_of(pid: int) -> list[int]:
    """Return `pid` and all its descendants."""
    family = [pid]
    for member in family:
        family += children_of(member)
    return family


def children_of(pid: int) -> list[int]:
    """Return the children of process `pid`."""
    with suppress(FileNotFoundError, ProcessLookupError):
        threads = Path(f"/proc/{pid}/task").iterdir()
        words = " ".join((thread / "children").read_text("ascii") for thread in threads)
        return [int(word) for word in words.split()]
    return []


def marked(marker: str) -> list[int]:
    """Return the processes that have `marker` in their arguments or environment."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                words = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
                if marker.encode() in words:
                    found.append(int(folder.name))
    return found


def wait_until(condition: Callable[[], bool], timeout: float = 20) -> None:
    """Poll until `condition` holds, for events that the system does not signal."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        os.sched_yield()
