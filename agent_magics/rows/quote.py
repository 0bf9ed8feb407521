"""Projects what all rows will cost from those of a sample."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

from agent_magics.models.providers.catalog import dollars

# Two-sided 95 % of Student's t at 49 degrees of freedom.
_T = 2.01

GO_ON, SAMPLE_ONLY, STOP = "Go on", "Sample only", "Stop"
CHOICES = (GO_ON, SAMPLE_ONLY, STOP)


@dataclass(frozen=True, slots=True)
class Quote:
    """What a map will cost in all, by a sample of its rows.

    Attributes:
        rows: the number of rows; None where it is not known, and `cost` is what is spent already.
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
        limit = f"ask_above={self.limit:g} USD"
        if self.rows is None:
            return (
                f"{dollars(self.cost)} are spent, above {limit}; how many rows follow is not known"
            )
        span = f"{dollars(self.low)} to {dollars(self.high)}"
        time = "" if self.seconds is None else f", {duration(self.seconds)}"
        cost = f"{dollars(self.cost)} ({span}; {self.tokens:,} tokens{time})"
        return f"{self.rows:,} rows will cost about {cost}, above {limit}"


def quote_of(
    paid: Sequence[tuple[int, float]], rows: int, seconds: float | None, limit: float
) -> Quote:
    """Project the cost of all rows.

    Args:
        paid: tokens and USD of each row of the sample.
        rows: the number of all rows.
        seconds: how long all will take.
        limit: USD of `ask_above`.
    """
    count = len(paid)
    costs = [cost for _, cost in paid]
    mean, rest = fmean(costs), rows - count
    # Of the sample the cost is known; the mean of the rest varies, and so do its rows.
    error = _T * (stdev(costs) if count > 1 else mean) * rest * sqrt(1 / count + 1 / max(rest, 1))
    cost = mean * rows
    low = max(cost - error, sum(costs))
    tokens = round(fmean(tokens for tokens, _ in paid) * rows)
    return Quote(rows, cost, low, cost + error, tokens, seconds, limit)


def duration(seconds: float) -> str:
    """Return a time for people: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
