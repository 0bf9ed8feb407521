"""Starts commands without forking the kernel: asks the launcher, a small process beside it.

Law: nothing of the kernel is inherited by a command but what travels with the request.
"""

import atexit
import contextlib
import errno
import fcntl
import json
import os
import queue
import shutil
import socket
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_magics.backends.exec.process import Channels, Process, end_all
from agent_magics.backends.exec.pump import SUPERVISOR_GONE, Pump
from agent_magics.backends.launcher.wire import (
    Confinement,
    Failed,
    SpawnRequest,
    Started,
    decode_reply,
    encode_request,
    receive_message,
    send_message,
)
from agent_magics.protocol.errors import FatalError, RespondToModel

_ROOT = str(Path(__file__).resolve().parents[3])  # the folder that the package is in
_START = (
    "import sys; sys.path.append({root!r}); "  # at the end: the standard library comes first
    "from agent_magics.backends.launcher.zygote import main; main(int(sys.argv[1]))"
)
# What the launcher's own Python may need; commands get the environment of their request.
_PASSED = ("PATH", "LD_LIBRARY_PATH", "AGENT_MAGICS_TEST_ABI")
_ANSWER_LIMIT = 30.0  # seconds the launcher may take for an answer, on a machine that is busy
_WORD_LIMIT = 5.0  # seconds a supervisor may take from the begin of a message to its end
_CLOSE_LIMIT = 1.0  # seconds until what runs is killed without being asked, at the end
_LAST_WORDS = 2000  # characters of what a launcher wrote before it died
_MOST_REQUEST = 32 << 20  # bytes of a command with its environment; Linux takes 6 MiB at most

# Descriptors are made and handed over under this lock, and a fork waits for it: a child forked in
# between would keep them open, and a command's end would not be seen.
_fork_lock = threading.RLock()
_launchers: "set[Launcher]" = set()
_shared: "Launcher | None" = None


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What this machine can do to confine a command.

    Attributes:
        tier: 0 nothing; 1 Landlock, seccomp and user notification; 2 namespaces as well.
        abi: the Landlock ABI, 0 where there is none.
        reason: why the tier is not higher, as a sentence; "" where it is the highest.
    """

    tier: int
    abi: int
    reason: str = ""


class Launcher:
    """The launcher of this process; it is started when first needed and again when it has died.

    All methods may be called from any thread. In a forked child a launcher is closed; the child
    gets one of its own from `shared_launcher`.
    """

    def __init__(self) -> None:
        self._zygote: _Zygote | None = None
        self._pump: Pump | None = None
        self._starting: set[Channels] = set()
        self._running: set[Process] = set()
        self._capabilities: Capabilities | None = None
        self._probing = threading.Lock()
        self.closed = False
        with _fork_lock:
            _launchers.add(self)

    def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: str | Path,
        env: Mapping[str, str],
        tty: bool = False,
        stdin: bool = False,
        confinement: Confinement | None = None,
        limits: Mapping[str, int] | None = None,
        rows: int = 24,
        cols: int = 80,
    ) -> Process:
        """Start a command; returns when its program runs.

        Args:
            argv: program and arguments, passed on as they are; looked up in PATH of `env`.
            cwd: the folder it runs in.
            env: its whole environment.
            tty: give it a terminal, of `rows` and `cols`.
            stdin: without a terminal: a pipe to write to; else it reads nothing.
            confinement: what it may touch; None for all that this user may.
            limits: RLIMIT name -> value.
            rows: lines of its terminal.
            cols: characters of a line of its terminal.

        Raises:
            RespondToModel: it could not be started.
            FatalError: the launcher could not be started.
        """
        request = SpawnRequest(
            tuple(argv), str(cwd), dict(env), tty, confinement, dict(limits or {})
        )
        message = _encode(request)
        with _fork_lock:
            channels = self._hand_over(request, message, (rows, cols), stdin)
            self._starting.add(channels)
        try:
            pid = _wait_for_start(request, channels)
            process = Process(pid, request.argv, channels, self._pump.wake)
            self._running.add(process)
        except BaseException:  # KeyboardInterrupt too: closing kills what may have been started
            channels.close()
            raise
        finally:
            self._starting.discard(channels)
        process.on_end(self._running.discard)
        self._pump.adopt(process)
        return process

    @property
    def pid(self) -> int | None:
        """The process id of the launcher, None where none runs."""
        zygote = self._zygote
        return None if zygote is None or zygote.dead else zygote.pid

    def capabilities(self) -> Capabilities:
        """Return what this machine can do; found once, by doing it, in the launcher."""
        with self._probing:
            if self._capabilities is None:
                try:
                    self._capabilities = self._probe()
                except FatalError as error:
                    return Capabilities(0, 0, str(error))
            return self._capabilities

    def close(self) -> None:
        """Kill all that runs and end the launcher; bounded to about 2 seconds."""
        with _fork_lock:
            if self.closed:
                return
            self.closed = True
            _launchers.discard(self)
            zygote, self._zygote = self._zygote, None
            pump, running = self._pump, list(self._running)
        end_all(running, _CLOSE_LIMIT)
        if pump is not None:
            pump.stop(_CLOSE_LIMIT)
        if zygote is not None:
            zygote.end(_CLOSE_LIMIT)
            zygote.close()

    def _hand_over(
        self, request: SpawnRequest, message: bytes, size: tuple[int, int], stdin: bool
    ) -> Channels:
        """Make the channels and send the request; a launcher that has died is replaced once."""
        for _ in range(2):
            zygote = self._living_zygote()
            with contextlib.ExitStack() as theirs:
                channels, fds = _make_channels(request, size, stdin, theirs)
                try:
                    send_message(zygote.connection, message, fds)
                except OSError:
                    channels.close()
                    zygote.dead = True
                else:
                    return channels
        raise FatalError(
            "The launcher of commands ended twice before it took one" + zygote.last_words() + "."
        )

    def _living_zygote(self) -> "_Zygote":
        if self.closed:
            raise FatalError("Commands cannot run any more: the kernel is shutting down.")
        if self._pump is None:
            self._pump = Pump()
        if self._zygote is not None and self._zygote.dead:
            self._zygote.end(_CLOSE_LIMIT)
            self._pump.release(self._zygote.connection, self._zygote.close)
            self._zygote = None
        if self._zygote is None:
            self._zygote = zygote = _Zygote()
            self._pump.watch(zygote.connection, lambda: self._hear(zygote))
        return self._zygote

    def _hear(self, zygote: "_Zygote") -> None:
        """On the pump's thread: take an answer of the launcher, or note its death."""
        if not zygote.hear():
            self._pump.ignore(zygote.connection)

    def _probe(self) -> Capabilities:
        with _fork_lock:
            zygote = self._living_zygote()
            with contextlib.suppress(OSError):  # dead: there will be no answer
                send_message(zygote.connection, b'{"probe": true}')
        answer = zygote.next_answer()
        if answer is None:
            raise FatalError(
                "What this machine can do to confine commands could not be found out: the launcher "
                "did not answer" + zygote.last_words() + "."
            )
        found = answer["probe"]
        return Capabilities(found["tier"], found["abi"], found["reason"])

    def _disown(self) -> None:
        """In a forked child: close the copies of the parent's descriptors."""
        self.closed = True
        for channels in self._starting:
            channels.close()
        for process in self._running:
            process.disown("It belongs to the process that this one was forked from.")
        if self._pump is not None:
            self._pump.forget()
        if self._zygote is not None:
            self._zygote.disown()


