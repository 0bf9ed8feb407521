"""Handles an interrupt while a cell waits for a run: raise in the person's code, else stop the run.

ipykernel's SIGINT handler for a cell that awaits only cancels the cell's future, and synchronous
work inside it runs on. Python's own handler raises anywhere: in the kernel's event loop, which ends
the kernel, or half-way through our drawing. So: raise where the person's code is on the stack;
elsewhere set a flag, which the run checks at intervals.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from agent_magics.dispatch.person_code import holds_person_code


class _Handler:
    """A SIGINT handler that raises in the person's code and calls `otherwise` elsewhere."""

    def __init__(self, otherwise: Callable[..., Any]) -> None:
        self._otherwise = otherwise
        self.pressed = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if holds_person_code(frame):
            raise KeyboardInterrupt
        self.pressed = True
        self._otherwise(number, frame)


def raise_if_pressed() -> None:
    """Raise for an interrupt that arrived just before the person's code began.

    Called first in functions marked by `marks_person_code`: from there on an interrupt raises by
    itself.
    """
    handler = signal.getsignal(signal.SIGINT)
    if isinstance(handler, _Handler) and handler.pressed:
        handler.pressed = False
        raise KeyboardInterrupt


@contextmanager
def interrupts_call(stop: Callable[[], None]) -> Iterator[None]:
    """Install the handler for a whole run; `stop` is called in it, so it only sets a flag."""
    with _handled_by(_Handler(lambda number, frame: stop())):
        yield


@contextmanager
def interruptible() -> Iterator[None]:
    """Install the handler for work on the main thread, unless `interrupts_call` is in force."""
    previous = signal.getsignal(signal.SIGINT)
    if isinstance(previous, _Handler) or not callable(previous):
        yield
        return
    with _handled_by(_Handler(previous)):
        yield


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore interrupts; only around short clean-up."""
    with _handled_by(lambda number, frame: None):
        yield


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
