"""Limits a map: projects its cost from a sample, and ends it at its budgets."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt
from statistics import fmean, stdev

from agent_magics.models.providers.catalog import dollars
from agent_magics.protocol.errors import FatalError
from agent_magics.rows.progress import BAD_ROW, Progress

# Questions before a rate of errors says anything; before none has an answer yet, it is hopeless.
LEAST_ASKED, HOPELESS = 20, 50
# Two-sided 95 % of Student's t at 49 degrees of freedom.
_T = 2.01

GO_ON, SAMPLE_ONLY, STOP = "Go on", "Sample only", "Stop"
CHOICES = (GO_ON, SAMPLE_ONLY, STOP)


def is_amount(value: object, *, least: float) -> bool:
    """Return whether a value is a number, and not below `least`."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= least


@dataclass(frozen=True, slots=True)
class Budgets:
    """The budgets of one map; None is none.

    What is in flight counts as much as a question that took tokens has cost so far, so that a
    budget is kept and not passed by all requests that are under way.

    Attributes:
        max_cost: USD.
        max_tokens: tokens of input and output.
        max_errors: the number of failed questions, or below 1 their share (of at least 20 asked).
        deadline: seconds.
    """

    max_cost: float | None = None
    max_tokens: int | None = None
    max_errors: float | None = None
    deadline: float | None = None
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        for name in ("max_cost", "max_tokens", "max_errors", "deadline"):
            value = getattr(self, name)
            if not (value is None or (is_amount(value, least=0) and value != 0)):
                raise FatalError(f"{name}={value!r}: it takes a number above 0, or None.")

    @property
    def passed(self) -> str:
        """The sentence for a deadline that has passed."""
        return f"the deadline of {self.deadline:g} seconds has passed"

    def reached(self, progress: Progress) -> str:
        """Return which budget is used up, "" for none."""
        if self._too_many_errors(progress):
            return f"max_errors={self.max_errors:g} is reached"
        if progress.asked >= HOPELESS and not progress.answered:
            kinds = progress.kinds().items()
            example = next(each.example for kind, each in kinds if kind != BAD_ROW)
            return f"the first {progress.asked} questions all failed ({example})"
        if progress.in_flight:
            return ""  # what it costs is not known yet; see `must_wait`
        return self._used_up(progress)

    def must_wait(self, progress: Progress) -> bool:
        """Return whether one more question could pass a budget; those in flight decide it.

        Until one has told what it takes, one is asked at a time: those that fail at once tell none.
        """
        if (self.max_cost, self.max_tokens) == (None, None):
            return False
        if not (progress.paid or progress.answered):
            return progress.in_flight > 0
        return self._used_up(progress) != ""

    def _used_up(self, progress: Progress) -> str:
        """Return which budget one more question could pass, beside those in flight; "" for none.

        One formula for both of its callers: a map whose question neither may be asked nor ends it
        would wait for ever.
        """
        if self.max_cost is not None and progress.unpriced:
            return "max_cost cannot be kept: the price of this model is not known"
        if self.max_tokens is not None and progress.answered and not progress.tokens:
            return "max_tokens cannot be kept: the server reports no tokens"
        paid, more = max(progress.paid, 1), progress.in_flight + 1
        for name, spent, limit, shown in (
            ("max_cost", progress.cost, self.max_cost, dollars(progress.cost)),
            ("max_tokens", progress.tokens, self.max_tokens, f"{progress.tokens:,} tokens"),
        ):
            if limit is not None and spent + spent * more / paid > limit:
                return f"{name}={limit:g} is reached ({shown} spent)"
        return ""

    def _too_many_errors(self, progress: Progress) -> bool:
        limit, failed = self.max_errors, progress.asked - progress.answered
        if limit is None:
            return False
        if limit >= 1:
            return failed >= limit
        return progress.asked >= LEAST_ASKED and failed > limit * progress.asked


# -- before a map ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Quote:
    """What a map will cost in all, by a sample of its rows.

    Attributes:
        rows: the number of rows; None where it is not known, and `cost` is that of those so far.
        cost: USD.
        low, high: the 95 % interval of `cost`.
        tokens: input and output.
        seconds: how long it will take; None where that is not known.
        limit: USD of `ask_above`.
    """

    rows: int | None
    cost: float
    low: float
    high: float
    tokens: int
    seconds: float | None
    limit: float

    def __str__(self) -> str:
        limit = f"the {self.limit:g} USD of ask_above"
        if self.rows is None:
            cost = dollars(self.cost)
            return f"the rows so far cost {cost}, above {limit}; how many follow is not known"
        low, high = dollars(self.low), dollars(self.high)
        span = "" if low == high else f"{low} to {high}; "
        time = "" if self.seconds is None else f", {duration(self.seconds)}"
        cost = f"{dollars(self.cost)} ({span}{self.tokens:,} tokens{time})"
        return f"{self.rows:,} rows will cost about {cost}, above {limit}"


def quote_of(
    known: Sequence[tuple[int, float]],
    progress: Progress,
    rows: int,
    rest: int,
    seconds: float | None,
    limit: float,
) -> Quote:
    """Project the cost of all rows.

    Args:
        known: tokens and USD of some questions, as those that follow cost.
        progress: what the sample took, which is less where answers were kept.
        rows: the number of all rows.
        rest: the number of questions that follow.
        seconds: how long all will take.
        limit: USD of `ask_above`.
    """
    count = len(known)
    costs = [cost for _, cost in known]
    spent, mean = progress.cost, fmean(costs)
    # Of the sample the cost is known; the mean of the rest varies, and so do its rows.
    spread = stdev(costs) if count > 1 else mean
    error = _T * spread * rest * sqrt(1 / count + 1 / max(rest, 1))
    cost = spent + mean * rest
    tokens = progress.tokens + round(fmean(tokens for tokens, _ in known) * rest)
    return Quote(rows, cost, max(cost - error, spent), cost + error, tokens, seconds, limit)


def duration(seconds: float) -> str:
    """Return a time for people: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
