"""Bytes, arrays and tables come back as they were, or not at all."""

import datetime as dt
from decimal import Decimal
from hashlib import sha256

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.dispatch.results.stored import HandleStore
from agent_magics.dispatch.results.written import read_value, write_value

MOST = 256 * 1024
FRAMES = {
    "numbers": pd.DataFrame({"n": [1, 2], "x": [0.1, float("nan")], "b": [True, False]}),
    "text": pd.DataFrame({"t": ["a", None], "ä\n": ["\x7f", "\0"]}),
    "missing": pd.DataFrame(
        {"i": pd.array([1, None], "Int64"), "s": pd.array(["a", None], "string")}
    ),
    "times": pd.DataFrame({"at": pd.to_datetime(["2026-11-23 10:00:00.123456", None])}),
    "zones": pd.DataFrame(
        {"at": pd.to_datetime(["2026-11-23 10:00"]).tz_localize("Europe/Berlin")}
    ),
    "labels": pd.DataFrame({"n": [1, 2]}, index=pd.Index(["a", "b"], name="key")),
    "steps": pd.DataFrame({"n": [1, 2, 3]}, index=pd.RangeIndex(10, 4, -2)),
    "categories": pd.DataFrame({"c": pd.Categorical(["a", "b", "a"])}),
    "same names": pd.DataFrame([[1, 2]], columns=["a", "a"]),
    "number names": pd.DataFrame([[1, 2]], columns=[3, 4]),
    "empty": pd.DataFrame(),
    "no rows": pd.DataFrame({"a": pd.Series([], dtype="float32")}),
    "no columns": pd.DataFrame(index=["a", "b"]),
    "mixed": pd.DataFrame({"m": [1, "a", (2, 3)]}),
    "two levels": pd.DataFrame([[1]], index=pd.MultiIndex.from_tuples([("a", 1)])),
    "objects": pd.DataFrame({"o": [object()]}),
    "bytes": pd.DataFrame({"o": [b"x"]}),
}
ARRAYS = {
    "numbers": np.array([[0.1, float("nan")], [-0.0, 3]]),
    "no numbers": np.zeros((0, 3), "int8"),
    "one": np.array(7),
    "by columns": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "every second": np.arange(10)[::2],
    "other order of bytes": np.arange(3, dtype=">u4"),
    "complex": np.array([1 + 2j]),
    "times": np.array(["2026-11-23", "NaT"], "datetime64[s]"),
    "truth": np.array([True, False]),
}
NOON, DAY = dt.datetime(2026, 11, 24, 12), dt.date(2026, 11, 24)
ARROW = {
    "values": pa.table({"n": [1, None], "x": [0.1, -0.0], "t": ["ä", None], "b": [True, False]}),
    "widths": pa.table({"a": pa.array([1.1], pa.float32()), "b": pa.array([2**63], pa.uint64())}),
    "times": pa.table({"a": pa.array([1, None], pa.timestamp("ns")), "b": [DAY, None]}),
    "spans": pa.table({"a": pa.array([1], pa.duration("ms")), "b": pa.array([9], pa.time32("s"))}),
    "of pandas": pa.Table.from_pandas(pd.DataFrame({"a": [1]}, index=["x"])),
    "same names": pa.table([[1], [2]], names=["a", "a"]),
    "empty": pa.table({}),
    "no rows": pa.table({"a": pa.array([], pa.int8())}),
    "nothing": pa.table({"a": [None, None]}),
    "in parts": pa.concat_tables([pa.table({"a": [1]}), pa.table({"a": [2]})]),
}
# Made by the test: polars starts threads, which are not there in the workers that are forked.
POLARS = {
    "values": lambda: pl.DataFrame({"n": [1, None], "x": [0.1, -0.0], "t": ["ä", None]}),
    "widths": lambda: pl.DataFrame({"a": [1.1], "b": [1]}, schema={"a": pl.Float32, "b": pl.UInt8}),
    "times": lambda: pl.DataFrame({"a": [NOON, None], "b": [DAY, None], "c": [dt.time(1), None]}),
    "spans": lambda: pl.DataFrame({"a": [dt.timedelta(1), None]}),
    "empty": lambda: pl.DataFrame(),
    "nothing": lambda: pl.DataFrame({"a": [None]}),
}
MANDATORY = pa.schema([pa.field("a", pa.int64(), nullable=False)])
# Whose values are nested, have no end, or are not told whole by the name of their type.
LEFT_OUT = {
    "zones": lambda: pa.table({"a": pa.array([1], pa.timestamp("us", "UTC"))}),
    "decimals": lambda: pa.table({"a": [Decimal("1.5")]}),
    "lists": lambda: pa.table({"a": [[1], []]}),
    "bytes": lambda: pa.table({"a": [b"sk-1234567890"]}),
    "codes": lambda: pa.table({"a": pa.array(["a"]).dictionary_encode()}),
    "never missing": lambda: pa.table(
        [[1]], pa.schema([pa.field("a", pa.int64(), nullable=False)])
    ),
    "categories": lambda: pl.DataFrame({"a": ["a"]}, schema={"a": pl.Categorical}),
    "nested": lambda: pl.DataFrame({"a": [[1]]}),
    "wide": lambda: pl.DataFrame({"a": [1]}, schema={"a": pl.Int128}),
}
KEPT = {"numbers", "missing", "times", "zones", "labels", "steps", "same names", "number names"}


