"""Forks pytest's own process: the only module of the tests that does.

A child does only what it was made for: it ends in `os._exit` whatever is raised, so that no child
ever goes on running the suite.
"""

import ctypes
import multiprocessing
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

LIMIT = 120.0  # seconds; below the time limit of a test
_MADV_COLLAPSE = 25  # of Linux 6.1; an older one refuses it


def use_large_pages() -> None:
    """Move the memory of this process into pages of 2 MB, where the kernel can.

    A fork copies an entry for each page that there is. With all tests collected these are 220,000
    of the usual 4 kB, for which each fork took 45 ms.
    """
    maps = Path("/proc/self/maps")
    if not maps.exists():  # not Linux
        return
    madvise = ctypes.CDLL(None).madvise
    for line in maps.read_text(encoding="utf-8").splitlines():
        span, access, _, _, inode, *_ = line.split()
        if access == "rw-p" and inode == "0":  # not of a file
            first, end = (int(each, 16) for each in span.split("-"))
            madvise(ctypes.c_void_p(first), ctypes.c_size_t(end - first), _MADV_COLLAPSE)


def start(act: Callable[[], object]) -> int:
    """Call `act` in a forked child, with a session of its own.

    Returns:
        The child's pid. Its exit status is 0, or 1 where `act` raised anything at all.
    """
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks where threads run
        # An interrupt here would take the child out of this function.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(writer)
        os.read(reader, 1)  # its session is there: whoever kills its group kills all of it
        os.close(reader)
        return pid
    status = 1
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.setsid()
        os.write(writer, b".")
        os.close(reader)
        os.close(writer)
        act()
        status = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def bound() -> Callable[[], None]:
    """Return a `preexec_fn` by which a program ends with this process, also if that is killed.

    The program must be started on the main thread: it ends with the thread.
    """
    # Late: attacks get a copy of this file alone.
    from agent_magics.exec.launcher import linux  # noqa: PLC0415

    return partial(linux.die_with_parent, os.getpid(), signal.SIGKILL)


@contextmanager
def child(act: Callable[[], object]) -> Iterator[int]:
    """Call `act` in a forked child; at the end of the context kill the child and its group."""
    pid = start(act)
    try:
        yield pid
    finally:
        for kill in (os.kill, os.killpg):
            with suppress(ProcessLookupError):
                kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def call(act: Callable[[], Any], *, limit: float = LIMIT) -> Any:
    """Call `act` in a forked child and return its result through a pipe.

    Args:
        act: a function whose result can be pickled.
        limit: seconds, after which the child and its group are killed.

    Raises:
        AssertionError: `act` raised an error, which is quoted; or was killed; or took too long.
    """
    receiver, sender = multiprocessing.Pipe(duplex=False)
    with receiver, child(lambda: sender.send(_outcome(act))):
        sender.close()
        if not receiver.poll(limit):
            raise AssertionError(f"a forked child was not done after {limit} s")
        try:
            result, error = receiver.recv()
        except EOFError:
            raise AssertionError("a forked child ended before its function did") from None
    if error:
        raise AssertionError(f"a forked child failed:\n{error}")
    return result


def _outcome(act: Callable[[], Any]) -> tuple[Any, str]:
    """Return the result of `act`, and the traceback of its error; the other one is empty."""
    try:
        return act(), ""
    except BaseException:
        return None, traceback.format_exc()
