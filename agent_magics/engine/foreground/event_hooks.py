"""The events of a run on their way to the hooks that want them."""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from agent_magics.dispatch.hooks import HookMethod
from agent_magics.dispatch.pool import POOL


class EventWatch:
    """Hands the events of one run to the hooks that want them, on the thread that waits.

    Args:
        methods: the hooks' `on_event`, in order.
        complain: told once, in a sentence, about each that raised; it is not called again.
    """

    def __init__(self, methods: Sequence[HookMethod], complain: Callable[[str], None]) -> None:
        self._methods = list(methods)
        self._complain = complain
        self._last: asyncio.Task[None] | None = None

    def see(self, event: Any, *, loop_is_free: bool) -> None:
        """Hand on one event.

        Args:
            event: what happened.
            loop_is_free: whether this thread's loop goes on while the run does; an async hook
                runs there then, else it is waited for on a loop of its own.
        """
        for method in tuple(self._methods):
            try:
                answer = method.call(event)
                if inspect.isawaitable(answer):
                    self._await(method, answer, loop_is_free)
            except Exception as error:
                self._drop(method, error)

    def _await(self, method: HookMethod, answer: Any, loop_is_free: bool) -> None:
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
        """Wait until the async hooks have seen everything."""
        if self._last is not None:
            await asyncio.wait([self._last])

    def _drop(self, method: HookMethod, error: Exception) -> None:
        if method in self._methods:
            self._methods.remove(method)
            self._complain(
                f"The hook {method.name} raised {type(error).__name__}: {error}. It is not called "
                "again in this run."
            )


async def _finish(answer: Any) -> Any:
    return await answer