def shared_launcher() -> Launcher:
    """Return the launcher of this process."""
    global _shared
    with _fork_lock:
        if _shared is None or _shared.closed:
            _shared = Launcher()
        return _shared


class _Zygote:
    """The launcher's process and the socket to it.

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
            self._process = _start_zygote(connection, errors)
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

    def next_answer(self) -> "dict[str, Any] | None":
        """Wait for the next answer; None where none comes."""
        with contextlib.suppress(queue.Empty):
            return self._answers.get(timeout=_ANSWER_LIMIT)
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
        self.connection.settimeout(_ANSWER_LIMIT)
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


def _start_zygote(connection: socket.socket, errors: int) -> "subprocess.Popen[bytes]":
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


# -- one request --------------------------------------------------------------------------------


def _encode(request: SpawnRequest) -> bytes:
    if not request.argv or not request.argv[0]:
        raise RespondToModel("The command is empty; give the program and its arguments as a list.")
    try:
        size = sum(map(len, map(os.fsencode, (*request.argv, request.cwd))))
    except UnicodeEncodeError:
        size = -1
    if size < 0 or "\0" in "".join((*request.argv, request.cwd)):
        raise RespondToModel(
            "The command has a NUL character or a half character in it; remove it."
        )
    if size > _MOST_REQUEST:
        raise RespondToModel(_TOO_LONG)
    return encode_request(request)


def _make_channels(
    request: SpawnRequest, size: tuple[int, int], stdin: bool, theirs: contextlib.ExitStack
) -> tuple[Channels, list[int]]:
    """Make our channels and the descriptors to send, which `theirs` closes."""
    try:
        control, their_control = socket.socketpair()
        theirs.callback(their_control.close)
        channels = Channels(control, tty=request.tty)
        with contextlib.ExitStack() as failing:
            failing.callback(channels.close)
            folder = _open_folder(request.cwd)
            theirs.callback(os.close, folder)
            if request.tty:
                streams = _make_terminal(channels, size, theirs)
            else:
                streams = _make_pipes(channels, stdin, theirs)
            failing.pop_all()
    except OSError as error:
        raise RespondToModel(f"The command could not be started: {error.strerror}.") from None
    return channels, [their_control.fileno(), folder, *streams]


def _open_folder(folder: str) -> int:
    try:
        # O_PATH needs no right to read; macOS has none.
        return os.open(folder, getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise RespondToModel(
            f"The folder {folder!r} to run in does not exist or is not a folder."
        ) from None


def _make_terminal(
    channels: Channels, size: tuple[int, int], theirs: contextlib.ExitStack
) -> list[int]:
    ours, terminal = os.openpty()
    theirs.callback(os.close, terminal)
    channels.outputs[ours] = "stdout"
    os.set_blocking(ours, False)
    channels.input = os.dup(ours)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", *size, 0, 0))
    return [terminal] * 3


def _make_pipes(channels: Channels, stdin: bool, theirs: contextlib.ExitStack) -> list[int]:
    if stdin:
        their_input, channels.input = os.pipe()
        os.set_blocking(channels.input, False)
    else:
        their_input = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    theirs.callback(os.close, their_input)
    streams = [their_input]
    for name in ("stdout", "stderr"):
        ours, writer = os.pipe()
        theirs.callback(os.close, writer)
        channels.outputs[ours] = name
        os.set_blocking(ours, False)
        streams.append(writer)
    return streams


def _wait_for_start(request: SpawnRequest, channels: Channels) -> int:
    """Return the process id of the program, once it runs."""
    channels.control.settimeout(_ANSWER_LIMIT)
    try:
        data, _ = receive_message(channels.control)
    except TimeoutError:
        raise RespondToModel(
            f"The command was not started within {_ANSWER_LIMIT:.0f} s; nothing of it goes on. "
            "Try again when the machine is less busy."
        ) from None
    except OSError:
        data = b""
    if not data:
        raise RespondToModel(
            f"{SUPERVISOR_GONE} This command may have begun; look at what it has done before you "
            "run it again."
        )
    reply = decode_reply(data)
    if isinstance(reply, Started):
        channels.control.settimeout(_WORD_LIMIT)
        return reply.pid
    raise RespondToModel(_why_not_started(request, reply))


_TOO_LONG = "The command is too long for the system; put the data into a file."
_EXEC_REASONS = {
    errno.EACCES: "cannot be run: it is not an executable file that you may use.",
    errno.EPERM: "cannot be run: it is not an executable file that you may use.",
    errno.ENOEXEC: "cannot be run: it is neither a program nor a script with a #! line.",
}


def _why_not_started(request: SpawnRequest, failed: Failed) -> str:
    program = request.argv[0]
    if failed.stage == "confine":
        return f"The sandbox could not be set up, so nothing was run: {failed.message}."
    if failed.stage == "cwd":
        return f"The folder {request.cwd!r} to run in cannot be entered: {failed.message}."
    if failed.stage != "exec":
        return f"The command could not be started: {failed.message}."
    if failed.errno == errno.E2BIG:
        return _TOO_LONG
    if failed.errno == errno.ENOENT and "interpreter" in failed.message:
        return f"{program!r} cannot run: the interpreter that its first line names is not there."
    if failed.errno == errno.ENOENT or _is_nowhere(request):
        return f"Command not found: {program!r}. Check the name, or whether it is installed."
    return f"{program!r} " + _EXEC_REASONS.get(failed.errno, f"cannot be run: {failed.message}.")


def _is_nowhere(request: SpawnRequest) -> bool:
    """Whether no folder of PATH has the program: one that may not be searched is an EACCES."""
    program = request.argv[0]
    return "/" not in program and not shutil.which(program, os.F_OK, request.env.get("PATH"))


# -- the end of this process, and its forks -----------------------------------------------------


def _after_fork_in_child() -> None:
    global _shared
    for launcher in _launchers:
        launcher._disown()
    _launchers.clear()
    _shared = None
    _fork_lock.release()


def _close_all() -> None:
    for launcher in list(_launchers):
        launcher.close()


os.register_at_fork(
    before=_fork_lock.acquire,
    after_in_parent=_fork_lock.release,
    after_in_child=_after_fork_in_child,
)
atexit.register(_close_all)
