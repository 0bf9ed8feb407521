"""Converts between pandas DataFrames and the rows of plain values that a model returns."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from agent_magics.protocol.errors import RespondToModel, short_message
from agent_magics.text.brief import brief

ColumnType = Literal["string", "integer", "number", "boolean", "date", "datetime"]

_SHOWN_PROBLEMS = 30
_LONGEST = 80  # characters of a value that does not fit


def is_frame_type(kind: object) -> bool:
    """Return whether `kind` is pandas' DataFrame; pandas is not imported for that."""
    module = getattr(kind, "__module__", "") or ""
    return (
        isinstance(kind, type)
        and kind.__name__ == "DataFrame"
        and module.partition(".")[0] == "pandas"
    )


@dataclass
class ResultColumn:
    """One column of the table.

    Attributes:
        name: the column's name.
        type: the type of all its values; a missing value is null in the rows.
    """

    name: str
    type: ColumnType


@dataclass
class Table:
    """A table.

    Attributes:
        columns: the columns, in order.
        rows: the rows; each has one value for each column, in their order. Dates are ISO 8601.
    """

    columns: list[ResultColumn]
    rows: list[list[str | int | float | bool | None]]


class FrameForm:
    """The table type that a model is asked for in place of a DataFrame, and its conversion."""

    kind = Table

    def build(self, table: Table) -> Any:
        """Convert a table to a DataFrame, each column with the dtype of its type.

        Integers become ``int64``, or ``Int64`` where values are missing (objects where one has more
        than 64 bits); booleans likewise ``bool`` or ``boolean``; numbers ``float64``; dates and
        datetimes ``datetime64`` (in UTC where their zones differ); text pandas' default.

        Raises:
            RespondToModel: rows are of the wrong length, or values are not of their column's type.
        """
        import pandas as pd  # noqa: PLC0415 - heavy, and the caller has it

        problems = [
            f"rows[{number}]: expected {len(table.columns)} values, got {len(row)}"
            for number, row in enumerate(table.rows)
            if len(row) != len(table.columns)
        ]
        names = [column.name for column in table.columns]
        problems += [
            f"columns[{number}].name: expected names that differ, got {name!r} again"
            for number, name in enumerate(names)
            if name in names[:number]
        ]
        if problems:
            raise RespondToModel(_listed(problems))
        series = {}
        for number, column in enumerate(table.columns):
            values = [row[number] for row in table.rows]
            problems += _type_errors(values, number, column)
            if problems:
                continue
            try:
                series[column.name] = series_of(column.type, values)
            except ValueError as error:  # of times: years far apart, beside nanoseconds
                problems.append(
                    f"columns[{number}] ({column.name}): expected times that fit into one column, "
                    f"got {short_message(error).partition('. ')[0]}"
                )
        if problems:
            raise RespondToModel(_listed(problems))
        return pd.DataFrame(series, index=pd.RangeIndex(len(table.rows)))


def _listed(problems: list[str]) -> str:
    more = len(problems) - _SHOWN_PROBLEMS
    shown = problems[:_SHOWN_PROBLEMS]
    return "\n".join([*shown, f"… and {more} more problems"] if more > 0 else shown)


_WORDS = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "date": "a date such as 2024-03-31",
    "datetime": "a date and time such as 2024-03-31T12:00:00",
}


def _type_errors(values: list[Any], number: int, column: ResultColumn) -> list[str]:
    """Return a line for each value that is not of its column's type."""
    fits, expected = _FITS[column.type], _WORDS[column.type]
    return [
        f"rows[{row}][{number}] ({column.name}): expected {expected}, got {_shown(value)}"
        for row, value in enumerate(values)
        if value is not None and not fits(value)
    ]


def _shown(value: object) -> str:
    return "an integer too large for float64" if _is_beyond(value) else brief(repr(value), _LONGEST)


def _is_beyond(value: object) -> bool:
    """Tell whether a value is an integer that no float can be: JSON's numbers have no bound."""
    return isinstance(value, int) and abs(value) > sys.float_info.max


def _is_whole(value: object) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    return _is_number(value)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_date(value: object) -> bool:
    import pandas as pd  # noqa: PLC0415 - heavy, and the caller has it

    if not isinstance(value, str) or not value.lstrip()[:1].isdigit():  # such as "now"
        return False
    try:
        return pd.to_datetime(value, format="ISO8601") is not pd.NaT
    except ValueError:
        return False


_FITS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": _is_whole,
    "number": lambda value: _is_number(value) and not _is_beyond(value),
    "boolean": lambda value: isinstance(value, bool),
    "date": _is_date,
    "datetime": _is_date,
}


def has_64_bits(value: int) -> bool:
    """Tell whether a column of 64-bit integers can hold a whole number."""
    return -(1 << 63) <= value < 1 << 63


def _integers(pd: Any, values: list[Any]) -> Any:
    whole = [None if value is None else int(value) for value in values]
    # JSON's numbers have no bound, and pandas would make others of those that it cannot hold.
    if not all(value is None or has_64_bits(value) for value in whole):
        return _objects(pd, whole)
    return pd.array(whole, dtype="Int64" if None in whole else "int64")


def _booleans(pd: Any, values: list[Any]) -> Any:
    return pd.array(values, dtype="boolean" if None in values else "bool")


def _times(pd: Any, values: list[Any]) -> Any:
    given = pd.Series(values, dtype="object")
    try:
        return pd.to_datetime(given, format="ISO8601")
    except ValueError:  # their zones differ, or not all have one
        return pd.to_datetime(given, format="ISO8601", utc=True)


def series_of(kind: str, values: list[Any]) -> Any:
    """Return values as pandas holds a column of that kind (`ColumnType`, or else of objects)."""
    import pandas as pd  # noqa: PLC0415 - heavy, and the caller has it

    return _MAKERS.get(kind, _objects)(pd, values)


def _objects(pd: Any, values: list[Any]) -> Any:
    return pd.Series(values, dtype="object")


_MAKERS: dict[str, Callable[[Any, list[Any]], Any]] = {
    "string": lambda pd, values: pd.Series(values, dtype="str"),
    "integer": _integers,
    "number": lambda pd, values: pd.array(values, dtype="float64"),
    "boolean": _booleans,
    "date": _times,
    "datetime": _times,
}
