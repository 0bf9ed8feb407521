"""Handles an interrupt while a cell waits for a run: raise in the person's code, else stop the run.

ipykernel's SIGINT handler for a cell that awaits only cancels the cell's future, and synchronous
work inside it runs on. Python's own handler raises anywhere: in the kernel's event loop, which ends
the kernel, or half-way through our drawing. So: raise where the person's code is on the stack;
elsewhere set a flag, which the run checks at intervals.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

from agent_magics.dispatch.person_code import holds_person_code, marks_person_code

if TYPE_CHECKING:  # which imports more than the magics need to load
    from agent_magics.engine.channels.requests import Work


@contextmanager
def handling(number: int, handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """Have a function handle a signal meanwhile; on any other thread than the main one do nothing.

    Args:
        number: the signal, such as `signal.SIGINT`.
        handler: called on the main thread, between two instructions of Python.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, previous)


class _Handler:
    """A SIGINT handler that raises in the person's code and calls `otherwise` elsewhere."""

    presses = 0  # since the process began, for all handlers

    def __init__(self, otherwise: Callable[..., Any]) -> None:
        self._otherwise = otherwise
        self.pressed = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        _Handler.presses += 1
        if holds_person_code(frame):
            raise KeyboardInterrupt
        self.pressed = True
        self._otherwise(number, frame)


def presses() -> int:
    """Return how often the person has interrupted: code may raise KeyboardInterrupt by itself."""
    return _Handler.presses


def raise_if_pressed() -> None:
    """Raise for an interrupt that arrived just before the person's code began.

    Called first in functions marked by `marks_person_code`: from there on an interrupt raises by
    itself.
    """
    handler = signal.getsignal(signal.SIGINT)
    if isinstance(handler, _Handler) and handler.pressed:
        handler.pressed = False
        raise KeyboardInterrupt


def interrupts_call(stop: Callable[[], None]) -> AbstractContextManager[None]:
    """Install the handler for a whole run; `stop` is called in it, so it only sets a flag."""
    return handling(signal.SIGINT, _Handler(lambda number, frame: stop()))


@contextmanager
def interruptible() -> Iterator[None]:
    """Install the handler for work on the main thread, unless `interrupts_call` is in force."""
    previous = signal.getsignal(signal.SIGINT)
    if isinstance(previous, _Handler) or not callable(previous):
        yield
        return
    with handling(signal.SIGINT, _Handler(previous)):
        yield


def call_of_person(function: Callable[..., Any], *arguments: object) -> Any:
    """Call code of the person's on the main thread; an interrupt raises in it.

    Raises:
        KeyboardInterrupt: the person interrupted, also where the code has caught that.
    """
    before = presses()
    with interruptible():
        found = _call(function, *arguments)
    if presses() > before:
        raise KeyboardInterrupt
    return found


@marks_person_code
def _call(function: Callable[..., Any], *arguments: object) -> Any:
    raise_if_pressed()
    return function(*arguments)


def uninterrupted() -> AbstractContextManager[None]:
    """Ignore interrupts; only around short clean-up."""
    return handling(signal.SIGINT, lambda number, frame: None)


# Ignored by default, so that a signal that arrives too late does nothing.
_SIGNAL = getattr(signal, "SIGURG", None)


class Stopped(KeyboardInterrupt):
    """Raised in the code of a call that exceeded its time limit or was cancelled."""


@contextmanager
def stoppable(work: "Work") -> Iterator[None]:
    """Make the code of `work` stoppable on the main thread: ending the work raises `Stopped`.

    Python raises between two of its instructions: C code that does not return is not stopped.
    """
    if _SIGNAL is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def raise_inside(number: int, frame: FrameType | None) -> None:
        if work.is_ended and holds_person_code(frame):
            raise Stopped

    with handling(_SIGNAL, raise_inside):
        work.wake = partial(signal.pthread_kill, threading.main_thread().ident or 0, _SIGNAL)
        try:
            if work.is_ended:
                raise Stopped
            yield
        finally:
            work.wake = None
