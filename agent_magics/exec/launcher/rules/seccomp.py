"""Builds the seccomp filter: which system calls a confined command may make, and which are
forwarded.

Landlock controls files by path; this filter covers what Landlock does not. Most rules
refuse. Some forward the call to the supervisor (`notifications`), which performs or refuses it. The
first rule of a call whose tests all match decides; a call without such a rule is allowed. Filters
see numbers only, never the memory behind a pointer (man 2 seccomp, Documentation/userspace-api/
seccomp_filter.rst).
"""

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from agent_magics.exec.launcher import linux
from agent_magics.exec.launcher.syscalls import NEWEST, number_of

# <linux/seccomp.h>
ALLOW = 0x7FFF0000
NOTIFY = 0x7FC00000
KILL = 0x80000000
_ERRNO = 0x00050000
_SET_MODE_FILTER = 1
_NEW_LISTENER = 1 << 3
_WAIT_KILLABLE = 1 << 5

# <linux/filter.h>, <linux/bpf_common.h>
_LOAD, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_INSTRUCTION = struct.Struct("=HBBI")

# struct seccomp_data of <linux/seccomp.h>
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # <linux/audit.h>

EPERM = _ERRNO | errno.EPERM
ENOSYS = _ERRNO | errno.ENOSYS
EOPNOTSUPP = _ERRNO | errno.EOPNOTSUPP

_WORD = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Test:
    """A condition: whether half of an argument, masked, is (or is not) one of `values`.

    Attributes:
        argument: 0 to 5.
        values: what it is compared with.
        mask: the bits to compare.
        inside: True: it must be one of them; False: none of them.
        high: the upper half of the argument, for pointers; the kernel ignores it for an int.
    """

    argument: int
    values: tuple[int, ...]
    mask: int = _WORD
    inside: bool = True
    high: bool = False


@dataclass(frozen=True, slots=True)
class FilterRule:
    """The action for system call `name` when all `tests` match."""

    name: str
    action: int
    tests: tuple[Test, ...] = ()


# Calls that no command needs, each a way out of the sandbox or an attack surface of the kernel.
_REFUSED = (
    # other processes
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "process_madvise",
    "process_mrelease",
    "kcmp",
    "pidfd_getfd",
    "pidfd_send_signal",
    "rt_sigqueueinfo",
    "rt_tgsigqueueinfo",
    "migrate_pages",
    # io_uring bypasses this filter
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    # mounts and namespaces
    "mount",
    "umount2",
    "pivot_root",
    "chroot",
    "unshare",
    "setns",
    "open_tree",
    "move_mount",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "mount_setattr",
    "open_tree_attr",
    # a file handle bypasses rules by path
    "name_to_handle_at",
    "open_by_handle_at",
    "lookup_dcookie",
    # System V objects and POSIX queues have no path: those of other processes would be accessible
    "shmget",
    "shmat",
    "shmctl",
    "shmdt",
    "semget",
    "semop",
    "semctl",
    "semtimedop",
    "msgget",
    "msgsnd",
    "msgrcv",
    "msgctl",
    "mq_open",
    "mq_unlink",
    # the machine
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "add_key",
    "request_key",
    "keyctl",
    "kexec_load",
    "kexec_file_load",
    "init_module",
    "finit_module",
    "delete_module",
    "reboot",
    "swapon",
    "swapoff",
    "settimeofday",
    "clock_settime",
    "clock_adjtime",
    "adjtimex",
    "sethostname",
    "setdomainname",
    "acct",
    "quotactl",
    "quotactl_fd",
    "syslog",
    "vhangup",
    "iopl",
    "ioperm",
    "modify_ldt",
    "uselib",
    "ustat",
    "sysfs",
    "_sysctl",
)

# Fail as on file systems without attributes, which programs handle.
_ATTRIBUTES = (
    "setxattr",
    "lsetxattr",
    "fsetxattr",
    "setxattrat",
    "removexattr",
    "lremovexattr",
    "fremovexattr",
    "removexattrat",
    "file_setattr",
)

# Landlock (through ABI 7 at least) does not control these; the supervisor performs them.
MODE_CALLS = ("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat")
KILL_CALLS = ("kill", "tkill", "tgkill")

# <asm-generic/fcntl.h>
_O_ACCMODE, _O_CREAT, _O_TRUNC = os.O_ACCMODE, os.O_CREAT, os.O_TRUNC
_O_TMPFILE_BIT = 0o20000000
_S_SETID = 0o6000
_F_SETOWN, _F_SETOWN_EX = 8, 15
_F_SETLEASE, _F_SETDELEG = 1024, 1040  # <linux/fcntl.h>

# <linux/sched.h>: CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET,TIME}
_CLONE_NAMESPACES = 0x7E020080
# <linux/resource.h>, <linux/ioprio.h>
_PRIO_USER = 2
_IOPRIO_WHO_USER = 3

