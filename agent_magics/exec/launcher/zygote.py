"""The launcher: a small process beside the kernel that gives every command a supervisor of its own.

The kernel has threads and must not fork; this process has none. It is started as

    python -I -S -c "import sys; sys.path.append(ROOT);
                     from agent_magics.exec.launcher.zygote import main; main(FD)"

with FD an inherited stream socket to the kernel, an environment that holds no secrets, and ROOT the
folder of the package. It says {"pid": …, "landlock_abi": …}, then reads SpawnRequests with the
descriptors control, folder, stdin, stdout, stderr; everything more about a command is said on its
control socket. {"probe": true} is answered here, {"probe": {…}}.

A supervisor serves one command. One is forked ahead, and waits: a fork, and the memory that it then
copies, take longer than all else at a command's start.

Who ends whom. A supervisor ends its command and all that descends from it. The launcher ends what a
killed supervisor leaves, and everything when the kernel is gone. Before it serves, it forks: the
parent stays behind as its guardian and ends what a killed launcher leaves. Each notices when its
parent is gone, by a pipe that only the parent holds open for writing. So any two of them can be
killed at the same moment, and nobody survives.
"""

import gc
import json
import os
import select
import signal
import socket
import struct
from contextlib import suppress
from typing import NoReturn

from agent_magics.exec.launcher import confine, linux
from agent_magics.exec.launcher.probe import probe
from agent_magics.exec.launcher.start import failure_of
from agent_magics.exec.launcher.supervisor import supervise, wake_on_child
from agent_magics.exec.launcher.tree import descendants, kill_tree, reap, wait_for_children
from agent_magics.exec.launcher.wire import (
    decode_request,
    encode_reply,
    receive_message,
    send_message,
)

_PROBE = b'{"probe"'  # beginning of that message
_REQUEST_FDS = 5  # control, folder, stdin, stdout, stderr
_STALL = 30.0  # seconds for the rest of a message
_LOOK = 1000  # milliseconds between checks for events that cannot wake the poll
_LULL = 20  # milliseconds without an event: then the next command is prepared for
_SUPERVISORS_PATIENCE = (
    1.0  # seconds; a killed one's command lives on until then, at the end of all
)
_ORPHANS_PATIENCE = 0.5  # seconds; longer would delay the start of other commands
_PEER = struct.Struct("3i")  # struct ucred of <linux/socket.h>: process, user, group


def main(fd: int) -> NoReturn:
    """Serve the kernel process at the other end of socket `fd` until it is gone."""
    kernel = socket.socket(fileno=fd)
    kernel_pid = _peer_of(kernel)
    _settle(fd)
    guardian, guardian_writer = os.pipe()
    zygote = os.fork()
    if zygote:
        _guard(zygote, guardian_writer)
    status = 1
    try:
        os.close(guardian_writer)
        os.setsid()
        linux.become_subreaper()
        launcher = _Zygote(kernel, kernel_pid, guardian)
        launcher.serve()
        launcher.let_go()
        status = 0
    finally:
        _end_all()
        os._exit(status)


def _settle(fd: int) -> None:
    """Detach this process: keep nothing of the kernel process but socket `fd`."""
    null = os.open(os.devnull, os.O_RDWR)
    while null <= 2:  # a command's streams must not get these numbers
        null = os.dup(null)
    os.closerange(3, fd)
    os.closerange(fd + 1, os.sysconf("SC_OPEN_MAX"))
    os.set_inheritable(fd, False)
    with suppress(PermissionError):  # it leads a session already
        os.setsid()
    os.chdir("/")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Jupyter interrupts whole process groups
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    linux.restore_hidden_signals()
    linux.become_subreaper()
    linux.forbid_inspection()


def _guard(zygote: int, writer: int) -> NoReturn:
    """Wait until the launcher ends, then end what it leaves behind."""
    os.closerange(3, writer)
    os.closerange(writer + 1, os.sysconf("SC_OPEN_MAX"))
    ended, _ = os.wait()
    while ended != zygote:
        ended, _ = os.wait()
    _end_all()
    os._exit(0)


def _end_all() -> None:
    """End every descendant, after waiting for the supervisors to end by themselves.

    Supervisors clean up best. If they were stopped here to be killed, and this process were killed
    at that moment, they would stay stopped, and their commands alive.
    """
    wait_for_children(_SUPERVISORS_PATIENCE)
    kill_tree({})


