"""Opens paths without following symlinks, and copies descriptors of other processes."""

import errno
import os
import struct

from agent_magics.exec.launcher.linux import syscall
from agent_magics.exec.launcher.syscalls import number_of

# <linux/openat2.h>
_OPEN_HOW = struct.Struct("=QQQ")  # flags, mode, resolve
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_IN_ROOT = 0x10

_PIDFD_THREAD = os.O_EXCL  # <linux/pidfd.h>, since Linux 6.9
_TRIES = 8  # openat2 returns EAGAIN if a folder that ".." crosses is renamed meanwhile


def open_plain(path: str) -> int:
    """Open `path`, of which no component may be a symlink, as an O_PATH descriptor.

    Raises:
        OSError: ELOOP when a component is a symlink; other errors of openat2(2).
    """
    return _openat2(-1, os.fsencode(path), os.O_PATH, _RESOLVE_NO_SYMLINKS)


def open_in_root(root: int, path: bytes, *, follow: bool) -> int:
    """Open an absolute path as a process whose root is descriptor `root` would, as O_PATH.

    Args:
        root: descriptor of the folder that "/" refers to.
        path: absolute.
        follow: whether a symlink at its end is followed.

    Raises:
        OSError: ELOOP for the magic links of /proc; other errors of openat2(2).
    """
    flags = os.O_PATH | (0 if follow else os.O_NOFOLLOW)
    try:
        return _openat2(root, path, flags, _RESOLVE_IN_ROOT)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        # EXDEV, for a magic link of /proc, is not a documented error of the emulated calls.
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None


def _openat2(folder: int, path: bytes, flags: int, resolve: int) -> int:
    how = _OPEN_HOW.pack(flags | os.O_CLOEXEC, 0, resolve)
    for _ in range(_TRIES):
        try:
            return syscall(number_of("openat2"), folder, path, how, len(how))
        except BlockingIOError as error:
            failure = error
    raise failure


def path_of(fd: int) -> str:
    """Return the path of an O_PATH descriptor, as the kernel names it."""
    return os.readlink(f"/proc/self/fd/{fd}")


def take_descriptor(thread: int, number: int) -> int:
    """Copy descriptor `number` of another process: the same open file (pidfd_getfd).

    Args:
        thread: the id of any of its threads.
        number: the descriptor's number in that process.

    Raises:
        OSError: it has no such descriptor (EBADF), or it may not be traced (EPERM).
    """
    process = _open_process(thread)
    try:
        return syscall(number_of("pidfd_getfd"), process, number, 0)
    finally:
        os.close(process)


def _open_process(thread: int) -> int:
    try:
        return os.pidfd_open(thread, _PIDFD_THREAD)
    except OSError:  # before Linux 6.9 only a process, not a thread, could be opened
        return os.pidfd_open(process_of(thread))


def process_of(thread: int) -> int:
    """Return the id of the process that `thread` belongs to.

    Raises:
        OSError: there is no such thread.
    """
    with open(f"/proc/{thread}/status", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("Tgid:"):
                return int(line.split()[1])
    raise ProcessLookupError(thread)
