"""Calls the hooks' `on_event` with the events of a run."""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from agent_magics.dispatch.hooks import HookMethod
from agent_magics.dispatch.pool import POOL
from agent_magics.protocol.errors import clause, typed_message


class EventWatch:
    """Calls the hooks with the events of one run, on the thread that waits.

    Args:
        methods: the hooks' `on_event`, in order.
        complain: called once with a sentence about each hook that raised; it is not called again.
    """

    def __init__(self, methods: Sequence[HookMethod], complain: Callable[[str], None]) -> None:
        self._methods = list(methods)
        self._complain = complain
        self._last: asyncio.Task[None] | None = None

    def see(self, event: object, *, loop_is_free: bool) -> None:
        """Call the hooks with one event.

        Args:
            event: the event.
            loop_is_free: whether this thread's loop runs while the run does; an async hook then
                runs on it, else it runs to its end on a loop of its own.
        """
        for method in tuple(self._methods):
            try:
                answer = method.call(event)
                if inspect.isawaitable(answer):
                    self._await(method, answer, loop_is_free)
            except Exception as error:
                self._drop(method, error)

    def _await(self, method: HookMethod, answer: object, loop_is_free: bool) -> None:
        if loop_is_free:
            work = self._in_order(self._last, method, answer)
            self._last = asyncio.get_running_loop().create_task(work)
        else:
            POOL.submit(asyncio.run, _finish(answer)).result()

    async def _in_order(
        self, before: "asyncio.Task[None] | None", method: HookMethod, answer: Any
    ) -> None:
        if before is not None:
            await asyncio.wait([before])
        try:
            await answer
        except Exception as error:
            self._drop(method, error)

    async def settle(self) -> None:
        """Wait until the async hooks have handled all events."""
        if self._last is not None:
            await asyncio.wait([self._last])

    def _drop(self, method: HookMethod, error: Exception) -> None:
        if method in self._methods:
            self._methods.remove(method)
            self._complain(
                f"The hook {method.name} raised {clause(typed_message(error))}. It is not called "
                "again in this run."
            )


async def _finish(answer: Any) -> Any:
    return await answer
