"""Learns how many requests a server allows a minute, and shares that among a person's kernels.

A server states its limits in headers (``x-ratelimit-limit-requests`` and others), or only refuses
(status 429). In the second case the rate is measured: between two refusals a server has taken
exactly what it allows in that time. What is known of a server is one small file that all kernels
of the person read and write under a lock; each takes a block of requests at a time. Its times are
those of the machine's monotonic clock, which nobody sets; so each machine has a file of its own.
"""

import asyncio
import hashlib
import json
import logging
import math
import os
import re
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Protocol

from agent_magics.config_files.places import state_folder
from agent_magics.files.beneath import closing_descriptor
from agent_magics.files.locks import LONGEST_WAIT, open_locked

_LOG = logging.getLogger("agent_magics")
MINUTE = 60.0
# Minutes after which what was learned about a server is forgotten.
KEPT_MINUTES = 10
# Of a pause, whatever a server or a changed file says: then one request asks the server again.
LONGEST_PAUSE_MINUTES = 2
# Requests or tokens a minute beyond which a stated limit is no limit.
MOST_STATED = 1e9
# Requests that a server has taken, from which its rate is measured.
ENOUGH = 10
_LARGEST = 4096  # bytes of the file

_DURATION = re.compile(r"(?:(\d{1,6})h)?(?:(\d{1,6})m(?!s))?(?:(\d{1,6}(?:\.\d{1,9})?)s)?")
_MILLISECONDS = re.compile(r"(\d{1,9})ms")
_SECONDS = re.compile(r"\d{1,9}(?:\.\d{1,9})?")


@dataclass(frozen=True, slots=True)
class Stated:
    """What the headers of an answer state about one limit.

    Attributes:
        limit: the number allowed a minute.
        remaining: the number that is left now.
    """

    limit: float
    remaining: float


