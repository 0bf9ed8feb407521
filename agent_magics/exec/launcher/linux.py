"""Wraps the Linux system calls that the standard library does not offer.

Law: only this module calls libc through ctypes. On other systems the functions that only
improve safety do nothing, which their docstrings note; `prctl` and `syscall` raise.
"""

import ctypes
import errno
import os
import sys
from contextlib import suppress
from typing import Any, TypeAlias

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
_libc.prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)

Argument: TypeAlias = "int | bytes | ctypes.Array[Any] | ctypes.Structure | None"


def syscall(number: int | None, *arguments: Argument) -> int:
    """Make one system call.

    Args:
        number: from `syscall_number`; None means a call that this machine does not have.
        arguments: integers (passed with their full width), or memory: bytes, ctypes objects, None.

    Returns:
        The kernel's result, never negative.

    Raises:
        OSError: the call failed, or this is not Linux (ENOSYS).
    """
    if not IS_LINUX or number is None:
        raise OSError(errno.ENOSYS, "only Linux has these system calls")
    return _checked(_libc.syscall(ctypes.c_long(number), *map(_as_register, arguments)))


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _as_register(argument: Argument) -> object:
    # A plain int would be passed as 32 bits, leaving the upper half undefined.
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
    """Call prctl(2); missing arguments are 0, as newer options require.

    Raises:
        OSError: the call failed, or this is not Linux (ENOSYS).
    """
    if not IS_LINUX:
        raise OSError(errno.ENOSYS, "only Linux has prctl")
    four = [*arguments, 0, 0, 0, 0][:4]
    return _checked(_libc.prctl(option, *four))


def landlock_abi() -> int:
    """Return the Landlock ABI version of this kernel; 0 where there is none.

    AGENT_MAGICS_TEST_ABI, a number, is an upper limit, so that tests can emulate older kernels.
    """
    try:
        version = syscall(LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_CREATE_RULESET_VERSION)
    except OSError:
        return 0
    return min(version, int(os.environ.get("AGENT_MAGICS_TEST_ABI", version)))


def become_subreaper() -> None:
    """Adopt every descendant whose parent ends, daemons included. Does nothing on macOS.

    The setting is kept across exec, but not inherited by forked children.
    """
    if IS_LINUX:
        prctl(PR_SET_CHILD_SUBREAPER, 1)


def forbid_inspection() -> None:
    """Forbid processes of this user to trace this one or read its memory. Does nothing on macOS.

    The setting is kept across fork and ends with exec (man 2 prctl, PR_SET_DUMPABLE).
    """
    if IS_LINUX:
        prctl(PR_SET_DUMPABLE, 0)


def die_with_parent(parent: int, signal_number: int) -> None:
    """Request `signal_number` for this process when `parent`, which must be single-threaded, ends.

    The setting is kept across exec, not across fork. Does nothing on macOS.

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
    """Reset the two signals that glibc reserves for itself to their default action.

    `signal` refuses them, and GNU make leaves them ignored in everything it starts. On an
    unsupported architecture, and on macOS, this does nothing.
    """
    with suppress(OSError):
        number = syscall_number(13, 134)  # rt_sigaction
        for hidden in _HIDDEN_SIGNALS:
            syscall(number, hidden, bytes(_SIGACTION_SIZE), None, _SIGSET_SIZE)


def close_on_exec(first: int) -> None:
    """Mark every descriptor from `first` on as close-on-exec.

    A second safeguard: Python creates descriptors so. Does nothing on macOS and before Linux 5.11.
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
