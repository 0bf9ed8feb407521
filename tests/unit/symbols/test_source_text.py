"""Lines and positions of a text."""

import re

from hypothesis import given
from hypothesis import strategies as st

from agent_magics.symbols.text import SourceText
from agent_magics.symbols.types import Position


@given(st.lists(st.sampled_from(["a", "é🐍", "\n", "\r\n", "\r", "\x0b", "\u2028", ""])))
def test_lines_end_as_servers_say(parts):
    text = "".join(parts)
    source, lines = SourceText(text), re.split(r"\r\n|\n|\r", text)
    assert [source.line(number) for number in range(source.line_count)] == lines
    for offset in range(len(text)):
        if text[offset - 1 : offset + 1] != "\r\n":  # no place is between the two
            assert source.offset(source.position(offset)) == min(offset, len(text))


@given(st.text(st.sampled_from("aé🐍€\n"), max_size=12), st.integers(0, 40))
def test_columns_in_bytes_are_those_of_the_text(text, column):
    source = SourceText(text)
    for number in range(source.line_count):
        line = source.line(number)
        column = min(column, len(line.encode()))
        there = len(line.encode()[:column].decode("utf-8", "ignore"))
        start = source.offset(Position(number, 0))
        assert source.offset_of_bytes(number, column) == start + there
