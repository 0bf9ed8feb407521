"""The Linux system calls that the standard library does not offer, each under a name that says why.

Law: this module alone speaks to libc through ctypes. On other systems the functions that only make
things safer do nothing, and say so; `prctl` and `syscall` raise.
"""

import ctypes
import errno
import os
import sys
from contextlib import suppress

IS_LINUX = sys.platform == "linux"
ARCHITECTURE = os.uname().machine

# <linux/prctl.h>
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

# <linux/close_range.h>; system calls since 5.0 have one number on all architectures
_CLOSE_RANGE = 436
_CLOSE_RANGE_CLOEXEC = 1 << 2
_LAST_FD = 0xFFFFFFFF

# <linux/landlock.h>
LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_CREATE_RULESET_VERSION = 1 << 0

_HIDDEN_SIGNALS = (32, 33)  # SIGCANCEL and SIGSETXID, glibc's sysdeps/unix/sysv/linux
_SIGACTION_SIZE, _SIGSET_SIZE = 32, 8  # of the kernel's own structures, all zero: SIG_DFL

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

Argument = int | bytes | None | ctypes.Array | ctypes.Structure


def syscall(number: int, *arguments: Argument) -> int:
    """Make one system call.

    Args:
        number: as `syscall_number` gives it.
        arguments: integers (passed with their full width), or memory: bytes, ctypes objects, None.

    Returns:
        What the kernel returns, never negative.

    Raises:
        OSError: the kernel says no, or this is not Linux (ENOSYS).
    """
    if not IS_LINUX:
        raise OSError(errno.ENOSYS, "only Linux has these system calls")
    result = _libc.syscall(ctypes.c_long(number), *map(_as_register, arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _as_register(argument: Argument) -> object:
    # A bare int would be passed as 32 bits, and what stands in the other half is chance.
    if isinstance(argument, int):
        return ctypes.c_long(argument)
    if isinstance(argument, ctypes.Structure):
        return ctypes.byref(argument)
    return argument


def syscall_number(x86_64: int, aarch64: int) -> int:
    """Return the number of a system call on this machine (<asm/unistd.h>).

    Raises:
        OSError: another architecture (ENOSYS).
    """
    if ARCHITECTURE == "x86_64":
        return x86_64
    if ARCHITECTURE in ("aarch64", "arm64"):
        return aarch64
    raise OSError(errno.ENOSYS, f"the numbers of {ARCHITECTURE} are not known")


def prctl(option: int, *arguments: int) -> int:
    """Call prctl(2); arguments that are not given are 0, as newer options demand.

    Raises:
        OSError: the kernel says no, or this is not Linux (ENOSYS).
    """
    if not IS_LINUX:
        raise OSError(errno.ENOSYS, "only Linux has prctl")
    four = [*arguments, 0, 0, 0, 0][:4]
    result = _libc.prctl(ctypes.c_int(option), *map(ctypes.c_ulong, four))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def landlock_abi() -> int:
    """Return the version of Landlock that this kernel offers; 0 where there is none.

    AGENT_MAGICS_TEST_ABI, a number, makes it no newer than that: tests see older kernels so.
    """
    try:
        version = syscall(LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_CREATE_RULESET_VERSION)
    except OSError:
        return 0
    return min(version, int(os.environ.get("AGENT_MAGICS_TEST_ABI", version)))


def become_subreaper() -> None:
    """Adopt every descendant whose parent ends, daemons included. Does nothing on macOS.

    It holds across exec, but a forked child has to ask for it anew.
    """
    if IS_LINUX:
        prctl(PR_SET_CHILD_SUBREAPER, 1)


def forbid_inspection() -> None:
    """Let no process of this user trace this one or read its memory. Does nothing on macOS.

    It holds across fork and ends with exec (man 2 prctl, PR_SET_DUMPABLE).
    """
    if IS_LINUX:
        prctl(PR_SET_DUMPABLE, 0)


def die_with_parent(parent: int, signal_number: int) -> None:
    """Be sent `signal_number` when `parent`, which must be single-threaded, ends.

    Holds across exec, not across fork. Does nothing on macOS.

    Args:
        parent: its process id, taken before the fork.
        signal_number: such as signal.SIGKILL.

    Raises:
        ProcessLookupError: it has ended already.
    """
    if IS_LINUX:
        prctl(PR_SET_PDEATHSIG, signal_number)
    if os.getppid() != parent:
        raise ProcessLookupError(errno.ESRCH, "the parent has ended")


def restore_hidden_signals() -> None:
    """Let the two signals that glibc keeps for itself do what they do after a login.

    `signal` refuses them, and GNU make leaves them ignored to all that it starts. Where the kernel
    is of an architecture whose number is not known, they stay as they are. Does nothing on macOS.
    """
    with suppress(OSError):
        number = syscall_number(13, 134)  # rt_sigaction
        for hidden in _HIDDEN_SIGNALS:
            syscall(number, hidden, bytes(_SIGACTION_SIZE), None, _SIGSET_SIZE)


def close_on_exec(first: int) -> None:
    """Make every descriptor from `first` on end with exec.

    A second line: descriptors of Python are so from birth. Does nothing on macOS and before 5.11.
    """
    try:
        syscall(_CLOSE_RANGE, first, _LAST_FD, _CLOSE_RANGE_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EINVAL, errno.EPERM):
            raise


def open_pidfd(pid: int) -> int | None:
    """Return a descriptor that becomes readable when process `pid` ends.

    Returns:
        None where there is no pidfd: macOS, Linux before 5.3, some containers.

    Raises:
        ProcessLookupError: it has ended already.
    """
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:
        return None
