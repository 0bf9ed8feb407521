"""Stops code that holds the main thread after its call ended, by raising from a signal."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType

from agent_magics.dispatch.person_code import holds_person_code
from agent_magics.engine.channels.requests import Work
from agent_magics.engine.foreground.interrupt import handling

# Ignored by default, so that a signal that arrives too late does nothing.
_SIGNAL = getattr(signal, "SIGURG", None)


class Stopped(KeyboardInterrupt):
    """Raised in the code of a call that exceeded its time limit or was cancelled."""


@contextmanager
def stoppable(work: Work) -> Iterator[None]:
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
