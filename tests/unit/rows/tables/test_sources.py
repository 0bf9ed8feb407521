"""Rows of every kind are read as the same values, and answered in a table of the same kind."""

import dataclasses
import json

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

from agent_magics import Agent
from agent_magics.protocol.errors import FatalError
from agent_magics.rows.tables.files import Broken
from agent_magics.rows.tables.sources import Held, open_source
from tests.support.rows.echo import Echo

TEXTS = [f"text {number}" for number in range(1203)]


@dataclasses.dataclass
class Letter:
    text: str
    id: int


def parquet(folder):
    pyarrow.parquet.write_table(pa.table({"text": TEXTS, "id": range(1203)}), folder / "a.parquet")
    return folder / "a.parquet"


def csv(folder):
    pd.DataFrame({"text": TEXTS, "id": range(1203)}).to_csv(folder / "a.csv", index=False)
    return str(folder / "a.csv")


def jsonl(folder):
    for name, part in (("a", TEXTS[:700]), ("b", TEXTS[700:])):
        lines = [json.dumps({"text": text, "id": 1}) for text in part]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    return str(folder / "*.jsonl")


KINDS = {
    "pandas": lambda _: pd.DataFrame({"id": range(1203), "text": TEXTS}),
    "series": lambda _: pd.Series(TEXTS, name="text"),
    "polars": lambda _: pl.DataFrame({"id": range(1203), "text": TEXTS}),
    "lazy": lambda _: pl.LazyFrame({"id": range(1203), "text": TEXTS}),
    "pyarrow": lambda _: pa.table({"id": range(1203), "text": TEXTS}),
    "dataset": lambda folder: pyarrow.dataset.dataset(parquet(folder)),
    "dicts": lambda _: [{"text": text, "id": 1} for text in TEXTS],
    "objects": lambda _: [Letter(text, 1) for text in TEXTS],
    "strings": lambda _: TEXTS,
    "generator": lambda _: (text for text in TEXTS),
    "parquet": parquet,
    "csv": csv,
    "jsonl": jsonl,
    "url": lambda folder: f"file://{jsonl(folder)}",
}


@pytest.mark.parametrize("kind", KINDS)
def test_all_rows_are_read_in_order(kind, tmp_path):
    source = open_source(KINDS[kind](tmp_path))
    assert "text" in source.columns
    batches = list(source.batches(("text",)))
    assert [text for batch in batches for (text,) in batch] == TEXTS
    assert max(map(len, batches)) <= 500


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow", "dicts", "objects"])
def test_rows_in_memory_are_read_anywhere(kind, tmp_path):
    source = open_source(KINDS[kind](tmp_path))
    assert isinstance(source, Held) and source.count == 1203
    assert source.read([7, 900], ("text",)) == [("text 7",), ("text 900",)]


@pytest.mark.parametrize(
    ("kind", "module"), [("pandas", "pandas"), ("polars", "polars"), ("lazy", "polars"),
                         ("pyarrow", "pyarrow"), ("dataset", "pyarrow"), ("dicts", "pandas"),
                         ("csv", "pandas")]
)  # fmt: skip
def test_the_answers_are_a_table_of_the_same_kind(kind, module, tmp_path):
    with Agent(Echo()) as agent:
        frame = agent.map_sync("{{text}}", KINDS[kind](tmp_path)).frame
    assert type(frame).__module__.startswith(module)
    assert list(frame["answer"].to_pylist() if module == "pyarrow" else frame["answer"]) == TEXTS


def test_the_index_is_kept():
    frame = pd.DataFrame({"text": ["a", "b"]}, index=["x", "y"])
    with Agent(Echo()) as agent:
        assert list(agent.map_sync("{{text}}", frame).frame.index) == ["x", "y"]


def test_a_line_that_is_no_json_is_that_rows_error(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\nnonsense\n{"text": "b"}\n')
    rows = open_source(tmp_path / "a.jsonl")
    assert [isinstance(row, Broken) for batch in rows.batches(None) for row in batch] == [0, 1, 0]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("nothing.csv", "no file nothing.csv"),
        ("table.xlsx", "reads .parquet, .csv, .jsonl"),
        ({"text": "a"}, "not dict"),
        (7, "not int"),
    ],
)
def test_what_has_no_rows_is_one_sentence(rows, words):
    with pytest.raises(FatalError, match=words):
        open_source(rows)
