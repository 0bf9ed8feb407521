"""Runs the tool of a call: prepares it where needed, and limits its time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar, TypeVarTuple

from agent_magics.dispatch.call import CallInProgress
from agent_magics.dispatch.context import ToolContext, status_of
from agent_magics.dispatch.pool import POOL
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.tools import ToolOutput
from agent_magics.time_limit import CancellingLimit, TimeLimit

Ts = TypeVarTuple("Ts")
R = TypeVar("R")

# Seconds that work on a thread gets to clean up when its turn is interrupted.
CLEAN_UP_LIMIT = 0.9
COUNT_INTERVAL = 10  # seconds between two times that a call's count is shown


def run_tool(call: CallInProgress) -> Awaitable[ToolOutput]:
    """Run the tool of a call, with its preparation and time limit where it has them."""
    options = call.handler.options
    if options.timeout is None and options.init is None:
        return call.handler.handle(call.invocation)
    return _run_limited(call)


async def _run_limited(call: CallInProgress) -> ToolOutput:
    """Prepare a tool, then run it within its time limit.

    Raises:
        RespondToModel: the preparation failed, the limit passed, or the tool failed.
    """
    context, options = call.context, call.handler.options
    if options.init is not None:
        call.status.ready = await options.init.value(options.name)
    if options.timeout is None:
        return await call.handler.handle(call.invocation)
    try:
        async with limited(context, options.timeout):
            return await call.handler.handle(call.invocation)
    except TimeoutError:
        if not context.is_late:
            raise
        call.status.cancel()
        raise RespondToModel(
            f"{options.name} was stopped: it took longer than {options.timeout:g} s."
        ) from None


async def run_off_loop(context: ToolContext, fn: Callable[[*Ts], R], *args: *Ts) -> R:
    """Await ``fn(*args)`` on a thread; where the turn is interrupted, notify it and wait a moment.

    A thread cannot be cancelled: it should look at `ToolContext.cancelled`, and end its processes.
    """
    running = asyncio.wrap_future(POOL.submit(fn, *args))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        status_of(context).cancel()
        running.add_done_callback(forget_error)
        await asyncio.wait([running], timeout=CLEAN_UP_LIMIT)
        raise


def forget_error(running: "asyncio.Future[Any]") -> None:
    """Retrieve the exception of an abandoned future, so that asyncio logs no warning."""
    if not running.cancelled():
        running.exception()


@asynccontextmanager
async def limited(context: ToolContext, seconds: float) -> AsyncIterator[None]:
    """Limit the work inside to `seconds`, and show the elapsed time.

    Raises:
        TimeoutError: the limit passed; the work inside was cancelled.
    """
    status = status_of(context)
    async with CancellingLimit(seconds) as limit:
        status.clock = limit
        counting = _Count(context, limit, seconds)
        try:
            yield
        finally:
            counting.cancel()
            if not limit.is_late:  # else the work that is being cancelled still reads it
                status.clock = None


class _Count:
    """Shows from time to time how long a call has run, and how long it may.

    It is a timer rather than a task, which would cost most calls more than all of their checks.
    """

    def __init__(self, context: ToolContext, limit: TimeLimit, seconds: float) -> None:
        self._context, self._limit, self._seconds = context, limit, seconds
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(COUNT_INTERVAL, self._show)

    def _show(self) -> None:
        used = round(self._limit.used)
        self._context.update(metadata={"seconds": used, "of": self._seconds})
        self._timer = self._loop.call_later(COUNT_INTERVAL, self._show)

    def cancel(self) -> None:
        """Cancel the timer."""
        self._timer.cancel()
