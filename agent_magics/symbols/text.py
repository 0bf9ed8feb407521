"""Converts between offsets in a text, and positions by line and character."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate

from agent_magics.symbols.types import Position, Range

_LOOKED_AT = 10  # times the characters that are wanted
_BREAK = re.compile(r"\r\n|\n|\r")


def one_line(text: str, most: int = 300) -> str:
    """Return a text in one line, with "…" for what is beyond `most` characters."""
    start = text[: _LOOKED_AT * most]  # a text of a server may have megabytes
    joined = " ".join(start.split())
    return joined if len(joined) <= most and start == text else f"{joined[:most]}…"


class SourceText:
    r"""A text and where its lines begin; a line ends at \n, \r\n or \r, as Python and servers say.

    Args:
        text: the whole text of a file, without a byte order mark.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        # Of lines that were asked about: where each character ends, in bytes; None for plain ASCII.
        self._byte_ends: dict[int, list[int] | None] = {}

    @cached_property
    def _starts(self) -> Sequence[int]:
        if "\r" in self.text:
            return [0, *(match.end() for match in _BREAK.finditer(self.text))]
        return [*accumulate((len(line) + 1 for line in self.text.split("\n")), initial=0)][:-1]

    @cached_property
    def is_ascii(self) -> bool:
        """Whether every character is one unit of any encoding."""
        return self.text.isascii()

    @property
    def line_count(self) -> int:
        """The number of lines; a last line break begins one more, which is empty."""
        return len(self._starts)

    def line(self, number: int) -> str:
        """Return line `number`, from 0, without its line break; "" where there is none."""
        return self.text[self._starts[number] : self._end(number)] if self._has(number) else ""

    def _has(self, number: int) -> bool:
        return number < len(self._starts)

    def _end(self, number: int) -> int:
        """Return the offset where a line ends, without its line break."""
        if not self._has(number + 1):
            return len(self.text)
        end = self._starts[number + 1]
        return end - (2 if self.text.startswith("\r\n", end - 2) else 1)

    def offset(self, position: Position) -> int:
        """Return the offset of a position; one beyond its line or the text is its end."""
        if not self._has(position.line):
            return len(self.text)
        return min(self._starts[position.line] + position.character, self._end(position.line))

    def position(self, offset: int) -> Position:
        """Return the position of an offset."""
        line = bisect_right(self._starts, offset) - 1
        return Position(line, offset - self._starts[line])

    def offset_of_bytes(self, line: int, column: int) -> int:
        """Return the offset of `column` bytes of UTF-8 into line `line`, from 0."""
        start = self._starts[line]
        if line not in self._byte_ends:
            text = self.text[start : self._end(line)]
            sizes = (len(sign.encode("utf-8", "surrogatepass")) for sign in text)
            self._byte_ends[line] = None if text.isascii() else [*accumulate(sizes)]
        ends = self._byte_ends[line]
        return start + (column if ends is None else bisect_right(ends, column))

    def range(self, start: int, end: int) -> Range:
        """Return the range between two offsets."""
        return Range(self.position(start), self.position(end))

    def part(self, place: Range) -> str:
        """Return the text of a range."""
        return self.text[self.offset(place.start) : self.offset(place.end)]
