"""Formats a table file for the model: its shape, columns and first rows.

A CSV file states no column types, so those are guessed from the first rows, and the view says so. A
Parquet file states them; pyarrow reads it where it is installed.
"""

import csv
import io
import itertools
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from importlib.util import find_spec
from typing import Any

from agent_magics.files.text import windows as files
from agent_magics.files.text.encoding import Encoding
from agent_magics.protocol.errors import RespondToModel, clause
from agent_magics.protocol.tools import ToolOutput
from agent_magics.text.brief import brief, number_of
from agent_magics.tools.files.access import FOR_NOTES, count_fitting

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
SHOWN_ROWS = 10
SHOWN_COLUMNS = 20
_LISTED_COLUMNS = 100
_CELL_CHARACTERS = 24
_SAMPLED_ROWS = 1_000
_SNIFFED_ROWS = 20
_SAMPLED_BYTES = 2 * 1024 * 1024  # files up to this size are parsed to the end, to count rows
_PARQUET_GROUP_BYTES = 512 * 1024 * 1024  # of a row group, unpacked, whose first rows are read
_MISSING = frozenset(("", "na", "nan", "n/a", "null", "none"))


@dataclass(frozen=True, slots=True)
class TableView:
    """The model's view of a table file.

    Attributes:
        lines: the view, line by line.
        note: its last line, which says how to see more.
    """

    shown: str
    lines: tuple[str, ...]
    note: str

    def __str__(self) -> str:
        return "\n".join((*self.lines, self.note))

    def to_output(self, budget: int) -> ToolOutput:
        """Return as many lines as fit into `budget` characters, and the note."""
        count = count_fitting(self.lines, budget - FOR_NOTES)
        return ToolOutput("\n".join((*self.lines[:count], self.note)), details={"path": self.shown})


# -- CSV -------------------------------------------------------------------------------------------


def view_csv(descriptor: int, shown: str) -> TableView | None:
    """Return the view of an opened CSV or TSV file; None where it is no table.

    Args:
        descriptor: the opened file.
        shown: its name for messages.

    Raises:
        RespondToModel: the file is not text.
    """
    size = os.fstat(descriptor).st_size
    start = files.read_start(descriptor, shown, _SAMPLED_BYTES)
    separator = _separator_of(start.text, shown)
    is_whole = size <= _SAMPLED_BYTES
    try:
        rows, count = _parsed(start.text, separator, is_whole)
    except csv.Error:
        return None
    if not rows or len(rows[0]) < 2:
        return None
    has_names = _is_header(rows[0])
    names = rows[0] if has_names else [f"column {n}" for n in range(1, len(rows[0]) + 1)]
    body = rows[has_names:]
    if is_whole:
        total = number_of(count - has_names, "row")
    elif (there := files.read_window(descriptor, shown, count=1).total) is not None:
        total = f"{there - has_names:,} lines of rows"
    else:
        total = f"{size:,} bytes of rows"
    lines = [
        f"{shown}: {total} x {len(names):,} columns, separated by {SEPARATORS[separator]}; "
        + ("line 1 names the columns." if has_names else "the columns have no names."),
        *_column_lines(names, body, is_whole=is_whole and len(rows) == count),
        *_head_lines(names, body),
        *_oddities(names, body, start.encoding),
    ]
    return TableView(shown, tuple(lines), "start_line=1 reads the lines as they stand.")


def _parsed(text: str, separator: str, is_whole: bool) -> tuple[list[list[str]], int]:
    """Return the first rows of a CSV text, and the count of all its rows."""
    reader = (row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) if row)
    rows = list(itertools.islice(reader, _SAMPLED_ROWS + 1))
    count = len(rows) + sum(1 for _ in reader)
    return rows if is_whole or len(rows) < count else rows[:-1], count  # the last may be cut


def _separator_of(text: str, shown: str) -> str:
    """Guess the separator: the one by which most of the first lines have equally many cells."""
    if shown.lower().endswith((".tsv", ".tab")):
        return "\t"

    def agreement(separator: str) -> tuple[float, int]:
        try:
            reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
            rows = list(itertools.islice(reader, _SNIFFED_ROWS))
        except csv.Error:
            return 0.0, 0
        widths = Counter(len(row) for row in rows if row)
        cells, often = widths.most_common(1)[0] if widths else (0, 0)
        return (often / len(rows), cells) if cells > 1 else (0.0, 0)

    return max(SEPARATORS, key=agreement)


def _is_header(first: Sequence[str]) -> bool:
    """Return whether a row holds column names: texts, all different."""
    if len(set(first)) < len(first) or any(_kind_of(cell) != "text" for cell in first if cell):
        return False
    return any(first)


def _column_lines(
    names: Sequence[str], rows: Sequence[Sequence[str]], *, is_whole: bool
) -> Iterator[str]:
    counted = "all" if is_whole else f"the first {len(rows):,}"
    yield f"Types, guessed from {counted} rows:" if rows else "There are no rows."
    for at, name in enumerate(names[:_LISTED_COLUMNS] if rows else ()):
        cells = [row[at] if at < len(row) else "" for row in rows]
        missing = sum(cell.strip().lower() in _MISSING for cell in cells)
        note = f", {missing:,} missing" if missing else ""
        yield f"  {_one_line(name)}: {_type_of(cells)}{note}"
    if rows and len(names) > _LISTED_COLUMNS:
        yield f"  … {len(names) - _LISTED_COLUMNS:,} more columns"


