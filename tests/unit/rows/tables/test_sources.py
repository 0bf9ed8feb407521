"""Rows of every kind are read as the same values, and answered in a table of the same kind."""

import bz2
import csv as csv_module
import dataclasses
import datetime
import decimal
import gzip
import json
import lzma
import os
import re
import zipfile
from itertools import chain, islice, product
from pathlib import Path

import dask.dataframe
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics import Agent
from agent_magics.protocol.errors import FatalError
from agent_magics.rows.tables.files import Broken, file_rows
from agent_magics.rows.tables.sources import Held, open_source
from tests.support.rows.echo import Echo
from tests.support.users import call_as_user

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


@dataclasses.dataclass(slots=True)
class Numbered:
    id: int


@dataclasses.dataclass(slots=True)
class Slotted(Numbered):
    text: str


class Frame(pd.DataFrame):
    """A table of a library that builds on pandas, such as geopandas."""


def packed(ending, pack):
    def make(folder):
        (folder / f"a.csv{ending}").write_bytes(pack(Path(csv(folder)).read_bytes()))
        return folder / f"a.csv{ending}"

    return make


def tsv(folder):
    pd.DataFrame({"text": TEXTS, "id": 1}).to_csv(folder / "a.tsv", sep="\t", index=False)
    return folder / "a.tsv"


def folder_of_parts(folder):
    (folder / "b.parquet").mkdir()  # as Spark names a folder
    os.mkfifo(folder / "pipe.parquet")
    for name, part in (("a.parquet", TEXTS[:700]), ("b.parquet/b.snappy.parquet", TEXTS[700:])):
        pyarrow.parquet.write_table(pa.table({"text": part}), folder / name)
    (folder / "_SUCCESS").touch()
    (folder / "_old.parquet").write_text("none of ours")
    return folder


def folder_in_a_zip(folder):
    with zipfile.ZipFile(folder / "x.zip", "w") as archive:
        archive.write(csv(folder), "f/[a].csv")
    return f"zip://f::file://{folder / 'x.zip'}"


def dask_frame(_):
    frame = pd.DataFrame({"id": range(1203), "text": TEXTS})
    return dask.dataframe.from_pandas(frame, npartitions=3)


