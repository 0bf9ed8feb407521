"""An interrupt that comes a moment before the person's code begins must not be lost in it."""

import asyncio
import os
import signal
import threading

import pytest

from agent_magics.dispatch.person_code import marks_person_code
from agent_magics.engine.channels.requests import Work
from agent_magics.engine.foreground.interrupt import interrupts_call, raise_if_pressed
from agent_magics.engine.foreground.waiting import Foreground


def press() -> None:
    """Press Ctrl-C, and wait until the handler has seen it."""
    os.kill(os.getpid(), signal.SIGINT)


def test_a_function_is_not_begun_after_the_interrupt():
    foreground = Foreground(session=None, host=None)
    begun = threading.Event()
    loop = asyncio.new_event_loop()
    work = Work("w1", "sync", begun.set, loop)
    with interrupts_call(foreground.interrupt):
        press()
        with pytest.raises(KeyboardInterrupt):
            foreground.begin_work(work)
    loop.close()
    assert not begun.is_set()


def test_live_code_is_not_begun_after_the_interrupt():
    ran = []

    @marks_person_code
    def execute() -> None:
        raise_if_pressed()
        ran.append(True)

    with interrupts_call(lambda: None):
        press()
        with pytest.raises(KeyboardInterrupt):
            execute()
        execute()
    assert ran == [True]
