"""Collects the answers to rows of a Dask frame, by partition, and makes a Dask frame of them."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_magics.rows.engines.partitions import Partitions
from agent_magics.rows.outcomes import ROW, Parts, Plain, Sink, not_asked, values_of
from agent_magics.rows.tables.columns import AnswerColumns, Column
from agent_magics.rows.tables.folders import PartFiles
from agent_magics.rows.tables.frames import arrow_table, kinds_of

# Positions of a partition's rows: more than it can have.
SPAN = 1 << 32


class CollectedPartitions(Sink):
    """Outcomes in memory, by partition, each of which has `SPAN` positions for its rows."""

    def __init__(self, columns: AnswerColumns, partitions: Partitions) -> None:
        self._columns, self._partitions = columns.columns, partitions
        self.freed = asyncio.Event()
        self._outcomes: dict[int, list[Plain | None]] = {}
        self.stopped = ""

    def expect(self, number: int, rows: int) -> None:
        """Take how many rows a partition has, before any outcome of them."""
        self._outcomes[number] = [None] * rows

    def put(self, position: int, outcome: Plain) -> None:
        """See `Sink.put`."""
        number, row = divmod(position, SPAN)
        self._outcomes[number][row] = outcome

    def has_room(self) -> bool:
        """See `Sink.has_room`: the answers are in memory."""
        return True

    async def close(self) -> None:
        """See `Sink.close`; `frame` makes the rest."""

    def frame(self, *_: object) -> Any:
        """Return a Dask frame of the same partitions, index and divisions."""
        import dask.dataframe as dd  # noqa: PLC0415 - heavy, and the caller has it
        from dask.delayed import delayed  # noqa: PLC0415

        frame, client = self._partitions.frame, self._partitions.client
        make = delayed(answered, pure=False)
        parts = []
        for number, part in enumerate(frame[[]].to_delayed()):
            outcomes: Any = self._outcomes.get(number)
            if client.asynchronous:
                outcomes = delayed(outcomes, traverse=False)
            else:  # beside the graph, which the scheduler keeps
                outcomes = client.scatter([outcomes])[0]
            parts.append(make(part, self._columns, outcomes, self.stopped))
        meta = answered(frame._meta[[]], self._columns, [], "")
        return dd.from_delayed(parts, meta=meta, divisions=frame.divisions, verify_meta=False)


def answered(
    part: Any, columns: Sequence[Column], outcomes: Sequence[Plain | None] | None, stopped: str
) -> Any:
    """Return the answers to a partition's rows, with its index.

    Args:
        part: a pandas table.
        columns: those of the answers.
        outcomes: of its rows; None where they were not read.
        stopped: why rows have none.
    """
    missing = not_asked(stopped)
    given = outcomes if outcomes is not None else [None] * len(part)
    values = values_of(columns, (each or missing for each in given))
    return _pandas(arrow_table(kinds_of(columns), values)).set_axis(part.index)


def _pandas(table: Any) -> Any:
    """Return a pyarrow table as pandas': with the same types whether or not values are missing.

    Lists are none of its objects, which Dask writes as text.
    """
    import pandas as pd  # noqa: PLC0415 - heavy, and the caller has it
    import pyarrow as pa  # noqa: PLC0415

    types: dict[Any, Any] = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    types |= {each: pd.ArrowDtype(each) for each in table.schema.types if pa.types.is_list(each)}
    return table.to_pandas(types_mapper=types.get, date_as_object=False)


class PartitionFiles(Parts):
    """A Parquet file of the outcomes of each partition; see `Parts`."""

    def __init__(self, place: str | Path, columns: AnswerColumns, digest: bytes) -> None:
        super().__init__(place, columns, digest + b" partitions", SPAN)
        self._sizes: dict[int, int] = {}

    def expect(self, number: int, rows: int) -> None:
        """See `CollectedPartitions.expect`."""
        self._sizes[number] = rows
        if not rows:
            self._open[number] = {}
            self._write_soon(number)

    def has_room(self) -> bool:
        """See `Sink.has_room`: how many rows are read is limited by their partitions."""
        super().has_room()  # raises what could not be written
        return True

    def _size(self, number: int) -> int:
        return self._sizes[number]

    def _first(self, number: int) -> int:
        return number * SPAN

    def frame(self, *_: object) -> Any:
        """Return a Dask frame of the files, each a partition; of an earlier map's it has none."""
        import dask.dataframe as dd  # noqa: PLC0415 - heavy, and the caller has it

        columns = self._columns.columns
        kinds = {ROW: "integer", **kinds_of(columns)}
        meta = _pandas(arrow_table(kinds, {**values_of(columns, ()), ROW: []}))
        if not (paths := self._paths()):
            return dd.from_pandas(meta, npartitions=1)
        return dd.from_map(_read_file, paths, place=self._files.place, meta=meta)


def _read_file(path: str, place: str) -> Any:
    return _pandas(PartFiles(place).read([path]))
