"""Differences of lines: right whatever the lines are, and found in a bounded time."""

import re
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.text import differences
from agent_magics.text.differences import MOST_STEPS, changed_lines, hunks_of, unified_diff

LINES = st.lists(st.sampled_from("abc"), max_size=12)


@given(LINES, LINES, st.sampled_from([0, 20, MOST_STEPS]))
def test_ranges_that_change_make_one_text_of_the_other(before, after, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(differences, "MOST_STEPS", most)
        changes = changed_lines(before, after)
    made = list(before)
    for first, last, start, stop in reversed(changes):
        assert (first, start) != (last, stop)
        made[first:last] = after[start:stop]
    assert made == after


class TooLong(Exception):
    """More was done than is allowed."""


def steps_of(compare):
    """Count the calls that a comparison makes, up to twice as many as are allowed.

    difflib looks up each pair of equal lines by a call.
    """
    steps = 0

    def count(_frame, event, _argument):
        nonlocal steps
        steps += event == "c_call"
        if steps > 2 * MOST_STEPS:
            raise TooLong

    earlier = sys.getprofile()
    sys.setprofile(count)
    try:
        compare()
    finally:
        sys.setprofile(earlier)
    return steps


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a" * 2000, "ab" * 1000),
        ("ab" * 1000, "a" * 2000),
        ("c" + "a" * 600 + "d", "e" + "ab" * 300 + "f"),
        ("ab" * 10_000, "ba" * 99),
        ("abcd" * 400, "acbd" * 400),
        ([f"{n}" for n in range(4000)], [f"{n}" if n % 2 else "x" for n in range(4000)]),
    ],
)
def test_comparing_takes_a_bounded_number_of_steps(before, after):
    assert steps_of(lambda: changed_lines(before, after)) < 2 * MOST_STEPS


def applied(hunks, old):
    """Apply hunks as `patch` does: by their headers, checking each line."""
    made, at = [], 0
    for line in hunks:
        if header := re.match(r"@@ -(\d+)(?:,(\d+))? ", line):
            first = int(header[1]) - (header[2] != "0")
            made, at = made + old[at:first], first
        elif line[0] == "+":
            made.append(line[1:])
        else:
            assert old[at] == line[1:]
            made += [line[1:]] if line[0] == " " else []
            at += 1
    return made + old[at:]


@given(LINES, LINES, st.sampled_from([0, 9, 4000]))
def test_a_unified_diff_makes_one_text_of_the_other(before, after, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(differences, "_MOST_COMPARED", most)
        hunks = hunks_of(before, after)
    assert applied(hunks, before) == after
    assert (hunks == []) == (before == after)


def test_a_unified_diff_has_names_where_there_is_a_difference():
    assert unified_diff("a\nb\n", "a\nc", "old", "new") == (
        "--- old\n+++ new\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"
    )
    assert unified_diff("a\n", "a", "old", "new") == ""


def test_a_unified_diff_of_very_many_equal_lines_is_made_at_once():
    before, after = ["x"] * 100_000, ["x", "y"] * 99
    began = time.process_time()
    assert applied(hunks_of(before, after), before) == after
    assert time.process_time() - began < 5  # 0.1 s; comparing each with each took a minute
