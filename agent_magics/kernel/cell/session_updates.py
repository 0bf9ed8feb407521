"""Draws the output of a cell's sessions after the cell's end."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context

from agent_magics.kernel.cell.outputs import INTERVAL
from agent_magics.protocol.events import Event


class SessionUpdates:
    """Draws events of a cell's sessions after its end, on the kernel's main thread.

    It runs in the cell's context, so that the front end assigns the messages to that cell, and
    waits while another cell blocks the kernel.

    Args:
        show: draws an event; returns whether `tick` should be called soon.
        tick: sends delayed updates; returns the same.
    """

    def __init__(self, show: Callable[[Event], bool], tick: Callable[[], bool]) -> None:
        self._show, self._tick = show, tick
        self._events: deque[Event] = deque()
        self._has_begun = self._woken = self._ticking = False
        self._context = copy_context()
        self._loop: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):  # a console without a loop: nothing is drawn there later
            self._loop = asyncio.get_running_loop()

    def put(self, event: Event) -> None:
        """Queue an event; from any thread."""
        self._events.append(event)
        self._wake()

    def begin(self) -> None:
        """Start drawing queued events: the cell has drawn all of its own."""
        self._has_begun = True
        self._wake()

    def _wake(self) -> None:
        if self._has_begun and not self._woken and self._loop is not None:
            self._woken = True
            with suppress(RuntimeError):  # the kernel is shutting down
                self._loop.call_soon_threadsafe(self.draw, context=self._context.copy())

    def draw(self) -> None:
        """Draw the queued events; on the kernel's main thread."""
        self._woken = False  # reset first: later events wake the loop again
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
