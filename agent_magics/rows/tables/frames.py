"""Makes tables of the answers: of pandas, polars or pyarrow, or a list of dicts."""

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from agent_magics.engine.results.frames import has_64_bits, series_of
from agent_magics.rows.tables.columns import COST, ERROR, TOKENS, Column, as_text

KINDS = {ERROR: "string", TOKENS: "integer", COST: "number"}


def kinds_of(columns: Sequence[Column]) -> dict[str, str]:
    """Return the kind of each column of a result, by name: the answers', error, tokens, cost."""
    return {**{column.name: column.kind for column in columns}, **KINDS}


def frame_of(
    library: str, columns: Sequence[Column], values: Mapping[str, list[Any]], index: Any = None
) -> Any:
    """Return a table.

    Args:
        library: "pandas", "polars" or "pyarrow"; "" takes the first of them that is installed, and
            without any a list of dicts.
        columns: the columns of the answers; those for errors, tokens and cost follow.
        values: the values of all columns, by name.
        index: the index of the rows, for pandas.
    """
    kinds = kinds_of(columns)
    library = library or next(filter(find_spec, _MAKERS), "")
    if not library:
        rows = zip(*(values[name] for name in kinds), strict=True)
        return [dict(zip(kinds, row, strict=True)) for row in rows]
    return _MAKERS[library](kinds, values, index)


def converted(table: Any, library: str) -> Any:
    """Return a pyarrow table as one of another library; see `frame_of`."""
    library = library or next(filter(find_spec, _MAKERS), "")
    if library == "polars":
        import polars as pl  # noqa: PLC0415 - heavy, and the caller has it

        return pl.from_arrow(table)
    return _nullable(table) if library == "pandas" else table


def joined(tables: Sequence[Any]) -> Any:
    """Return pyarrow tables of the same columns as one."""
    import pyarrow as pa  # noqa: PLC0415 - heavy, and an extra

    return pa.concat_tables(tables)


def _nullable(table: Any) -> Any:
    """Return a pyarrow table as pandas', in which integers stay integers, and lists lists."""
    import pandas as pd  # noqa: PLC0415 - heavy, and the caller has it
    import pyarrow as pa  # noqa: PLC0415

    types = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    frame = table.to_pandas(date_as_object=False)
    for name, column in zip(table.column_names, table.columns, strict=True):
        if column.null_count and column.type in types:
            frame[name] = column.to_pandas(types_mapper=types.get)
        elif pa.types.is_list(column.type):
            frame[name] = pd.Series(column.to_pylist(), dtype="object")
    return frame


def _pandas(kinds: Mapping[str, str], values: Mapping[str, list[Any]], index: Any) -> Any:
    import pandas as pd  # noqa: PLC0415 - heavy, and the caller has it

    series = {name: series_of(kind, values[name]) for name, kind in kinds.items()}
    frame = pd.DataFrame(series, index=pd.RangeIndex(len(values[ERROR])))
    return frame if index is None else frame.set_axis(index)


def _polars(kinds: Mapping[str, str], values: Mapping[str, list[Any]], _: Any) -> Any:
    import polars as pl  # noqa: PLC0415 - heavy, and the caller has it

    types = {
        "string": pl.String,
        "integer": pl.Int64,
        "number": pl.Float64,
        "boolean": pl.Boolean,
        "date": pl.Date,
        "datetime": pl.Datetime,
    }
    of_lists = {f"list of {name}": pl.List(kind) for name, kind in types.items()}
    known = {**types, **of_lists}
    return pl.DataFrame(
        [
            pl.Series(name, _plain(kind, values[name]), known.get(kind, pl.String), strict=False)
            for name, kind in kinds.items()
        ]
    )


def arrow_table(kinds: Mapping[str, str], values: Mapping[str, list[Any]], _: Any = None) -> Any:
    """Return a pyarrow table of columns, given by name and kind."""
    import pyarrow as pa  # noqa: PLC0415 - heavy, and an extra

    types = {
        "string": pa.string(),
        "integer": pa.int64(),
        "number": pa.float64(),
        "boolean": pa.bool_(),
        "date": pa.date32(),
        "datetime": pa.timestamp("us"),
    }
    of_lists = {f"list of {name}": pa.list_(kind) for name, kind in types.items()}
    known = {**types, **of_lists}
    schema = pa.schema([(name, known.get(kind, pa.string())) for name, kind in kinds.items()])
    arrays = [
        pa.array(_plain(kind, values[name]), schema.field(name).type)
        for name, kind in kinds.items()
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _plain(kind: str, values: list[Any]) -> list[Any]:
    """Return values of one type: what may be anything as JSON text, too large numbers as none."""
    if kind == "json":
        return list(map(as_text, values))
    if kind == "integer":
        return list(map(_in_range, values))
    if kind == "list of integer":
        return [each if each is None else list(map(_in_range, each)) for each in values]
    return values


def _in_range(value: int | None) -> int | None:
    return value if value is None or has_64_bits(value) else None


_MAKERS: dict[str, Callable[[Mapping[str, str], Mapping[str, list[Any]], Any], Any]] = {
    "pandas": _pandas,
    "polars": _polars,
    "pyarrow": arrow_table,
}