class _Zygote:
    def __init__(self, kernel: socket.socket, kernel_pid: int, guardian: int):
        self._kernel = kernel
        self._kernel_pid = kernel_pid
        self._supervisors: set[int] = set()
        self._waiting: socket.socket | None = None  # to the supervisor of the next command
        self._last_request: bytes | None = b""  # None where the next command is prepared for
        self._orphans = False  # some could not be killed yet
        self._wakeup = wake_on_child()
        # For the supervisors: closed, with this process.
        self._life, self._life_writer = os.pipe()
        self._kernel_end = linux.open_pidfd(kernel_pid)
        self._ends = {fd for fd in (guardian, self._kernel_end) if fd is not None}
        self._poll = select.poll()
        for fd in {kernel.fileno(), self._wakeup} | self._ends:
            self._poll.register(fd, select.POLLIN)

    def serve(self) -> None:
        """Serve until the kernel process or the guardian is gone."""
        self._kernel.settimeout(_STALL)
        # existing objects are permanent: collecting them would copy their pages in every child
        gc.freeze()
        hello = {"pid": os.getpid(), "landlock_abi": linux.landlock_abi()}
        send_message(self._kernel, json.dumps(hello).encode("ascii"))
        while self._kernel_lives():
            ready = {fd for fd, _ in self._poll.poll(self._patience())}
            if ready & self._ends:
                return
            if self._wakeup in ready or self._orphans:
                self._collect()
            if self._kernel.fileno() not in ready:
                self._prepare_next()
            elif not self._serve_message():
                return

    def let_go(self) -> None:
        """Signal the supervisors to end, by closing their pipe."""
        os.close(self._life_writer)
        if self._waiting is not None:
            self._waiting.close()

    def _patience(self) -> int | None:
        if self._last_request is not None:
            return _LULL
        return _LOOK if self._orphans or self._kernel_end is None else None

    def _kernel_lives(self) -> bool:
        if self._kernel_end is not None:
            return True  # its end wakes us
        try:
            os.kill(self._kernel_pid, 0)
        except ProcessLookupError:
            return False
        return True

    def _collect(self) -> None:
        """Reap ended supervisors; end the processes of killed ones."""
        with suppress(BlockingIOError):
            os.read(self._wakeup, 4096)
        ended: dict[int, int] = {}
        anybody = reap(ended)
        failed = any(ended[pid] for pid in self._supervisors & ended.keys())
        self._supervisors -= ended.keys()
        if anybody and (failed or self._orphans):
            ended.clear()
            # Unkillable processes are only retried briefly, since other commands wait for their
            # start.
            patience = _ORPHANS_PATIENCE if failed else 0
            kill_tree(ended, keep=self._supervisors, patience=patience)
            # A supervisor that was killed meanwhile leaves orphans as well.
            self._supervisors -= ended.keys()
            self._orphans = bool(descendants(os.getpid(), keep=self._supervisors))

    def _serve_message(self) -> bool:
        """Process one message of the kernel process; return whether it is still there."""
        try:
            data, fds = receive_message(self._kernel)
            if data.startswith(_PROBE):
                send_message(self._kernel, json.dumps({"probe": probe()}).encode("ascii"))
            elif data:
                self._spawn(data, fds)
        except OSError:  # it broke off
            return False
        return bool(data)

    def _spawn(self, data: bytes, fds: list[int]) -> None:
        try:
            if len(fds) == _REQUEST_FDS:  # else there is nobody to tell
                self._hand_over(data, fds)
        except OSError as error:  # nothing runs, and the error is reported
            with suppress(OSError), socket.socket(fileno=os.dup(fds[0])) as control:
                send_message(control, encode_reply(failure_of("launcher", error)))
        finally:
            for fd in fds:
                os.close(fd)

    def _hand_over(self, data: bytes, fds: list[int]) -> None:
        """Send a request to the supervisor that waits, or to a new one."""
        self._last_request = data
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            with waiting, suppress(OSError):  # it was killed
                send_message(waiting, data, fds)
                return
        with self._fork_supervisor() as supervisor:
            send_message(supervisor, data, fds)

    def _prepare_next(self) -> None:
        """Have a supervisor wait for a command, which is likely confined like the last one."""
        data, self._last_request = self._last_request, None
        if data is None or self._waiting is not None:
            return
        with suppress(Exception):  # the next command will meet it too, and report it
            confinement = decode_request(data).confinement if data else None
            if confinement is not None:
                confine.prepare(confinement)
            self._waiting = self._fork_supervisor()

    def _fork_supervisor(self) -> socket.socket:
        """Fork a supervisor; return the socket on which it waits for a request."""
        ours, theirs = socket.socketpair()
        ours.settimeout(_STALL)  # somebody may have stopped it
        with theirs:
            try:
                pid = os.fork()
            except OSError:
                ours.close()
                raise
            if pid == 0:
                ours.close()
                self._become_supervisor(theirs)
        self._supervisors.add(pid)
        return ours

    def _become_supervisor(self, requests: socket.socket) -> NoReturn:
        self._kernel.close()  # else the kernel process would not see that the launcher is gone
        for fd in {self._wakeup, self._life_writer} | self._ends:
            os.close(fd)
        supervise(requests, self._life)


def _peer_of(connection: socket.socket) -> int:
    """Return the creator of the socket pair: the kernel process, even if it has ended."""
    if not linux.IS_LINUX:
        return os.getppid()
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    pid: int = _PEER.unpack(credentials)[0]
    return pid
