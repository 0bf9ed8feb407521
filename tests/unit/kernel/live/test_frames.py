"""A displayed table's first rows as plain values, whatever it holds."""

import datetime as dt
import json
import math

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.kernel.live.frames import MOST_BYTES, MOST_COLUMNS, MOST_ROWS, table_of
from agent_magics.render.blocks.frames import TABLE, without_frames
from agent_magics.render.text import to_markdown, to_plain

DAY = dt.date(2026, 1, 2)
DATA = {"n": [1, None, 3], "x": [0.5, math.nan, math.inf], "s": ["a", None, "<b>"], "d": [DAY] * 3}


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_each_library_gives_the_same_rows(make: type) -> None:
    table = table_of(make(DATA))
    assert table is not None
    assert [column["name"] for column in table["columns"]] == ["n", "x", "s", "d"]
    assert all(column["type"] for column in table["columns"])
    assert table["rows"] == [
        [1, 0.5, "a", "2026-01-02"],
        [None, None, None, "2026-01-02"],
        [3, "inf", "<b>", "2026-01-02"],
    ]
    assert (table["total"], table["width"]) == (3, 4)


def test_an_index_and_a_series_are_columns() -> None:
    frame = pd.DataFrame({"v": [1, 2]}, index=pd.Index(["a", "b"], name="key"))
    assert table_of(frame)["rows"] == table_of(frame["v"])["rows"] == [["a", 1], ["b", 2]]
    assert [column["name"] for column in table_of(frame)["columns"]] == ["key", "v"]
    assert table_of(pl.Series("v", [1, 2]))["rows"] == [[1], [2]]
    assert table_of(pl.LazyFrame({"v": [1]})) is table_of([1]) is table_of("x") is None


@pytest.mark.soak
def test_a_large_table_is_bounded() -> None:
    table = table_of(pd.DataFrame({f"c{n}": ["x" * 1000] * 5_000 for n in range(150)}))
    assert len(json.dumps(table)) < MOST_BYTES * 1.1
    assert (table["total"], len(table["columns"])) == (5_000, MOST_COLUMNS)
    assert table["width"] == 150
    assert max(len(cell) for row in table["rows"] for cell in row) == 200
    assert len(table_of(pd.DataFrame({"n": range(2_000)}))["rows"]) == MOST_ROWS


class Evil:
    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


def test_what_cannot_be_read_is_left_to_its_text() -> None:
    assert table_of(pd.DataFrame({"x": [Evil()]})) is None
    assert table_of(pd.DataFrame()) is not None


@given(st.lists(st.text(max_size=20) | st.none() | st.floats() | st.integers(), max_size=12))
def test_the_markdown_is_one_table_in_which_nothing_acts(values: list[object]) -> None:
    table = table_of(pd.DataFrame({"<b>a|b*": pd.Series(values, dtype=object)}))
    item = {"kind": "table", **table}
    lines = to_markdown(item).split("\n")
    assert lines[0].startswith(f"*{len(values)} row") and "by 1 column" in lines[0]
    assert len(lines) == 4 + min(len(values), 8)
    assert all(line.startswith("| ") and line.endswith(" |") for line in lines[2:])
    assert "<b" not in to_markdown(item)
    assert to_plain(item)


def test_a_cell_that_the_markdown_cuts_says_so() -> None:
    long = "a text of more letters than a cell of the Markdown shows of it, "
    item = {"kind": "table", **table_of(pd.DataFrame({long: [long, "short"]}))}
    head, _, cut, short = to_markdown(item).split("\n")[2:]
    assert head == cut == f"| {long[:59]}… |" and short == "| short |"


def test_the_text_of_a_table_gives_way_to_the_table() -> None:
    rich = [{TABLE: {}, "text/plain": "   n\n0  1"}, {"image/png": "", "text/plain": "x"}]
    assert without_frames("x\n   n\n0  1\nx\n", rich) == "x\nx\n"
