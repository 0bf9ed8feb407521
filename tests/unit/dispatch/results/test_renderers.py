"""Tables, arrays, figures and pictures come out as text and pictures that a model can read."""

import base64
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from PIL import Image

from agent_magics.dispatch.results import output
from agent_magics.dispatch.results.output import to_tool_output
from agent_magics.protocol.items import InputImage, InputText

BUDGET = 10_000


class Hostile:
    def __repr__(self):
        raise ValueError("no")

    __str__ = __repr__


def read(value: Any, budget: int = BUDGET) -> str:
    content = to_tool_output(value, budget).content
    assert isinstance(content, str)
    return content


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


def test_figure_inside_a_dict_or_in_brief_is_named_and_not_drawn():
    drawn: list[object] = []

    class Watched(Figure):
        def savefig(self, *args, **options):
            drawn.append(args)

    assert "Watched" in read({"figure": Watched()})
    assert "Watched" in output.brief_text(Watched())
    assert not drawn


def test_huge_figure_is_limited():
    words, image = to_tool_output(Figure(figsize=(100, 10), dpi=100), BUDGET).content
    assert words.text.startswith("Figure, 2048 x 205 pixels")
    assert max(picture_of(image).size) <= 2048


@pytest.mark.soak
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


@pytest.mark.parametrize(
    ("kind", "values", "shades"),
    [
        ("uint16", [0, 2048, 4095], [0, 127, 255]),
        (">u2", [100, 600, 1100], [0, 127, 255]),
        ("int32", [-70_000, 0, 70_000], [0, 127, 255]),
        ("int32", [0, 7, 200], [0, 7, 200]),
        ("int32", [300, 300, 300], [0, 0, 0]),
        ("float32", [0, 0.5, 1], [0, 127, 255]),
        ("float32", [0, 0.25, 0.5], [0, 63, 127]),
        ("float32", [0, 100, 255], [0, 100, 255]),
        ("float32", [-1, 0, 1], [0, 127, 255]),
    ],
)
def test_deep_greys_are_told_apart(kind, values, shades):
    original = Image.fromarray(np.array([values], kind))
    _, image = to_tool_output(original, BUDGET).content
    shown = [*picture_of(image).convert("L").tobytes()]
    assert all(abs(shown - wanted) <= 1 for shown, wanted in zip(shown, shades, strict=True))


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -float("inf")])
def test_greys_that_are_no_numbers_hinder_no_picture(odd):
    original = Image.fromarray(np.array([[0, odd, 1], [odd, 1, 2]], "float32"))
    words, image = to_tool_output(original, BUDGET).content
    assert words == InputText("Image, 3 x 2 pixels, mode F")
    assert picture_of(image).size == (3, 2)


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
