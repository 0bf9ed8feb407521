"""Decides when each request may be sent: how many side by side, at which rate, after which pause.

The number side by side grows by a fixed step for each round of answers, and shrinks by half of the
share of them that were refusals. Rate and pause are those of `limits`, shared with other kernels.
"""

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from agent_magics.rows.remote.limits import (
    LONGEST_PAUSE_MINUTES,
    Allowance,
    Limits,
    Report,
    reset_time,
    stated_limit,
)

# Requests side by side: at first, and added for each round of answers.
FIRST = 64
STEP = 8
# A round in which speed grew by less than this factor ends the first rounds, each of which is four
# times as wide as the one before it.
WORTH = 1.1
# Seconds of the first pause for a refusal that names none; doubled until a request is answered.
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
# Seconds between two reports where no limit is known, and where one is (of a minute of 60).
SELDOM = 1.0
OFTEN = 0.1
# Seconds that the loop may be late before the processor is what limits.
LATE = 0.1


@dataclass(slots=True)
class Width:
    """The number of requests that may be in flight; additive increase, multiplicative decrease.

    Attributes:
        most: the upper limit.
        allowed: the number now.
    """

    most: int
    allowed: float = FIRST
    _ended: int = 0
    _refused: int = 0
    _began: float = 0.0
    _speed: float = 0.0
    _is_early: bool = True

    def __post_init__(self) -> None:
        self.allowed = min(self.allowed, self.most)

    def count(self, now: float, in_flight: int, *, refused: bool) -> None:
        """Count an answer; after as many as are allowed, change what is allowed."""
        self._ended += 1
        self._refused += refused
        if self._ended >= self.allowed:
            self._adapt(now, is_used=2 * in_flight >= self.allowed)
            self._ended = self._refused = 0
            self._began = now

    def _adapt(self, now: float, *, is_used: bool) -> None:
        speed = self._ended / max(now - self._began, 1e-6)
        share = self._refused / self._ended
        step = 0.0
        if share > 0.5:
            self._is_early, self._speed = True, 0.0  # a volley: begins anew
        elif is_used:
            self._is_early = self._is_early and not share and speed > WORTH * self._speed
            self._speed = max(speed, self._speed)
            step = 3 * self.allowed if self._is_early else STEP
        self.allowed = min(max(self.allowed * (1 - share / 2) + step, 1), self.most)


