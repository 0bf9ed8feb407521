"""Measures the time that a sub-agent works, and calls back when its time is over."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LONGEST = 1e6  # seconds that a timer can wait on every platform


class WorkClock:
    """A time limit that is paused while no work runs and while questions are open.

    Args:
        seconds: the limit.
        on_late: called when it has passed.
    """

    def __init__(self, seconds: float, on_late: Callable[[], None]) -> None:
        self._limit = seconds
        self._on_late = on_late
        self._stops = 1
        self._began = 0.0
        self._worked = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def seconds(self) -> float:
        """The time worked so far, in seconds; thread-safe."""
        if self._timer is None:
            return self._worked
        return self._worked + time.monotonic() - self._began

    @property
    def left(self) -> float:
        """The seconds until the limit."""
        return self._limit - self.seconds

    def worked(self, seconds: float) -> None:
        """Add time that was worked in an earlier kernel."""
        self._worked += seconds

    def go_on(self) -> None:
        """Resume after one `stop`."""
        self._stops -= 1
        if self._stops == 0:
            self._began = time.monotonic()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(min(self.left, _LONGEST), self._on_late)

    def stop(self) -> None:
        """Pause the clock until `go_on` has been called as often."""
        if self._timer is not None:
            self._worked = self.seconds
            self._timer.cancel()
            self._timer = None
        self._stops += 1

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Pause the clock inside this context."""
        self.stop()
        try:
            yield
        finally:
            self.go_on()
