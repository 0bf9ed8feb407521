"""Cleaning and shortening what commands print."""

import os
import pty
import re
import subprocess
import time
import unicodedata
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.exec.output import (
    clean_output,
    colour_output,
    cut_middle,
    fold_lines,
    join_ends,
)

noise = st.lists(
    st.sampled_from(
        [
            *(
                "\x1b[",
                "\x1b[A",
                "\x1b[2F",
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
        *((f"{start}text\x9cx", "x") for start in "\x90\x98\x9d\x9e\x9f"),
        ("a\0b\x07c\x7fd\x85e", "abcde"),
        (" 10%\r 50%\r100%\n", "100%\n"),
        ("done\r", "done"),
        ("a\r\nb\r\r\n", "a\nb\n"),
        ("N\x08NA\x08A", "NA"),
        # npm: spinner and erasure by column
        (
            "\x1b[1G⠋\x1b[1G\x1b[0K\x1b[1G⠙\x1b[1G\x1b[0Knpm error E404\n\x1b[1G⠹\x1b[1G\x1b[0K",
            "npm error E404\n",
        ),
        ("\x1b[2K\x1b[1G1 of 5\x1b[2K\x1b[1G2 of 5\n", "2 of 5\n"),
        # git: the shorter line leaves the end of the longer one, unless it is erased
        ("remote: 10% (1/10)\rremote: done\x1b[K\n", "remote: done\n"),
        ("long long line\rshort\n", "shortlong line\n"),
        ("abc\x08\x08XY", "aXY"),
        ("- \x08\x08| \x08\x08done", "done"),
        ("a\x0bb", "ab"),
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


BAR = " 10%|#   |\n 20%|##  |"
UP, CLEAR = "\x1b[A", "\x1b[2K"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # tqdm with two bars: the second is drawn below, then the cursor goes back.
        (f"\r{BAR}{UP}\r 50%|### |\n\r100%|####|{UP}\r100%|####|\n\n", "100%|####|\n100%|####|\n"),
        # rich, as in pip: lines are erased on the way up, then written anew.
        (f"one 1%\ntwo 1%\r{CLEAR}\x1b[1A{CLEAR}one 9%\ntwo 9%\n", "one 9%\ntwo 9%\n"),
        # docker compose, npm: back by several lines, some of which stay.
        (
            "\x1b[?25la wait\nb wait\nc wait\n\x1b[3A\ra done\n\n\rc done\n",
            "a done\nb wait\nc done\n",
        ),
        ("a\nb\n\x1b[2Fnew\x1b[E", "new\nb\n"),
        (f"only\n\x1b[9999A{CLEAR}first", "first\n"),
    ],
)
def test_lines_that_are_written_again_are_read_in_their_last_state(text, expected):
    assert clean_output(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "warning: old\n" * 500 + "done\n",
            "warning: old\n… 499 more lines like this one …\ndone\n",
        ),
        ("x\n" * 9, "x\n" * 9),  # a sentence for it would be longer
        ("a" + "\n" * 60 + "b", "a\n\n… 58 more lines like this one …\nb"),
        ("one\ntwo\n" * 50, "one\ntwo\n" * 50),
        ("no end of line", "no end of line"),
        ("", ""),
    ],
)
def test_equal_lines_in_a_row_are_folded(text, expected):
    assert fold_lines(text) == expected


@given(
    st.lists(st.tuples(st.sampled_from(["", "a", "bb", "a long line " * 5]), st.integers(1, 60)))
)
def test_folded_lines_are_shorter_and_can_be_written_out_again(runs):
    text = "".join(f"{line}\n" * count for line, count in runs)
    folded = fold_lines(text)
    assert len(folded) <= len(text)
    again = re.sub(
        r"(.*)\n… (\d+) more lines like this one …",
        lambda m: "\n".join([m[1]] * (int(m[2]) + 1)),
        folded,
    )
    assert again == text


def printed_on_a_terminal(*argv: str) -> str:
    """Run a program with a terminal for its output, and return what it wrote there."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs) as running:
        os.close(theirs)
        written = b""
        with suppress(OSError):  # at the end, when nobody has the terminal open any more
            while piece := os.read(ours, 65536):
                written += piece
        assert running.wait() == 0
    os.close(ours)
    return written.decode()


def test_what_git_draws_on_a_terminal_is_a_line_for_each_step(tmp_path):
    for name in ("init", "commit --allow-empty -m first"):
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path)]
        subprocess.run([*git, *name.split()], check=True, capture_output=True)
    raw = printed_on_a_terminal(
        "git", "clone", "--progress", "--no-local", str(tmp_path), str(tmp_path / "copy")
    )
    lines = clean_output(raw).splitlines()
    assert raw.count("\r") > len(lines)
    assert [line for line in lines if "100%" in line]
    assert not [line for line in lines if line.count("%") > 1]


@pytest.mark.soak
@pytest.mark.parametrize(
    "piece",
    [
        "\x1b[",
        "\x1b]",
        "\x1b[A",
        "x\n\x1b[A",
        "\x1b[0;",
        "\x1b]0",
        "\x9d",
        "\x1b ",
        "\r",
        "\x08",
        "a\r",
        "a\x1b[G",
        "ab\x08\x1b[K",
        "0",
        " ",
    ],
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


@pytest.mark.soak
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
