"""Lets calls run side by side or alone, in the order in which the model made them."""

import asyncio
from collections import deque


class CallLock:
    """A shared/exclusive lock with a queue: calls take their place first and wait for it later.

    A call takes its place when it arrives and waits for it only after its approval, so that a late
    answer never changes the order in which calls that exclude each other run.
    """

    def __init__(self) -> None:
        self._queue: deque[QueuePlace] = deque()

    def take_place(self, *, shared: bool) -> "QueuePlace":
        """Return a place at the end of the queue."""
        place = QueuePlace(self, shared)
        self._queue.append(place)
        return place

    def _admit(self) -> None:
        """Admit the front of the queue: one exclusive place, or the shared ones before the next."""
        for number, place in enumerate(self._queue):
            if number and not (place.shared and self._queue[0].shared):
                return
            place.admitted.set()

    def _leave(self, place: "QueuePlace") -> None:
        self._queue.remove(place)
        self._admit()


class QueuePlace:
    """A call's place in the queue of a `CallLock`."""

    def __init__(self, lock: CallLock, shared: bool) -> None:
        self._lock = lock
        self.shared = shared
        self.admitted = asyncio.Event()

    def is_admitted(self) -> bool:
        """Return whether the calls in front allow this one to run now."""
        self._lock._admit()
        return self.admitted.is_set()

    async def wait(self) -> None:
        """Wait until the place is admitted."""
        if not self.is_admitted():
            await self.admitted.wait()

    def leave(self) -> None:
        """Leave the queue, and admit the next places."""
        self._lock._leave(self)
