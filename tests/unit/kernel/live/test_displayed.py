"""Of a long text of live code its beginning and its end are kept, and with it the last value."""

import io
import json
import struct
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.kernel.live.capture import Capture
from agent_magics.kernel.live.displayed import KEPT_CHARACTERS, KeptText, in_brief
from agent_magics.kernel.live.scratch_driver import Channel
from agent_magics.tools.code.scratch_process import _RunMessages

CONTEXT: Any = SimpleNamespace(emit=lambda *_, **__: None)


@given(st.lists(st.text("ab\n", max_size=9)), st.integers(1, 20))
def test_the_beginning_and_the_end_are_kept_and_the_rest_is_counted(pieces, half):
    kept, whole = KeptText(2 * half), "".join(pieces)
    first = "".join(map(kept.add, pieces))
    assert first == whole[:half]
    assert kept.ends_line == (not whole or whole.endswith("\n"))
    omitted = len(whole) - 2 * half
    if omitted <= 0:
        assert kept.text == whole
    else:
        end = f"… {omitted} characters left out …\n{whole[-half:]}"
        assert kept.text.startswith(whole[:half]) and kept.text.endswith(end)
        assert len(kept.text) - len(whole[:half]) - len(end) <= 1


def test_what_comes_in_many_pieces_takes_no_memory():
    kept = KeptText(20)
    for number in range(5_000):
        kept.add(f"{number}\n")
    assert kept.text == "0\n1\n2\n3\n4\n… 23870 characters left out …\n4998\n4999\n"
    assert len(kept._tail) < 2_000


def live(pieces: list[str]) -> str:
    capture = Capture(CONTEXT)
    for each in pieces:
        capture.write(each)
    capture.display({"text/plain": "0.9312"})
    return capture.text


def scratch(pieces: list[str]) -> str:
    file, messages = io.BytesIO(), _RunMessages(CONTEXT)
    channel = Channel(file)
    for each in [*pieces, "0.9312\n"]:
        channel.say(each)
    channel.end_run()
    file.seek(0)
    while head := file.read(4):
        messages.take(json.loads(file.read(struct.unpack("!I", head)[0])))
    return messages.text


@pytest.mark.parametrize("run", [live, scratch])
def test_a_progress_bar_is_one_line_and_hides_no_value(run):
    bar = [f"\r{number:6}|{'#' * 100}" for number in range(2 * KEPT_CHARACTERS // 100)]
    assert run([*bar[:50], "\n"]) == f"    49|{'#' * 100}\n0.9312\n"
    text = run([*bar, "\n"])
    assert len(text) < 1_000 and " characters left out …\n" in text
    assert text.endswith(f"|{'#' * 100}\n0.9312\n")


@pytest.mark.parametrize("run", [live, scratch])
def test_after_a_flood_the_value_is_there(run):
    text = run(["x" * 1_000 + "\n"] * 3_000)
    assert text.endswith("\n0.9312\n") and len(text) < KEPT_CHARACTERS + 100


def test_a_text_that_is_kept_by_its_ends_alone_counts_as_cut():
    for size, is_cut in ((10, False), (100_000, False), (KEPT_CHARACTERS, True)):
        value = "x" * size
        assert in_brief(value, {"text/plain": repr(value)})[1] == is_cut


@pytest.mark.soak
def test_many_short_pieces_take_no_more_room_than_few_long_ones():
    kept, count = KeptText(), 400_000
    for _ in range(count):
        kept.add("0123456789\n")
    assert len(kept.text) < KEPT_CHARACTERS + 100
    assert kept._tail_size < KEPT_CHARACTERS
    assert kept.text.endswith("0123456789\n" * 3)
