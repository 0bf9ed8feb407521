"""Any Python value comes out as something a model can read, within its budget."""

import datetime
import enum
import json
import re
import uuid
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from agent_magics.dispatch.results import output
from agent_magics.dispatch.results.output import to_tool_output
from agent_magics.dispatch.results.values import safe_repr, type_name
from agent_magics.protocol.items import InputImage, InputText
from agent_magics.protocol.tools import ToolOutput

BUDGET = 10_000
MARKER = re.compile(r"\n?… (\d+) characters left out …\n")


class Color(enum.Enum):
    RED = "red"


class Mode(enum.StrEnum):
    READ = "read"


@dataclass
class Row:
    name: str
    price: float = 1.0


class Point(NamedTuple):
    x: int
    y: int


class Person(BaseModel):
    name: str
    born: datetime.date


class Hostile:
    def __repr__(self):
        raise ValueError("no")

    __str__ = __repr__


class Speaking:
    def to_output(self, budget: int) -> ToolOutput:
        return ToolOutput("x" * 1_500, success=False, details={"a": 1})


def read(value: Any, budget: int = BUDGET) -> str:
    content = to_tool_output(value, budget).content
    assert isinstance(content, str)
    return content


# -- text and JSON -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\n", "as it is\n"),
        ("", ""),
        (None, "Done; the tool returned None."),
        (5, "5"),
        (True, "true"),
        (2.5, "2.5"),
        (float("nan"), "NaN"),
        (10**30, "1" + "0" * 30),
        ({"a": 1, "b": [True, None]}, '{"a":1,"b":[true,null]}'),
        ([1, "é"], '[1,"é"]'),
        ((1, 2), "[1,2]"),
        ({1}, "[1]"),
        ({}, "{}"),
        ([], "[]"),
        ({1: "a", (1, 2): "b", None: 0}, '{"1":"a","1,2":"b","None":0}'),
        (Row("a"), '{"name":"a","price":1.0}'),
        ([Row("a")], '[{"name":"a","price":1.0}]'),
        (Point(1, 2), "[1,2]"),
        (Person(name="a", born=datetime.date(2000, 1, 2)), '{"name":"a","born":"2000-01-02"}'),
        (Color.RED, "red"),
        (Mode.READ, "read"),
        ({"a": Color.RED}, '{"a":"red"}'),
        (datetime.datetime(2024, 3, 1), "2024-03-01T00:00:00"),
        (datetime.timedelta(hours=1), "PT1H"),
        (Path("a/b"), "a/b"),
        ([Path("a/b")], '["a/b"]'),
        (Decimal("0.10"), "0.10"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (range(3), "range(0, 3)"),
        (int, "<class 'int'>"),
        (ValueError("bad"), "ValueError('bad')"),
        (1 + 2j, "1+2j"),
        ({"a": 1}.keys(), "dict_keys(['a'])"),
        (np.int64(3), "3"),
        (np.float32(0.5), "0.5"),
        (np.bool_(True), "true"),
        (np.datetime64("2024-03-01"), "2024-03-01"),
        ({"a": np.int64(3), "b": np.arange(3)}, '{"a":3,"b":[0,1,2]}'),
        (pd.Timestamp("2024-03-01"), "2024-03-01T00:00:00"),
        ({"a": pd.NA}, '{"a":"<NA>"}'),
        ({"a": b"text"}, '{"a":"text"}'),
        ({"a": b"\xff"}, '{"a":"_w=="}'),
    ],
    ids=str,
)
def test_value_as_text(value, text):
    read_by_model = to_tool_output(value, BUDGET)
    assert read_by_model.content == text
    assert read_by_model.success


