"""Writes bytes, arrays and tables as text, and reads them back for conversations that are resumed.

Law: what is read back equals what was written; what cannot be is not written.
"""

import io
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from typing import Any, NamedTuple

from agent_magics.dispatch.results.sources import Value
from agent_magics.dispatch.results.values import estimate_size, made_by

BYTES = "bytes"
# Of arrays: truth values, integers, floats, complex numbers, spans and times. In texts of fixed
# width a key could stand unseen.
_NUMBERS = frozenset("biufcmM")


class Written(NamedTuple):
    """A value as text.

    Attributes:
        form: `BYTES`, or the library that it is of.
        text: a character for each byte, of an array in NumPy's format; of a table JSON.
        digest: of the text: one from which a key was taken since is not read back.
    """

    form: str
    text: str
    digest: str


def write_value(value: Any, most: int) -> Written | None:
    """Return a value as text; None where it is of another kind, or takes more than `most` bytes."""
    if type(value) is bytes and len(value) <= most:
        return _written(BYTES, value.decode("latin-1"))
    library, _ = known = made_by(type(value))
    if known not in _WRITERS or estimate_size(value) > most:
        return None
    try:
        text = _WRITERS[known](value)
    except Exception:  # of the library, for what cannot be written or comes back otherwise
        return None
    return _written(library, text) if len(text) <= most else None


def read_value(form: str, text: str, digest: str) -> Value | None:
    """Return a value that was written, read at its first use; None where it cannot be read back."""
    reader = _READERS.get(form)
    if reader is None or _digest(text) != digest or (form != BYTES and not find_spec(form)):
        return None

    @cache
    def read() -> Any:
        try:
            return reader(text)
        except Exception:  # whoever changed the record may have written anything
            return None

    return Value.read_later(read, len(text))


def _written(form: str, text: str) -> Written:
    return Written(form, text, _digest(text))


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# -- arrays ----------------------------------------------------------------------------------------


def _write_array(array: Any) -> str:
    """Return an array in NumPy's own format; raise a ValueError for one of objects or texts."""
    import numpy as np  # noqa: PLC0415 - heavy; the caller has it

    if type(array) is not np.ndarray or array.dtype.kind not in _NUMBERS:
        raise ValueError(f"an array of {array.dtype}")
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue().decode("latin-1")


def _read_array(text: str) -> Any:
    import numpy as np  # noqa: PLC0415 - heavy, and the value is one of NumPy

    return np.load(io.BytesIO(text.encode("latin-1")), allow_pickle=False)


# -- tables of pandas ------------------------------------------------------------------------------


def _write_frame(frame: Any) -> str:
    """Return a table as JSON; raise an error of any class where it would not be read back equal."""
    from pandas.testing import assert_frame_equal  # noqa: PLC0415 - heavy; the caller has pandas

    columns = [_write_series(frame.iloc[:, place]) for place in range(frame.shape[1])]
    text = json.dumps([columns, *map(_write_index, (frame.columns, frame.index))])
    assert_frame_equal(_read_frame(text), frame, check_exact=True, check_freq=False)
    return text


def _write_series(series: Any) -> tuple[str, list[Any]]:
    kind = str(series.dtype)
    if kind.startswith("datetime64"):
        return kind, series.astype(str).tolist()
    values = series.astype(object)
    return kind, values.where(series.notna(), None).tolist()


def _write_index(index: Any) -> tuple[str, list[Any], Any]:
    if type(index).__name__ == "RangeIndex":
        return "", [index.start, index.stop, index.step], index.name
    return (*_write_series(index.to_series()), index.name)


def _read_frame(text: str) -> Any:
    import pandas as pd  # noqa: PLC0415 - heavy, and the value is one of pandas

    columns, names, index = json.loads(text)
    index = _read_index(index)
    read = [pd.Series(values, index, kind) for kind, values in columns]
    frame = pd.concat(read, axis=1) if read else pd.DataFrame(index=index)
    frame.columns = _read_index(names)
    return frame


def _read_index(written: Sequence[Any]) -> Any:
    import pandas as pd  # noqa: PLC0415 - see `_read_frame`

    kind, labels, name = written
    if not kind:
        return pd.RangeIndex(*labels, name=name)
    return pd.Index(labels, dtype=kind, name=name)


# -- tables of pyarrow and polars ------------------------------------------------------------------


def _write_arrow(table: Any) -> str:
    """Return a table of flat columns as JSON; raise an error of any class for others.

    Not in Arrow's own format: there texts follow each other without an end, so that a key could
    stand unseen.
    """
    columns = [
        (field.name, str(field.type), column.cast(_plain(field.type)).to_pylist())
        for field, column in zip(table.schema, table.columns, strict=True)
    ]
    metadata = [[word.decode() for word in each] for each in (table.schema.metadata or {}).items()]
    text = json.dumps([columns, metadata])
    back = _read_arrow(text)
    if not back.schema.equals(table.schema, check_metadata=True) or len(back) != len(table):
        raise ValueError("the columns are of other types")
    return text


def _plain(kind: Any) -> Any:
    """Return the type as which the values of an Arrow type are written: of times, numbers."""
    import pyarrow as pa  # noqa: PLC0415 - heavy; the caller has it

    if not pa.types.is_temporal(kind):
        return kind
    return pa.int32() if kind.bit_width == 32 else pa.int64()


def _read_arrow(text: str) -> Any:
    import pyarrow as pa  # noqa: PLC0415 - heavy, and the value is one of pyarrow

    columns, metadata = json.loads(text)
    kinds = [pa.type_for_alias(kind) for _, kind, _ in columns]
    read = [
        pa.array(values, _plain(kind)).cast(kind)
        for kind, (_, _, values) in zip(kinds, columns, strict=True)
    ]
    names = [name for name, _, _ in columns]
    schema = pa.schema(zip(names, kinds, strict=True), dict(metadata) or None)
    return pa.table(read, schema)


def _write_polars(frame: Any) -> str:
    text = _write_arrow(frame.to_arrow())
    if _read_polars(text).schema != frame.schema:
        raise ValueError("the columns are of other types")
    return text


def _read_polars(text: str) -> Any:
    import polars as pl  # noqa: PLC0415 - heavy, and the value is one of polars

    return pl.from_arrow(_read_arrow(text))


_WRITERS: Mapping[tuple[str, str], Callable[[Any], str]] = {
    ("numpy", "ndarray"): _write_array,
    ("pandas", "DataFrame"): _write_frame,
    ("pyarrow", "Table"): _write_arrow,
    ("polars", "DataFrame"): _write_polars,
}
_READERS: Mapping[str, Callable[[str], Any]] = {
    BYTES: lambda text: text.encode("latin-1"),
    "numpy": _read_array,
    "pandas": _read_frame,
    "pyarrow": _read_arrow,
    "polars": _read_polars,
}
