"""An event loop whose time jumps to the next timer: what takes minutes is over at once, and exact.

    monkeypatch.setattr(gate, "time", Clock)
    run_at_once(play())

It is for coroutines that wait for each other and for time alone. A machine that is busy changes
nothing of what it shows.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
BEGIN = 1000.0


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop; its time is seconds from `BEGIN`."""

    def __init__(self) -> None:
        self.now = BEGIN
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self.now


class _Jumping(selectors.DefaultSelector):
    """Waits by moving the time on."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "all wait for something other than time"
        self._loop.now += timeout
        return super().select(0)


class Clock:
    """What stands for the module `time` in code that a virtual loop runs."""

    @staticmethod
    def monotonic() -> float:
        """Return the running loop's time."""
        return asyncio.get_running_loop().time()


def run_at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a virtual loop."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
