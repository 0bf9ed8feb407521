"""Frames as answers: columns with types, rows of values, dtypes that make sense."""

import json

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent_magics.engine.results.frames import is_frame_type
from agent_magics.engine.results.structured import OutputType
from agent_magics.protocol.errors import RespondToModel

TYPES = ["string", "integer", "number", "boolean", "date", "datetime"]
FULL = ["a", 1, 1, True, "2024-03-01", "2024-03-01T12:00:00"]


def answer(rows, types=TYPES, names=None):
    names = names or [kind[:4] + str(number) for number, kind in enumerate(types)]
    columns = [{"name": name, "type": kind} for name, kind in zip(names, types, strict=True)]
    return json.dumps({"columns": columns, "rows": rows})


def read(*arguments, **options):
    return OutputType(pd.DataFrame).read(answer(*arguments, **options))


def kinds(frame):
    return [str(dtype).partition("[")[0] for dtype in frame.dtypes][1:]


def test_each_column_has_the_dtype_of_its_type():
    frame = read([FULL, FULL])
    assert kinds(frame) == ["int64", "float64", "bool", "datetime64", "datetime64"]
    assert pd.api.types.is_string_dtype(frame.iloc[:, 0])
    assert frame.iloc[1, 0] == "a"
    assert frame.iloc[1, 4] == pd.Timestamp("2024-03-01")
    assert list(frame.index) == [0, 1]


def test_missing_values_keep_the_type():
    frame = read([FULL, [None] * 6])
    assert kinds(frame) == ["Int64", "float64", "boolean", "datetime64", "datetime64"]
    assert frame.iloc[1].isna().all()
    assert frame.iloc[0, 1] == 1


def test_no_rows_and_no_columns():
    frame = read([])
    assert frame.shape == (0, 6)
    assert kinds(frame)[:3] == ["int64", "float64", "bool"]
    assert read([], types=[]).shape == (0, 0)


def test_a_whole_number_may_be_written_with_a_point():
    assert read([[1.0]], types=["integer"]).iloc[0, 0] == 1


@pytest.mark.parametrize("digits", [20, 300, 308, 309, 400, 4000, 5000])
@pytest.mark.parametrize("kind", TYPES)
def test_an_integer_of_any_length_is_read_or_named(kind, digits):
    text = answer([[0]], types=[kind], names=["col"]).replace("[0]", f"[1{'0' * digits}]")
    try:
        frame = OutputType(pd.DataFrame).read(text)
    except RespondToModel as refusal:
        assert len(str(refusal)) < 200  # noqa: PT017 - or it is read
    else:
        assert frame.iloc[0, 0] == (float(f"1e{digits}") if kind == "number" else 10**digits)
        assert kind == "integer" or (kind == "number" and digits <= 308)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("integer", 1.5, "an integer"),
        ("integer", True, "an integer"),
        ("number", "1", "a number"),
        ("boolean", 1, "true or false"),
        ("string", 1, "a string"),
        ("date", "soon", "a date such as"),
        ("date", 20240301, "a date such as"),
        ("datetime", "2024-13-01", "a date and time such as"),
        *(("date", word, "a date such as") for word in ("now", "today", "NaT", "nan", "", " ")),
        *(("datetime", word, "a date and time such as") for word in ("now", "today", "-2024")),
    ],
)
def test_a_value_that_is_not_of_its_columns_type_is_named(kind, value, expected):
    with pytest.raises(RespondToModel) as refusal:
        read([[None], [value]], types=[kind], names=["col"])
    assert str(refusal.value) == (
        f"rows[1][0] (col): expected {refusal.value.args[0].partition('expected ')[2]}"
    )
    assert f"expected {expected}" in str(refusal.value)


ZONES = st.sampled_from(["", "Z", "+14:00", "-12:00"])
TIMES = st.builds(
    "{}{}{}".format, st.datetimes().map(str), st.sampled_from(["", "9", "999"]), ZONES
)


@settings(deadline=None)
@given(st.lists(TIMES | st.dates().map(str), min_size=1, max_size=4))
@example(["0001-01-01", "2024-01-01T00:00:00.123456789"])
@example(["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"])
def test_times_are_read_or_named(times):
    """A column of nanoseconds holds 584 years, and zones that differ are told in UTC."""
    try:
        frame = read([[time] for time in times], types=["datetime"], names=["col"])
    except RespondToModel as refusal:
        lines = str(refusal).splitlines()
        assert all(len(line) < 200 for line in lines)
        assert "(col): expected" in str(refusal)  # noqa: PT017 - or they are read
    else:
        assert kinds(frame.assign(**{"and": frame["col"]})) == ["datetime64"]
        assert not frame["col"].isna().any()


def test_what_one_column_cannot_hold_is_told():
    with pytest.raises(RespondToModel) as refusal:
        read([["0001-01-01"], ["2024-01-01T00:00:00.000000001"]], types=["datetime"], names=["col"])
    assert str(refusal.value) == (
        "columns[0] (col): expected times that fit into one column, "
        "got Out of bounds nanosecond timestamp: 0001-01-01"
    )


def test_all_problems_are_told_at_once():
    with pytest.raises(RespondToModel) as refusal:
        read([["a"], [1, 2], [1]], types=["integer"], names=["n"])
    assert str(refusal.value).splitlines() == ["rows[1]: expected 1 values, got 2"]
    with pytest.raises(RespondToModel) as refusal:
        read([["a", 1], [1, "b"]], types=["integer", "integer"], names=["n", "m"])
    assert len(str(refusal.value).splitlines()) == 2


def test_many_problems_are_cut():
    with pytest.raises(RespondToModel) as refusal:
        read([["a"]] * 1000, types=["integer"], names=["n"])
    lines = str(refusal.value).splitlines()
    assert len(lines) == 31
    assert lines[-1] == "… and 970 more problems"


def test_two_columns_of_one_name_are_refused():
    with pytest.raises(RespondToModel, match=r"columns\[1\].name: .* got 'n' again"):
        read([[1, 2]], types=["integer", "integer"], names=["n", "n"])


def test_only_pandas_frame_is_one():
    class DataFrame:
        pass

    assert is_frame_type(pd.DataFrame)
    assert not is_frame_type(DataFrame)
    assert not is_frame_type(pd.Series)
    assert not is_frame_type(pd.DataFrame())
