"""Draws what the sessions of a cell do after its end."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context

from agent_magics.kernel.outputs import INTERVAL
from agent_magics.protocol.events import Event


class Later:
    """Draws what a cell's sessions do after its end, on the kernel's main thread.

    It runs in the context of the cell, so that the front end knows whose messages these are, and
    waits while another cell blocks the kernel.

    Args:
        show: draws an event; tells whether `tick` should be called soon.
        tick: sends what was held back; tells the same.
    """

    def __init__(self, show: Callable[[Event], bool], tick: Callable[[], bool]) -> None:
        self._show, self._tick = show, tick
        self._events: deque[Event] = deque()
        self._begun = self._woken = self._ticking = False
        self._context = copy_context()
        self._loop: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):  # a console without a loop: nothing is drawn there later
            self._loop = asyncio.get_running_loop()

    def put(self, event: Event) -> None:
        """Take an event; from any thread."""
        self._events.append(event)
        self._wake()

    def begin(self) -> None:
        """Draw from now on: the cell has drawn all of its own."""
        self._begun = True
        self._wake()

    def _wake(self) -> None:
        if self._begun and not self._woken and self._loop is not None:
            self._woken = True
            with suppress(RuntimeError):  # the kernel ends
                self._loop.call_soon_threadsafe(self.draw, context=self._context.copy())

    def draw(self) -> None:
        """Draw what has come; on the kernel's main thread."""
        self._woken = False  # before the look: what comes after it wakes again
        again = False
        while self._events:
            again = self._show(self._events.popleft())
        self._go_on(again)

    def _beat(self) -> None:
        self._ticking = False
        self._go_on(True)

    def _go_on(self, again: bool) -> None:
        again = self._tick() or again
        if again and not self._ticking and self._loop is not None:
            self._ticking = True
            self._loop.call_later(INTERVAL / 2, self._beat, context=self._context.copy())
