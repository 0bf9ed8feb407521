"""Cleaning and shortening what commands print."""

import re
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.backends.exec.output import (
    clean_output,
    colour_output,
    cut_middle,
    join_ends,
)

noise = st.lists(
    st.sampled_from(
        [
            *(
                "\x1b[",
                "\x1b]",
                "\x1bP",
                "\x1b",
                "\x07",
                "\x1b\\",
                "\r",
                "\n",
                "\r\n",
                "\0",
                "\x08",
            ),
            *("31", ";", "m", "0", "abc", " ", "é", "\x9b", "\x9c", "\x9d", "\t", "漢"),
        ]
    )
).map("".join)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[38;5;196mx\x1b[K", "x"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPdevice\x1b\\x", "x"),
        ("\x1b(Bx\x1b=y\x1bMz", "xyz"),
        ("\x9b31mx", "x"),
        ("a\0b\x07c\x7fd\x85e", "abcde"),
        (" 10%\r 50%\r100%\n", "100%\n"),
        ("done\r", "done"),
        ("a\r\nb\r\r\n", "a\nb\n"),
        ("N\x08NA\x08A", "NA"),
        ("\x1b]unfinished\nnext", "unfinished\nnext"),
        ("\x1b[31", "31"),
        ("ünï 漢字 😀", "ünï 漢字 😀"),
        ("", ""),
    ],
)
def test_only_what_a_person_would_read_is_kept(text, expected):
    assert clean_output(text) == expected


@given(noise | st.text())
def test_cleaned_text_has_no_control_characters_and_stays_as_it_is(text):
    cleaned = clean_output(text)
    assert not any(unicodedata.category(c) == "Cc" and c not in "\n\t" for c in cleaned)
    assert clean_output(cleaned) == cleaned
    assert cleaned.count("\n") <= text.count("\n")


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"])))
def test_ordinary_text_is_untouched(text):
    assert clean_output(text) == text


@pytest.mark.parametrize(
    "piece", ["\x1b[", "\x1b]", "\x1b[0;", "\x1b]0", "\x9d", "\x1b ", "\r", "\x08", "a\r", "0", " "]
)
def test_a_hostile_megabyte_is_cleaned_in_time(piece):
    for text in (piece * (1_000_000 // len(piece)), "\x1b[" + piece * (1_000_000 // len(piece))):
        started = time.process_time()
        clean_output(text)
        assert time.process_time() - started < 3


COLOUR = re.compile(r"\x1b\[[0-9;:]*m")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
        ("\x1b[38:2::255:0:0mx\x1b[K\x1b[2Jy", "\x1b[38:2::255:0:0mxy"),
        ("\x1b]0;\x1b[31mtitle\x07", "0;\x1b[31mtitle"),
        ("\x1b[31m 10%\r\x1b[32m100%\x1b[0m\r\n", "\x1b[31m\x1b[32m100%\x1b[0m\n"),
        ("N\x1b[1m\x08NA", "\x1b[1mNA"),
        ("\x1b[?25l\x1b[3mx\x1b[>1m", "\x1b[3mx"),
        ("\x9b31mx\x00\x07", "x"),
        ("\x1b\x1b[2K[31mx", "[31mx"),
        ("\x1b[" + "1;" * 40 + "mx", "x"),
        ("plain\n\ttext", "plain\n\ttext"),
    ],
)
def test_of_all_sequences_only_colours_stay_for_people(text, expected):
    assert colour_output(text) == expected


@given(
    st.lists(noise | st.text() | st.sampled_from(["\x1b[31m", "\x1b[0m", "\x1b[K"])).map("".join)
)
def test_with_colours_nothing_else_passes_and_the_text_is_the_same(text):
    coloured = colour_output(text)
    plain = COLOUR.sub("", coloured)
    assert plain == clean_output(text)
    assert not any(unicodedata.category(c) == "Cc" and c not in "\n\t" for c in plain)
    assert COLOUR.findall(coloured) == COLOUR.findall(colour_output(coloured))


@pytest.mark.parametrize(
    "piece", ["\x1b[1m", "\x1b[1m\r", "a\x1b[1m\x08", "\x1b", "\x08", "\x1b[1"]
)
def test_a_hostile_megabyte_is_coloured_in_time(piece):
    started = time.process_time()
    colour_output(piece * (1_000_000 // len(piece)))
    assert time.process_time() - started < 5


def test_a_long_text_keeps_its_lines_at_both_ends():
    text = "".join(f"line {n}\n" for n in range(1000))
    cut, omitted = cut_middle(text, 200)
    head, marker, tail = cut.partition(f"… {omitted} characters left out …\n")
    assert marker and text.startswith(head) and text.endswith(tail)
    assert head.endswith("\n") and tail.startswith("line")
    assert len(head) + len(tail) + omitted == len(text)


def test_one_huge_line_is_cut_by_characters():
    cut, omitted = cut_middle("x" * 1000, 100)
    assert cut == "x" * 50 + "\n… 900 characters left out …\n" + "x" * 50
    assert omitted == 900


def test_a_text_within_the_budget_is_whole():
    assert cut_middle("abc", 3) == ("abc", 0)


@given(st.text("ab\n"), st.integers(0, 30))
def test_never_longer_than_the_budget_and_the_counts_are_true(text, budget):
    cut, omitted = cut_middle(text, budget)
    if len(text) <= budget:
        assert (cut, omitted) == (text, 0)
        return
    marker = f"… {omitted} characters left out …\n"
    head, found, tail = cut.partition(marker)
    assert found
    # The line break before the marker belongs to the text or to the marker.
    kept = len(head) + len(tail)
    assert kept - (len(text) - omitted) in (0, 1)
    assert len(text) - omitted <= budget
    assert text.endswith(tail)


def test_ends_of_a_text_with_a_hole_are_joined_with_the_true_count():
    shown, omitted = join_ends("head\n" * 100, "tail\n" * 100, 1_000_000, 100)
    assert omitted == 1_000_000 + 1000 - 100
    assert shown == "head\n" * 10 + f"… {omitted} characters left out …\n" + "tail\n" * 10