@given(st.binary())
def test_bytes_come_back(data):
    written = write_value(data, MOST)
    assert read_value(*written).get() == data


@pytest.mark.parametrize("name", FRAMES)
def test_a_table_comes_back_as_it_was_or_not_at_all(name):
    frame = FRAMES[name]
    written = write_value(frame, MOST)
    assert written is not None or name not in KEPT
    if written is not None:
        pd.testing.assert_frame_equal(read_value(*written).get(), frame)


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_comes_back_as_it_was(name):
    array, back = ARRAYS[name], read_value(*write_value(ARRAYS[name], MOST)).get()
    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())


@pytest.mark.parametrize("name", ARROW)
def test_a_table_of_pyarrow_comes_back(name):
    back = read_value(*write_value(ARROW[name], MOST)).get()
    assert back.equals(ARROW[name], check_metadata=True)


@pytest.mark.parametrize("name", POLARS)
def test_a_table_of_polars_comes_back(name):
    table = POLARS[name]()
    back = read_value(*write_value(table, MOST)).get()
    assert (back.equals(table), back.schema) == (True, table.schema)


@pytest.mark.parametrize("name", LEFT_OUT)
def test_a_table_that_would_come_back_otherwise_is_not_written(name):
    assert write_value(LEFT_OUT[name](), MOST) is None


def test_what_is_long_or_another_thing_is_not_written():
    class Mine(bytes):
        pass

    others = [b"x" * (MOST + 1), pd.DataFrame({"n": range(MOST)}), {"a": 1}, None, Mine(b"x"), 5]
    others += [np.zeros(MOST), np.array([object()]), np.array(["sk-1234567890"]), np.ma.array([1])]
    assert [write_value(each, MOST) for each in others] == [None] * len(others)


@pytest.mark.parametrize(
    "value",
    [
        b"key sk-1234567890 key",
        pd.DataFrame({"k": ["sk-1234567890"]}),
        pa.table({"k": ["sk-1234567890"]}),
        pl.DataFrame({"k": ["sk-1234567890"]}),
        np.frombuffer(b"sk-1234567890", "u1"),
    ],
)
def test_a_text_from_which_a_key_was_taken_is_not_read_back(value):
    form, text, digest = write_value(value, MOST)
    assert read_value(form, text.replace("sk-1234567890", "[redacted]"), digest) is None
    assert read_value("pickle", text, digest) is None


@pytest.mark.parametrize("form", ["numpy", "pandas", "pyarrow", "polars"])
@pytest.mark.parametrize(
    "text", ["", "[]", '[[["a", "x", []]], []]', "\x93NUMPY\1\0\x46\0{'shape': (99999999999999,)"]
)
def test_what_somebody_else_wrote_is_no_value(form, text):
    assert read_value(form, text, sha256(text.encode()).hexdigest()).get() is None


def test_a_restored_value_is_the_value_in_tools_and_in_files():
    store = HandleStore()
    store.restore("@r1", read_value(*write_value(b"\xff\0", MOST)), "bytes, 2")
    store.restore("@r2", read_value(*write_value(FRAMES["numbers"], MOST)), "DataFrame")
    store.restore("@r3", None, "DataFrame")
    assert store.value_of("@r1") == b"\xff\0"
    pd.testing.assert_frame_equal(store.value_of("@r2"), FRAMES["numbers"])
    assert "0.1" in store.path_of("@r2").read_text()
    assert dict(store.gone) == {"@r3": "DataFrame"}
    store.close()
