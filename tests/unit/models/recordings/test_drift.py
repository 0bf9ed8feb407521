"""Drift: what differs from run to run without meaning, and how a difference is shown."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_magics.models.recordings.drift import (
    SHOWN_WIDTH,
    normalise_text,
    short_diff,
)
from agent_magics.models.recordings.redaction import Hider

PATHS = (("/home/ann/project", "cwd"), ("/home/ann", "home"), ("/tmp", "tmp"))
HIDE = Hider(PATHS, literals=False)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("Wall time: 0.123 seconds", "Wall time: {duration}"),
        ("3 passed in 0.02s", "3 passed in {duration}"),
        ("1.5e-3 ms, 12 µs, 3 min", "{duration}, {duration}, {duration}"),
        ("real\t0m0.012s", "real\t{duration}"),
        ("0:00:12.5 left, 3.2 MB/s", "{clock} left, {rate}"),
        ("at 2026-11-21T21:44:01.5Z!", "at {time}!"),
        ("2026-11-21 21:44:01,123 INFO", "{time} INFO"),
        ("Sat Nov 21 21:46:03 UTC 2026", "{time}"),
        ("Sat Nov 21 21:46:03 +05 2026 Sat Nov 21 21:46:03 -0330 2026", "{time} {time}"),
        ("Sat Nov 21 09:46:03 PM CET 2026", "{time}"),
        ("Sat 21 Nov 2026 09:46:03 PM +0530", "{time}"),
        ("21.11.2026 21:46:03", "21.11.2026 {clock}"),
        ("Date: Sat, 21 Nov 2026 21:46:03 GMT", "Date: {time}"),
        ("<obj at 0x7f3a12bc>", "<obj at {address}>"),
        ("id 123e4567-e89b-12d3-a456-426614174000", "id {uuid}"),
        ("pid 4242, PID=7", "pid {pid}, PID={pid}"),
        ("http://127.0.0.1:43210/v1 localhost:8888", "http://127.0.0.1:{port}/v1 localhost:{port}"),
        ("call_Ab3dEfGh1 call_1 msg_0123456789", "call_{id} call_1 msg_{id}"),
        ("/tmp/tmpab12cd/x", "{tmp}/{name}/x"),
        (
            "/tmp/tmp.aZ09bY18cX /tmp/agent-magics-1-ab/tmp-x_1/tmp.b.txt",
            "{tmp}/{name} {tmp}/{name}.txt",
        ),
        ("/tmp /tmp/tmp /tmp/other", "{tmp} {tmp}/tmp {tmp}/other"),
        ("/home/ann/project/x", "{cwd}/x"),
        ("Cell In[3], line 1; File /tmp/ipykernel_12/345.py", "{cell}, line 1; File {cell}"),
        ("<ipython-input-3-0a1b2c>", "{cell}"),
        (
            "-rw-r--r--  1 ann staff  82 Nov 21 21:46 a.py\n"
            "drwxr-xr-x. 3 ann staff 4096 Jan  2  2025 d",
            "-rw-r--r-- {owner} 82 {time} a.py\ndrwxr-xr-x {owner} {size} {time} d",
        ),
        (
            "total 12K\n-rw-r--r-- 1 ann staff 1.2K 2026-11-21 21:46 a\n"
            "drwx------ 2 ann staff 60 21. Nov 21:46 d",
            "total {size}\n-rw-r--r-- {owner} 1.2K {time} a\ndrwx------ {owner} {size} {time} d",
        ),
        ("total 12\nof all", "total 12\nof all"),
        ("token sk-" + "a1B2" * 8, "token [API key]"),
        ("2 files, 3 items, 17, 1:02, v1.2.3", "2 files, 3 items, 17, 1:02, v1.2.3"),
        ("f'{cwd}'", "f'{cwd}'"),
        ("  x\n", "x"),
    ],
)
def test_what_differs_from_run_to_run(text, normal):
    assert normalise_text(text, HIDE) == normal
    assert normalise_text(normal, HIDE) == normal


VOLATILE_BITS = st.lists(
    st.sampled_from(
        (
            *(
                "/tmp",
                "/home/ann",
                "/",
                "tmp",
                "tmpx",
                "{tmp}",
                "{name}",
                "0x",
                "abcdef1",
                "12",
                "s",
                "pid",
            ),
            *("2026-11-21T10:00", ":", "Z", "5 ms", "-", "e", ".", "}", "seconds", "\n", " "),
            *("Nov", "Sat", "2026", "10:00:00", "m", "MB/s", "call_", "localhost", "In [", "]"),
        )
    ),
    max_size=12,
).map("".join)


@given(VOLATILE_BITS)
@example("/tmp.10:00:00")
@example("/home/ann.5 ms")
def test_normalising_twice_changes_nothing(text):
    once = normalise_text(text, HIDE)
    assert normalise_text(once, HIDE) == once


# -- the difference --------------------------------------------------------------------------------


def test_only_lines_that_differ_are_shown():
    assert short_diff("same\nold\nsame", "same\nnew\nsame") == "-old\n+new"
    assert short_diff("a\nb", "a") == "-b"
    assert short_diff("", "b") == "+b"


def test_a_long_difference_is_cut_and_shows_both_sides():
    old = "\n".join(f"line {number}" for number in range(100))
    diff = short_diff(old, "nothing").splitlines()
    assert len(diff) == 7
    assert diff[-1] == "…"
    assert "+nothing" in diff


def test_of_a_long_line_the_place_that_differs_is_shown():
    old, new = "x" * 5000 + "old" + "y" * 5000, "x" * 5000 + "new" + "y" * 5000
    before, after = short_diff(old, new).splitlines()
    assert len(before) <= SHOWN_WIDTH + 1
    assert "old" in before
    assert "new" in after


def test_very_long_outputs_are_compared_quickly():
    lines = [f"line {number}" for number in range(50_000)]
    diff = short_diff("\n".join(lines), "\n".join(lines[:40_000]) + "\nother\n" * 10_000)
    assert diff.splitlines()[0] == "-line 40000"
    assert "+other" in diff


def test_a_line_that_was_added_to_a_very_long_output_is_found():
    lines = ["a", "b"] * 5000
    changed = [*lines[:4000], "new", *lines[4000:]]
    assert short_diff("\n".join(lines), "\n".join(changed)) == "+new"


@given(st.text(), st.text())
def test_a_difference_is_always_short(old, new):
    diff = short_diff(old, new)
    assert len(diff.splitlines()) <= 7 or len(diff) <= 8 * (SHOWN_WIDTH + 1)
    assert (diff == "") == (old.splitlines() == new.splitlines())
