"""One attempt of a tool that needs more than being called: time to get ready, and a time limit."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agent_magics.dispatch.registry import ToolHandler, ToolInvocation
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.tools import ToolOutput


class TimeLimit:
    """The seconds that a call may take; it stands still while the call waits for others.

    Made and used up on the engine's loop; `stopped` may be used from any thread.
    """

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout = asyncio.timeout(seconds)
        self._left = seconds
        self._stops = 0

    @property
    def timeout(self) -> asyncio.Timeout:
        """The context manager that ends what takes too long."""
        return self._timeout

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Let no time pass for the call meanwhile: it waits for a person, or another tool."""
        self._on_loop(self._stop)
        try:
            yield
        finally:
            self._on_loop(self._go_on)

    def _on_loop(self, change: Callable[[], None]) -> None:
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            change()
        else:
            self._loop.call_soon_threadsafe(change)

    def _stop(self) -> None:
        self._stops += 1
        end = self._timeout.when()
        if self._stops == 1 and end is not None and not self._timeout.expired():
            self._left = max(end - self._loop.time(), 0)
            self._timeout.reschedule(None)

    def _go_on(self) -> None:
        self._stops -= 1
        if self._stops == 0 and self._timeout.when() is None:
            self._timeout.reschedule(self._loop.time() + self._left)


async def attempt(handler: ToolHandler, invocation: ToolInvocation) -> ToolOutput:
    """Make a call of a tool that has a time limit or something to get ready.

    Raises:
        RespondToModel: it could not be made ready, took too long, or could not do its work.
    """
    context, options = invocation.context, handler.options
    if options.init is not None:
        context.ready = await options.init.value(options.name)
    if options.timeout is None:
        return await handler.handle(invocation)
    context.clock = limit = TimeLimit(options.timeout)
    try:
        async with limit.timeout:
            return await handler.handle(invocation)
    except TimeoutError:
        if not limit.timeout.expired():
            raise
        context.cancel()
        raise RespondToModel(
            f"{options.name} was stopped: it took longer than {options.timeout:g} s."
        ) from None
    finally:
        context.clock = None
