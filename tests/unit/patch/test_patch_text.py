"""One text in place of another: exact, once, and with the file's own line ends."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.patch.files import decode_text
from agent_magics.patch.replacement import ReplaceText, read_replacement, replace_text
from agent_magics.protocol.errors import RespondToModel


def replaced(data: bytes, old: str, new: str) -> bytes:
    text = decode_text(data)
    found = replace_text(text, ReplaceText("f", old, new))
    after = replace(text.edited(found.edits), terminated=found.terminated)
    return after.encode()


@pytest.mark.parametrize(
    ("data", "old", "new", "after"),
    [
        (b"a\nb\n", "a\nb\n", "c\n", b"c\n"),
        (b"a\nb\nc\n", "b", "x\ny", b"a\nx\ny\nc\n"),
        (b"a\nb\nc\n", "b\n", "", b"a\nc\n"),
        (b"a\n\nb\n", "a\n", "x", b"x\nb\n"),
        (b"one two three\n", "two", "2", b"one 2 three\n"),
        (b"a\nb\n", "a\nb\n", "", b""),
        (b"a\nb\n", "b\n", "b\nc\n", b"a\nb\nc\n"),
        (b"", "", "a\n", b"a\n"),
        (b"", "", "a", b"a"),
    ],
)
def test_the_text_is_replaced(data, old, new, after):
    assert replaced(data, old, new) == after


def test_line_ends_belong_to_the_file():
    assert replaced(b"a\r\nb\r\nc\r\n", "a\nb\n", "a\nx\ny\n") == b"a\r\nx\r\ny\r\nc\r\n"
    assert replaced(b"a\nb\n", "a\r\nb\r\n", "x\r\n") == b"x\n"


def test_the_last_line_has_an_end_where_the_text_says_so():
    assert replaced(b"a\nb", "a", "x") == b"x\nb"
    assert replaced(b"a\nb", "b", "x") == b"a\nx"
    assert replaced(b"a\nb\n", "b\n", "x") == b"a\nx"
    assert replaced(b"a\nb", "b", "b\n") == b"a\nb\n"


@pytest.mark.parametrize(
    ("data", "old", "why"),
    [
        (b"a\n", "b", "was not found"),
        (b"a\nb\na\n", "a", "at lines 1, 3; give more"),
        (b"aaa\n", "aa", "at lines 1, 1;"),
        (b"a\n" * 20, "a", "1, 2, 3, 4, 5, 6, 7, 8 and more"),
        (b"a\n", "", "there already"),
    ],
)
def test_what_is_not_there_exactly_once_is_refused(data, old, why):
    with pytest.raises(RespondToModel, match=why):
        replaced(data, old, "x")


@pytest.mark.parametrize("new", ["a\0", "\ud800"])
def test_what_no_text_file_can_hold_is_refused(new):
    with pytest.raises(RespondToModel, match="updated_content holds"):
        read_replacement("f", "", new)


LINES = st.lists(st.text("ab", max_size=3), max_size=6)


@given(LINES, st.integers(0, 20), st.integers(1, 8), st.text("ab\n", max_size=5))
def test_it_is_what_replacing_the_text_gives(lines, start, length, new):
    whole = "".join(f"{line}\n" for line in lines)
    old = whole[start : start + length]
    if not old or whole.find(old) != whole.rfind(old):
        return
    assert replaced(whole.encode(), old, new) == whole.replace(old, new).encode()
