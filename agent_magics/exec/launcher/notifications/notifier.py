"""Answers the system calls that the filter forwards to the supervisor: performs or refuses them.

The calling thread blocks until it is answered; the supervisor never blocks: long calls are started
in non-blocking mode and answered when they are done. Every call is performed with a copy of the
arguments and with descriptors, so that nothing can be exchanged between the check and the use (man
2 seccomp_unotify).
"""

import errno
import fcntl
import os
import select
import stat
import struct
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial

from agent_magics.exec.launcher.descriptors import process_of
from agent_magics.exec.launcher.linux import syscall
from agent_magics.exec.launcher.notifications.file_calls import change_file
from agent_magics.exec.launcher.notifications.question import (
    NOTIFICATION,
    Deferred,
    Refused,
    SystemCall,
)
from agent_magics.exec.launcher.notifications.sending import send
from agent_magics.exec.launcher.notifications.socket_calls import connect, listen
from agent_magics.exec.launcher.rules.seccomp import KILL_CALLS, MODE_CALLS, TIOCGPTPEER
from agent_magics.exec.launcher.syscalls import number_of
from agent_magics.exec.launcher.wire import Confinement

# <linux/seccomp.h>
_RECEIVE, _SEND, _ID_VALID, _ADD_FD = 0xC0502100, 0xC0182101, 0x40082102, 0x40182103
_RESPONSE = struct.Struct("=QqiI")  # id, value, error, flags
_CONTINUE = 1  # SECCOMP_USER_NOTIF_FLAG_CONTINUE
_ADDED_FD = struct.Struct("=QIIII")  # id, flags, descriptor here, number there, its flags
_ADD_AND_ANSWER = 1 << 1  # SECCOMP_ADDFD_FLAG_SEND, Linux 5.14

_PTMX = os.makedev(5, 2)  # Documentation/admin-guide/devices.txt
_MOST_REFUSED = 20
_TICK = 50_000_000  # nanoseconds between retries of waiting calls
_MOST_EVENTS = 64

Tree = Callable[[], Collection[int]]


class _Answered(Exception):
    """The handler has sent the answer itself."""


class _Continue(Exception):
    """The calling process may execute the call itself, since its arguments are only numbers."""


