"""Tables in plain text: columns that stand below each other, and nothing else is touched."""

import time
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_magics.render.markdown import code_span
from agent_magics.render.tables import table, tables_as_text
from agent_magics.render.text import to_plain

WORDS = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=60)


def test_columns_stand_below_each_other_and_numbers_to_the_right():
    markdown = "Here:\n\n| name | n |\n|---|--:|\n| **x** | 1 |\n| `a\\|b` | 12345 |\n\nDone."
    assert tables_as_text(markdown).splitlines() == [
        "Here:",
        "",
        "name      n",
        "────  ─────",
        "x         1",
        "a|b   12345",
        "",
        "Done.",
    ]


@pytest.mark.parametrize("words", ["a.csv into `x`", "`", "x & `<b>` | y"])
def test_code_that_holds_backticks_is_read_as_it_was_written(words):
    shown = code_span(words)
    table = f"| | T |\n|---|---|\n| 1 | {shown.replace('|', chr(92) + '|')} |"
    plain = to_plain({"kind": "text", "text": f"Resumed: {shown}.\n\n{table}"})
    first, *_, last = plain.splitlines()
    assert first == f"Resumed: {words}." and last.split("  ")[1] == words


def columns_of(line):
    return len(line) + sum(unicodedata.east_asian_width(letter) in "WF" for letter in line)


@example([["日本語" * 40, "x"], ["a日本" * 40, "x"]])
@given(st.lists(st.lists(WORDS, min_size=2, max_size=6), min_size=1, max_size=4))
def test_no_word_is_lost_and_lines_are_short(cells):
    width = min(map(len, cells))
    rows = [row[:width] for row in cells]
    markdown = "\n".join("|".join(row) for row in [rows[0], ["-"] * width, *rows[1:]])
    shown = tables_as_text(f"|{markdown}".replace("\n", "|\n|") + "|")
    assert "|" not in shown
    assert sorted(shown.replace("─", "").replace(" ", "").replace("\n", "")) == sorted(
        "".join("".join(row) for row in rows)
    )
    assert max(map(columns_of, shown.splitlines())) <= 100


@pytest.mark.parametrize(
    "text",
    [
        "```\n| a | b |\n|---|---|\n```",
        "~~~\n\n| a | b |\n|---|---|\n",
        "either | or\n---\nthen | else",
        "a | b\nc | d",
        "| a | b |\n|---|",
    ],
)
def test_what_is_no_table_stays(text):
    assert tables_as_text(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "|" * 400_000,
        "|\n" * 200_000,
        "| a |\n" + "|-" * 200_000,
        "`" * 400_000 + "|",
        "~~~\n|" * 80_000,
    ],
    ids=["bars", "lines", "dashes", "ticks", "fences"],
)
def test_time_grows_with_the_length_only(text):
    def seconds(of):
        began = time.process_time()
        tables_as_text(of)
        return time.process_time() - began

    assert seconds(text) < 50 * seconds(text[: len(text) // 8]) + 0.5


def test_numbers_stand_on_the_right_and_words_on_the_left():
    rows = [("`a`", "1,250", "0.045 USD", "no"), ("b", "-", "", "12 of them, or so")]
    assert table(("Tool", "Tokens", "Cost", "Says"), rows).splitlines() == [
        "| Tool | Tokens | Cost | Says |",
        "| :--- | ---: | ---: | :--- |",
        "| `a` | 1,250 | 0.045 USD | no |",
        "| b | - |  | 12 of them, or so |",
    ]


def test_nothing_in_a_cell_breaks_the_table():
    assert table(("A",), [("x|y\nz",)]) == "| A |\n| :--- |\n| x\\|y z |"
    assert table(("A", "B"), []).count("\n") == 1
