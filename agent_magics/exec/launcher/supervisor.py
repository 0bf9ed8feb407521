"""Supervises one command: starts it, obeys the kernel process, and leaves no process behind.

Runs in a process of its own, forked by the launcher and parent of the command's process. Both wait
for a request. It ends everything when the command's main process ends, when the kernel process
requests it, and when the kernel process or the launcher is gone. If another process kills it, the
launcher cleans up.
"""

import errno
import math
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Container
from contextlib import suppress
from typing import NoReturn

from agent_magics.exec.launcher import confine, linux
from agent_magics.exec.launcher.notifications.notifier import SeccompNotifier
from agent_magics.exec.launcher.start import READY, failure_of, start_program
from agent_magics.exec.launcher.tree import (
    descendants,
    foreground_group,
    is_at_work,
    kill_tree,
    reap,
    send_signal,
)
from agent_magics.exec.launcher.wire import (
    INTERRUPT,
    KILL,
    TERMINATE,
    Ended,
    Failed,
    Reply,
    SpawnRequest,
    Started,
    decode_request,
    encode_reply,
    receive_message,
    send_message,
)

_MOST_REFUSED = 20  # limit in an Ended message
_LAST_MOMENT = 0.1  # seconds for processes that outlive the main process
_LAST_MOMENTS = 1.0  # seconds in all while one of them is at work
_READ_SIZE = 4096
_COUNTS_EVERY = 1.0  # seconds between counts, where the number of processes is limited


def supervise(requests: socket.socket, life: int) -> NoReturn:
    """Run one command to its end, then end this process, with status 0 if no process is left.

    Args:
        requests: socket to the launcher, on which it sends one request.
        life: a pipe that closes when the launcher is gone.
    """
    status = 1
    try:
        os.setsid()
        linux.become_subreaper()
        wakeup = wake_on_child()
        command = None
        with suppress(OSError):  # no process is left: tried again when there is a request
            command = _fork_command()
        data, fds = receive_message(requests)
        requests.close()
        supervisor = _start(data, fds, command, life, wakeup) if data else None
        if supervisor is not None:
            supervisor.serve()
            status = 0 if supervisor.report() else 1
    finally:
        os._exit(status)


def _fork_command() -> tuple[int, socket.socket]:
    """Fork the process that a request turns into a command; return its id and a socket to it."""
    ours, theirs = socket.socketpair()
    own_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        ours.close()
        start_program(theirs, own_pid)
    theirs.close()
    return pid, ours


def _start(
    data: bytes, fds: list[int], command: tuple[int, socket.socket] | None, life: int, wakeup: int
) -> "_Supervisor | None":
    """Start the command of a request; return None where nothing runs, which is reported.

    Args:
        data: the request, encoded.
        fds: its descriptors, of which all but `control` are closed, so that the output ends with
            the command.
        command: from `_fork_command`, None where there was no process left.
        life: as in `supervise`.
        wakeup: from `wake_on_child`.
    """
    control = socket.socket(fileno=fds[0])
    try:
        main, channel = command or _fork_command()
        # The command's process decodes it meanwhile; it ends with this one.
        send_message(channel, data, fds[1:])
        request = decode_request(data)
    except Exception as error:
        send_message(control, encode_reply(failure_of("launcher", error)))
        return None
    for fd in fds[1:]:
        os.close(fd)
    return _Supervisor(request, control, main, channel, life, wakeup)


