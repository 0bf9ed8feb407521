"""Limits the time of work; the limit is paused while a question waits, or while nothing runs."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

_LONGEST = 1e6  # seconds that a timer can wait on every platform


class TimeLimit:
    """A time limit, paused until `go_on` is called.

    Args:
        seconds: the limit.
        on_late: called on the loop when it has passed.

    Attributes:
        is_late: whether it has passed.
    """

    # Class attributes are the initial values, so that making an object sets few attributes.
    is_late = False
    _stops = 1
    _began = 0.0
    _used = 0.0
    _timer: asyncio.TimerHandle | None = None
    _loop: asyncio.AbstractEventLoop | None = None

    def __init__(self, seconds: float, on_late: Callable[[], object]) -> None:
        self._limit = seconds
        self._on_late = on_late

    @property
    def used(self) -> float:
        """The seconds used so far, without those in which it was paused; thread-safe."""
        if self._timer is None:
            return self._used
        return self._used + time.monotonic() - self._began

    @property
    def left(self) -> float:
        """The seconds until the limit."""
        return self._limit - self.used

    def add(self, seconds: float) -> None:
        """Add time that was used in an earlier kernel."""
        self._used += seconds

    def go_on(self) -> None:
        """Resume after one `stop`."""
        self._stops -= 1
        if self._stops == 0:
            self._began = time.monotonic()
            self._loop = asyncio.get_running_loop()
            self._timer = self._loop.call_later(min(self.left, _LONGEST), self._pass)

    def stop(self) -> None:
        """Pause until `go_on` has been called as often."""
        if self._timer is not None:
            self._used = self.used
            self._timer.cancel()
            self._timer = None
        self._stops += 1

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Pause inside this context; from any thread."""
        self._on_loop(self.stop)
        try:
            yield
        finally:
            self._on_loop(self.go_on)

    def _on_loop(self, change: Callable[[], None]) -> None:
        loop = self._loop
        if loop is None or loop is asyncio._get_running_loop():
            change()
        else:
            loop.call_soon_threadsafe(change)

    def _pass(self) -> None:
        self.is_late = True
        self._on_late()


class CancellingLimit(TimeLimit):
    """A time limit that cancels the work inside of it, and raises `TimeoutError` then.

    Args:
        seconds: the limit.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds, self._cancel)
        self._timeout = asyncio.timeout(None)

    def _cancel(self) -> None:
        if not self._timeout.expired():
            self._timeout.reschedule(0)

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        self.go_on()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        await self._timeout.__aexit__(kind, error, trace)
