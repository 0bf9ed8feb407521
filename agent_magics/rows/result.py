"""Defines the result of a map: its table, what it cost, and what failed."""

from collections.abc import Callable, Sequence
from typing import Any

from agent_magics.models.providers.catalog import dollars
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import Usage
from agent_magics.rows.budgets import duration
from agent_magics.rows.engines.partition_answers import CollectedPartitions
from agent_magics.rows.outcomes import Collected, Parts, Plain
from agent_magics.rows.progress import Progress
from agent_magics.rows.tables.columns import ERROR
from agent_magics.rows.tables.sources import Held, Source
from agent_magics.text.brief import number_of

NOT_HERE = (
    "The rows of {what} are not in memory: call map again, which asks only what has no answer."
)


class MapResult:
    """The result of one prompt over many rows.

    Attributes:
        progress: the counts: rows, answers, errors, tokens.
        stopped: why it ended before all rows were asked; "" where it did not.
    """

    def __init__(
        self,
        source: Source,
        sink: Collected | Parts | CollectedPartitions,
        progress: Progress,
        stopped: str,
        again: "Callable[[Held], MapResult]",
    ) -> None:
        self._source, self._sink, self._again = source, sink, again
        self.progress, self.stopped = progress, stopped
        self._frame: Any = None

    @property
    def frame(self) -> Any:
        """A table of the kind that came in: the fields of the answers, then error, tokens, cost.

        It has pandas' index. Of lists and files it is pandas' where that is installed, else that of
        polars or pyarrow, else a list of dicts. With ``into=...`` it is read from the files, which
        have the number of each row (`row`) and no index.
        """
        # A Dask frame's values are on the cluster, which may have lost them since.
        if self._frame is None or self._source.library == "dask":
            index = self._source.index if isinstance(self._source, Held) else None
            self._frame = self._sink.frame(self._source.library, index)
        return self._frame

    @property
    def failed(self) -> Any:
        """The rows of `frame` that have an error."""
        frame = self.frame
        if isinstance(frame, list):
            return [row for row in frame if row[ERROR] is not None]
        if type(frame).__module__.startswith(("pandas", "dask")):
            return frame[~frame[ERROR].isna()]
        if type(frame).__module__.startswith("polars"):
            return frame.filter(frame[ERROR].is_not_null())
        return frame.filter(frame[ERROR].is_valid())

    @property
    def cost(self) -> float | None:
        """USD that this call took; None where the price is not known. Kept answers took none.

        What was under way at a stop and was not waited for is not in it: see `report`.
        """
        return self.progress.known_cost

    @property
    def usage(self) -> Usage:
        """The tokens that this call took."""
        return self.progress.usage

    def retry(self) -> "MapResult":
        """Ask about the failed rows again, blocking, and put the new answers into this result.

        Returns:
            This result.

        Raises:
            FatalError: the rows are not in memory, or nothing can be asked.
        """
        if not isinstance(self._sink, Collected):
            into = getattr(self._sink, "place", None)
            raise FatalError(NOT_HERE.format(what=f"into={into!r}" if into else "a Dask frame"))
        failed = self._sink.failed()
        if not failed:
            return self
        held = self._source
        assert isinstance(held, Held)  # as all are whose outcomes are in memory
        part = Held(held.library, held.columns, len(failed), _Chosen(held, failed))
        again = self._again(part)
        assert isinstance(again._sink, Collected)  # of the same options
        outcomes = self._sink.outcomes
        for place, outcome in zip(failed, again._sink.outcomes, strict=True):
            outcomes[place] = _after(outcomes[place], outcome)
        self.progress = self.progress.joined(again.progress)
        self.stopped, self._frame = again.stopped, None
        return self

    def report(self) -> str:
        """Return a summary of the map in a few lines of text."""
        progress = self.progress
        unasked = progress.rows - progress.done
        not_asked = f", {unasked:,} were not asked" if unasked else ""
        cost = _money(self.cost)
        if progress.unheard:
            cost += f" and what {number_of(progress.unheard, 'request')} under way took"
        lines = [
            f"{progress.done - progress.failed:,} of {progress.rows:,} rows have an answer"
            f"{self._whence()}; {progress.failed:,} failed{not_asked}.",
            f"{progress.tokens:,} tokens, {cost}, in {duration(progress.seconds)} "
            f"({progress.rate:,.0f} rows a second).",
        ]
        lines += [
            f"{kind}: {number_of(each.count, 'row')} ({each.example})"
            for kind, each in progress.kinds().items()
        ]
        if aside := self._sink.aside:
            files = number_of(len(aside), "file")
            lines.append(f"{files} of an earlier call, with other answers, set aside: {aside[0]}.")
        if self.stopped:
            lines.append(f"It ended early: {self.stopped}.")
        return "\n".join(lines)

    def _whence(self) -> str:
        progress = self.progress
        parts = [
            f"{count:,} {what}"
            for count, what in (
                (progress.kept, "from earlier calls"),
                (progress.repeated, "from equal rows"),
            )
            if count
        ]
        return f" ({', '.join(parts)})" if parts else ""

    def __repr__(self) -> str:
        return self.report()


def _after(first: Plain | None, second: Plain | None) -> Plain | None:
    """Return the outcome of a row that was asked again: the second one, with what both took."""
    if first is None or second is None:
        return second
    answer, error, tokens, cost = second
    costs = (first[3], cost)
    return answer, error, first[2] + tokens, None if None in costs else sum(filter(None, costs))


class _Chosen:
    """Reads some rows of others, by their positions among the chosen ones."""

    def __init__(self, held: Held, chosen: Sequence[int]) -> None:
        self._held, self._chosen = held, chosen

    def __call__(self, positions: Sequence[int], names: Any) -> list[Any]:
        return self._held.read([self._chosen[position] for position in positions], names)


def _money(cost: float | None) -> str:
    return "at a price that is not known" if cost is None else dollars(cost)
