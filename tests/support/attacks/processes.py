"""Attacks on the kernel process and its children."""

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import resource
import select
import signal
import socket
import struct

from tests.support.attacks.syscalls import LIBC, syscall
from tests.support.attacks.table import KERNEL, World, attack, read

_SECRET_SIZE = 64


@attack(23, "/proc/PID/environ of the kernel", KERNEL, "secret")
def _(w: World):
    return read(f"/proc/{w.kernel}/environ")


@attack(24, "/proc/PID/mem of the kernel", KERNEL, "secret")
def _(w: World):
    with open(f"/proc/{w.kernel}/mem", "rb", buffering=0) as memory:
        memory.seek(w.address)
        return memory.read(_SECRET_SIZE).decode("latin-1")


@attack(25, "process_vm_readv of the kernel", KERNEL, "secret")
def _(w: World):
    buffer = ctypes.create_string_buffer(_SECRET_SIZE)
    local = struct.pack("QQ", ctypes.addressof(buffer), _SECRET_SIZE)
    remote = struct.pack("QQ", w.address, _SECRET_SIZE)
    syscall("process_vm_readv", w.kernel, local, 1, remote, 1, 0)
    return buffer.raw.decode("latin-1")


_ATTACH, _DETACH = 16, 17  # PTRACE_ATTACH, PTRACE_DETACH of <linux/ptrace.h>


@attack(26, "ptrace of a process of the kernel", KERNEL, "reached")
def _(w: World):
    victim = w.victims["26"]
    syscall("ptrace", _ATTACH, victim, 0, 0)
    os.waitpid(victim, 0)
    syscall("ptrace", _DETACH, victim, 0, 0)
    return "attached"


@attack(27, "/proc/PID/fd of the kernel", KERNEL, "secret")
def _(w: World):
    return read(f"/proc/{w.kernel}/fd/{w.unlinked_fd}")


@attack(28, "a secret through /proc/PID/root of the kernel", KERNEL, "secret")
def _(w: World):
    return read(f"/proc/{w.kernel}/root{w.home}/.ssh/id_rsa")


@attack(29, "pidfd_getfd of a socket of the kernel", KERNEL, "secret")
def _(w: World):
    pidfd = os.pidfd_open(w.kernel)
    stolen = syscall("pidfd_getfd", pidfd, w.socket_fd, 0)
    with socket.socket(fileno=stolen) as door:
        return door.recv(_SECRET_SIZE, socket.MSG_PEEK | socket.MSG_DONTWAIT).decode()


@attack(30, "kill of a process of the kernel", KERNEL, "signalled")
def _(w: World):
    os.kill(w.victims["30"], signal.SIGKILL)


@attack(31, "pidfd_send_signal to a process of the kernel", KERNEL, "signalled")
def _(w: World):
    pidfd = os.pidfd_open(w.victims["31"])
    syscall("pidfd_send_signal", pidfd, int(signal.SIGKILL), None, 0)


@attack(32, "prlimit on a process of the kernel", KERNEL, "tuned")
def _(w: World):
    resource.prlimit(w.victims["32"], resource.RLIMIT_NOFILE, (5, 5))


@attack(33, "setpriority on a process of the kernel", KERNEL, "tuned")
def _(w: World):
    os.setpriority(os.PRIO_PROCESS, w.victims["33"], 19)


@attack(77, "SIGSTOP to a process of the kernel", KERNEL, "signalled")
def _(w: World):
    os.kill(w.victims["77"], signal.SIGSTOP)


@attack(78, "oom_score_adj of a process of the kernel raised", KERNEL, "tuned")
def _(w: World):
    with open(f"/proc/{w.victims['78']}/oom_score_adj", "w", encoding="ascii") as file:
        file.write("900")


@attack(63, "the own supervisor killed to escape the cleaning up", KERNEL, "orphaned", run="alone")
def _(w: World):
    # One of several children of the attacked process: the supervisor is its parent.
    with open(f"/proc/{os.getppid()}/stat", encoding="ascii") as file:
        supervisor = int(file.read().rpartition(")")[2].split()[1])
    if not supervisor:
        raise ProcessLookupError(errno.ESRCH, "the parent is in another namespace")
    pidfd = os.pidfd_open(supervisor)
    os.kill(supervisor, signal.SIGKILL)
    # Where it works this process ends too, as the launcher sees to it. PID 1 of a namespace is sent
    # the signal and does not mind.
    select.select([pidfd], [], [], 0.5)
    raise PermissionError(errno.EPERM, "the parent lives on")


