"""Reads rows: from pandas, polars and pyarrow tables, lists, generators, and files.

A row is read as a tuple of the values of the columns that the prompt names, or, for a prompt that
is a function, as the whole row: a dict of a table's columns, or the object of a list itself.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence, Sequence, Set
from dataclasses import dataclass
from datetime import date, time
from enum import Enum
from numbers import Number
from pathlib import PurePath
from typing import Any, TypeAlias
from uuid import UUID

from agent_magics.protocol.errors import FatalError, typed_message
from agent_magics.rows.tables.files import (
    NEEDS,
    Broken,
    FileJudge,
    any_path,
    file_rows,
    rows_of_arrow,
)

# Rows that are read at once: enough that a thread is worth its while, few enough to hold.
BATCH = 500
# The column of a list of strings.
TEXT = "text"

Row: TypeAlias = Any
Names: TypeAlias = tuple[str, ...] | None
"""The columns to read; None for whole rows."""

NO_ROWS = (
    "map takes rows as a pandas, polars or pyarrow table, a list or generator of dicts, objects or "
    "strings, or the path of a Parquet, CSV or JSONL file or a folder of them, not {kind}."
)
NOT_READ = "The rows could not be read: {error}"


@dataclass(frozen=True, slots=True)
class Held:
    """Rows in memory, which can be read anywhere and again.

    Attributes:
        library: the library whose table the answers are returned in; "" for that of lists.
        columns: the names of the columns; of a list those of its first rows.
        count: the number of rows.
        read: returns rows of it by their positions.
        index: pandas' index of the rows; None for others.
    """

    library: str
    columns: tuple[str, ...]
    count: int
    read: Callable[[Sequence[int], Names], list[Row]]
    index: Any = None

    def batches(self, names: Names) -> Iterator[list[Row]]:
        """Read all rows in order, up to `BATCH` at once."""
        for start in range(0, self.count, BATCH):
            yield self.each(range(start, min(start + BATCH, self.count)), names)

    def each(self, positions: Sequence[int], names: Names) -> list[Row]:
        """Read rows like `read`; one that cannot be read is `Broken`, and the others are there."""
        try:
            return self.read(positions, names)
        except BaseException as error:  # values of anybody's classes, which may also exit
            if len(positions) == 1:
                return [Broken(typed_message(error))]
            return [self.each([position], names)[0] for position in positions]


@dataclass(frozen=True, slots=True)
class RowStream:
    """Rows that are read once, in order: of files, generators, data sets; see `Held`.

    Attributes:
        rows: yields some whole rows at once.
        count: the number of rows; None where it is not known before they are read.
        whole: reads all rows as a table; None where they are none.
    """

    library: str
    columns: tuple[str, ...]
    rows: Iterator[list[Row]]
    count: int | None = None
    whole: Callable[[], Held] | None = None

    def batches(self, names: Names) -> Iterator[list[Row]]:
        """Read all rows in order, some at once."""
        for batch in self.rows:
            yield batch if names is None else [_picked(row, names) for row in batch]

    def held(self) -> Held:
        """Read all rows into memory."""
        if self.whole is not None:
            return self.whole()
        return _of_list(list(itertools.chain.from_iterable(self.rows)), self.library)


Source: TypeAlias = Held | RowStream


def open_source(rows: Any, *, hold: bool = False, judge: FileJudge = any_path) -> Source:
    """Return the reader of the given rows.

    Args:
        rows: the rows.
        hold: read all of them into memory first.
        judge: returns why a file is not read, or "".

    Raises:
        FatalError: it is nothing that has rows, or they cannot be read.
    """
    try:
        source = _opened(rows, judge)
        return source.held() if hold and isinstance(source, RowStream) else source
    except FatalError:
        raise
    except Exception as error:  # of the generator or library that the rows come from
        raise FatalError(NOT_READ.format(error=typed_message(error))) from error


def _opened(rows: Any, judge: FileJudge) -> Source:
    for base in type(rows).__mro__:
        opener = _TABLES.get((base.__module__.partition(".")[0], base.__name__))
        if opener is not None:
            return opener(rows)
    if hasattr(rows, "__arrow_c_stream__"):
        return _of_arrow_stream(rows)
    if isinstance(rows, str | PurePath):
        return _stream(file_rows(str(rows), judge))
    # A table of another library yields the names of its columns.
    is_table = isinstance(getattr(rows, "columns", None), Iterable)
    if isinstance(rows, Mapping | bytes) or is_table or not isinstance(rows, Iterable):
        raise FatalError(NO_ROWS.format(kind=type(rows).__name__))
    if isinstance(rows, Sequence) and not any(map(_is_batch, itertools.islice(rows, 1))):
        return _of_list(rows)
    return _stream(_each(rows))


# -- lists and streams -----------------------------------------------------------------------------

_MISSING = object()


# Of what is in memory a shallow copy is held: where the caller sorts rows in place, or takes some
# out, `MapResult.retry` still finds each in its position.


def _of_list(rows: Sequence[Any], library: str = "") -> Held:
    rows = list(rows) if isinstance(rows, MutableSequence) else rows

    def read(positions: Sequence[int], names: Names) -> list[Row]:
        found = [rows[position] for position in positions]
        return found if names is None else [_picked(row, names) for row in found]

    return Held(library, _columns_of(itertools.islice(rows, BATCH)), len(rows), read)


def _is_batch(row: Any) -> bool:
    """Tell whether what stands where a row would is a record batch, which holds rows itself."""
    return type(row).__name__ == "RecordBatch" and hasattr(row, "__arrow_c_stream__")


def _each(rows: Iterable[Any]) -> Iterator[Row]:
    """Yield rows; of a record batch each of its own."""
    for row in rows:
        if _is_batch(row):
            yield from itertools.chain.from_iterable(_of_arrow_stream(row).batches(None))
        else:
            yield row


def _stream(rows: Iterator[Row]) -> RowStream:
    batches = _in_batches(rows)  # small files share one, and with it their columns
    first = next(batches, [])
    count = None if first else 0
    return RowStream("", _columns_of(first), itertools.chain([first], batches), count)


def _in_batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    """Yield rows in lists; those that were read before an error are yielded before it is raised."""
    batch: list[Row] = []
    failure: Exception | None = None
    while not failure:
        try:
            batch.extend(itertools.islice(rows, BATCH))
        except Exception as error:  # of the generator or library that the rows come from
            failure = error
        if not batch:
            break
        yield batch
        batch = []
    if failure:
        raise failure


def _columns_of(rows: Iterable[Any]) -> tuple[str, ...]:
    """Return the names of all columns of some rows, in order."""
    return tuple(dict.fromkeys(name for row in rows for name in _names_of(row)))


def _names_of(row: Any) -> Sequence[str]:
    if isinstance(row, Mapping):
        return [name for name in row if isinstance(name, str)]
    if isinstance(row, Broken):
        return ()
    if _is_plain(row):
        return (TEXT,)
    names = getattr(row, "__dict__", None) or getattr(row, "_fields", None) or _slots_of(type(row))
    public = [name for name in names if not name.startswith("_")]
    # The text that all objects have is an address, another one in each process.
    has_text = any("__repr__" in base.__dict__ for base in type(row).__mro__[:-1])
    return public or ((TEXT,) if has_text else ())


def _slots_of(kind: type) -> Iterator[str]:
    for base in reversed(kind.__mro__):
        slots = base.__dict__.get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots


def _is_plain(row: Any) -> bool:
    """Tell whether a row is a value itself, and nothing that has values."""
    if isinstance(row, list | tuple | Set) and getattr(row, "__dict__", None):
        return False  # of a class whose objects have attributes too
    if row is None or isinstance(row, _PLAIN) or is_image(row):
        return True
    return isinstance(row, tuple) and not hasattr(row, "_fields")


_PLAIN = (str, bytes, date, time, Enum, PurePath, Number, UUID, list, Set)


def is_image(value: Any) -> bool:
    """Tell whether a value is an image of Pillow."""
    return hasattr(value, "save") and hasattr(value, "getbbox")


def _picked(row: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    """Return a row's values of the named columns, None for those that it does not have.

    Returns:
        `Broken` where they cannot be read.
    """
    try:
        if isinstance(row, Broken):
            return row
        if isinstance(row, dict):
            return tuple(map(row.get, names))
        if _is_plain(row):
            return tuple([row if name == TEXT else None for name in names])
        if isinstance(row, Mapping):
            return tuple(map(row.get, names))
        found = [getattr(row, name, _MISSING) for name in names]
        # One that has no fields, but a text: a time span, an array, an address.
        lacks = any(value is _MISSING for value in found)  # arrays are not to be compared
        whole = {TEXT: row} if lacks and _names_of(row) == (TEXT,) else {}
        return tuple(
            whole.get(name) if value is _MISSING else value
            for name, value in zip(names, found, strict=True)
        )
    except BaseException as error:  # values of anybody's classes, which may also exit
        return Broken(typed_message(error))


# -- tables ----------------------------------------------------------------------------------------


def _rows_of(columns: Mapping[str, list[Any]], names: Names, count: int) -> list[Row]:
    """Return columns as rows; without columns these are empty."""
    if names is not None:
        return list(zip(*(columns[name] for name in names), strict=True))
    rows = zip(*columns.values(), strict=True) if columns else ((),) * count
    return [dict(zip(columns, values, strict=True)) for values in rows]


def _of_pandas(frame: Any) -> Held:
    frame = frame.copy(deep=False)
    wanted = tuple(map(str, frame.columns))
    places = {name: place for place, name in enumerate(wanted)}

    def read(positions: Sequence[int], names: Names) -> list[Row]:
        part = frame.iloc[_slice_of(positions)]
        read_names = wanted if names is None else names
        columns = {name: part.iloc[:, places[name]].tolist() for name in read_names}
        return _rows_of(columns, names, len(positions))

    return Held("pandas", wanted, len(frame), read, frame.index)


def _of_polars(frame: Any) -> Held:
    frame = frame.clone()

    def read(positions: Sequence[int], names: Names) -> list[Row]:
        part = frame[_slice_of(positions)]
        columns = {name: part[name].to_list() for name in names or frame.columns}
        return _rows_of(columns, names, len(positions))

    return Held("polars", tuple(frame.columns), frame.height, read)


def _of_arrow(table: Any) -> Held:
    def read(positions: Sequence[int], names: Names) -> list[Row]:
        by = _slice_of(positions)
        is_slice = isinstance(by, slice)
        part = table.slice(by.start, by.stop - by.start) if is_slice else table.take(by)
        columns = {name: part.column(name).to_pylist() for name in names or table.column_names}
        return _rows_of(columns, names, len(positions))

    return Held("pyarrow", tuple(table.column_names), table.num_rows, read)


def _slice_of(positions: Sequence[int]) -> Any:
    """Return a range as a slice, which costs a table nothing, and other positions as a list."""
    is_range = isinstance(positions, range) and positions.step == 1
    return slice(positions.start, positions.stop) if is_range else list(positions)  # type: ignore[attr-defined]


def _of_dataset(dataset: Any) -> RowStream:
    return RowStream(
        "pyarrow",
        tuple(dataset.schema.names),
        map(rows_of_arrow, dataset.to_batches(batch_size=BATCH)),
        dataset.count_rows(),
        lambda: _of_arrow(dataset.to_table()),
    )


def _of_arrow_stream(rows: Any) -> RowStream:
    """Read what exports its rows as Arrow does: record batches, and tables of other libraries."""
    kind = type(rows).__name__
    try:
        from pyarrow import RecordBatchReader  # noqa: PLC0415 - heavy, and an extra

        reader = RecordBatchReader.from_stream(rows)
    except ModuleNotFoundError:
        raise FatalError(NEEDS.format(path=f"a {kind}", package="pyarrow")) from None
    except (ValueError, TypeError, NotImplementedError):  # pyarrow's own errors are of these
        raise FatalError(NO_ROWS.format(kind=kind)) from None
    batches = (
        rows_of_arrow(batch.slice(start, BATCH))
        for batch in reader
        for start in range(0, batch.num_rows, BATCH)
    )
    columns = tuple(reader.schema.names)
    return RowStream("pyarrow", columns, batches, whole=lambda: _of_arrow(reader.read_all()))


def _of_arrow_column(column: Any) -> Held:
    import pyarrow as pa  # noqa: PLC0415 - heavy, and the caller has it

    return _of_arrow(pa.table({TEXT: column}))


def framed(series: Any) -> Any:
    """Return a series of pandas or Dask as a frame."""
    return series.to_frame(TEXT if series.name is None else series.name)


def _of_series(series: Any) -> Held:
    return _of_pandas(framed(series))


def _of_polars_series(series: Any) -> Held:
    return _of_polars(series.to_frame(series.name or TEXT))


def _of_lazy(frame: Any) -> Held:
    return _of_polars(frame.collect())


def _of_dask(frame: Any) -> RowStream:
    """Read a Dask frame here; with a cluster as engine its workers do (`rows/engines`)."""
    parts = (frame.get_partition(number).compute() for number in range(frame.npartitions))
    rows = itertools.chain.from_iterable(_of_pandas(part).batches(None) for part in parts)
    columns = tuple(map(str, frame.columns))
    return RowStream("pandas", columns, rows, whole=lambda: _of_pandas(frame.compute()))


def _of_dask_series(series: Any) -> RowStream:
    return _of_dask(framed(series))


_TABLES: dict[tuple[str, str], Callable[[Any], Source]] = {
    ("pandas", "DataFrame"): _of_pandas,
    ("pandas", "Series"): _of_series,
    ("polars", "DataFrame"): _of_polars,
    ("polars", "Series"): _of_polars_series,
    ("polars", "LazyFrame"): _of_lazy,
    ("pyarrow", "Table"): _of_arrow,
    ("pyarrow", "FileSystemDataset"): _of_dataset,
    ("pyarrow", "InMemoryDataset"): _of_dataset,
    ("pyarrow", "UnionDataset"): _of_dataset,
    ("pyarrow", "Array"): _of_arrow_column,
    ("pyarrow", "ChunkedArray"): _of_arrow_column,
    ("dask", "DataFrame"): _of_dask,
    ("dask_expr", "DataFrame"): _of_dask,
    ("dask", "Series"): _of_dask_series,
    ("dask_expr", "Series"): _of_dask_series,
}
