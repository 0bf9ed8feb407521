"""What an interrupt does while a cell waits for a run: raise in your code, else stop the run.

ipykernel's SIGINT handler for a cell that awaits only cancels the cell's future, and synchronous
work inside it runs on. Python's own handler raises anywhere: in the kernel's event loop, which
ends the kernel, or half-way through our drawing. So: raise where the person's code is on the
stack; elsewhere say so to the run, which looks at its heartbeat.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from agent_magics.dispatch.function import FunctionToolHandler
from agent_magics.engine.foreground import Foreground

_markers: set[CodeType] = set()
_walls: set[CodeType] = set()


def marks_person_code(function: Any) -> Any:
    """Decorator: what `function` calls is the person's code, and may be interrupted anywhere."""
    _markers.add(function.__code__)
    return function


def marks_own_code(function: Any) -> Any:
    """Decorator: what `function` calls is ours again, although live code may have called it."""
    _walls.add(function.__code__)
    return function


def is_own_code(code: CodeType) -> bool:
    """Tell whether what is called from here is ours, although live code may have called it."""
    return code in _walls


# The places where the person's tools are called.
marks_person_code(Foreground.begin_work)
marks_person_code(FunctionToolHandler._run_sync)
marks_person_code(FunctionToolHandler._run_async)


class _Handler:
    """A SIGINT handler; `otherwise` is called where no code of the person runs."""

    def __init__(self, otherwise: Callable[..., Any]) -> None:
        self._otherwise = otherwise
        self.pressed = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if _holds_person_code(frame):
            raise KeyboardInterrupt
        self.pressed = True
        self._otherwise(number, frame)


def raise_if_pressed() -> None:
    """Raise what came just before the person's code began, and that it would never look at.

    Called first in what `marks_person_code`: from there on an interrupt raises by itself.
    """
    handler = signal.getsignal(signal.SIGINT)
    if isinstance(handler, _Handler) and handler.pressed:
        handler.pressed = False
        raise KeyboardInterrupt


@contextmanager
def interrupts_call(stop: Callable[[], None]) -> Iterator[None]:
    """Hold around a whole run; `stop` is called in the signal handler, so it only sets a flag."""
    with _handled_by(_Handler(lambda number, frame: stop())):
        yield


@contextmanager
def interruptible() -> Iterator[None]:
    """Hold around work on the main thread; where a run holds `interrupts_call`, that serves."""
    previous = signal.getsignal(signal.SIGINT)
    if isinstance(previous, _Handler) or not callable(previous):
        yield
        return
    with _handled_by(_Handler(previous)):
        yield


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let no interrupt come through; only around short clean-up."""
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


def _holds_person_code(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code not in _walls:
        if frame.f_code in _markers:
            return True
        frame = frame.f_back
    return False
