"""Counts what a map has done so far."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agent_magics.protocol.items import Usage

BAD_ROW = "bad row"  # the kind of the errors of rows that cannot be asked about


@dataclass(slots=True)
class ErrorKind:
    """Errors of one sort: how many, and one of them."""

    count: int
    example: str


@dataclass(slots=True)
class Progress:
    """What a map has done so far; changed on the engine's loop, read anywhere.

    Attributes:
        total: the number of rows; None while it is not known.
        done: rows with an answer or an error.
        failed: rows with an error.
        kept: rows whose answer an earlier call had paid for.
        repeated: rows whose answer is that of another row of this call.
        unasked: rows that were read and not asked, since the map ended.
        asked: questions that were answered or given up.
        answered: questions with an answer.
        paid: questions that took tokens or money.
        in_flight: questions that wait for their answer.
        usage: the tokens that this call took.
        cost: the USD that it took, as far as that is known.
        unpriced: questions whose cost is not known.
        unheard: questions that were sent and not waited for: `usage` and `cost` are without them.
        errors: the errors by kind.
        began, ended: seconds of the monotonic clock; `ended` is None while it runs.
    """

    total: int | None = None
    done: int = 0
    failed: int = 0
    kept: int = 0
    repeated: int = 0
    unasked: int = 0
    asked: int = 0
    answered: int = 0
    paid: int = 0
    in_flight: int = 0
    usage: Usage = Usage()
    cost: float = 0.0
    unpriced: int = 0
    unheard: int = 0
    errors: dict[str, ErrorKind] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None

    @property
    def known_cost(self) -> float | None:
        """USD that this call took; None where the price of a question is not known."""
        return None if self.unpriced else self.cost

    @property
    def tokens(self) -> int:
        """The tokens that this call took, input and output."""
        return self.usage.input_tokens + self.usage.output_tokens

    @property
    def rows(self) -> int:
        """The number of rows, as far as it is known."""
        return self.done + self.unasked if self.total is None else self.total

    @property
    def seconds(self) -> float:
        """The seconds that the map has run."""
        return (self.ended or time.monotonic()) - self.began

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.done / max(self.seconds, 1e-6)

    @property
    def time_left(self) -> float | None:
        """The seconds that are left at this rate; None where that is not known."""
        if self.total is None or not self.done:
            return None
        return (self.total - self.done) / self.rate

    def projected(self, spent: float) -> float | None:
        """Return the projected cost in all, at the present cost of a row; None if not known."""
        if self.total is None or not self.done:
            return None
        return spent * self.total / self.done

    def joined(self, retried: "Progress") -> "Progress":
        """Return these counts joined with those of a second map over the rows that failed."""
        return replace(
            self,
            done=self.done - self.failed + retried.done,
            failed=retried.failed,
            unasked=retried.unasked,
            errors=retried.errors,
            asked=self.asked + retried.asked,
            answered=self.answered + retried.answered,
            paid=self.paid + retried.paid,
            usage=self.usage + retried.usage,
            cost=self.cost + retried.cost,
            unpriced=self.unpriced + retried.unpriced,
            unheard=self.unheard + retried.unheard,
            ended=(self.ended or self.began) + retried.seconds,
        )

    def fail(self, kind: str, error: str) -> None:
        """Count a row's error."""
        self.failed += 1
        known = self.errors.setdefault(kind, ErrorKind(0, error))
        known.count += 1

    def kinds(self) -> Mapping[str, ErrorKind]:
        """Return the errors by kind, the most frequent first."""
        return dict(sorted(self.errors.items(), key=lambda pair: -pair[1].count))
