"""Locks a configuration file while several kernels read, change and replace it."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent_magics.files.beneath import closing_descriptor
from agent_magics.protocol.errors import FatalError

LONGEST_WAIT = 10.0  # seconds; a change takes milliseconds, so a process that holds it longer hangs
_BETWEEN_TRIES = 0.01


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
        _lock(folder, path)
        yield


def _lock(folder: int, path: Path) -> None:
    deadline = time.monotonic() + LONGEST_WAIT
    while True:
        try:
            return fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise FatalError(
                    f"{path} was not changed: another program has held {path.parent} for "
                    f"{LONGEST_WAIT:g} s; end it and try again."
                ) from None
        time.sleep(_BETWEEN_TRIES)