class SeccompNotifier:
    """Answers the forwarded system calls of one command.

    Attributes:
        refused: refused operations, for people: at most 20, each once.
    """

    def __init__(self, listener: int, confinement: Confinement, tree: Tree):
        """Take ownership of `listener`.

        Args:
            listener: from `confine.enter` in the command.
            confinement: what the command may access.
            tree: returns the process ids of the command and all its descendants.
        """
        self.refused: list[str] = []
        self._listener = listener
        self._confinement = confinement
        self._tree = tree
        self._waiting: dict[int, tuple[SystemCall, Deferred]] = {}
        self._timer: int | None = None
        self._events = select.epoll()
        self._events.register(listener, select.EPOLLIN)
        self._handlers = self._make_handlers()

    def _make_handlers(self) -> dict[int, Callable[[SystemCall], int | Deferred]]:
        confinement = self._confinement
        handlers: dict[str, Callable[[SystemCall], int | Deferred]] = {
            "ioctl": self._open_peer,
            "connect": lambda question: connect(question, confinement),
            "listen": listen,
        }
        for name in (*MODE_CALLS, "truncate"):
            handlers[name] = partial(change_file, name=name, confinement=confinement)
        for name in KILL_CALLS:
            handlers[name] = partial(self._judge_kill, name=name)
        for name in ("sendto", "sendmsg", "sendmmsg"):
            handlers[name] = partial(send, name=name)
        numbers = {name: number_of(name) for name in handlers}
        return {number: handlers[name] for name, number in numbers.items() if number is not None}

    def fileno(self) -> int:
        """Return a descriptor that is readable when `answer` has work to do."""
        return self._events.fileno()

    def answer(self) -> None:
        """Answer the calls that can be answered now; never blocks, and no request makes it
        raise.
        """
        for fd, event in self._events.poll(0, _MOST_EVENTS):
            if fd == self._listener:
                if event & select.EPOLLIN:
                    self._answer_one()
                else:  # the last process below the filter has ended
                    self._events.unregister(fd)
            elif fd == self._timer:
                os.read(fd, 8)
                self._look_at_waiting()
            else:
                self._try_again(fd)

    def close(self) -> None:
        """Close the listener; later calls fail with ENOSYS."""
        for _, later in self._waiting.values():
            later.close()
        self._waiting.clear()
        self._events.close()
        os.close(self._listener)
        if self._timer is not None:
            os.close(self._timer)

    def _answer_one(self) -> None:
        data = bytearray(NOTIFICATION.size)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, data)
        except OSError:  # it was killed meanwhile
            return
        question = SystemCall(bytes(data), self._confirm)
        try:
            answer = self._handlers[question.number](question)
        except _Answered:
            return
        except _Continue:
            self._reply(question, flags=_CONTINUE)
        except Refused as refusal:
            self._note(refusal.what)
            self._reply(question, error=errno.EPERM)
        except OSError as error:
            self._reply(question, error=error.errno or errno.EPERM)
        except Exception:  # a bug must neither end the supervisor nor allow the call
            self._reply(question, error=errno.EPERM)
        else:
            if isinstance(answer, Deferred):
                self._wait(question, answer)
            else:
                self._reply(question, value=answer)

    def _confirm(self, question: SystemCall) -> None:
        fcntl.ioctl(self._listener, _ID_VALID, struct.pack("=Q", question.id))

    def _reply(self, question: SystemCall, value: int = 0, error: int = 0, flags: int = 0) -> None:
        with suppress(OSError):  # it is gone
            response = _RESPONSE.pack(question.id, value, -error, flags)
            fcntl.ioctl(self._listener, _SEND, response)

    def _note(self, what: str) -> None:
        if what and what not in self.refused and len(self.refused) < _MOST_REFUSED:
            self.refused.append(what)

    # Calls that take long

    def _wait(self, question: SystemCall, later: Deferred) -> None:
        self._waiting[question.id] = question, later
        if later.descriptor is not None:
            self._events.register(later.descriptor, select.EPOLLOUT)
        self._set_timer(_TICK)

    def _set_timer(self, interval: int) -> None:
        if self._timer is None:
            close_on_exec_and_nonblocking = os.O_CLOEXEC | os.O_NONBLOCK
            clock_monotonic = 1
            number = number_of("timerfd_create")
            self._timer = syscall(number, clock_monotonic, close_on_exec_and_nonblocking)
            self._events.register(self._timer, select.EPOLLIN)
        # struct itimerspec: interval and first time, each seconds and nanoseconds
        times = struct.pack("=4q", 0, interval, 0, interval)
        syscall(number_of("timerfd_settime"), self._timer, 0, times, None)

    def _try_again(self, descriptor: int) -> None:
        for question, later in list(self._waiting.values()):
            if later.descriptor == descriptor:
                self._ask_again(question, later)

    def _look_at_waiting(self) -> None:
        for question, later in list(self._waiting.values()):
            try:
                self._confirm(question)
            except OSError:
                self._end_waiting(question)
                continue
            if _has_signal(question.thread):
                self._end_waiting(question)
                self._reply(question, error=errno.EINTR)
            else:
                self._ask_again(question, later)

    def _ask_again(self, question: SystemCall, later: Deferred) -> None:
        try:
            value = later.again()
        except BlockingIOError:
            return
        except OSError as error:
            self._end_waiting(question)
            self._reply(question, error=error.errno or errno.EPERM)
        else:
            self._end_waiting(question)
            self._reply(question, value=value)

    def _end_waiting(self, question: SystemCall) -> None:
        _, later = self._waiting.pop(question.id)
        if later.descriptor is not None:
            self._events.unregister(later.descriptor)
        later.close()
        if not self._waiting:
            self._set_timer(0)

    # Calls that are judged here

    def _judge_kill(self, question: SystemCall, name: str) -> int:
        """Allow signals only to the command's own processes and groups."""
        target = question.integer(0)
        tree = set(self._tree())
        if target > 0:
            with suppress(OSError):
                target = process_of(target) if name == "tkill" else target
            allowed = target in tree
        elif target < -1 and name == "kill":
            # A group belongs to one session, and the command's sessions contain only its processes.
            allowed = any(_group_of(pid) == -target for pid in tree)
        else:  # 0 is one's own group, -1 is everybody
            allowed = target == 0
        if not allowed and target > 0 and not os.path.exists(f"/proc/{target}"):
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        if not allowed:
            raise Refused(f"{name} {target}")
        raise _Continue

    def _open_peer(self, question: SystemCall) -> int:
        """Open the other end of a terminal that the command has created, without its path."""
        assert question.integer(1) == TIOCGPTPEER
        master = question.take(question.integer(0))
        try:
            question.confirm()
            status = os.fstat(master)
            if not stat.S_ISCHR(status.st_mode) or status.st_rdev != _PTMX:
                raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))
            flags = question.integer(2)
            # O_NOCTTY: it must not become the supervisor's own terminal.
            peer = fcntl.ioctl(master, TIOCGPTPEER, flags | os.O_NOCTTY | os.O_CLOEXEC)
        finally:
            os.close(master)
        try:
            its_flags = flags & os.O_CLOEXEC
            added = _ADDED_FD.pack(question.id, _ADD_AND_ANSWER, peer, 0, its_flags)
            fcntl.ioctl(self._listener, _ADD_FD, added)
        finally:
            os.close(peer)
        raise _Answered


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return -1


def _has_signal(thread: int) -> bool:
    """Tell whether `thread` has a pending signal that it does not block."""
    fields = {}
    with suppress(OSError), open(f"/proc/{thread}/status", encoding="utf-8", errors="replace") as f:
        fields = dict(line.split(":\t", 1) for line in f if ":\t" in line)
    waiting = int(fields.get("SigPnd", "0"), 16) | int(fields.get("ShdPnd", "0"), 16)
    return bool(waiting & ~int(fields.get("SigBlk", "0"), 16))