# <asm-generic/ioctls.h>, <linux/sockios.h>
_TIOCSTI, _TIOCLINUX, _TIOCSETD = 0x5412, 0x541C, 0x5423
TIOCGPTPEER = 0x5441
_FIOSETOWN, _SIOCSPGRP = 0x8901, 0x8902
# <linux/fs.h>: ioctls of these families change files through descriptors opened for reading, or
# make entries in folders (btrfs subvolumes); allowed are those that read, and copies by reference
# (FICLONE, FICLONERANGE, FIDEDUPERANGE), which want a descriptor opened for writing.
_FILE_FAMILIES = tuple(letter << 8 for letter in (ord("f"), ord("v"), ord("X"), 0x94))
_FAMILY = 0xFF00
_FILE_IOCTLS = (
    0x80086601,  # FS_IOC_GETFLAGS
    0x80047601,  # FS_IOC32_GETVERSION
    0x80087601,  # FS_IOC_GETVERSION
    0xC020660B,  # FS_IOC_FIEMAP
    0x801C581F,  # FS_IOC_FSGETXATTR
    0x40049409,
    0x4020940D,
    0xC0189436,
)

# <linux/socket.h>, <linux/net.h>, <linux/in.h>
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_STREAM, _DGRAM, _SEQPACKET = 1, 2, 5
_TYPE = 0xF  # the rest are SOCK_NONBLOCK and SOCK_CLOEXEC
_TCP, _UDP = 6, 17


def build_filter(*, tier: int, network: bool, abi: int) -> bytes:
    """Return the filter as BPF instructions.

    Args:
        tier: 2 with namespaces: own processes, own terminals.
        network: whether internet sockets may be created.
        abi: version of Landlock; the filter covers what older ones do not.

    Raises:
        OSError: the architecture is not supported (ENOSYS).
    """
    return _compile([*_rules(tier, network, abi)])


def _rules(tier: int, network: bool, abi: int) -> Iterator[FilterRule]:
    # Its flags are behind a pointer; libc then uses clone.
    yield FilterRule("clone3", ENOSYS)
    # So are its mode (setuid bits) and flags; its users fall back to openat.
    yield FilterRule("openat2", ENOSYS)
    for name in _REFUSED:
        yield FilterRule(name, EPERM)
    for name in _ATTRIBUTES:
        yield FilterRule(name, EOPNOTSUPP)
    for name in MODE_CALLS:
        yield FilterRule(name, NOTIFY)
    yield from _file_rules(abi)
    yield from _process_rules(tier, abi)
    yield from _ioctl_rules(tier, abi)
    yield from _socket_rules(network)


def _file_rules(abi: int) -> Iterator[FilterRule]:
    creating = (_O_CREAT, _O_TMPFILE_BIT, _O_CREAT | _O_TMPFILE_BIT)
    for name, flags in (("open", 1), ("openat", 2)):
        # The mode is undefined unless a file may be created.
        makes = Test(flags, creating, mask=_O_CREAT | _O_TMPFILE_BIT)
        yield FilterRule(name, EPERM, (makes, Test(flags + 1, (0,), mask=_S_SETID, inside=False)))
        # Access mode 3 opens for ioctl only, which Landlock treats as neither read nor write.
        yield FilterRule(name, EPERM, (Test(flags, (3,), mask=_O_ACCMODE),))
        if abi < 3:  # Landlock does not control truncation by opening for reading
            only_read = Test(flags, (_O_TRUNC,), mask=_O_TRUNC | _O_ACCMODE)
            yield FilterRule(name, EPERM, (only_read,))
    for name, mode in (("creat", 1), ("mknod", 1), ("mknodat", 2)):
        yield FilterRule(name, EPERM, (Test(mode, (0,), mask=_S_SETID, inside=False),))
    if abi < 3:
        yield FilterRule("truncate", NOTIFY)
    # Whoever else opens the file waits for the holder, for 45 s; reading it is enough to hold one.
    yield FilterRule("fcntl", EPERM, (Test(1, (_F_SETLEASE, _F_SETDELEG)),))


def _process_rules(tier: int, abi: int) -> Iterator[FilterRule]:
    yield FilterRule("clone", EPERM, (Test(0, (0,), mask=_CLONE_NAMESPACES, inside=False),))
    # The command's own listener could answer forwarded calls, once ours is gone.
    yield FilterRule("seccomp", EPERM, (Test(1, (0,), mask=_NEW_LISTENER, inside=False),))
    # Only one's own process. (sched_setscheduler and sched_setaffinity are allowed: libzmq and
    # OpenMP pass them thread ids.)
    for name in ("prlimit64", "move_pages"):
        yield FilterRule(name, EPERM, (Test(0, (0,), inside=False),))
    for name, user in (("setpriority", _PRIO_USER), ("ioprio_set", _IOPRIO_WHO_USER)):
        yield FilterRule(
            name, EPERM, (Test(0, (user,)),)
        )  # 0 means the user here: the kernel process
        yield FilterRule(name, EPERM, (Test(1, (0,), inside=False),))
    if abi < 6 and tier < 2:  # neither a Landlock scope for signals nor a pid namespace
        for name in KILL_CALLS:
            yield FilterRule(name, NOTIFY)
        # The kernel sends any signal set by F_SETSIG to the owner of a descriptor.
        yield FilterRule("fcntl", EPERM, (Test(1, (_F_SETOWN, _F_SETOWN_EX)),))


