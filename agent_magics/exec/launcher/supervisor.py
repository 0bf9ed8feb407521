"""Stands beside one command from its start to its end: starts it, obeys the kernel, leaves nobody.

Runs in a process of its own, forked by the launcher and parent of the command. It ends everything
when the command's main process ends, when the kernel says so, and when the kernel or the launcher
is gone. If a stranger kills it, the launcher cleans up.
"""

import errno
import math
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from agent_magics.backends.launcher import confine, linux
from agent_magics.backends.launcher.start import READY, failure_of, start_program
from agent_magics.backends.launcher.tree import (
    descendants,
    foreground_group,
    kill_tree,
    reap,
    send_signal,
)
from agent_magics.backends.launcher.wire import (
    INTERRUPT,
    KILL,
    TERMINATE,
    Ended,
    Failed,
    Reply,
    SpawnRequest,
    Started,
    encode_reply,
    send_message,
)

_MOST_REFUSED = 20  # told in an Ended
_LAST_MOMENT = 0.1  # seconds for what the main process leaves behind
_READ_SIZE = 4096


def supervise(
    request: SpawnRequest,
    prepared: confine.Prepared | None,
    control: socket.socket,
    files: list[int],
    life: int,
) -> NoReturn:
    """Run one command to its end, then end this process: with 0 if nobody is left.

    Args:
        request: what to run.
        prepared: what `confine.prepare` made of its confinement; None without one.
        control: where the kernel speaks and listens.
        files: descriptors of the folder, stdin, stdout and stderr.
        life: a pipe that closes when the launcher is gone.
    """
    status = 1
    try:
        os.setsid()
        linux.become_subreaper()
        supervisor = _Supervisor(request, control, life)
        try:
            supervisor.start(prepared, files)
        except OSError as error:  # no process or no descriptor is left
            send_message(control, encode_reply(failure_of("launcher", error)))
        else:
            supervisor.serve()
            status = 0 if supervisor.report() else 1
    finally:
        os._exit(status)