def wake_on_child() -> int:
    """Return a descriptor that becomes readable when a child ends; the reader has to empty it."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    # If ignored, children would be reaped automatically; the wake-up needs a handler.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reader


class _Supervisor:
    def __init__(
        self,
        request: SpawnRequest,
        control: socket.socket,
        main: int,
        channel: socket.socket,
        life: int,
        wakeup: int,
    ):
        self._request = request
        self._control = control
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._main = main  # process id of the command
        self._status: int | None = None  # its wait status
        self._start_channel: socket.socket | None = channel
        self._start_words = b""  # bytes received on it
        self._started = False
        self._interrupt_at_start = False
        self._told_to_end_early = set[int]()  # processes, before the program was started
        self._notifier: SeccompNotifier | None = None
        self._kill_at: float | None = None  # end of the grace period, on the monotonic clock
        self._kill_at_latest = 0.0
        self._leftovers = 0
        self._refused: list[str] = []
        self._count_at = time.monotonic() + _COUNTS_EVERY
        self._over = False
        self._wakeup = wakeup
        self._watch(channel.fileno(), self._on_start)
        self._watch(wakeup, self._on_child)
        self._watch(control.fileno(), self._on_control)
        self._watch(life, self._on_launcher_gone)

    def serve(self) -> None:
        """Serve until everything has ended."""
        while not self._over:
            for fd, event in self._poll.poll(self._patience()):
                if fd in self._handlers:
                    self._handlers[fd](event)
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                self._end_grace()
            elif self._request.most_processes and time.monotonic() >= self._count_at:
                self._count()

    def _count(self) -> None:
        """End a command that has too many processes; the system has no limit for a tree."""
        most = self._request.most_processes
        self._count_at = time.monotonic() + _COUNTS_EVERY
        if len(self._tree()) > most:
            self._refused.append(f"more than {most} processes")
            self._kill()

    def report(self) -> bool:
        """Report to the kernel process how it ended; return whether really no process is left."""
        if self._start_channel is not None:
            self._start_channel.setblocking(False)
        while self._start_channel is not None:
            self._on_start()
        if self._started:
            refused = (*self._refused, *(self._notifier.refused if self._notifier else ()))
            self._tell(Ended(self._exit_code(), self._leftovers, refused[:_MOST_REFUSED]))
        return not self._collect()

    def _watch(self, fd: int, handler: Callable[[int], None]) -> None:
        self._handlers[fd] = handler
        self._poll.register(fd, select.POLLIN)

    def _forget(self, fd: int) -> None:
        del self._handlers[fd]
        self._poll.unregister(fd)

    def _patience(self) -> int | None:
        wakes = [self._count_at] if self._request.most_processes else []
        wakes += [self._kill_at] if self._kill_at is not None else []
        return max(0, math.ceil((min(wakes) - time.monotonic()) * 1000)) if wakes else None

    # What may happen

    def _on_start(self, _: int = 0) -> None:
        assert self._start_channel is not None
        try:
            data, fds, _, _ = socket.recv_fds(self._start_channel, _READ_SIZE, 1)
        except OSError:  # it was killed before it read; or hangs in exec and cannot be killed
            data, fds = b"", []
        ended = not data
        if self._request.confinement is not None and self._notifier is None:
            data = self._meet_notifier(self._start_channel, data, fds)
        self._start_words += data
        if ended:
            self._forget(self._start_channel.fileno())
            self._start_channel = None
            self._tell_start()

    def _meet_notifier(self, channel: socket.socket, data: bytes, fds: list[int]) -> bytes:
        """Set up the notifier when the listener was received; return the rest of `data`."""
        listener, data = confine.take_listener(channel, data, fds, self._tree)
        confinement = self._request.confinement
        if listener is not None and confinement is not None:
            self._notifier = notifier = SeccompNotifier(listener, confinement, self._tree)
            self._watch(notifier.fileno(), lambda _: notifier.answer())
        return data

    def _on_control(self, _: int) -> None:
        try:
            commands = self._control.recv(_READ_SIZE)
        except OSError:
            commands = b""
        if not commands or KILL in commands:
            self._kill()
        elif TERMINATE in commands:
            self._terminate()
        elif INTERRUPT in commands:
            self._interrupt()

    def _on_child(self, _: int) -> None:
        with suppress(BlockingIOError):
            os.read(self._wakeup, _READ_SIZE)
        anybody = self._collect()
        if not anybody:
            self._kill()
        # Processes left over may be about to end: Python's resource tracker removes semaphores from
        # /dev/shm after its program. After SIGTERM they have their grace period too.
        elif self._status is not None and self._kill_at is None:
            now = time.monotonic()
            self._kill_at, self._kill_at_latest = now + _LAST_MOMENT, now + _LAST_MOMENTS

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
            if self._told_to_end_early:  # in tier 2 the command may have been forked after that
                self._terminate(but=self._told_to_end_early)
        else:
            self._tell(Failed("launcher", errno.ECANCELED, "killed before its program was started"))

    def _interrupt(self) -> None:
        if self._start_channel is not None:  # it has no group of its own yet
            self._interrupt_at_start = True
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(foreground_group(self._main), signal.SIGINT)

    def _terminate(self, but: Container[int] = ()) -> None:
        tree = [pid for pid in self._tree() if pid not in but]
        if self._start_channel is not None:
            self._told_to_end_early.update(tree)
        send_signal(tree, signal.SIGTERM)
        send_signal(tree, signal.SIGCONT)  # a stopped process could not handle it
        if self._kill_at is None:
            self._kill_at = time.monotonic() + self._request.grace

    def _end_grace(self) -> None:
        """Kill what is left, unless it cleans up and the machine is too busy to be soon done."""
        now = time.monotonic()
        # Twice: one that was seen asleep may have been woken by the end of one that is seen next.
        looks = self._tree() * 2
        if now < self._kill_at_latest and any(map(is_at_work, looks)):
            self._kill_at = now + _LAST_MOMENT
        else:
            self._kill()

    def _kill(self) -> None:
        left_behind = self._status is not None
        ended: dict[int, int] = {}
        killed = kill_tree(ended)
        self._status = ended.get(self._main, self._status)
        if left_behind:
            self._leftovers = len(killed) - self._helpers(killed)
        self._over = True

    def _helpers(self, killed: set[int]) -> int:
        """Return how many of `killed` are our own: the first process of tier 2, if others are
        left.
        """
        confinement = self._request.confinement
        return 1 if killed and confinement is not None and confinement.tier == 2 else 0

    def _collect(self) -> bool:
        """Reap ended children; return whether any is left."""
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
        with suppress(OSError):  # the kernel process is gone, which the control socket reports too
            send_message(self._control, data)