@attack(67, "System V shared memory of the kernel", KERNEL, "secret")
def _(w: World):
    identifier = syscall("shmget", w.memory_key, 0, 0)
    address = LIBC.shmat(identifier, None, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "shmat")
    return ctypes.string_at(address, _SECRET_SIZE).decode("latin-1")


_SHM_REMAINS = (
    "a command can read and change files in /dev/shm of your other processes: `multiprocessing`"
    " needs that folder. Keep no secrets there."
)


@attack(
    68, "a /dev/shm file of another process", KERNEL, "secret", open_in=(1,), remains=_SHM_REMAINS
)
def _(w: World):
    return read(w.shared_memory)


_ARGV_REMAINS = (
    "a command can see the command lines of your other processes, as `ps` does. Nothing of"
    " agent-magics puts a secret on one."
)


@attack(
    64,
    "command lines of other processes",
    KERNEL,
    "secret",
    open_in=(1,),
    remains=_ARGV_REMAINS,
)
def _(w: World):
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as file:
            found += re.findall(rb"--token=(\S+?)\0", file.read())
    if not found:
        raise ProcessLookupError(errno.ESRCH, "no such process")
    return b" ".join(found).decode()


# -- found while this sandbox was built -----------------------------------------------------------

_SETSIG = 10  # F_SETSIG of <asm-generic/fcntl.h>


def _signal_by_input(victim: int, own) -> None:
    """Make the kernel send SIGKILL to `victim` when a descriptor becomes readable."""
    local, remote = socket.socketpair()
    fcntl.fcntl(local, _SETSIG, int(signal.SIGKILL))
    own(local, victim)
    flags = fcntl.fcntl(local, fcntl.F_GETFL)
    fcntl.fcntl(local, fcntl.F_SETFL, flags | os.O_ASYNC)
    remote.send(b"now")


@attack(96, "SIGKILL to a process of the kernel by F_SETOWN and F_SETSIG", KERNEL, "signalled")
def _(w: World):
    _signal_by_input(w.victims["96"], lambda door, pid: fcntl.fcntl(door, fcntl.F_SETOWN, pid))
    _refused_silently()


@attack(97, "the same by F_SETOWN_EX", KERNEL, "signalled")
def _(w: World):
    owner = struct.pack("ii", 1, w.victims["97"])  # F_OWNER_PID
    _signal_by_input(w.victims["97"], lambda door, _: fcntl.fcntl(door, 15, owner))
    _refused_silently()


@attack(98, "the same by ioctl(FIOSETOWN)", KERNEL, "signalled")
def _(w: World):
    owner = struct.pack("i", w.victims["98"])
    _signal_by_input(w.victims["98"], lambda door, _: fcntl.ioctl(door, 0x8901, owner))
    _refused_silently()


def _refused_silently() -> None:
    # Where Landlock scopes signals, F_SETOWN succeeds and the signal is never sent.
    raise PermissionError(errno.EPERM, "whether it was sent is seen from outside")


_SCHEDULING_REMAINS = (
    "a command of an unprivileged user can make your other processes slow: bind them to a CPU, or"
    " have them run only when nothing else does. (Programs set this for their own threads, by ids"
    " that the filter cannot tell from others.)"
)


@attack(
    99,
    "a process of the kernel moved to another CPU",
    KERNEL,
    "tuned",
    open_in=(1,),
    remains=_SCHEDULING_REMAINS,
    who="user",
)
def _(w: World):
    os.sched_setaffinity(w.victims["99"], {0})


@attack(
    100,
    "a process of the kernel made idle (SCHED_IDLE)",
    KERNEL,
    "tuned",
    open_in=(1,),
    remains=_SCHEDULING_REMAINS,
    who="user",
)
def _(w: World):
    os.sched_setscheduler(w.victims["100"], os.SCHED_IDLE, os.sched_param(0))


@attack(101, "POSIX message queue of the kernel", KERNEL, "secret")
def _(w: World):
    queue = syscall("mq_open", w.queue.encode(), os.O_RDONLY | os.O_NONBLOCK, 0, None)
    buffer = ctypes.create_string_buffer(8192)
    size = syscall("mq_receive", queue, buffer, 8192, None, None)
    return buffer.raw[:size].decode()


@attack(102, "memory of the kernel written through /proc/PID/mem", KERNEL, "reached")
def _(w: World):
    with open(f"/proc/{w.kernel}/mem", "r+b", buffering=0) as memory:
        memory.seek(w.scratch_address)
        memory.write(b"escaped")
    return "written"
