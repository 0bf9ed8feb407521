"""Queues events for the thread that waits for a run: on its own loop, or blocking."""

import asyncio
import threading
from collections import deque
from contextlib import suppress
from queue import Empty, Queue

from agent_magics.protocol.events import (
    TURN_ENDS,
    DynamicToolCallRequest,
    Event,
    Question,
    QuestionResolved,
)

# Seconds between checks of the waiting thread, since SIGINT does not wake an idle loop (measured:
# 0.2-0.3 s from interrupt to prompt, against 11 s without).
HEARTBEAT = 0.05

# Events that wake the waiting thread at once; those that it only draws wait for the next heartbeat,
# since each wake-up makes two threads compete for the interpreter lock.
URGENT = (Question, QuestionResolved, DynamicToolCallRequest, *TURN_ENDS)
_ACTED_ON = tuple(kind for kind in URGENT if kind is not QuestionResolved)


class AsyncInbox:
    """A queue of events for one waiting coroutine, woken once for any number of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._events: deque[Event] = deque()
        self._waking = False
        self._ready = threading.Event()  # for code that blocks this loop meanwhile
        self._wake = asyncio.Event()
        self._beat: asyncio.TimerHandle | None = loop.call_later(HEARTBEAT, self._on_beat)

    def put(self, event: Event) -> None:
        """Add an event; from any thread."""
        self._events.append(event)
        if not isinstance(event, URGENT):
            return
        self._ready.set()
        if not self._waking:
            self._waking = True
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._wake.set)

    def wake(self) -> None:
        """Make `take_blocking` return; from any thread."""
        self._ready.set()

    def take_one(self) -> Event | None:
        """Return the next event without waiting; None where there is none."""
        return self._events.popleft() if self._events else None

    def take_blocking(self) -> Event | None:
        """Return the next event; wait for one, for `wake`, or for the next heartbeat."""
        event = self.take_one()
        if event is None:
            self._ready.wait(HEARTBEAT)
            self._ready.clear()
        return event

    @property
    def must_act(self) -> bool:
        """Whether the first event needs an action of the waiting thread."""
        return bool(self._events) and isinstance(self._events[0], _ACTED_ON)

    def take(self) -> list[Event]:
        """Return the queued events, without waiting."""
        self._wake.clear()
        self._waking = False  # reset first: later events wake it again
        events = []
        while self._events:
            events.append(self._events.popleft())
        return events

    async def wait(self) -> None:
        """Wait for an event or the next heartbeat."""
        if self._events:
            # Yields to the loop, so that a flood of events does not delay clicks and interrupts.
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


class BlockingInbox:
    """A queue of events for a thread without a free loop: its `wait` blocks, and never suspends."""

    def __init__(self) -> None:
        # No `SimpleQueue`: in Python 3.11 and 3.12 its `get` waits for ever where the handler of a
        # signal outlasts its timeout, and an interrupt is lost.
        self._queue: Queue[Event | None] = Queue()
        self._next: Event | None = None

    def put(self, event: Event) -> None:
        """Add an event; from any thread."""
        self._queue.put(event)

    def wake(self) -> None:
        """Make `take_blocking` return; from any thread."""
        self._queue.put(None)

    def take_blocking(self) -> Event | None:
        """Return the next event; wait for one, for `wake`, or for the next heartbeat."""
        with suppress(Empty):
            return self._queue.get(timeout=HEARTBEAT)
        return None

    def take(self) -> list[Event]:
        """Return the event that `wait` has received: one at most, since handling it may raise."""
        event, self._next = self._next, None
        return [] if event is None else [event]

    async def wait(self) -> None:
        """Wait for an event or the next heartbeat."""
        self._next = self.take_blocking()

    def close(self) -> None:
        """Do nothing: there is no heartbeat to stop."""