def wake_on_child() -> int:
    """Return a descriptor that becomes readable when a child ends; it has to be emptied."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    # Ignored, the signal would let children vanish unseen; the wake-up needs some handler.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reader


class _Supervisor:
    def __init__(self, request: SpawnRequest, control: socket.socket, life: int):
        self._request = request
        self._control = control
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._main = 0  # process id of the command
        self._status: int | None = None  # its wait status
        self._start_channel: socket.socket | None = None
        self._start_words = b""  # what came on it
        self._started = False
        self._interrupt_at_start = False
        self._notary: confine.Notary | None = None
        self._kill_at: float | None = None  # end of the grace period, on the monotonic clock
        self._leftovers = 0
        self._over = False
        self._wakeup = wake_on_child()
        self._watch(self._wakeup, self._on_child)
        self._watch(control.fileno(), self._on_control)
        self._watch(life, self._on_launcher_gone)

    def start(self, prepared: confine.Prepared | None, files: list[int]) -> None:
        """Fork the command; close `files`, so that its output ends with it."""
        self._start_channel, theirs = socket.socketpair()
        me = os.getpid()
        self._main = os.fork()
        if self._main == 0:
            start_program(self._request, prepared, theirs, files, me)
        theirs.close()
        for fd in files:
            os.close(fd)
        self._watch(self._start_channel.fileno(), self._on_start)

    def serve(self) -> None:
        """Serve until everything has ended."""
        while not self._over:
            for fd, event in self._poll.poll(self._patience()):
                if fd in self._handlers:
                    self._handlers[fd](event)
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                self._kill()

    def report(self) -> bool:
        """Tell the kernel how it ended; return whether really nobody is left."""
        if self._start_channel is not None:
            self._start_channel.setblocking(False)
        while self._start_channel is not None:
            self._on_start()
        if self._started:
            refused = tuple(self._notary.refused[:_MOST_REFUSED]) if self._notary else ()
            self._tell(Ended(self._exit_code(), self._leftovers, refused))
        return not self._collect()

    def _watch(self, fd: int, handler: Callable[[int], None]) -> None:
        self._handlers[fd] = handler
        self._poll.register(fd, select.POLLIN)

    def _forget(self, fd: int) -> None:
        del self._handlers[fd]
        self._poll.unregister(fd)

    def _patience(self) -> int | None:
        if self._kill_at is None:
            return None
        return max(0, math.ceil((self._kill_at - time.monotonic()) * 1000))

    # What may happen

    def _on_start(self, _: int = 0) -> None:
        assert self._start_channel is not None
        try:
            data, fds, _, _ = socket.recv_fds(self._start_channel, _READ_SIZE, 1)
        except BlockingIOError:  # it hangs in its exec and cannot be killed
            data, fds = b"", []
        ended = not data
        if self._request.confinement is not None and self._notary is None:
            data = self._meet_notary(self._start_channel, data, fds)
        self._start_words += data
        if ended:
            self._forget(self._start_channel.fileno())
            self._start_channel = None
            self._tell_start()

    def _meet_notary(self, channel: socket.socket, data: bytes, fds: list[int]) -> bytes:
        """Set up the notary when the listener has come; return the rest of `data`."""
        listener, data = confine.take_listener(channel, data, fds, self._tree)
        if listener is not None:
            self._notary = confine.Notary(listener, self._request.confinement, self._tree)
            self._watch(self._notary.fileno(), self._on_question)
        return data

    def _on_control(self, _: int) -> None:
        try:
            words = self._control.recv(_READ_SIZE)
        except OSError:
            words = b""
        if not words or KILL in words:
            self._kill()
        elif TERMINATE in words:
            self._terminate()
        elif INTERRUPT in words:
            self._interrupt()

    def _on_child(self, _: int) -> None:
        with suppress(BlockingIOError):
            os.read(self._wakeup, _READ_SIZE)
        anybody = self._collect()
        if not anybody:
            self._kill()
        # What it left behind may be about to end: Python's resource tracker removes semaphores
        # from /dev/shm once its program is gone. After SIGTERM it has its grace period too.
        elif self._status is not None and self._kill_at is None:
            self._kill_at = time.monotonic() + _LAST_MOMENT

    def _on_question(self, _: int) -> None:
        self._notary.answer()

    def _on_launcher_gone(self, _: int) -> None:
        self._kill()

    # What is done

    def _tell_start(self) -> None:
        failure = self._start_words.removeprefix(READY)
        if failure:
            self._send(failure)
        elif self._start_words:
            self._started = True
            self._tell(Started(self._main))
            if self._interrupt_at_start:
                self._interrupt()
        else:
            self._tell(Failed("launcher", errno.ECANCELED, "killed before its program was started"))

    def _interrupt(self) -> None:
        if self._start_channel is not None:  # it has no group of its own yet
            self._interrupt_at_start = True
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(foreground_group(self._main), signal.SIGINT)

    def _terminate(self) -> None:
        tree = self._tree()
        send_signal(tree, signal.SIGTERM)
        send_signal(tree, signal.SIGCONT)  # what is stopped could not act on it
        if self._kill_at is None:
            self._kill_at = time.monotonic() + self._request.grace

    def _kill(self) -> None:
        left_behind = self._status is not None
        ended: dict[int, int] = {}
        killed = kill_tree(ended)
        self._status = ended.get(self._main, self._status)
        if left_behind:
            self._leftovers = len(killed) - self._helpers(killed)
        self._over = True

    def _helpers(self, killed: set[int]) -> int:
        """How many of `killed` are ours: the first process of tier 2, if others are left."""
        confinement = self._request.confinement
        return 1 if killed and confinement is not None and confinement.tier == 2 else 0

    def _collect(self) -> bool:
        """Collect who has ended; return whether anybody is left."""
        ended: dict[int, int] = {}
        anybody = reap(ended)
        self._status = ended.get(self._main, self._status)
        return anybody

    def _tree(self) -> list[int]:
        return descendants(os.getpid())

    def _exit_code(self) -> int:
        if self._status is None:  # it could not be killed
            return -signal.SIGKILL
        return os.waitstatus_to_exitcode(self._status)

    def _tell(self, reply: Reply) -> None:
        self._send(encode_reply(reply))

    def _send(self, data: bytes) -> None:
        with suppress(OSError):  # the kernel is gone, which the control socket says as well
            send_message(self._control, data)