KINDS = {
    "subclass": lambda _: Frame({"id": range(1203), "text": TEXTS}),
    "dask": dask_frame,
    "unknown divisions": lambda folder: dask_frame(folder).clear_divisions(),
    "dask series": lambda folder: dask_frame(folder)["text"],
    "record batch": lambda _: pa.RecordBatch.from_pydict({"text": TEXTS}),
    "list of batches": lambda _: pa.table({"text": TEXTS}).to_batches(70),
    "iterator of batches": lambda _: iter(pa.table({"text": TEXTS}).to_batches(700)),
    "reader": lambda _: pa.table({"text": TEXTS}).to_reader(),
    "array": lambda _: pa.array(TEXTS),
    "chunked": lambda _: pa.chunked_array([TEXTS[:9], TEXTS[9:]]),
    "numpy": lambda _: np.array(TEXTS),
    "slots": lambda _: [Slotted(1, text) for text in TEXTS],
    "gz": packed(".gz", gzip.compress),
    "bz2": packed(".bz2", bz2.compress),
    "xz": packed(".XZ", lzma.compress),
    "tsv": tsv,
    "folder": folder_of_parts,
    "glob of folders": lambda folder: str(folder_of_parts(folder) / "[ab].parquet"),
    "recursive glob": lambda folder: str(folder_of_parts(folder) / "**/[ab]*.parquet"),
    "file url of a folder": lambda folder: f"file://{folder_of_parts(folder)}/",
    "url of a folder": folder_in_a_zip,
    "url of gz": lambda folder: f"file://{packed('.gz', gzip.compress)(folder)}",
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


@pytest.fixture(autouse=True)
def no_threads_of_dask():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.mark.parametrize("kind", KINDS)
def test_all_rows_are_read_in_order(kind, tmp_path):
    source = open_source(KINDS[kind](tmp_path))
    assert "text" in source.columns
    batches = list(source.batches(("text",)))
    assert [text for batch in batches for (text,) in batch] == TEXTS
    assert max(map(len, batches)) <= 500


def folder_of(tables):
    folder = Path("in")
    folder.mkdir()
    for number, table in enumerate(tables):
        pyarrow.parquet.write_table(table, folder / f"{number}.parquet")
    return folder


# What has rows in several parts, of which any may be empty.
IN_PARTS = {
    "data set": lambda tables: pyarrow.dataset.dataset(folder_of(tables)),
    "data set in memory": lambda tables: pyarrow.dataset.dataset(pa.concat_tables(tables)),
    "record batches": lambda tables: pa.RecordBatchReader.from_batches(
        tables[0].schema,
        [pa.record_batch(table.columns[0].chunks[:1], ["text"]) for table in tables],
    ),
    "files": folder_of,
    "dask": lambda tables: dask.dataframe.from_delayed(
        [dask.delayed(table.to_pandas)() for table in tables]
    ),
}


@pytest.mark.parametrize("sizes", [(3, 0, 5), (0, 3, 0, 0, 501, 0)], ids=str)
@pytest.mark.parametrize("kind", IN_PARTS)
def test_no_rows_are_left_out_after_a_part_without_any(kind, sizes, tmp_path):
    tables, texts = [], []
    for size in sizes:
        texts += (part := [f"text {len(texts) + number}" for number in range(size)])
        tables.append(pa.table({"text": pa.array(part, "string")}))
    with Agent(Echo()) as agent, dask.config.set(scheduler="synchronous"):
        done = agent.map_sync("{{text}}", IN_PARTS[kind](tables), into=tmp_path / "out")
    assert pyarrow.parquet.read_table(tmp_path / "out")["answer"].to_pylist() == texts
    assert not done.stopped and done.progress.done == done.progress.rows == len(texts)


@pytest.mark.parametrize("sizes", [(1,) * 9, (2, 0, 7), (499, 1, 5), (500, 1), (501,)], ids=str)
def test_the_first_rows_show_the_columns_in_however_many_files_they_are(sizes, tmp_path):
    rows = [{"text": "x", f"of {number}": 1} for number in range(sum(sizes))]
    rest = iter(rows)
    for number, size in enumerate(sizes):
        part = "".join(f"{json.dumps(row)}\n" for row in islice(rest, size))
        (tmp_path / f"{number}.jsonl").write_text(part)
    columns = open_source(rows).columns
    assert open_source(tmp_path).columns == open_source(iter(rows)).columns == columns
    assert open_source(tmp_path, hold=True).columns == columns
    assert [*chain(*open_source(tmp_path).batches(None))] == rows


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


INDEXES = [
    pd.Index([7, 7]),
    pd.Index([], dtype=int),
    pd.CategoricalIndex(["x", "y"]),
    pd.date_range("2024", periods=2),
]
LEVELS = pd.MultiIndex.from_tuples([(1, "p"), (1, "q")])  # of which Dask knows nothing


@pytest.mark.parametrize(
    ("kind", "index"), [*product(["pandas", "dask"], INDEXES), ("pandas", LEVELS)]
)
def test_the_index_is_kept(kind, index):
    frame = pd.DataFrame({"text": ["a", "b"][: len(index)]}, index=index)
    rows = frame if kind == "pandas" else dask.dataframe.from_pandas(frame, npartitions=1)
    with Agent(Echo()) as agent:
        done = agent.map_sync("{{text}}", rows)
    frame.index = range(len(index))  # its owner goes on with it
    pd.testing.assert_index_equal(done.frame.index, index)
    assert list(done.frame["answer"]) == ["a", "b"][: len(index)]


@pytest.mark.parametrize(
    "nothing", [list, lambda: iter([]), lambda: pl.DataFrame({"text": []}), lambda: "empty.jsonl"],
    ids=["list", "generator", "table", "file"],
)  # fmt: skip
def test_no_rows_give_an_empty_table(nothing):
    Path("empty.jsonl").touch()
    with Agent(Echo()) as agent:
        done = agent.map_sync("{{text}}", nothing(), output=int)
    assert len(done.frame) == 0 and "answer" in done.frame.columns


@pytest.mark.parametrize(
    "rows",
    [pd.DataFrame([["a", "b"]], columns=["text", "text"]),
     pa.Table.from_arrays([pa.array(["a"])] * 2, names=["text", "text"])],
    ids=["pandas", "pyarrow"],
)  # fmt: skip
def test_a_column_that_is_there_twice_is_not_guessed(rows):
    with Agent(Echo()) as agent, pytest.raises(FatalError, match="more than one such column"):
        agent.map_sync("{{text}}", rows)


def test_a_file_with_a_column_twice_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("text,text\na,b\n")
    with pytest.raises(FatalError, match="more than one column is called 'text'"):
        open_source(tmp_path / "a.csv")


def test_a_parquet_file_with_a_column_twice_is_refused(tmp_path):
    table = pa.Table.from_arrays([pa.array(["a"])] * 2, names=["text", "text"])
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(FatalError, match="more than one column is called 'text'"):
        open_source(tmp_path / "a.parquet")


def test_a_line_with_more_values_than_columns_is_that_rows_error(tmp_path):
    (tmp_path / "a.csv").write_text("id,text\n1,Dear, all\n2,b,\n3\n")
    (first, *others) = open_source(tmp_path / "a.csv", hold=True).read(range(3), None)
    assert isinstance(first, Broken) and "more values than there are columns" in first.problem
    assert others == [{"id": "2", "text": "b"}, {"id": "3", "text": None}]


WRITTEN = st.lists(st.text("a\",\n\r\t '\\\\"), min_size=2, max_size=2)


@pytest.mark.parametrize("quoting", [csv_module.QUOTE_MINIMAL, csv_module.QUOTE_ALL])
@given(rows=st.lists(WRITTEN, max_size=4))
def test_what_was_written_as_csv_is_read_as_it_was(quoting, rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("a") / "a.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv_module.writer(file, quoting=quoting).writerows([["id", "text"], *rows])
    read = [tuple(row.values()) for row in file_rows(str(path))]
    assert read == [(first or None, second or None) for first, second in rows]


@pytest.mark.parametrize("into", ["out", None])
@pytest.mark.parametrize(
    "line", ['"c,2', '"c\n,2', '"12" screen,2', '"say \\"hi\\", you",2', '"c" ,2', 'c,"2', '"']
)
def test_a_quote_that_csv_does_not_allow_is_told_before_it_swallows_or_changes_rows(line, into):
    Path("a.csv").write_text(f'text,id\n"a ""b""\n",1\n{line}\nd,3\ne,4\n')
    said = r"a\.csv cannot be read: .*row in line 4 is no CSV \(.*stand twice"
    with Agent(model := Echo()) as agent:
        if into is None:
            with pytest.raises(FatalError, match=said):
                agent.map_sync("{{text}}", "a.csv")
            assert not model.asked
            return
        done = agent.map_sync("{{text}}", "a.csv", into=into)
    assert re.search(said, done.stopped) and list(model.asked) == ['a "b"\n']


def test_a_file_is_read_whose_name_is_also_a_pattern(tmp_path):
    for name in ("data[1]", "data1"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"name": name}))
    assert list(file_rows(str(tmp_path / "data[1].jsonl"))) == [{"name": "data[1]"}]
    (tmp_path / "data[1].jsonl").unlink()
    assert list(file_rows(str(tmp_path / "data[1].jsonl"))) == [{"name": "data1"}]


