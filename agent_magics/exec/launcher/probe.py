"""Determines the sandbox tier of this machine by trying: each tier is entered and its rules are
tested.

Version numbers prove nothing: containers hide system calls, distributions disable namespaces, and
emulated kernels misreport features. A tier counts only if a confined process was actually denied
what it must be denied, and allowed what it must be allowed.
"""

import contextlib
import errno
import os
import select
import shutil
import signal
import socket
import time
from collections.abc import Callable

from agent_magics.exec.launcher import confine
from agent_magics.exec.launcher.linux import (
    IS_LINUX,
    LANDLOCK_CREATE_RULESET,
    die_with_parent,
    landlock_abi,
    syscall,
)
from agent_magics.exec.launcher.notifications.notifier import SeccompNotifier
from agent_magics.exec.launcher.syscalls import number_of
from agent_magics.exec.launcher.tree import descendants
from agent_magics.exec.launcher.wire import Confinement, SpawnRequest

_DEADLINE = 5.0  # seconds for one attempt, enough for a busy machine
_YAMA = "/proc/sys/kernel/yama/ptrace_scope"
_YAMA_ADMIN_ONLY = 2
_VERSION_FLAG = 1  # LANDLOCK_CREATE_RULESET_VERSION
_PTRACE_SEIZE = 0x4206  # <linux/ptrace.h>
_EMPTY = ""


def probe() -> dict[str, object]:
    """Test the tiers on this machine; about 50 ms. To be called in the launcher.

    Returns:
        `tier` 0, 1 or 2; `abi` of Landlock; `reason`, one sentence, why it is not 2, or ""; `yama`,
        the level of ptrace_scope (man 5 proc_sys_kernel), None where there is none.
    """
    tier, reason = 0, _why_no_landlock()
    if not reason:
        with _TrialGround() as ground:
            reason = _try_tier(1, ground)
            if not reason:
                tier, reason = 1, _try_tier(2, ground)
            if tier and not reason:
                tier = 2
    return {"tier": tier, "abi": landlock_abi(), "reason": reason, "yama": _read_yama()}


def _why_no_landlock() -> str:
    if not IS_LINUX:
        return "this is not Linux"
    release = os.uname().release
    if landlock_abi():
        return ""
    try:
        syscall(LANDLOCK_CREATE_RULESET, None, 0, _VERSION_FLAG)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            return f"Landlock is switched off on this machine (kernel {release}, lsm= without it)"
        if error.errno == errno.EPERM:
            return "a filter of the container hides Landlock"
    return f"this kernel has no Landlock ({release})"


def _read_yama() -> int | None:
    try:
        with open(_YAMA, encoding="utf-8") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


class _TrialGround:
    """A temporary folder for the test: `inside` is writable, the rest is not."""

    def __init__(self) -> None:
        parent = os.path.realpath(os.environ.get("TMPDIR", "/tmp"))
        self.root = os.path.join(parent, f"agent-magics-probe-{os.urandom(8).hex()}")
        self.inside = os.path.join(self.root, "inside")
        self.outside = os.path.join(self.root, "outside")
        self.protected = os.path.join(self.inside, "protected")
        self.hidden = os.path.join(self.inside, "hidden")
        self.secret = os.path.join(self.root, "secret")

    def __enter__(self) -> "_TrialGround":
        try:
            for folder in (self.root, self.inside):
                os.mkdir(folder, 0o700)
            for path in (self.outside, self.protected, self.hidden, self.secret):
                _append(path)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def confinement(self, tier: int) -> Confinement:
        hidden = (self.secret, self.hidden)
        return Confinement(tier, (self.inside,), protected=(self.protected,), hidden=hidden)


