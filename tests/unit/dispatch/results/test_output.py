"""Any Python value comes out as something a model can read, within its budget."""

import base64
import datetime
import enum
import io
import json
import re
import subprocess
import sys
import uuid
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from PIL import Image
from pydantic import BaseModel

from agent_magics.dispatch.results import output
from agent_magics.dispatch.results.output import cut_text, to_tool_output
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
        return ToolOutput("x" * (budget + 5), success=False, details={"a": 1})


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
    assert spoken.content == "xxxxx\n… 5 characters left out …\nxxxxx"
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


# -- what the libraries of data people return ------------------------------------------------------


def test_small_frame():
    frame = pd.DataFrame({"city": ["Oslo", "Rome"], "sales": [1, 22]})
    assert read(frame) == (
        f"DataFrame, 2 rows x 2 columns\ndtypes: city {frame.dtypes['city']}, sales int64\n"
        "   city  sales\n0  Oslo      1\n1  Rome     22"
    )


def test_large_frame_is_a_small_table():
    frame = pd.DataFrame({f"c{number}": ["w" * 500] * 1000 for number in range(30)})
    lines = read(frame, 100_000).split("\n")
    assert lines[0] == "DataFrame, 1000 rows x 30 columns"
    assert lines[1].startswith("dtypes: c0 ")
    assert lines[1].endswith(", … 26 more")
    assert len(lines) == 2 + 1 + 4 + 1
    assert len({len(line) for line in lines[2:]}) == 1
    assert len(lines[2]) < 21 * 45


def test_empty_frame_and_frame_with_equal_column_names():
    assert read(pd.DataFrame()).startswith("DataFrame, 0 rows x 0 columns")
    twice = pd.DataFrame([[1, 2.5]], columns=["a", "a"])
    assert "dtypes: a int64, a float64" in read(twice)


def test_subclass_of_frame_is_a_frame():
    class Mine(pd.DataFrame):
        pass

    assert read(Mine({"a": [1]})).startswith("DataFrame, 1 rows x 1 columns")


def test_series():
    assert read(pd.Series([1.5, 2.5], name="a")) == (
        "Series 'a', 2 values, dtype float64\n0    1.5\n1    2.5"
    )
    assert len(read(pd.Series(range(1000))).split("\n")) == 22


def test_arrays():
    assert read(np.arange(3)) == "ndarray, shape (3,), dtype int64\n[0 1 2]"
    text = read(np.zeros((1000, 1000)))
    assert text.startswith("ndarray, shape (1000, 1000), dtype float64\n[[0. 0.")
    assert len(text) < 1500


def test_array_of_hostile_objects_is_named():
    assert read(np.array([Hostile()], dtype=object)) == (
        "A numpy.ndarray that cannot be shown: ValueError."
    )


def test_frame_inside_a_dict_is_its_table():
    text = json.loads(read({"head": pd.DataFrame({"a": [1]})}))["head"]
    assert text == "DataFrame, 1 rows x 1 columns\ndtypes: a int64\n   a\n0  1"


def test_frame_beside_text():
    assert read((pd.DataFrame({"a": [1]}), "words")).endswith("0  1\n\nwords")


def picture_of(part: InputImage) -> Any:
    head, _, data = part.image_url.partition(",")
    assert head == "data:image/png;base64"
    return Image.open(io.BytesIO(base64.b64decode(data)))


def test_figure_is_words_and_a_picture():
    figure = Figure(figsize=(4, 3), dpi=100)
    axes = figure.add_subplot()
    axes.set_title("Sales")
    axes.set_xlabel("month")
    words, image = to_tool_output(figure, BUDGET).content
    assert words == InputText("Figure, 400 x 300 pixels; axes 1: title 'Sales', x 'month'")
    assert picture_of(image).size == (400, 300)


def test_figure_with_its_axes_is_shown_once():
    figure = Figure(figsize=(1, 1))
    axes = figure.add_subplot()
    content = to_tool_output((figure, axes), BUDGET).content
    assert [type(part) for part in content] == [InputText, InputImage]
    assert to_tool_output(axes, BUDGET).content == content


def test_huge_figure_is_limited():
    words, image = to_tool_output(Figure(figsize=(100, 10), dpi=100), BUDGET).content
    assert words.text.startswith("Figure, 2048 x 205 pixels")
    assert max(picture_of(image).size) <= 2048


def test_figure_that_cannot_be_drawn_is_named():
    figure = Figure()
    figure.add_subplot().set_title("$\\nonsense{$")
    assert read(figure) == "A matplotlib.Figure that cannot be shown: ValueError."


def test_figures_of_pyplot_stay_open():
    figure, _ = plt.subplots()
    try:
        to_tool_output(figure, BUDGET)
        assert plt.fignum_exists(figure.number)
    finally:
        plt.close(figure)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "CMYK", "F", "I;16"])
def test_pictures(mode):
    words, image = to_tool_output(Image.new(mode, (6, 4)), BUDGET).content
    assert words == InputText(f"Image, 6 x 4 pixels, mode {mode}")
    assert picture_of(image).size == (6, 4)


def test_large_picture_is_made_smaller_and_the_original_stays():
    original = Image.new("RGB", (4096, 16))
    words, image = to_tool_output(original, BUDGET).content
    assert words == InputText("Image, 4096 x 16 pixels, mode RGB, shown at 2048 x 8")
    assert picture_of(image).size == (2048, 8)
    assert original.size == (4096, 16)


def run_fresh(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter that finds this package."""
    root = Path(output.__file__).parents[3]
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=root
    )


def test_no_library_is_imported():
    code = (
        "import sys\nfrom agent_magics.dispatch.results.output import to_tool_output\n"
        "class Own: pass\nto_tool_output({'a': Own()}, 99); to_tool_output(Own(), 99)\n"
        "print({'numpy', 'pandas', 'matplotlib', 'PIL', 'pydantic'} & set(sys.modules))\n"
    )
    done = run_fresh(code)
    assert (done.stdout, done.stderr) == ("set()\n", "")


# -- the budget ------------------------------------------------------------------------------------


def test_cut_falls_on_line_ends():
    text = "".join(f"line {number:04}\n" for number in range(1000))
    cut, omitted = cut_text(text, 200)
    head, tail = cut.split(f"… {omitted} characters left out …\n")
    assert text.startswith(head)
    assert head.endswith("\n")
    assert text.endswith(tail)
    assert tail.startswith("line ")
    assert omitted == len(text) - len(head) - len(tail)


def test_text_that_fits_is_not_touched():
    assert cut_text("abc", 3) == ("abc", 0)
    assert cut_text("", 0) == ("", 0)


TEXTS = st.text(alphabet="ab\n", max_size=300) | st.text(max_size=100)


@settings(deadline=None)  # the machine may be busy
@given(TEXTS, st.integers(0, 200))
@example("abc", 0)
@example("\n\n\n\n", 2)
def test_cut_keeps_to_the_budget_and_counts_truly(text, budget):
    cut, omitted = cut_text(text, budget)
    if len(text) <= budget:
        assert (cut, omitted) == (text, 0)
        return
    marker = f"… {omitted} characters left out …\n"
    head, tail = cut.split(marker) if cut.count(marker) == 1 else cut.rsplit(marker, 1)
    assert text.endswith(tail)
    kept = len(text) - omitted
    assert kept <= budget
    assert text[: kept - len(tail)] in (head, head[:-1])
    assert len(cut) <= budget + len(marker) + 1


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
