"""Kills the processes of a test that reached its time limit, while the other tests go on."""

import time
from collections.abc import Iterator

import psutil
import pytest

_TICK = 0.01  # seconds: the kernel counts the start of a process in these


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Kill what the test itself started, if `pytest-timeout` ends it; fixtures' programs stay."""
    began = time.clock_gettime(time.CLOCK_BOOTTIME)
    try:
        return (yield)
    except pytest.fail.Exception as failure:
        if "from pytest-timeout" in str(failure):
            _kill_descendants(began - 2 * _TICK)
        raise


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
