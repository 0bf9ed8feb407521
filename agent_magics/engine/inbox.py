"""Events on their way to the thread that waits for them on its own loop."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from agent_magics.protocol.events import (
    TURN_ENDS,
    DynamicToolCallRequest,
    Event,
    Question,
    QuestionResolved,
)

# SIGINT does not wake an idle loop; this often the waiting thread looks up (measured: 0.2-0.3 s
# from interrupt to prompt, against 11 s without).
HEARTBEAT = 0.05

# What the waiting thread must act on; what it only draws can wait for the next heartbeat. A
# wake-up costs two threads a fight for the interpreter.
URGENT = (Question, QuestionResolved, DynamicToolCallRequest, *TURN_ENDS)
_ACTED_ON = tuple(kind for kind in URGENT if kind is not QuestionResolved)


class AsyncInbox:
    """Events from other threads for one waiting coroutine; wakes it once, however many come."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._events: deque[Event] = deque()
        self._waking = False
        self.alarm: Callable[[], None] | None = None  # of who blocks this loop meanwhile
        self._wake = asyncio.Event()
        self._beat: asyncio.TimerHandle | None = loop.call_later(HEARTBEAT, self._on_beat)

    def put(self, event: Event) -> None:
        """Add an event; from any thread."""
        self._events.append(event)
        alarm = self.alarm
        if alarm is not None and isinstance(event, URGENT):
            alarm()
        if not self._waking and isinstance(event, URGENT):
            self._waking = True
            with suppress(RuntimeError):  # the loop was closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._wake.set)

    def take_one(self, *, drawn_only: bool = False) -> Event | None:
        """Return the next event, without waiting; None where there is none.

        Args:
            drawn_only: leave what has to be acted on.
        """
        if not self._events or (drawn_only and self.must_act):
            return None
        return self._events.popleft()

    @property
    def must_act(self) -> bool:
        """Whether what stands first in line has to be acted on."""
        return bool(self._events) and isinstance(self._events[0], _ACTED_ON)

    def take(self) -> list[Event]:
        """Return what has come, without waiting."""
        self._wake.clear()
        self._waking = False  # before the look: what comes after it wakes again
        events = []
        while self._events:
            events.append(self._events.popleft())
        return events

    async def wait(self) -> None:
        """Wait for an event or the next heartbeat."""
        if self._events:
            # However fast they come, clicks and interrupts on this loop get their turn.
            await asyncio.sleep(0)
        else:
            await self._wake.wait()

    def _on_beat(self) -> None:
        self._wake.set()
        self._beat = self._loop.call_later(HEARTBEAT, self._on_beat)

    def close(self) -> None:
        """Stop the heartbeat."""
        if self._beat is not None:
            self._beat.cancel()