@dataclass(frozen=True, slots=True)
class Report:
    """What one kernel tells the others, and how much it wants to send.

    Attributes:
        want: requests that it could send now.
        tokens_each: tokens of one request and its answer, on average.
        taken: requests that the server did not refuse since the last report, while more waited.
        refused: requests that it refused (status 429), while more waited.
        has_more: whether more requests wait than may be sent.
        pause: seconds that it refuses all requests from now on; None where it does not.
        requests: the server's limit of requests, as its last answer states it.
        tokens: its limit of tokens.
    """

    want: int = 0
    tokens_each: float = 0.0
    taken: int = 0
    refused: int = 0
    has_more: bool = False
    pause: float | None = None
    requests: Stated | None = None
    tokens: Stated | None = None


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a kernel may send now.

    Attributes:
        requests: the number that it may send; infinite where no limit is known.
        pause: seconds until any may be sent.
    """

    requests: float
    pause: float = 0.0


@dataclass(slots=True)
class Knowledge:
    """What is known of a server's limits; times are monotonic seconds, 0 is unknown.

    Attributes:
        at: the time of the last report.
        request_limit: requests a minute, as the server states it.
        token_limit: tokens a minute, as the server states it.
        requests: requests that may be sent now.
        tokens: tokens that may be sent now.
        measured: requests a second that it takes.
        peak: the most that it took a second between two refusals.
        taken: requests that it has taken since the time `since`.
        refused: requests that it has refused since then.
        since: the time from which it is measured.
        paused_until: the time until which it refuses all requests.
    """

    at: float = 0.0
    request_limit: float = 0.0
    token_limit: float = 0.0
    requests: float = 0.0
    tokens: float = 0.0
    measured: float = 0.0
    peak: float = 0.0
    taken: float = 0.0
    refused: float = 0.0
    since: float = 0.0
    paused_until: float = 0.0

    def update(self, report: Report, now: float, minute: float = MINUTE) -> Allowance:
        """Take in a report; return what its kernel may send."""
        longest = LONGEST_PAUSE_MINUTES * minute
        is_recent = self.since <= self.at <= now < self.at + KEPT_MINUTES * minute
        if not is_recent or self.paused_until > self.at + longest:
            self.__init__(at=now, since=now)  # type: ignore[misc] # begins anew
        self._refill(now, minute)
        self.taken += report.taken
        self.refused += report.refused
        if not (self.taken or self.refused or report.has_more):
            self.since = now
        if report.requests is not None:
            self.requests = _level(self.requests, self.request_limit, report.requests)
            self.request_limit = report.requests.limit
        if report.tokens is not None:
            self.tokens = _level(self.tokens, self.token_limit, report.tokens)
            self.token_limit = report.tokens.limit
        if report.pause is not None:
            self._refuse(report.pause, now, minute)
        return self._take(report, now, minute)

    def rate(self, now: float, minute: float = MINUTE) -> float:
        """Return the requests a second to send: what was measured, growing until the next refusal.

        It grows with the square of the time, so that it stays near a limit that it has just met
        and still finds one that was raised: 1.03 times after 10 seconds, twice after a minute.
        """
        stated = self.request_limit / minute if self.request_limit else math.inf
        if not self.measured:
            return stated
        return min(stated, self.measured * (1 + ((now - self.since) / minute) ** 2))

    def _refill(self, now: float, minute: float) -> None:
        elapsed, rate = now - self.at, self.rate(now, minute)
        self.at = now
        if rate < math.inf:
            self.requests = min(self.requests + elapsed * rate, max(rate * minute, 1))
        grown = self.tokens + elapsed * self.token_limit / minute
        self.tokens = min(grown, self.token_limit)

    def _refuse(self, pause: float, now: float, minute: float) -> None:
        is_new = now >= self.paused_until  # else it was sent before the pause began
        longest = LONGEST_PAUSE_MINUTES * minute
        self.paused_until = max(self.paused_until, now + min(pause, longest))
        self.requests = 0.0
        elapsed = self.paused_until - self.since
        if is_new and self.taken >= ENOUGH and elapsed >= minute / 60:
            share = self.refused / (self.taken + self.refused)
            self._measure(self.taken / elapsed, share, 1 / minute)
            self.taken, self.refused, self.since = 0.0, 0.0, now

    def _measure(self, speed: float, refused: float, least: float) -> None:
        """Take in the requests a second that were taken, and the share that was refused.

        Some servers refuse a share whatever the rate, so that going slower and slower would not
        help. Where less than half is refused, the rate never falls below half of the best one.
        """
        if refused > 0.5:
            self.measured = self.peak = max(speed, least)
        else:
            self.peak = max(self.peak, speed)
            self.measured = max(speed, 0.9 * self.measured, self.peak / 2, least)

    def _take(self, report: Report, now: float, minute: float) -> Allowance:
        if now < self.paused_until:
            return Allowance(0, self.paused_until - now)
        count: float = report.want
        each = min(report.tokens_each, self.token_limit)  # one alone may take more than a minute's
        if each:
            count = min(count, self.tokens // each)
        if self.rate(now, minute) < math.inf:
            count = min(count, self.requests // 1)
        elif not self.token_limit:
            return Allowance(math.inf)
        count = max(count, 0)
        self.requests = max(self.requests - count, 0)
        self.tokens = max(self.tokens - count * each, 0)
        return Allowance(count)


def _level(known: float, known_limit: float, stated: Stated) -> float:
    """Return how many may be sent: what we counted ourselves, or less if others send too."""
    return min(known, stated.remaining) if known_limit else stated.remaining


class Limits(Protocol):
    """Tells how many requests may be sent, of all that others send too.

    Attributes:
        minute: seconds of the server's minute.
    """

    minute: float

    async def share(self, report: Report) -> Allowance:
        """Report to the others, and return what may be sent."""
        ...


class SharedLimits:
    """What all kernels of a person know of one server's limits, in one file.

    Args:
        file: the file; its folder is made if it is missing.
        minute: seconds of the server's minute; tests shorten it.
    """

    def __init__(self, file: Path, minute: float = MINUTE) -> None:
        self._file = file
        self.minute = minute
        self._alone: Knowledge | None = None  # what is known where the file cannot be used

    async def share(self, report: Report) -> Allowance:
        """See `exchange`, which waits for the disk."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, self.exchange, report)

    def exchange(self, report: Report) -> Allowance:
        """Report to the other kernels, and return what may be sent; waits for the file's lock.

        Where the file cannot be used, as on a full disk, this kernel counts alone and logs that
        once: the rows matter more than what is shared.
        """
        try:
            return self._exchange(report)
        except OSError as error:
            if self._alone is None:
                _LOG.warning("This kernel shares no limits of the model server: %s", error)
                self._alone = Knowledge()
            return self._alone.update(report, time.monotonic(), self.minute)

    def _exchange(self, report: Report) -> Allowance:
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with closing_descriptor(open_locked(self._file, wait=LONGEST_WAIT)) as descriptor:
            known = read_knowledge(os.pread(descriptor, _LARGEST, 0))
            grant = known.update(report, time.monotonic(), self.minute)
            data = json.dumps(asdict(known)).encode()
            os.pwrite(descriptor, data, 0)
            os.ftruncate(descriptor, len(data))
        return grant