def test_the_longest_field_of_others_stays(tmp_path):
    (tmp_path / "a.csv").write_text("text\na\n")
    before = csv_module.field_size_limit(1 << 30)
    try:
        list(file_rows(str(tmp_path / "a.csv")))
        assert csv_module.field_size_limit() == 1 << 30
    finally:
        csv_module.field_size_limit(before)


def test_values_may_be_rows(tmp_path):
    (tmp_path / "a.txt").write_text("the file")
    rows = [tmp_path / "a.txt", datetime.date(2024, 1, 1), decimal.Decimal("1.5"), np.int64(3)]
    with Agent(Echo()) as agent:
        done = agent.map_sync("{{text}}", rows)
    assert list(done.frame["answer"]) == ["the file", "2024-01-01", "1.5", "3"]


def test_rows_in_a_cut_file_are_one_sentence(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"text\n" + b"a\n" * 99)[:20])
    with pytest.raises(FatalError, match=r"a\.csv\.gz cannot be read: EOFError"):
        open_source(tmp_path / "a.csv.gz", hold=True)


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet"])
def test_a_fifo_among_the_files_of_a_glob_blocks_nothing(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(FatalError, match=rf"{name} cannot be read: .*it is no regular file"):
        open_source(tmp_path / "a.*")


def test_a_table_of_another_library_is_no_list_of_its_columns():
    class Table:
        columns = ("text",)

        def __iter__(self):
            return iter(self.columns)

    with pytest.raises(FatalError, match="not Table"):
        open_source(Table())


def test_a_line_that_is_no_json_is_that_rows_error(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\nnonsense\n{"text": "b"}\n')
    rows = open_source(tmp_path / "a.jsonl")
    assert [isinstance(row, Broken) for batch in rows.batches(None) for row in batch] == [0, 1, 0]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("nothing.csv", "no file nothing.csv"),
        ("nothing/", "no file nothing."),
        ("nothing*", r"no file nothing\*."),
        ("x" * 300, "no file xxx"),
        ("folder/", "folder: map reads .parquet"),
        ("table.xlsx", "reads .parquet, .csv, .tsv, .jsonl"),
        ({"text": "a"}, "not dict"),
        (7, "not int"),
    ],
)
def test_what_has_no_rows_is_one_sentence(rows, words):
    Path("table.xlsx").touch()
    Path("folder").mkdir()
    with pytest.raises(FatalError, match=words):
        open_source(rows)