def _append(path: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write("x")


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _try_tier(tier: int, ground: _TrialGround) -> str:
    """Test all operations in `tier`; return the first problem, or ""."""
    try:
        prepared = confine.prepare(ground.confinement(tier))
    except OSError as error:
        return _sentence(tier, _text_of(error))
    channel, child_channel = socket.socketpair()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        channel.close()
        _attempt_all(tier, ground, prepared, child_channel, parent)
    child_channel.close()
    try:
        answer = _supervise(child, channel, ground.confinement(tier))
    finally:
        channel.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        confine.forget(ground.confinement(tier))
    return _sentence(tier, answer) if answer else ""


def _text_of(error: BaseException) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or repr(error)


def _sentence(tier: int, problem: str) -> str:
    if tier == 2:
        return f"user namespaces are blocked here: {problem}"
    return f"the sandbox does not hold here: {problem}"


def _attempt_all(
    tier: int, ground: _TrialGround, prepared: confine.Prepared, channel: socket.socket, parent: int
) -> None:
    """In the child: enter confinement, send "R", test all operations, send the first problem."""
    try:
        die_with_parent(parent, signal.SIGKILL)
        folder = os.open(ground.inside, os.O_PATH | os.O_DIRECTORY)
        request = SpawnRequest((), ground.inside, {}, confinement=prepared.confinement)
        listener = confine.enter(prepared, request, folder)
        confine.give_listener(channel, b"R", listener, network=False)
        os.close(listener)
        channel.sendall(_first_problem(tier, ground, parent).encode("utf-8"))
    except BaseException as error:
        with contextlib.suppress(OSError):
            channel.sendall(_text_of(error).encode("utf-8"))
    finally:
        os._exit(0)


def _first_problem(tier: int, ground: _TrialGround, parent: int) -> str:
    new = os.path.join(ground.inside, "new")
    with open(ground.outside, "rb") as outside:
        refused: dict[str, Callable[[], object]] = {
            "writing outside the workspace": lambda: _append(ground.outside),
            "deleting outside the workspace": lambda: os.unlink(ground.outside),
            "changing a mode outside the workspace": lambda: os.fchmod(outside.fileno(), 0o777),
            "reading a hidden file": lambda: _read(ground.secret),
            "a socket of the internet": lambda: socket.socket(socket.AF_INET).close(),
            "a signal to the launcher": lambda: os.kill(parent, 0),
            "tracing the launcher": lambda: _trace(parent),
        }
        if tier == 2:
            refused["writing a protected file"] = lambda: _append(ground.protected)
            refused["reading a hidden file below the workspace"] = lambda: _expect_text(
                ground.hidden
            )
        allowed: dict[str, Callable[[], object]] = {
            "writing in the workspace": lambda: _append(new),
            "reading outside": lambda: _read(ground.outside),
        }
        # else the supervisor cannot perform it, and refuses
        if (_read_yama() or 0) < _YAMA_ADMIN_ONLY:
            allowed["changing a mode in the workspace"] = lambda: os.chmod(new, 0o640)
        for name, act in refused.items():
            if _succeeds(act) == _EMPTY:
                return f"{name} was not refused"
        for name, act in allowed.items():
            problem = _succeeds(act)
            if problem:
                return f"{name} failed ({problem})"
    return ""


def _trace(pid: int) -> None:
    syscall(number_of("ptrace"), _PTRACE_SEIZE, pid, 0, 0)


def _expect_text(path: str) -> None:
    if not _read(path):
        raise OSError(errno.ENODATA, "it is covered")


def _succeeds(act: Callable[[], object]) -> str:
    """Call `act`; return "" or its error."""
    try:
        act()
    except OSError as error:
        return _text_of(error)
    return _EMPTY


def _supervise(child: int, channel: socket.socket, confinement: Confinement) -> str:
    """Answer the child's system calls until it has ended; return its problem, or ""."""
    deadline = time.monotonic() + _DEADLINE
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    notifier: SeccompNotifier | None = None
    received = b""
    while (left := deadline - time.monotonic()) > 0:
        ready = [fd for fd, _ in poll.poll(left * 1000)]
        if channel.fileno() in ready:
            data, fds, _, _ = socket.recv_fds(channel, 4096, 1)
            if not data:
                break
            received += data
            if fds:
                notifier = SeccompNotifier(fds[0], confinement, lambda: descendants(child))
                poll.register(notifier.fileno(), select.POLLIN)
        if notifier is not None and notifier.fileno() in ready:
            notifier.answer()
    if notifier is not None:
        notifier.close()
    if not received.startswith(b"R"):
        return received.decode("utf-8", "replace") or "the attempt did not begin"
    return received[1:].decode("utf-8", "replace") if left > 0 else "the attempt did not end"
