"""Locks files against other kernels and against what protects them, and opens those that several
kernels write; makes locks for threads.

Law: a file is written only under its own name, never through a link; who finds it locked waits for
a moment, since other kernels lock it to look at it.
"""

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

from agent_magics.files.beneath import closing_descriptor
from agent_magics.files.plain_files import open_plain
from agent_magics.protocol.errors import FatalError, clause

MOMENT = 0.2  # seconds; others hold the lock for less when they only look at a file
LONGEST_WAIT = 10.0  # seconds; a change takes milliseconds, so a process that holds it longer hangs
_BETWEEN_TRIES = 0.01

_Guard = Callable[[Sequence[str]], AbstractContextManager[object]]
_guard: _Guard = nullcontext  # none yet


def thread_lock() -> threading.Lock:
    """Make a lock that is free in a forked child, which lacks the thread that may hold it."""
    lock = threading.Lock()
    os.register_at_fork(after_in_child=lock._at_fork_reinit)  # type: ignore[attr-defined]
    return lock


class FileHeld(OSError):
    """Another process has locked the file."""


def open_locked(
    path: str | os.PathLike[str],
    flags: int = os.O_CREAT,
    *,
    mode: int = 0o600,
    wait: float = MOMENT,
) -> int:
    """Open a regular file to read and write it, locked until its descriptor is closed.

    Args:
        path: the file; where it is replaced or removed meanwhile, it is opened again.
        flags: further flags of `os.open`.
        mode: the permission bits of a new file.
        wait: the seconds for which it is tried to lock it.

    Raises:
        FileHeld: another process has locked it for so long.
        OSError: it cannot be opened, or is no regular file; `strerror` says why.
    """
    deadline = time.monotonic() + wait
    while True:
        descriptor = open_plain(path, os.O_RDWR | flags, mode=mode)
        try:
            if not hold(descriptor, deadline - time.monotonic()):
                raise FileHeld(errno.EAGAIN, "another process has locked it", os.fspath(path))
            if _is_at(path, descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        time.sleep(_BETWEEN_TRIES)


@contextmanager
def held_while(path: Path, refusal: str) -> Iterator[None]:
    """Hold a file of this name, which is free again when this process has ended, however it ends.

    Raises:
        FatalError: another one holds it (`refusal`), or there can be no such file.
    """
    try:
        descriptor = open_locked(path)
    except FileHeld:
        raise FatalError(refusal) from None
    except OSError as error:
        raise FatalError(f"{path} cannot be written ({clause(error)}).") from None
    with closing_descriptor(descriptor):
        try:
            yield
        finally:
            with suppress(OSError):  # one that stays is as free, and what was done matters more
                path.unlink()


def hold(descriptor: int, wait: float = MOMENT) -> bool:
    """Lock an open file or folder until it is closed; return False where another process has.

    A file system without locks locks nothing.
    """
    deadline = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
        except OSError:
            return True
        else:
            return True
        time.sleep(_BETWEEN_TRIES)


def release(descriptor: int) -> None:
    """Close a file, and free its lock though a child that is just being started has it open."""
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def append(descriptor: int, data: bytes) -> None:
    """Append all of the data to a locked file, or none of it."""
    size, rest = os.fstat(descriptor).st_size, memoryview(data)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except BaseException:
        os.ftruncate(descriptor, size)  # a part of it is there, where the disk has become full
        raise


def is_held(path: str | os.PathLike[str]) -> bool | None:
    """Return whether a process has locked a file or folder.

    Returns:
        None where that cannot be known: it cannot be opened, or its file system has no locks.
    """
    try:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        with closing_descriptor(os.open(path, flags)) as descriptor:
            # Shared, so that two that look do not take each other for one that writes.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file between reading and replacing it.

    The lock is on its folder, which must exist: the file itself is replaced, and a lock file beside
    it would be litter in a project.

    Raises:
        FatalError: another process holds the lock for more than `LONGEST_WAIT` seconds.
        OSError: the folder cannot be opened.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with closing_descriptor(folder):
        if not hold(folder, LONGEST_WAIT):
            raise FatalError(
                f"{path} was not changed: another program has held {path.parent} for "
                f"{LONGEST_WAIT:g} s; end it and try again."
            )
        yield


def guard_own_writes(guard: _Guard) -> None:
    """Enter `guard` around all that is written under `own_write`; it gets the paths."""
    global _guard
    _guard = guard


def own_write(*paths: str | os.PathLike[str]) -> AbstractContextManager[object]:
    """Write files by which the kernel does what the person asked for or approved.

    What protects files accepts them, and compares none until then: so it goes around the writes
    alone, within `locked`, and waits for nobody.
    """
    return _guard([os.fspath(path) for path in paths])


def _is_at(path: str | os.PathLike[str], descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False