class Unreadable(dict):
    def get(self, *_):
        raise KeyError("lost")


def of_bytes(content):
    offsets = pa.array([0, len(content), len(content) + 1], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(content + b"x")])


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (pa.table({"text": of_bytes(b"\xff")}), "UnicodeDecodeError"),
        (pa.table({"text": pa.array([1 << 30, 0], pa.date32())}), "OverflowError"),
        ([Unreadable(text="a"), {"text": "x"}], "KeyError: 'lost'"),
    ],
    ids=["text", "date", "object"],
)
def test_a_value_that_its_library_cannot_read_is_that_rows_error(rows, words):
    with Agent(Echo()) as agent:
        frame = agent.map_sync("{{text}}", rows).frame
    errors = frame["error"].to_pylist() if isinstance(rows, pa.Table) else list(frame["error"])
    assert words in errors[0]
    assert pd.isna(errors[1])


def bad_parquet(folder):
    pyarrow.parquet.write_table(pa.table({"text": of_bytes(b"\xff")}), folder / "a.parquet")
    return folder / "a.parquet"


def latin_csv(folder):
    (folder / "a.csv").write_bytes("text,id\nü,1\nx,ü\n".encode("latin-1"))
    return folder / "a.csv"


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (lambda folder: str(bad_parquet(folder)), "UnicodeDecodeError"),
        (lambda folder: pyarrow.dataset.dataset(bad_parquet(folder)), "UnicodeDecodeError"),
        (lambda _: pa.table({"text": of_bytes(b"\xff")}).to_reader(), "UnicodeDecodeError"),
        (lambda _: iter([Unreadable(text="a"), {"text": "x"}]), "KeyError: 'lost'"),
        (latin_csv, "text holds bytes at character 1 that are not UTF-8 text"),
    ],
    ids=["parquet", "dataset", "reader", "generator", "csv"],
)
@pytest.mark.parametrize("into", ["out", None])
def test_a_value_of_a_stream_that_cannot_be_read_is_that_rows_error(rows, words, into, tmp_path):
    with Agent(Echo()) as agent:
        done = agent.map_sync("{{text}}", rows(tmp_path), into=into)
    frame = done.frame.to_pandas() if isinstance(done.frame, pa.Table) else done.frame
    assert words in frame["error"][0] and not done.stopped
    assert frame["answer"][1] == "x"