def _type_of(cells: Sequence[str]) -> str:
    kinds = {_kind_of(cell.strip()) for cell in cells} - {""}
    if not kinds:
        return "empty"
    if kinds <= {"int", "float"}:
        return "float" if "float" in kinds else "int"
    if kinds <= {"date", "datetime"}:
        return "datetime" if "datetime" in kinds else "date"
    return kinds.pop() if len(kinds) == 1 else "text"


def _kind_of(cell: str) -> str:
    """Guess the type of a cell's text; "" where it is missing."""
    folded = cell.lower()
    if folded in _MISSING:
        return ""
    if folded in ("true", "false"):
        return "bool"
    for kind, parse in (
        ("int", int),
        ("float", float),
        ("date", date.fromisoformat),
        ("datetime", datetime.fromisoformat),
    ):
        try:
            parse(cell)
        except ValueError:
            continue
        return kind
    return "text"


def _oddities(
    names: Sequence[str], rows: Sequence[Sequence[str]], encoding: Encoding
) -> Iterator[str]:
    ragged = sum(len(row) != len(names) for row in rows)
    if ragged:
        yield f"{number_of(ragged, 'row')} with another number of cells."
    if encoding.guessed:
        yield f"Not UTF-8: read as {encoding.name}, a guess."
    elif encoding.name != "utf-8":
        yield f"The file is {encoding.name.upper()}."


# -- Parquet ---------------------------------------------------------------------------------------


def view_parquet(descriptor: int, shown: str) -> TableView:
    """Return the view of an opened Parquet file.

    Args:
        descriptor: the opened file.
        shown: its name for messages.

    Raises:
        RespondToModel: pyarrow is not installed, or the file is damaged.
    """
    if find_spec("pyarrow") is None:
        raise RespondToModel(
            f"{shown} is a Parquet file, and reading it takes pyarrow, which is not installed; "
            "`pip install pyarrow` adds it."
        )
    from pyarrow import ArrowException, parquet  # noqa: PLC0415 - 100 ms, for this alone

    try:
        with os.fdopen(os.dup(descriptor), "rb") as source:
            file = parquet.ParquetFile(source)
            lines = tuple(_parquet_lines(file, shown))
    except (ArrowException, OSError) as error:
        raise RespondToModel(f"{shown} is a damaged Parquet file: {clause(error)}.") from None
    return TableView(shown, lines, "pandas.read_parquet or pyarrow.parquet read the values.")


def _parquet_lines(file: Any, shown: str) -> Iterator[str]:
    metadata, schema = file.metadata, file.schema_arrow
    groups = number_of(metadata.num_row_groups, "row group")
    yield f"{shown}: {metadata.num_rows:,} rows x {len(schema):,} columns in {groups}."
    yield "Columns:"
    for field in list(schema)[:_LISTED_COLUMNS]:
        yield f"  {_one_line(field.name)}: {field.type}{'' if field.nullable else ', never null'}"
    if len(schema) > _LISTED_COLUMNS:
        yield f"  … {len(schema) - _LISTED_COLUMNS:,} more columns"
    if not metadata.num_rows:
        return
    group = next(n for n in itertools.count() if metadata.row_group(n).num_rows)
    if metadata.row_group(group).total_byte_size > _PARQUET_GROUP_BYTES:
        yield "Its first row group is too large to be unpacked for a look."
        return
    names = [field.name for field in schema][:SHOWN_COLUMNS]
    batches = file.iter_batches(SHOWN_ROWS, columns=names, row_groups=[group], use_threads=False)
    columns = [map(_cell_of, column) for column in next(batches).columns]
    yield from _head_lines([field.name for field in schema], [[*row] for row in zip(*columns)])  # noqa: B905 - of one length


def _cell_of(value: Any) -> str:
    """Return a value of pyarrow as text, "" where it is missing."""
    try:
        cell = value.as_py()
    except (ArithmeticError, ValueError):  # a time that Python has no type for
        return "(out of range)"
    return "" if cell is None else str(cell)


# -- both ------------------------------------------------------------------------------------------


def _head_lines(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield column names and first rows as aligned text."""
    if not rows:
        return
    head = rows[:SHOWN_ROWS]
    more = f" and {SHOWN_COLUMNS} columns" if len(names) > SHOWN_COLUMNS else ""
    yield f"The first {number_of(len(head), 'row')}{more}:"
    width = len(names[:SHOWN_COLUMNS])
    table = [names[:width], *([*row[:width], *[""] * (width - len(row))] for row in head)]
    cells = [[_one_line(cell) for cell in row] for row in table]
    widths = [max(map(len, column)) for column in zip(*cells)]  # noqa: B905 - of one length
    for row in cells:
        yield "  " + "  ".join(map(str.ljust, row, widths)).rstrip()


def _one_line(cell: str) -> str:
    """Return a cell's text on one line, shortened."""
    text = " ".join(cell.split()) if not cell.isprintable() else cell
    return brief(text, _CELL_CHARACTERS)