@pytest.mark.parametrize(
    "value",
    [
        range(3_000_000),
        list(range(3_000_000)),
        list(range(1_000)),
        set(range(4_000)),
        {f"key {n}": n for n in range(1_000)},
        [{"id": n, "tags": ["a", "b"]} for n in range(300)],
        [[[n] * 9] * 9 for n in range(99)],
        [Row(f"row {n}") for n in range(500)],
        bytes(20_000),
        np.arange(100_000.0),
        pd.DataFrame({"a": range(9_000), "b": "text"}),
        pd.Series(range(9_000)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_object_takes_400_tokens_at_most(value):
    for made in (to_tool_output(value, BUDGET), output.small_output(value, BUDGET)):
        assert made is None or len(made.text) <= 1_600


def test_the_value_itself_is_kept():
    value = {"a": [1]}
    assert to_tool_output(value, BUDGET).value is value
    frame = pd.DataFrame({"a": [1]})
    assert to_tool_output(frame, 1).value is frame


def test_hostile_values_are_named():
    assert read(Hostile()) == "<test_output.Hostile, whose repr raised ValueError>".replace(
        "test_output", Hostile.__module__.partition(".")[0]
    )
    assert read({"a": Hostile()}).startswith('{"a":"<')
    assert "whose repr raised ValueError" in read([Hostile()])
    assert "whose repr raised ValueError" in safe_repr(Hostile())


def test_raising_property_of_a_model_is_no_error():
    class Broken(BaseModel):
        def __getattribute__(self, name: str) -> Any:
            if name == "__dict__":
                raise RuntimeError("no")
            return super().__getattribute__(name)

        def __repr__(self) -> str:
            return "a broken one"

    assert read(Broken()) in ("a broken one", "{}")


def test_circular_list_is_shown():
    circular: list[Any] = [1]
    circular.append(circular)
    assert "[1, <the list itself>]" in read(circular)


def test_half_characters_are_escaped():
    assert read("a\udcff") == "a\\udcff"
    assert read({"a": "\ud800"}).encode("utf-8")


def test_bytes_tell_size_and_kind():
    assert read(b"\x89PNG\r\n") == (
        "bytes: 6 of them, starting 89 50 4e 47 0d 0a (a PNG image). "
        "To look inside, decode them or write them to a file."
    )
    assert read(bytearray(1000)).startswith("bytes: 1000 of them, starting 00 00")
    assert read(b"") == "bytes: none (empty)"


def test_type_names():
    assert type_name(5) == "int"
    assert type_name(pd.DataFrame()) == "pandas.DataFrame"


# -- outputs that speak for themselves -----------------------------------------------------------


def test_tool_output_passes_and_is_cut():
    small = ToolOutput("a", success=False, details={"a": 1}, value=3)
    assert to_tool_output(small, 10) is small
    cut = to_tool_output(ToolOutput("a" * 20, success=False, details={"a": 1}, value=3), 10)
    assert cut.content == "aaaaa\n… 10 characters left out …\naaaaa"
    assert (cut.success, cut.details, cut.value) == (False, {"a": 1}, 3)


def test_object_with_to_output_decides_and_is_cut():
    spoken = to_tool_output(Speaking(), 10)
    assert spoken.content == "x" * 500 + "\n… 500 characters left out …\n" + "x" * 500
    assert (spoken.success, spoken.details) == (False, {"a": 1})


def test_content_parts_pass():
    parts = [InputText("a"), InputImage("data:image/png;base64,AA==")]
    assert to_tool_output(parts, BUDGET).content == tuple(parts)
    assert to_tool_output(tuple(parts), BUDGET).content == tuple(parts)
    assert to_tool_output(parts[1], BUDGET).content == (parts[1],)


def test_texts_among_parts_share_the_budget():
    image = InputImage("data:image/png;base64,AA==")
    content = to_tool_output([InputText("a" * 8), image, InputText("b" * 8)], 10).content
    assert content[0] == InputText("a" * 8)
    assert content[1] == image
    assert content[2] == InputText("b\n… 6 characters left out …\nb")


# -- the budget ------------------------------------------------------------------------------------


@settings(deadline=None)  # the machine may be busy
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.integers(0, 50),
)
def test_any_json_value_is_told_within_the_budget(value, budget):
    text = read(value, budget)
    if value is not None and not isinstance(value, str):
        assert len(MARKER.sub("", text)) <= budget
    text.encode("utf-8")


@settings(deadline=None)  # the machine may be busy
@given(st.lists(st.integers() | st.text(st.characters(codec="utf-8"))))
def test_json_comes_back(value):
    assert json.loads(read(value, 10**9)) == value