def limits_of(address: str, model: str, key: str, minute: float = MINUTE) -> SharedLimits:
    """Return what the person's kernels on this machine know of limits for a key and a model."""
    what = "\n".join((address, model, key, socket.gethostname()))
    name = hashlib.blake2b(what.encode(), digest_size=16).hexdigest()
    return SharedLimits(state_folder() / "limits" / f"{name}.json", minute)


def read_knowledge(data: bytes) -> Knowledge:
    """Return the knowledge stored in a file; an empty or damaged one holds none."""
    with suppress(ValueError, TypeError, AttributeError, RecursionError, OverflowError):
        values = json.loads(data)
        known = Knowledge(**{name: float(value) for name, value in values.items()})
        numbers = [getattr(known, field.name) for field in fields(known)]
        if all(math.isfinite(number) and number >= 0 for number in numbers):
            return known
    return Knowledge()


# -- headers -------------------------------------------------------------------------------------


def stated_limit(headers: Mapping[str, str], kind: str) -> Stated | None:
    """Return what an answer's headers state about "requests" or "tokens", or None.

    Both wire APIs have ``x-ratelimit-limit-KIND`` (a minute) and ``x-ratelimit-remaining-KIND``.
    Groq counts requests a day: there what remains is the limit that counts.
    """
    limit = _number(headers.get(f"x-ratelimit-limit-{kind}"))
    remaining = _number(headers.get(f"x-ratelimit-remaining-{kind}"))
    if limit is None or remaining is None or not 0 < limit <= MOST_STATED:
        return None
    return Stated(limit, min(remaining, limit))


def reset_time(headers: Mapping[str, str]) -> float | None:
    """Return the seconds until a limit of which nothing remains is whole again, or None.

    ``x-ratelimit-reset-KIND`` is a duration ("6m0s", "120ms") or a number of seconds.
    """
    waits = [
        _duration(headers.get(f"x-ratelimit-reset-{kind}", ""))
        for kind in ("requests", "tokens")
        if _number(headers.get(f"x-ratelimit-remaining-{kind}")) == 0
    ]
    return max((wait for wait in waits if wait is not None), default=None)


def _number(text: str | None) -> float | None:
    text = (text or "").strip()
    return float(text) if _SECONDS.fullmatch(text) else None


def _duration(text: str) -> float | None:
    text = text.strip()
    if found := _MILLISECONDS.fullmatch(text):
        return int(found[1]) / 1000
    if _SECONDS.fullmatch(text):
        return float(text)
    found = _DURATION.fullmatch(text)
    if not text or found is None:
        return None
    hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + seconds