def _ioctl_rules(tier: int, abi: int) -> Iterator[FilterRule]:
    yield FilterRule("ioctl", EPERM, (Test(1, (_TIOCSTI, _TIOCLINUX, _TIOCSETD)),))
    if abi < 6 and tier < 2:
        yield FilterRule("ioctl", EPERM, (Test(1, (_FIOSETOWN, _SIOCSPGRP)),))
    if tier < 2:  # the other end of one's own terminal, without access to other terminals
        yield FilterRule("ioctl", NOTIFY, (Test(1, (TIOCGPTPEER,)),))
    families = Test(1, _FILE_FAMILIES, mask=_FAMILY)
    yield FilterRule("ioctl", EOPNOTSUPP, (families, Test(1, _FILE_IOCTLS, inside=False)))


def _socket_rules(network: bool) -> Iterator[FilterRule]:
    # A datagram socket could send to any path, so local sockets are streams or packets.
    local = (Test(0, (_AF_UNIX,)), Test(1, (_STREAM, _SEQPACKET), mask=_TYPE))
    yield FilterRule("socket", ALLOW, local)
    yield FilterRule("socketpair", ALLOW, local)
    if network:
        internet = Test(0, (_AF_INET, _AF_INET6))
        for kind, protocol in ((_STREAM, _TCP), (_DGRAM, _UDP)):
            tests = (internet, Test(1, (kind,), mask=_TYPE), Test(2, (0, protocol)))
            yield FilterRule("socket", ALLOW, tests)
    yield FilterRule("socket", EPERM)
    yield FilterRule("socketpair", EPERM)
    yield FilterRule("connect", NOTIFY)
    # sendto without an address is send; asyncio's self-pipe needs it.
    yield FilterRule("sendto", ALLOW, (Test(4, (0,)), Test(4, (0,), high=True)))
    if network:
        # The address is behind a pointer: the supervisor checks a copy and sends itself.
        for name in ("sendto", "sendmsg", "sendmmsg", "listen"):
            yield FilterRule(name, NOTIFY)
    else:
        # Local streams and packets ignore or refuse an address.
        yield FilterRule("sendto", EPERM)


def _compile(rules: list[FilterRule]) -> bytes:
    by_number: dict[int, list[FilterRule]] = {}
    for rule in rules:
        number = number_of(rule.name)
        if number is not None:
            by_number.setdefault(number, []).append(rule)
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _AUDIT_ARCH[linux.ARCHITECTURE]),
        (_RETURN, 0, 0, KILL),  # 32-bit calls have other numbers
        (_LOAD, 0, 0, _NUMBER),
        # Calls newer than this list, and on x86_64 those of x32.
        (_AT_LEAST, 0, 1, NEWEST + 1),
        (_RETURN, 0, 0, ENOSYS),
    ]
    for number, group in by_number.items():
        body = [step for rule in group for step in _steps(rule)]
        if group[-1].tests:
            body.append((_RETURN, 0, 0, ALLOW))
        program += [(_EQUAL, 0, len(body), number), *body]
    program.append((_RETURN, 0, 0, ALLOW))
    return b"".join(_INSTRUCTION.pack(*step) for step in program)


def _steps(rule: FilterRule) -> list[tuple[int, int, int, int]]:
    """Return the instructions of one rule: jump to its end when a test fails, else return its
    action.
    """
    steps = [(_RETURN, 0, 0, rule.action)]
    for test in reversed(rule.tests):
        steps = _test_steps(test, len(steps)) + steps
    return steps


def _test_steps(test: Test, rest: int) -> list[tuple[int, int, int, int]]:
    """Return the instructions of one test, which jump over `rest` more when it fails."""
    steps = [(_LOAD, 0, 0, _ARGUMENTS + 8 * test.argument + (4 if test.high else 0))]
    if test.mask != _WORD:
        steps.append((_AND, 0, 0, test.mask))
    last = len(test.values) - 1
    for index, value in enumerate(test.values):
        left = last - index  # comparisons that follow
        if test.inside:
            steps.append((_EQUAL, left, rest if left == 0 else 0, value))
        else:
            steps.append((_EQUAL, left + rest, 0, value))
    return steps


class _Program(ctypes.Structure):
    """struct sock_fprog of <linux/filter.h>."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def install(program: bytes) -> int:
    """Apply `program` to this process irrevocably; return the descriptor that receives forwarded
    calls.

    Raises:
        OSError: the kernel refuses: EINVAL where user notification is missing (before Linux 5.0),
            EPERM or ENOSYS below a container's own filter.
    """
    header = _Program(len(program) // _INSTRUCTION.size, program)
    number = number_of("seccomp")
    # While the supervisor performs a call, only a fatal signal may interrupt it: otherwise the call
    # would be repeated, and data sent twice (Linux 5.19).
    for flags in (_NEW_LISTENER | _WAIT_KILLABLE, _NEW_LISTENER):
        try:
            return linux.syscall(number, _SET_MODE_FILTER, flags, header)
        except OSError as error:
            if error.errno != errno.EINVAL or flags == _NEW_LISTENER:
                raise
    raise AssertionError("unreachable")
