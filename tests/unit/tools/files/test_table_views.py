"""What a model is shown of tables in files."""

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from agent_magics.protocol.errors import RespondToModel
from agent_magics.tools import read_file
from agent_magics.tools.files import table_views
from tests.support.contexts import make_context

SALES = """month,units,price,sold,note
2024-01-01,3,1.5,true,plain
2024-02-01,,2,false,"two
lines, and a comma"
2024-03-01,7,NA,true,
"""


def shown(folder, name, content, budget=10_000, **arguments):
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_file(name, **arguments, ctx=make_context(folder)).to_output(budget).text


def test_a_csv_file_is_a_table(tmp_path):
    assert shown(tmp_path, "sales.csv", SALES).split("\n") == [
        "sales.csv: 3 rows x 5 columns, separated by commas; line 1 names the columns.",
        "Types, guessed from all rows:",
        "  month: date",
        "  units: int, 1 missing",
        "  price: float, 1 missing",
        "  sold: bool",
        "  note: text, 1 missing",
        "The first 3 rows:",
        "  month       units  price  sold   note",
        "  2024-01-01  3      1.5    true   plain",
        "  2024-02-01         2      false  two lines, and a comma",
        "  2024-03-01  7      NA     true",
        "start_line=1 reads the lines as they stand.",
    ]


def test_explicit_lines_are_raw(tmp_path):
    for window in ({"start_line": 1}, {"max_lines": 9}, {"offset_bytes": 0}):
        assert shown(tmp_path, "sales.csv", SALES, **window).startswith("   1| month,units,price")


def test_by_hand_and_in_code_it_is_the_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sales.csv").write_text(SALES, encoding="utf-8")
    assert read_file("sales.csv") == SALES


@pytest.mark.parametrize(
    ("name", "separator", "word"),
    [
        *(("a.csv", ";", "semicolons"), ("a.csv", "|", "bars"), ("a.csv", "\t", "tabs")),
        ("a.TSV", "\t", "tabs"),
    ],
)
def test_other_separators(name, separator, word, tmp_path):
    text = "a,b,c\n1,2,3\n4,5,6\n".replace(",", separator)
    assert f"2 rows x 3 columns, separated by {word}" in shown(tmp_path, name, text)


def test_what_is_odd_is_told(tmp_path):
    ragged = shown(tmp_path, "a.csv", "a,b\n1,2\n1,2,3\n1\n")
    assert "2 rows with another number of cells." in ragged
    assert "the columns have no names" in shown(tmp_path, "b.csv", "1,2\n3,4\n")
    assert "read as cp1252, a guess" in shown(tmp_path, "c.csv", b"a,b\ncaf\xe9,1\n")
    assert "UTF-16" in shown(tmp_path, "d.csv", "a,b\n1,2\n".encode("utf-16"))
    assert "There are no rows." in shown(tmp_path, "e.csv", "a,b\n")


def test_what_is_no_table_is_text(tmp_path):
    for content in ("", "one\ntwo\n", "\n\n"):
        assert "lines 1" in (text := shown(tmp_path, "a.csv", content)) or "is empty" in text


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_a_long_table_is_told_by_its_lines(encoding, tmp_path, monkeypatch):
    monkeypatch.setattr(table_views, "_SAMPLED_BYTES", 1_000)
    content = "n,m\n" + "1,2\n" * 4_999 + "Ċ,ਊ"  # whose bytes in UTF-16 are those of line breaks
    text = shown(tmp_path, "a.csv", content.encode(encoding))
    assert "5,000 lines of rows x 2 columns" in text


def test_the_rows_of_a_long_table_that_are_read_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(table_views, "_SAMPLED_BYTES", 1_000)
    text = shown(tmp_path, "a.csv", "n,m\n" + "1,2\n" * 5_000)
    assert "guessed from the first 248 rows" in text


def test_a_wide_table_is_cut_and_says_so(tmp_path):
    names = [f"column_{n}" for n in range(150)]
    text = shown(tmp_path, "a.csv", ",".join(names) + "\n" + ",".join("1" * 150) + "\n")
    assert "1 row x 150 columns" in text
    assert "… 50 more columns" in text
    assert "The first 1 row and 20 columns:" in text
    assert len(shown(tmp_path, "a.csv", ",".join(names) + "\n", 1_000)) <= 1_000


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet='ab1.,;|"\t\n\r é', max_size=80))
def test_any_text_is_shown(tmp_path_factory, content):
    assert shown(tmp_path_factory.mktemp("t"), "a.csv", content)


def test_parquet_without_pyarrow_is_one_clear_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(table_views, "find_spec", lambda name: None)
    with pytest.raises(RespondToModel, match="reading it takes pyarrow, which is not installed"):
        shown(tmp_path, "a.parquet", b"PAR1\0\0\0PAR1")


def test_parquet_is_a_table(tmp_path, monkeypatch):
    table = pyarrow.table({"n": list(range(30)), "name": ["x", None] * 15})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=20)
    text = read_file("a.parquet", ctx=make_context(tmp_path)).to_output(10_000).text
    assert text.startswith("a.parquet: 30 rows x 2 columns in 2 row groups.\nColumns:\n  n: int64")
    assert "The first 10 rows:\n  n  name\n  0  x\n  1\n" in text
    monkeypatch.chdir(tmp_path)
    assert read_file("a.parquet") == text
    with pytest.raises(RespondToModel, match="damaged Parquet file"):
        shown(tmp_path, "b.parquet", b"PAR1 and no more")


def test_the_first_rows_are_those_of_the_first_row_group_that_has_any(tmp_path):
    schema = pyarrow.schema({"n": pyarrow.int64()})
    with parquet.ParquetWriter(tmp_path / "a.parquet", schema) as writer:
        for rows in ([], [], [1, 2]):
            writer.write_table(pyarrow.table({"n": rows}, schema))
    text = read_file("a.parquet", ctx=make_context(tmp_path)).to_output(10_000).text
    assert (
        "2 rows x 1 columns in 3 row groups" in text and "The first 2 rows:\n  n\n  1\n  2" in text
    )


TIMES = [
    *(
        pyarrow.timestamp(unit, zone)
        for unit in ("ms", "us", "ns")
        for zone in (None, "Asia/Tokyo")
    ),
    *(pyarrow.date32(), pyarrow.duration("ms"), pyarrow.time64("us")),
]


@settings(max_examples=50)
@given(st.sampled_from(TIMES), st.integers(-(2**62), 2**62), st.booleans())
def test_any_time_is_shown(tmp_path_factory, kind, number, is_nested):
    folder = tmp_path_factory.mktemp("t")
    count = number % 86_400_000_000 if kind == pyarrow.time64("us") else number
    width = kind.bit_width
    column = pyarrow.array([count >> 64 - width, None], f"int{width}").view(kind)
    nested = pyarrow.ListArray.from_arrays([0, 2], column) if is_nested else column
    parquet.write_table(pyarrow.table({"t": nested, "n": [7] * len(nested)}), folder / "a.parquet")
    assert "  7\n" in read_file("a.parquet", ctx=make_context(folder)).to_output(10_000).text
