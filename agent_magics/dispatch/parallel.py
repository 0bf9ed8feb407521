"""Calls side by side or alone, in the order the model made them; outputs in that order too."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from agent_magics.dispatch.context import ToolContext, TurnContext
from agent_magics.dispatch.edits import readable_payload
from agent_magics.dispatch.router import ToolRouter
from agent_magics.protocol.events import (
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallPending,
    ToolCallRunning,
)
from agent_magics.protocol.items import Content, InputText
from agent_magics.protocol.tools import ToolCall, ToolOutput


class CallLock:
    """A shared/exclusive lock whose places are taken in order, before they are waited for.

    A call takes its place when it arrives and waits for it only after its approval, so that a
    late answer never changes the order in which calls that exclude each other run.
    """

    def __init__(self) -> None:
        self._queue: deque[_Place] = deque()

    def take_place(self, *, shared: bool) -> "_Place":
        """Return a place at the end of the queue."""
        place = _Place(self, shared)
        self._queue.append(place)
        return place

    def _admit(self) -> None:
        """Let in whoever is at the front: an exclusive place, or all shared ones up to one."""
        for number, place in enumerate(self._queue):
            if number and not (place.shared and self._queue[0].shared):
                return
            place.admitted.set()

    def _leave(self, place: "_Place") -> None:
        self._queue.remove(place)
        self._admit()


class _Place:
    def __init__(self, lock: CallLock, shared: bool) -> None:
        self._lock = lock
        self.shared = shared
        self.admitted = asyncio.Event()

    async def wait(self) -> None:
        self._lock._admit()
        if not self.admitted.is_set():
            await self.admitted.wait()

    def leave(self) -> None:
        self._lock._leave(self)


class ToolCallRuntime:
    """Runs the calls of one turn.

    Args:
        router: who understands and answers calls.
        turn: what the calls share.
        redact: takes secrets out of what leaves a tool.
    """

    def __init__(
        self, router: ToolRouter, turn: TurnContext, redact: Callable[[str], str] = str
    ) -> None:
        self._router = router
        self._turn = turn
        self._redact = redact
        self._lock = CallLock()
        self._groups: dict[str, CallLock] = {}  # by the id of a running group call

    def start(self, call: ToolCall) -> "asyncio.Task[ToolOutput]":
        """Take the call's place now and answer it in a task of its own."""
        place = None
        # A nested call runs under its parent's place, where one of its own would wait for ever;
        # the calls of a group have an order of their own under its place.
        lock = self._lock if call.parent_call_id is None else self._groups.get(call.parent_call_id)
        if lock is not None:
            place = lock.take_place(shared=self._router.supports_parallel(call))
        self._turn.uses[call.tool_name] += 1
        self._turn.emit(
            ToolCallPending,
            call_id=call.call_id,
            name=call.tool_name,
            parent_call_id=call.parent_call_id,
            arguments=self._redact(readable_payload(call.payload)),
        )
        return asyncio.create_task(self._answer(call, place))

    async def _answer(self, call: ToolCall, place: _Place | None) -> ToolOutput:
        """Answer one call, with its events, and give its place to the next."""
        context = ToolContext(self._turn, call.call_id, call.tool_name, call.parent_call_id)
        context.gate = partial(self._pass_gate, call, place)
        began = time.perf_counter()
        is_group = call.tool_name in self._router.registry.groups
        if is_group:
            self._groups[call.call_id] = CallLock()
        try:
            output = await self._router.dispatch_tool_call(call, context)
        except asyncio.CancelledError:
            # Work on another thread cannot be cancelled; it looks at `ctx.cancelled`.
            context.cancel()
            raise
        except (SystemExit, KeyboardInterrupt) as error:
            # From code of the person's that judges a call, say: either would end the engine's loop.
            raise RuntimeError(f"{call.tool_name} raised {type(error).__name__}") from error
        finally:
            if is_group:
                del self._groups[call.call_id]
        # Not after an error that ends the turn: the next call in line would begin before it is
        # cancelled, although the person has just pressed Stop.
        if place is not None:
            place.leave()
        content = self._redacted(output.content)
        if content != output.content:
            output = replace(output, content=content)
        self._turn.emit(
            ToolCallCompleted if output.success else ToolCallFailed,
            call_id=call.call_id,
            name=call.tool_name,
            parent_call_id=call.parent_call_id,
            output=output.content,
            details=output.details,
            duration=time.perf_counter() - began,
        )
        return output

    async def _pass_gate(self, call: ToolCall, place: _Place | None) -> None:
        """Wait for the call's place, then say that it runs."""
        if place is not None:
            await place.wait()
        self._turn.emit(
            ToolCallRunning,
            call_id=call.call_id,
            name=call.tool_name,
            parent_call_id=call.parent_call_id,
        )

    def _redacted(self, content: Content) -> Content:
        if isinstance(content, str):
            return self._redact(content)
        return tuple(
            InputText(self._redact(part.text)) if isinstance(part, InputText) else part
            for part in content
        )
