"""Keeps tasks of live code from ending the kernel: a task that raises ``SystemExit`` or
``KeyboardInterrupt`` ends the event loop that runs it, and here that is the kernel's.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

_is_live: ContextVar[bool] = ContextVar("live code", default=False)


@contextmanager
def contained() -> Iterator[None]:
    """In tasks that are started inside, turn exits and interrupts into ordinary errors."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # the code is driven by hand, and ends no loop
        yield
        return
    before = loop.get_task_factory()
    if not (isinstance(before, partial) and before.func is _start):
        # For good: runs of two agents may overlap, and tasks of live code start others later.
        loop.set_task_factory(partial(_start, before))
    token = _is_live.set(True)
    try:
        yield
    finally:
        _is_live.reset(token)


def _start(before: Callable[..., Any] | None, loop: Any, coroutine: Any, **options: Any) -> Any:
    if _is_live.get():  # others' tasks that start meanwhile are left alone
        coroutine = _Contained(coroutine)
    if before is not None:
        return before(loop, coroutine, **options)
    return asyncio.Task(coroutine, loop=loop, **options)


class _Contained(Coroutine[Any, Any, Any]):
    """A coroutine that passes everything on to another one, but for two errors.

    No ``async def``: cancelled before its first step it would leave the other one unawaited.
    """

    def __init__(self, inner: Coroutine[Any, Any, Any]) -> None:
        self._inner = inner

    def send(self, value: Any) -> Any:
        """Go on with a value."""
        with _converted():
            return self._inner.send(value)

    def throw(self, *error: Any) -> Any:
        """Go on with an error."""
        with _converted():
            return self._inner.throw(*error)

    def close(self) -> None:
        """End it."""
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        """Await it."""
        return self._inner.__await__()

    def __getattr__(self, name: str) -> Any:
        """Return what shows the task: its frame, its name."""
        return getattr(self._inner, name)


@contextmanager
def _converted() -> Iterator[None]:
    try:
        yield
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"a task of this code raised {type(error).__name__}") from error
