"""Keeps what live code leaves on the event loop from ending the kernel: a task or callback that
raises ``SystemExit`` or ``KeyboardInterrupt`` ends the loop that runs it, and here that is the
kernel's.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from functools import partial
from typing import Any

_is_live: ContextVar[bool] = ContextVar("live code", default=False)
# A loop's methods that take a callback, and at which place; steps of tasks are callbacks, too.
_SCHEDULERS = {"call_soon": 0, "call_soon_threadsafe": 0, "call_at": 1} | dict.fromkeys(
    ("add_reader", "add_writer", "add_signal_handler"), 1
)


@contextmanager
def contained() -> Iterator[None]:
    """In tasks and callbacks that are started inside, keep exits and interrupts from the loop."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # the code is driven by hand, and ends no loop
        yield
        return
    if "call_soon" not in vars(loop):
        # For good: runs of two agents may overlap, and live code's tasks start others later.
        for name, place in _SCHEDULERS.items():
            setattr(loop, name, partial(_schedule, getattr(loop, name), place))
    token = _is_live.set(True)
    try:
        yield
    finally:
        _is_live.reset(token)


def _schedule(
    schedule: Callable[..., Any], place: int, *args: Any, context: Context | None = None
) -> Any:
    is_live = _is_live.get() if context is None else context.get(_is_live, False)
    if is_live:  # others' callbacks that are given meanwhile are left alone
        args = (*args[:place], partial(_call, args[place]), *args[place + 1 :])
    return schedule(*args) if context is None else schedule(*args, context=context)


def _call(callback: Callable[..., Any], *args: Any) -> None:
    try:
        callback(*args)
    except (SystemExit, KeyboardInterrupt) as error:
        if isinstance(getattr(callback, "__self__", None), asyncio.Task):
            return  # the task keeps its error, for whoever awaits it
        raise RuntimeError(f"a callback of this code raised {type(error).__name__}") from error
