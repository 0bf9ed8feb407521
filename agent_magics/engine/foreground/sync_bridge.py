"""Runs coroutines from a thread that has no event loop."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from agent_magics.engine.channels.requests import Work
from agent_magics.protocol.errors import RespondToModel

# For tasks that are cancelled at the end of their loop.
_CLEAN_UP_SECONDS = 1.0


async def _as_coroutine(awaitable: Awaitable[object]) -> object:
    return await awaitable


async def _wait_for_no_thread(timeout: float | None = None) -> None:  # noqa: ASYNC109 - as asyncio's
    pass


def run_to_end(awaitable: Awaitable[Any], left: Callable[[], object] = lambda: None) -> Any:
    """Run an awaitable on an event loop of its own, on this thread.

    Args:
        awaitable: what is run.
        left: called where a task goes on that it began, though it is cancelled: nobody waits for
            it, nor for a thread that a coroutine has waited for.
    """
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        loop.shutdown_default_executor = _wait_for_no_thread  # type: ignore[method-assign]
        try:
            return runner.run(_as_coroutine(awaitable))
        finally:
            if asyncio.all_tasks(loop):
                is_stubborn = runner.run(_leave_stubborn_tasks())
                if is_stubborn:
                    left()


async def _leave_stubborn_tasks() -> bool:
    """Cancel all other tasks of this loop; return whether some had to be left."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if not others:  # the last has ended by itself before this one began
        return False
    _, stubborn = await asyncio.wait(others, timeout=_CLEAN_UP_SECONDS)
    for task in stubborn:
        # Else the loop's end waits for it (Python's documentation, "Extending" of asyncio), and
        # says that it was pending.
        asyncio._unregister_task(task)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    return bool(stubborn)


def drive(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never suspends, without an event loop.

    Raises:
        RespondToModel: it suspends.
    """
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise RespondToModel(
        "This cell blocks the notebook's event loop, so top-level await cannot run in it; "
        "write the code without await."
    )


def drive_code(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Do the same as `drive` for code of a model, which sees no task meanwhile.

    That of this thread is the kernel's: a group of tasks or a time limit would cancel it.
    """
    with _without_task():
        return drive(coroutine)


@contextmanager
def _without_task() -> Iterator[None]:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        yield
        return
    # Both functions are for other kinds of tasks: Python's documentation, "Extending" of asyncio.
    task = asyncio.current_task()
    if task is not None:
        asyncio._leave_task(loop, task)
    try:
        yield
    finally:
        if task is not None:
            asyncio._enter_task(loop, task)


def run_elsewhere(work: Work, running: set[Callable[[], Any]]) -> None:
    """Run a coroutine on a loop of its own; `running` holds its cancel function meanwhile."""

    async def cancellable() -> object:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None  # this is a coroutine
        work.stop = cancel = partial(loop.call_soon_threadsafe, task.cancel)
        running.add(cancel)
        try:
            if work.is_ended:  # before there was anything to stop
                raise asyncio.CancelledError
            return await work.run()
        finally:
            running.discard(cancel)

    try:
        work.finish(run_to_end(cancellable()))
    except BaseException as error:
        work.finish(error=error)
