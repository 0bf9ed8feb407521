"""Ends what takes too long in a test and after it, while the other tests go on."""

import faulthandler
import os
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType

import psutil
import pytest

# Seconds for what a test set up to be taken down: after a failure pytest-timeout counts none.
TAKING_DOWN = 120
AGAIN = 15  # seconds after which what did not end with the test is ended again
LOST = 90  # seconds after which a process ends that its signals do not reach, as in a loop in C
_TICK = 0.01  # seconds: the kernel counts the start of a process in these


class _LastResort:
    """Ends this process with a traceback of each thread, where no signal helped."""

    def __init__(self) -> None:
        # The real standard error, which pytest replaces while a test runs.
        self.file = os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2)
        self._moment = 0.0

    def after(self, seconds: float) -> None:
        """Let the process end not before `seconds` have passed, and at most `LOST` later.

        To start the thread that waits takes longer than most tests, so one serves many of them.
        """
        moment = time.monotonic() + seconds
        if not moment <= self._moment <= moment + LOST:
            faulthandler.dump_traceback_later(seconds + LOST, file=self.file, exit=True)
            self._moment = moment + LOST

    def off(self) -> None:
        """Let the process go on for as long as it likes."""
        if self._moment:
            faulthandler.cancel_dump_traceback_later()
            self._moment = 0.0


_last_resort = pytest.StashKey[_LastResort]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_last_resort] = _LastResort()


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_last_resort].off()
    os.close(config.stash[_last_resort].file)


def pytest_enter_pdb(config: pytest.Config) -> None:
    """Leave all the time to whoever debugs."""
    config.stash[_last_resort].off()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    _end_for_sure(item)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Kill what the test itself started, if `pytest-timeout` ends it; fixtures' programs stay."""
    began = time.clock_gettime(time.CLOCK_BOOTTIME)
    _end_for_sure(item)
    try:
        return (yield)
    except pytest.fail.Exception as failure:
        if "from pytest-timeout" in str(failure):
            _kill_descendants(began - 2 * _TICK)
        raise


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Fail what takes too long to take down, and print where each thread was."""
    file = item.config.stash[_last_resort].file

    def fail(_number: int, _frame: FrameType | None) -> None:
        os.write(file, f"\nStill not taken down: {item.nodeid}\n".encode())
        faulthandler.dump_traceback(file)
        pytest.fail(f"not taken down after {TAKING_DOWN} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, TAKING_DOWN)
    _end_for_sure(item)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _end_for_sure(item: pytest.Item) -> None:
    """Repeat the signal that ends this phase of a test; end the process if it does not help."""
    seconds, _ = signal.getitimer(signal.ITIMER_REAL)
    if seconds:
        signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
        item.config.stash[_last_resort].after(seconds + LOST)
    else:
        item.config.stash[_last_resort].off()


def _kill_descendants(since: float) -> None:
    """Kill the descendants of this process that started at `since` (seconds of uptime) or later."""
    boot = psutil.boot_time()
    found = psutil.Process().children(recursive=True)
    started = [process for process in found if process.create_time() - boot >= since]
    for process in started:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(started, timeout=5)
