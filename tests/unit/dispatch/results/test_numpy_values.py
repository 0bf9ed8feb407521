"""Dates and durations of NumPy are such of Python, or text: never the number that NumPy counts."""

import json
from datetime import datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.dispatch.results.json_text import json_text, whole_text
from agent_magics.dispatch.results.numpy_values import python_value

UNITS = st.sampled_from(["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps"])
TIMES = st.builds(
    lambda kind, count, unit: np.array(count, "i8").view(f"{kind}8[{unit}]")[()],
    st.sampled_from("mM"),
    st.integers(-(2**62), 2**62),
    UNITS,
)


@given(TIMES)
def test_the_model_reads_no_number_for_a_time(time):
    assert type(json.loads(json_text([time]))[0]) is str
    assert type(json.loads(whole_text([time]))[0]) is str


@given(TIMES)
def test_an_array_is_its_values(time):
    assert python_value(np.array([[time]])) == [[python_value(time)]]
    assert python_value(np.array(time)) == python_value(time)


@given(st.datetimes() | st.timedeltas())
def test_what_python_can_hold_is_the_same_in_nanoseconds(time):
    within = abs(time - datetime(1970, 1, 1) if isinstance(time, datetime) else time)
    if within < timedelta(days=100_000):
        kind = "M" if isinstance(time, datetime) else "m"
        assert python_value(np.array(time, f"{kind}8[us]").astype(f"{kind}8[ns]")) == time


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.datetime64("2024-01-01", "ns"), '"2024-01-01T00:00:00"'),
        (np.datetime64(1, "ns"), '"1970-01-01T00:00:00.000000001"'),
        (np.timedelta64(5, "ns"), '"5 nanoseconds"'),
        (np.timedelta64(2, "M"), '"2 months"'),
        (np.datetime64("NaT", "ns"), "null"),
        (np.int64(3), "3"),
        (np.array([1.5]), "[1.5]"),
    ],
)
def test_how_values_are_written(value, text):
    assert json_text({"a": value}) == f'{{"a":{text}}}'
