"""Attacks on the operating system's kernel: system calls that no everyday command needs."""

import ctypes
import errno
import fcntl
import os
import platform
import stat
import struct
import subprocess
import termios

from tests.support.attacks.syscalls import raw_syscall, syscall
from tests.support.attacks.table import SURFACE, World, attack

_CONTAINER = "this machine, a container perhaps, forbids it by itself"
_TIOCSTI = "this kernel has dev.tty.legacy_tiocsti = 0"


@attack(41, "io_uring_setup", SURFACE, "reached", lacking=_CONTAINER)
def _(w: World):
    return str(syscall("io_uring_setup", 4, ctypes.create_string_buffer(120)))


_NEWNS, _NEWUSER = 0x20000, 0x10000000  # CLONE_NEWNS, CLONE_NEWUSER of <linux/sched.h>


@attack(42, "a new user namespace and a mount in it", SURFACE, "reached", lacking=_CONTAINER)
def _(w: World):
    syscall("unshare", _NEWUSER | _NEWNS)
    private = 1 << 18 | 16384  # MS_PRIVATE | MS_REC of <linux/mount.h>
    syscall("mount", b"none", b"/", None, private, None)
    syscall("mount", b"tmpfs", b"/mnt", b"tmpfs", 0, None)
    return "mounted"


@attack(43, "clone(CLONE_NEWUSER)", SURFACE, "reached", lacking=_CONTAINER)
def _(w: World):
    child = syscall("clone", _NEWUSER | 17, 0, 0, 0, 0)  # 17 is SIGCHLD
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return "cloned"


@attack(44, "bpf, perf_event_open, userfaultfd and keyctl", SURFACE, "reached", lacking=_CONTAINER)
def _(w: World):
    attributes = struct.pack("=III", 1, 128, 1) + bytes(116)  # PERF_TYPE_SOFTWARE, a page fault
    calls = {
        "bpf": lambda: syscall("bpf", 0, bytes(72), 72),
        "perf_event_open": lambda: syscall("perf_event_open", attributes, 0, -1, -1, 0),
        "userfaultfd": lambda: syscall("userfaultfd", 1),  # UFFD_USER_MODE_ONLY
        "keyctl": lambda: syscall("keyctl", 0, -3, 1),  # KEYCTL_GET_KEYRING_ID, session, create
    }
    reached, refused = [], None
    for name, call in calls.items():
        try:
            call()
            reached.append(name)
        except OSError as error:
            if error.errno == errno.EINVAL:  # it looked at what it was given
                reached.append(name)
            refused = error
    if not reached and refused is not None:
        raise refused
    return " ".join(reached)


@attack(
    62,
    "keystrokes put into the terminal (TIOCSTI)",
    SURFACE,
    "reached",
    run="terminal",
    lacking=_TIOCSTI,
)
def _(w: World):
    # The runner's terminal is that of the person; what is typed into it is what a shell would run.
    mode = termios.tcgetattr(0)
    mode[3] &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(0, termios.TCSANOW, mode)
    fcntl.ioctl(0, termios.TIOCSTI, b"!")
    return os.read(0, 1).decode()


@attack(
    72, "a system call of the x32 ABI", SURFACE, "reached", lacking="this kernel has no x32 ABI"
)
def _(w: World):
    if platform.machine() != "x86_64":
        raise OSError(errno.ENOSYS, "not this machine's")
    return str(raw_syscall(0x40000000 | 39))  # __X32_SYSCALL_BIT | getpid


@attack(74, "mknod of a block device", SURFACE, "reached", who="root", lacking=_CONTAINER)
def _(w: World):
    path = f"{w.workspace}/row74"
    os.mknod(path, 0o600 | stat.S_IFBLK, os.makedev(7, 0))
    return "made"


@attack(
    76,
    "a setuid program",
    SURFACE,
    "secret",
    who="user",
    lacking="only root can put a setuid program there, and not on every file system",
)
def _(w: World):
    done = subprocess.run([w.setuid_cat, w.of_root], capture_output=True, text=True, check=False)
    if done.returncode:
        raise PermissionError(errno.EPERM, done.stderr)
    return done.stdout


@attack(65, "descriptors of the kernel beyond 0, 1, 2", SURFACE, "secret", run="alone")
def _(w: World):
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        try:
            found = os.pread(descriptor, 200, 0).decode(errors="replace") if descriptor > 2 else ""
        except OSError:
            continue
        if "inherited" in found:
            return found
    raise PermissionError(errno.EPERM, "none was inherited")


@attack(140, "setuid bit by open(O_CREAT) with its mode", SURFACE, "reached")
def _(w: World):
    path = f"{w.workspace}/row140"
    os.umask(0)
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o4755))
    if not os.stat(path).st_mode & stat.S_ISUID:
        raise PermissionError(errno.EPERM, "the bit was dropped")
    return "setuid"


@attack(
    141,
    "a terminal's TIOCSTI with high bits set in the request",
    SURFACE,
    "reached",
    run="terminal",
    lacking=_TIOCSTI,
)
def _(w: World):
    mode = termios.tcgetattr(0)
    mode[3] &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(0, termios.TCSANOW, mode)
    request = (1 << 32) | termios.TIOCSTI  # the kernel looks at the low half only
    syscall("ioctl", 0, request, ctypes.create_string_buffer(b"!"))
    return os.read(0, 1).decode()


@attack(
    142,
    "clone(CLONE_NEWUSER) with high bits set in the flags",
    SURFACE,
    "reached",
    lacking=_CONTAINER,
)
def _(w: World):
    child = syscall("clone", (1 << 40) | _NEWUSER | 17, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return "cloned"