def test_names_of_columns_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "a.csv").write_bytes("größe\n1\n".encode("latin-1"))
    with pytest.raises(FatalError, match=r"a\.csv cannot be read: .*not UTF-8 text"):
        open_source(tmp_path / "a.csv")


def fails():
    yield "a"
    raise OSError("the line is down")


def interrupted():
    yield "a"
    raise KeyboardInterrupt


def test_an_interrupt_while_rows_are_read_is_not_held_back():
    with pytest.raises(KeyboardInterrupt):
        open_source(interrupted())


def cut_file(folder):
    packed = gzip.compress("\n".join(["text", *map(str, range(9999))]).encode())
    (folder / "a.csv.gz").write_bytes(packed[:-99])
    return folder / "a.csv.gz"


@pytest.mark.soak
@pytest.mark.parametrize(
    ("rows", "words"),
    [(lambda _: fails(), "OSError: the line is down"), (cut_file, "EOFError")],
    ids=["generator", "file"],
)
def test_rows_before_the_end_of_a_broken_stream_are_asked(rows, words, tmp_path):
    with Agent(Echo()) as agent:
        done = agent.map_sync("{{text}}", rows(tmp_path), into="out")
    assert words in done.stopped
    assert done.progress.answered == len(done.frame) > 0 == len(done.failed)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (fails, "OSError: the line is down"),
        (lambda: pl.LazyFrame({"text": ["a"]}).select(pl.col("other")), "ColumnNotFoundError"),
        (lambda: np.array("a"), "TypeError: iteration over a 0-d array"),
    ],
    ids=["generator", "lazy", "array"],
)
def test_rows_that_cannot_be_read_at_all_are_one_sentence(rows, words):
    with (
        Agent(Echo()) as agent,
        pytest.raises(FatalError, match="^The rows could not be read: " + words),
    ):
        agent.map_sync("{{text}}", rows())


def test_a_name_that_is_no_text_is_no_column():
    with Agent(Echo()) as agent, pytest.raises(FatalError, match="there are: 'text'"):
        agent.map_sync("{{1}}", [{1: "a", "text": "b"}])


@pytest.mark.soak
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.csv.gz"])
def test_a_line_of_any_length_is_not_read_whole(tmp_path, name):
    path, line = tmp_path / name, (64 << 20) + 2
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(b"a\n" + bytes(line)))
    else:
        path.write_bytes(b"[1]\n")
        os.truncate(path, 1 << 40)  # takes no place on the disk
    with pytest.raises(FatalError, match="one of its lines has more than 64 MB"):
        open_source(path, hold=True)


@pytest.mark.parametrize("mode", [0o000, 0o311, 0o666])
@pytest.mark.parametrize(
    ("pattern", "is_read"),
    [
        ("*.jsonl", True),
        (".", False),
        ("closed", False),
        ("**/*.jsonl", False),
        ("*/*.jsonl", False),
    ],
)
def test_no_rows_are_left_out_unseen_where_a_folder_may_not_be_looked_into(pattern, is_read, mode):
    def read(_):
        for folder in (".", "closed", ".hidden"):
            Path(folder).mkdir(exist_ok=True)
            Path(folder, "rows.jsonl").write_text('{"n": 1}', encoding="utf-8")
        for folder in ("closed", ".hidden"):
            Path(folder).chmod(mode)
        try:
            return list(file_rows(pattern))
        except FatalError as error:
            return str(error)

    found = call_as_user(read)
    if is_read:
        assert found == [{"n": 1}]
    else:
        assert re.fullmatch(r"(\./)?closed/? cannot be read: you may not look into it.*", found)
