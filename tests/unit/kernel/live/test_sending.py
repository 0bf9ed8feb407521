"""What live code passes to a tool arrives as itself or as its text, never as a name of a result."""

import datetime as dt
import decimal
import enum
import json
import uuid
from datetime import date, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics import tool
from agent_magics.dispatch.arguments.decoding import ArgumentBinder
from agent_magics.dispatch.results.stored import HandleStore
from agent_magics.kernel.live.sending import Sender, ToolFailedError
from agent_magics.tools.files.reading import read_file


class Nav(str):
    __slots__ = ()


class City(enum.StrEnum):
    ROME = "rome"


@tool
def look(
    text: str = "",
    either: str | None = None,
    city: Literal["rome"] = "rome",
    of_class: City = City.ROME,
    day: date = date.min,
    at: datetime = datetime.min,
    anything: Any = None,
    names: tuple[str, ...] = (),
    place: Path = Path(),
) -> None: ...


def arrived(parameter: str, value: Any, fn: Any = look) -> Any:
    handles = HandleStore()
    sent = Sender("look", fn, handles).sent(parameter, value)
    text = json.dumps({parameter: sent})
    return ArgumentBinder(fn).bind_json(text, handles.value_of)[1][parameter]


# NumPy ends a text at its last character that is not NUL.
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)
WITH_TEXT = st.one_of(
    TEXTS.map(Nav),
    TEXTS.map(np.str_),
    st.sampled_from(City),
    st.dates(),
    st.datetimes(),
    st.times(),
    st.decimals(),
    st.uuids(),
    st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)).map(pd.Timestamp),
)


@given(WITH_TEXT, st.sampled_from(["text", "either"]))
def test_a_text_parameter_gets_the_text(value, parameter):
    text = arrived(parameter, value)
    assert (type(text), text) == (str, str(value))


@given(st.integers(0, 2**61), st.sampled_from(["D", "s", "us", "ns"]))
def test_dates_of_numpy_are_text(count, unit):
    text = arrived("text", np.array(count, "i8").view(f"M8[{unit}]")[()])
    assert type(text) is str and not text.isdigit() and "@" not in text


@given(WITH_TEXT)
def test_a_parameter_for_anything_gets_the_object(value):
    if type(value) is not np.str_:  # a scalar of NumPy is one of Python
        assert arrived("anything", value) is value


@pytest.mark.parametrize(
    ("parameter", "value", "expected"),
    [
        ("city", City.ROME, "rome"),
        ("of_class", City.ROME, City.ROME),
        ("day", dt.date(2024, 2, 29), dt.date(2024, 2, 29)),
        ("day", np.datetime64("2024-02-29"), dt.date(2024, 2, 29)),
        ("at", np.datetime64("2024-02-29", "ns"), dt.datetime(2024, 2, 29)),
        ("names", [Nav("a")], ("a",)),
        ("place", Path("a"), Path("a")),
        ("place", Nav("a"), Path("a")),
    ],
)
def test_other_parameters_get_what_they_take(parameter, value, expected):
    assert arrived(parameter, value) == expected


@pytest.mark.parametrize(
    "value", [pd.DataFrame(), pd.NaT, b"a", object(), dt.timedelta(1), [object()], {1}]
)
def test_what_is_no_text_is_refused_by_its_type(value):
    name = type(value).__name__
    with pytest.raises(ToolFailedError, match=rf"look: text takes text, and this is a .*{name};"):
        arrived("text", value)


def test_our_own_tools_read_an_object_where_they_take_a_path():
    assert arrived("path", pd.DataFrame(), read_file) == "@r1"


def test_a_server_gets_texts_and_stored_objects():
    handles = HandleStore()

    def served(day: str, table: str) -> None: ...

    sender = Sender("served", served, handles)
    assert sender.sent("day", decimal.Decimal("1.50")) == "1.50"
    assert sender.sent("day", uuid.UUID(int=1)) == str(uuid.UUID(int=1))
    assert sender.sent("table", pd.DataFrame()) == "@r1"