class Gate:
    """Lets requests through as the server, the person's limit and the loop allow.

    Args:
        most: the most requests side by side.
        limits: the server's limits, shared with other kernels.
        first: requests side by side at first.

    Attributes:
        in_flight: the number of requests that were let through and have not ended.
        width: how many may be in flight.
    """

    def __init__(self, most: int, limits: Limits, first: float = FIRST) -> None:
        self.in_flight = 0
        self._accepted_at = 0.0
        self.width = Width(most, first)
        self._limits = limits
        self._often = max(OFTEN * limits.minute / 60, 0.02)
        self._left = 0.0  # requests of the last grant that were not sent yet
        self._paused_until = 0.0
        self._pauses = 0
        self._taken = self._refused = 0  # since the last report, while more waited
        self._tokens = 0  # of `_counted` requests with their answers
        self._counted = 0
        self._headers: Mapping[str, str] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._pause: float | None = None
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._late = 0.0

    async def enter(self, *, again: bool = False) -> None:
        """Wait until one request may be sent; `again`: before those that were never sent."""
        if self._task is None:
            self._accepted_at = time.monotonic()
            self._task = asyncio.create_task(self._renew())
        if not self._waiting and self._is_open():
            self._admit()
            return
        place = asyncio.get_running_loop().create_future()
        (self._waiting.appendleft if again else self._waiting.append)(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                self._leave()
            raise

    def accept(self, headers: Mapping[str, str]) -> None:
        """End a request that the server has answered with these headers."""
        self._accepted_at = time.monotonic()
        self._taken += bool(self._waiting)
        self._pauses = 0
        self._headers = headers
        if self._left == math.inf and "x-ratelimit-limit-requests" in headers:
            self._news.set()
        self.width.count(self._accepted_at, self.in_flight, refused=False)
        self._leave()

    def count_tokens(self, tokens: int) -> None:
        """Count the tokens of one request and its answer, as the server does."""
        self._tokens += tokens
        self._counted += 1

    def refused_for(self) -> float:
        """Return the seconds for which the server has refused all requests."""
        return time.monotonic() - self._accepted_at

    def refuse(self, headers: Mapping[str, str], retry_after: float | None) -> None:
        """End a request that came too early (status 429): nothing is sent for a while.

        Args:
            headers: of its answer.
            retry_after: the seconds that the server asks to wait, or None.
        """
        now = time.monotonic()
        pause = retry_after if retry_after is not None else reset_time(headers)
        if now >= self._paused_until:  # a new refusal, not one of the same moment
            self._pauses += 1
        if pause is None:
            pause = min(FIRST_PAUSE * 2.0 ** (self._pauses - 1), LONGEST_PAUSE)
            pause *= self._limits.minute / 60
        pause = min(pause, LONGEST_PAUSE_MINUTES * self._limits.minute)
        self._headers = headers
        self._pause = max(self._pause or 0.0, pause)
        self._paused_until = max(self._paused_until, now + pause)
        self._left = 0
        self._refused += bool(self._waiting)
        self._news.set()
        self.width.count(now, self.in_flight, refused=True)
        self._leave()

    def fail(self, *, is_busy: bool) -> None:
        """End a request without an answer; `is_busy`: the server has too much to do."""
        self._taken += bool(self._waiting)
        self.width.count(time.monotonic(), self.in_flight, refused=is_busy)
        self._leave()

    def limit(self) -> str:
        """Return what limits the speed now, as text for people; "" where that is not known."""
        if self._paused_until > time.monotonic() or (self._waiting and self._left < 1):
            return "their rate"
        if self._late > LATE:
            return "our CPU"
        return "your limit" if self.in_flight >= self.width.most else ""

    async def close(self) -> None:
        """Stop reporting to other kernels."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    def _is_open(self) -> bool:
        return (
            self._left >= 1
            and self.in_flight < self.width.allowed
            and (not self._paused_until or time.monotonic() >= self._paused_until)
        )

    def _admit(self) -> None:
        self.in_flight += 1
        self._left -= 1

    def _leave(self) -> None:
        self.in_flight -= 1
        self._open()

    def _open(self) -> None:
        while self._waiting and self._is_open():
            place = self._waiting.popleft()
            if not place.done():
                self._admit()
                place.set_result(None)

    async def _renew(self) -> None:
        """Report to the other kernels, and take what may be sent, again and again."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                self._news.clear()
                grant = await self._limits.share(self._report())
                wait = self._receive(grant)
                due = loop.time() + wait
                try:
                    async with asyncio.timeout(wait):
                        await self._news.wait()
                except TimeoutError:
                    self._late = loop.time() - due
        except Exception as error:
            self._task = None
            self._fail_waiting(error)

    def _fail_waiting(self, error: Exception) -> None:
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_exception(error)

    def _report(self) -> Report:
        taken, refused, self._taken, self._refused = self._taken, self._refused, 0, 0
        pause, self._pause = self._pause, None
        headers, self._headers = self._headers, {}  # what remains is true only once
        want = len(self._waiting) + self.in_flight
        return Report(
            want=max(want - int(self._left), 0) if self._left < math.inf else want,
            tokens_each=self._tokens / self._counted if self._counted else 0.0,
            taken=taken,
            refused=refused,
            has_more=bool(self._waiting),
            pause=pause,
            requests=stated_limit(headers, "requests"),
            tokens=stated_limit(headers, "tokens"),
        )

    def _receive(self, grant: Allowance) -> float:
        """Take a grant; return the seconds until the next report."""
        if grant.pause:
            self._left = 0
            self._paused_until = max(self._paused_until, time.monotonic() + grant.pause)
            return grant.pause
        self._left = math.inf if grant.requests == math.inf else self._finite() + grant.requests
        self._open()
        rest = self._paused_until - time.monotonic()
        if rest > 0:
            return rest
        if grant.requests == math.inf:
            return SELDOM
        # At random moments, or who reports just after another kernel would always find nothing.
        return self._often * random.uniform(0.5, 1.5)

    def _finite(self) -> float:
        return self._left if self._left < math.inf else 0.0
