"""Reads the first rows of a table that code displays as plain values, which the page can show.

Law: nothing of a table's own drawing is used; a cell is a number, a truth value, None or text. What
cannot be read is left to its text.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from agent_magics.dispatch.results.values import bases_of, made_by, safe_repr
from agent_magics.protocol.items import Json
from agent_magics.render.blocks.frames import TABLE, DisplayedTable
from agent_magics.text.brief import brief

MOST_ROWS = 1_000
MOST_COLUMNS = 100
MOST_BYTES = 200_000  # of the JSON of all cells
_LONGEST = 200  # characters of one cell, and of a name
_SURE = 1 << 53  # integers up to this one are the same in a page
_MISSING = frozenset({"NAType", "NaTType"})

# Name, type and values of a column.
_Column = tuple[str, str, Sequence[Any]]


def table_of(value: object) -> DisplayedTable | None:
    """Return the first rows of a DataFrame, a Series or a table of pyarrow; None for others.

    Returns:
        `columns` (name and type of each, an index first), `rows`, and of the whole table `total`
        rows and `width` columns.
    """
    readers = (_READERS.get(made_by(base)) for base in bases_of(type(value)))
    read = next(filter(None, readers), None)
    if read is None:
        return None
    try:
        columns, total, width = read(value)
        cells = [[_cell(each) for each in values] for _, _, values in columns]
    except Exception:  # the library's own failure, or a subclass that is no table
        return None
    return DisplayedTable(
        columns=[{"name": _short(name), "type": _short(kind)} for name, kind, _ in columns],
        rows=list(_within_bytes(zip(*cells, strict=True))),
        total=total,
        width=width,
    )


@contextmanager
def with_tables(formatter: Any, is_here: Callable[[], bool]) -> Iterator[None]:
    """Add a table's rows to what a display formatter of IPython returns, inside this context.

    Args:
        formatter: the formatter.
        is_here: tells whether what is displayed now is meant.
    """
    plain = formatter.format

    def format_table(value: object, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], Any]:
        data, metadata = plain(value, *args, **kwargs)
        table = table_of(value) if data and is_here() else None
        return ({**data, TABLE: table} if table else data), metadata

    formatter.format = format_table
    try:
        yield
    finally:
        formatter.format = plain


def _from_pandas(frame: Any) -> tuple[list[_Column], int, int]:
    if not hasattr(frame, "columns"):
        frame = frame.to_frame()
    head = frame.iloc[:MOST_ROWS, :MOST_COLUMNS]
    index = head.index
    columns = [(head.columns[n], head.iloc[:, n]) for n in range(head.shape[1])]
    if type(index).__name__ != "RangeIndex":
        names = [name if name is not None else "" for name in index.names]
        columns[:0] = [(name, index.get_level_values(n)) for n, name in enumerate(names)]
    read = [(str(name), str(each.dtype), each.tolist()) for name, each in columns]
    return read, len(frame), frame.shape[1]


def _from_polars(frame: Any) -> tuple[list[_Column], int, int]:
    if not hasattr(frame, "columns"):
        frame = frame.to_frame()
    head = frame.head(MOST_ROWS)
    columns = [head.get_column(name) for name in head.columns[:MOST_COLUMNS]]
    read = [(each.name, str(each.dtype), each.to_list()) for each in columns]
    return read, frame.height, frame.width


def _from_arrow(table: Any) -> tuple[list[_Column], int, int]:
    head = table.slice(0, MOST_ROWS)
    fields = list(enumerate(head.schema))[:MOST_COLUMNS]
    read = [(field.name, str(field.type), head.column(n).to_pylist()) for n, field in fields]
    return read, table.num_rows, table.num_columns


_READERS: dict[tuple[str, str], Callable[[Any], tuple[list[_Column], int, int]]] = {
    ("pandas", "DataFrame"): _from_pandas,
    ("pandas", "Series"): _from_pandas,
    ("polars", "DataFrame"): _from_polars,
    ("polars", "Series"): _from_polars,
    ("pyarrow", "Table"): _from_arrow,
    ("pyarrow", "RecordBatch"): _from_arrow,
}


def _cell(value: Any) -> Json:
    kind = type(value)
    if value is None or kind.__name__ in _MISSING:
        return None
    if kind is bool or (kind is int and -_SURE <= value <= _SURE):
        return bool(value) if kind is bool else int(value)
    if kind is float:
        return None if math.isnan(value) else value if math.isfinite(value) else str(value)
    if kind is str:
        return _short(value)
    if isinstance(value, (list, dict, tuple, bytes, set)):
        return _short(safe_repr(value))
    return _short(str(value))


def _short(text: str) -> str:
    return brief(text, _LONGEST)


def _within_bytes(rows: Iterator[tuple[Json, ...]]) -> Iterator[Json]:
    left = MOST_BYTES
    for row in rows:
        left -= len(json.dumps(row))
        if left < 0:
            return
        yield list(row)
