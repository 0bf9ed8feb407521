"""Collects what becomes of rows: in memory, or in Parquet files that grow as it goes."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

from agent_magics.protocol.errors import FatalError, clause, typed_message
from agent_magics.rows.tables.columns import (
    COST,
    ERROR,
    TOKENS,
    AnswerColumns,
    Column,
    column_values,
)
from agent_magics.rows.tables.folders import PartFiles, answers_of
from agent_magics.rows.tables.frames import arrow_table, converted, frame_of, joined, kinds_of

# Rows of a part, and rows that may be in memory because earlier ones of their part are not there.
PART = 10_000
MOST_HELD = 100_000
ROW = "row"
_MAP = b"agent_magics.map"

NO_PYARROW = (
    "into=... writes Parquet files, which needs pyarrow: pip install 'agent-magics[tables]'."
)
ANOTHER = (
    "{path} holds the answers of another map (of another prompt, model or output): choose another "
    "folder for into=..., or delete its parts."
)
ROW_TAKEN = (
    "into=... writes a column 'row' with the number of each row, and output has a field of that "
    "name: rename the field."
)
NOT_WRITTEN = "{folder}: the answers cannot be written ({error})."
NOT_READ = "{folder}: the answers cannot be read ({error})."


class Outcome(NamedTuple):
    """The outcome of one row: its answer or its error, and its cost.

    Attributes:
        answer: the checked answer as JSON; None where there is none.
        error: one sentence where there is none, else None.
        tokens, cost: what the row's question took; 0 where another row of this data asked it.
    """

    answer: bytes | None
    error: str | None = None
    tokens: int = 0
    cost: float | None = 0.0


# An outcome that is held for long: a plain tuple of numbers and text is nothing that the garbage
# collector looks at again, and with a million instances of a class it takes a third of the time.
Plain: TypeAlias = tuple[bytes | None, str | None, int, float | None]


class Sink(Protocol):
    """Takes the outcomes of rows, in any order.

    Attributes:
        freed: set when there may be room again.
        stopped: why the map ended early, set as soon as it did; "" where it did not.
        aside: files of an earlier call, moved away with answers that this one does not have.
    """

    freed: asyncio.Event
    stopped: str
    aside: Sequence[str] = ()

    def reserved(self) -> AbstractContextManager[None]:
        """Keep other maps from writing to the same place meanwhile, where it is more than memory.

        Raises:
            FatalError: another one writes there.
        """
        return nullcontext()

    def put(self, position: int, outcome: Plain) -> None:
        """Store the outcome of the row at `position`."""
        ...

    def has_room(self) -> bool:
        """Return whether more rows may be read.

        Raises:
            FatalError: outcomes cannot be written.
        """
        ...

    async def close(self) -> None:
        """Write the rest; rows without an outcome were not asked, for the reason in `stopped`."""
        ...


NOT_ASKED = "not asked: {reason}"


def not_asked(reason: str) -> Outcome:
    """Return the outcome of a row that a map, which ended for this reason, did not come to."""
    return Outcome(None, NOT_ASKED.format(reason=reason))


def values_of(columns: Sequence[Column], outcomes: Iterable[Plain]) -> dict[str, list[Any]]:
    """Return the columns of some rows: of their answers, then error, tokens and cost."""
    listed = list(outcomes)
    values = column_values(columns, [each[0] for each in listed])
    values[ERROR] = [each[1] for each in listed]
    values[TOKENS] = [each[2] for each in listed]
    values[COST] = [each[3] for each in listed]
    return values


class Collected(Sink):
    """Outcomes in memory, by the position of their row."""

    def __init__(self, columns: AnswerColumns, count: int) -> None:
        self._columns, self.freed, self.stopped = columns, asyncio.Event(), ""
        self.outcomes: list[Plain | None] = [None] * count

    def put(self, position: int, outcome: Plain) -> None:
        """See `Sink.put`."""
        self.outcomes[position] = outcome[:]

    def has_room(self) -> bool:
        """See `Sink.has_room`: the rows are in memory too."""
        return True

    async def close(self) -> None:
        """See `Sink.close`."""
        missing = not_asked(self.stopped)[:]
        self.outcomes = [each or missing for each in self.outcomes]

    def failed(self) -> list[int]:
        """Return the positions of rows with an error."""
        return [
            place for place, each in enumerate(self.outcomes) if not each or each[1] is not None
        ]

    def frame(self, library: str, index: Any = None) -> Any:
        """Return the outcomes as a table; see `frame_of`."""
        columns = self._columns.columns
        values = values_of(columns, filter(None, self.outcomes))
        return frame_of(library, columns, values, index)


class Parts(Sink):
    """Parquet files of the outcomes of 10,000 rows each, written when the last of them is there.

    Args:
        place: the folder where they are written, or a URL; see `PartFiles`.
        columns: the columns of the answers.
        digest: tells one map from another, whose parts are not written over.
        span: the positions of a part, of which not all need be rows.

    Attributes:
        place: the same, as text.

    Raises:
        FatalError: pyarrow is missing, the folder cannot be made, or holds another map's parts; or
            the answers have a field "row".
    """

    def __init__(
        self, place: str | Path, columns: AnswerColumns, digest: bytes, span: int = PART
    ) -> None:
        if ROW in (column.name for column in columns.columns):
            raise FatalError(ROW_TAKEN)
        self.place, self._columns, self._digest = str(place), columns, digest
        self._open: dict[int, dict[int, Plain]] = {}
        self._held, self._span = 0, span
        self._written: set[int] = set()  # numbers of parts
        self._left: dict[int, Mapping[int, Plain]] = {}  # what stands in no file; see `_write_file`
        self.aside: list[str] = []
        self.freed, self.stopped = asyncio.Event(), ""
        self._writing: set[asyncio.Task[None]] = set()
        self._problem: FatalError | None = None
        try:
            self._files = PartFiles(place)
            self._check_parts()
        except ModuleNotFoundError:
            raise FatalError(NO_PYARROW) from None
        except (OSError, ValueError) as error:
            raise self._not_written(error) from None

    def reserved(self) -> AbstractContextManager[None]:
        """See `Sink.reserved`."""
        return self._files.reserved()

    def _check_parts(self) -> None:
        for path in self._files.paths()[:1]:
            if self._files.metadata(path).get(_MAP) != self._digest.hex().encode():
                raise FatalError(ANOTHER.format(path=path))

    def put(self, position: int, outcome: Plain) -> None:
        """See `Sink.put`."""
        number = position // self._span
        part = self._open.setdefault(number, {})
        part[position] = outcome[:]
        self._held += 1
        if len(part) == self._size(number):
            self._write_soon(number)

    def _size(self, number: int) -> int:
        """Return the number of rows of a part."""
        return self._span

    def _write_soon(self, number: int) -> None:
        task = asyncio.create_task(self._write(number, self._open.pop(number)))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    def has_room(self) -> bool:
        """See `Sink.has_room`."""
        if self._problem is not None:
            raise self._problem
        return self._held <= MOST_HELD

    async def close(self) -> None:
        """See `Sink.close`; after a whole map with rows, those of an earlier one are set aside."""
        while self._open:
            await self._write(*self._open.popitem())
        while self._writing:
            await asyncio.wait(self._writing)
        if self._problem is not None:
            raise self._problem
        if self._written and not self.stopped:
            try:
                for path in await asyncio.to_thread(self._files.above, max(self._written)):
                    self.aside.append(await asyncio.to_thread(self._files.set_aside, path))
            except OSError as error:
                raise self._not_written(error) from None

    def frame(self, library: str, _: Any = None) -> Any:
        """Return the outcomes of this call as a table; see `frame_of`.

        Parts of an earlier one stay in the folder where this one did not come to them.
        """
        try:
            paths = self._paths()
            table = self._files.read(paths) if paths else self._table({})
        except OSError as error:
            raise FatalError(NOT_READ.format(folder=self.place, error=clause(error))) from None
        if self._left:
            left = [self._part(number, part) for number, part in self._left.items()]
            table = joined([table, *left]).sort_by(ROW)
        return converted(table, library)

    def _paths(self) -> list[str]:
        """Return the files that this call wrote, in order."""
        return self._files.paths_of(self._written)

    async def _write(self, number: int, part: Mapping[int, Plain]) -> None:
        try:
            await asyncio.to_thread(self._write_file, number, part)
        except Exception as error:  # pyarrow has errors of its own for values that do not fit
            self._problem = self._not_written(error)
        self._held -= len(part)
        self.freed.set()

    def _first(self, number: int) -> int:
        """Return the position from which the rows of a part are counted."""
        return 0

    def _write_file(self, number: int, part: Mapping[int, Plain]) -> None:
        """Write a part; answers of an earlier call that it does not have are set aside.

        After the map ended early they stay where they are more: then also a full part may have rows
        that were not asked, or not waited for.
        """
        table = self._part(number, part)
        before = self._files.answers(number)
        now = answers_of(table) if before else before
        if self.stopped and len(now) < len(before):
            self._left[number] = part
            return
        if not before <= now:
            self.aside.append(self._files.set_aside(self._files.path_of(number)))
        self._files.write(number, table.replace_schema_metadata({_MAP: self._digest.hex()}))
        self._written.add(number)

    def _part(self, number: int, part: Mapping[int, Plain]) -> Any:
        """Return the outcomes of a part as a table."""
        first = self._first(number)
        return self._table({position - first: part[position] for position in sorted(part)})

    def _table(self, outcomes: Mapping[int, Plain]) -> Any:
        columns = self._columns.columns
        values = {**values_of(columns, outcomes.values()), ROW: list(outcomes)}
        return arrow_table({ROW: "integer", **kinds_of(columns)}, values)

    def _not_written(self, error: Exception) -> FatalError:
        reason = clause(error) if isinstance(error, OSError) else typed_message(error)
        return FatalError(NOT_WRITTEN.format(folder=self.place, error=reason))
