"""Skips, counts and splits lines of a file without holding a long line in memory."""

import codecs
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from agent_magics.files.text.encoding import LOST_BYTE, Encoding, show_lost
from agent_magics.protocol.errors import RespondToModel

LINE_CHARACTERS = 2_000
_WINDOW_BYTES = 16 * 1024 * 1024  # maximal bytes of one window after its first line
_CHUNK_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file: its first `LINE_CHARACTERS` characters, and its true length.

    Attributes:
        length: characters of the whole line without its line break; for an unfinished one, at least
            that.
        size: bytes of the whole line with its line break.
        ended: False when the byte limit of the window was reached before the end of the line.
        ends_crlf: whether it ends with CR LF.
        cut_at: bytes of the line that are in `text`, where that is not all of it; else 0.
    """

    text: str
    length: int
    size: int
    ended: bool = True
    ends_crlf: bool = False
    cut_at: int = 0


def skip_lines(
    descriptor: int, start: int, count: int, is_cancelled: Callable[[], bool]
) -> tuple[int, int]:
    """Skip up to `count` complete lines; return (number skipped, byte offset of the next line)."""
    passed, at, line_start = 0, start, start
    while passed < count and (chunk := os.pread(descriptor, _CHUNK_BYTES, at)):
        _check(is_cancelled)
        here = chunk.count(b"\n")
        if passed + here >= count:
            end = -1
            for _ in range(count - passed):
                end = chunk.index(b"\n", end + 1)
            return count, at + end + 1
        if here:
            line_start = at + chunk.rindex(b"\n") + 1
        passed += here
        at += len(chunk)
    return passed, line_start


def count_lines(
    descriptor: int, at: int = 0, is_cancelled: Callable[[], bool] = lambda: False
) -> int:
    """Count the lines from byte `at` on; a last one without line break counts."""
    passed, last = 0, b"\n"
    while chunk := os.pread(descriptor, _CHUNK_BYTES, at):
        _check(is_cancelled)
        passed += chunk.count(b"\n")
        last = chunk[-1:]
        at += len(chunk)
    return passed + (last != b"\n")


def _check(is_cancelled: Callable[[], bool]) -> None:
    if is_cancelled():
        raise RespondToModel("Interrupted while reading.")


def decoded(
    descriptor: int, start: int, encoding: Encoding, is_cancelled: Callable[[], bool]
) -> Iterator[tuple[int, str]]:
    """Yield (byte offset, text) of a file, chunk by chunk."""
    decoder = codecs.getincrementaldecoder(encoding.name)(encoding.errors)
    while chunk := os.pread(descriptor, _CHUNK_BYTES, start):
        _check(is_cancelled)
        held_back = len(decoder.getstate()[0])  # bytes of a character that the last chunk cut
        yield start - held_back, decoder.decode(chunk)
        start += len(chunk)
    yield start - len(decoder.getstate()[0]), decoder.decode(b"", final=True)


class LineReader:
    r"""Splits a stream of text into lines, holding of each line only the part that is shown.

    A line ends with "\\n"; a "\\r" before it belongs to the line break. A last line without one
    counts.

    Attributes:
        lost: undecodable bytes in the lines taken so far.
    """

    def __init__(self, chunks: Iterator[tuple[int, str]], encoding: Encoding) -> None:
        self._chunks = chunks
        self._encoding = encoding
        self._buffer_start = 0
        self._buffer = ""
        self._position = 0
        self.lost = 0

    @property
    def byte_position(self) -> int:
        """Byte offset of the next line; exact after a call of `at_end`."""
        return self._buffer_start + self._size_of(self._buffer[: self._position])

    def at_end(self) -> bool:
        """Tell whether all text was taken or skipped; loads the next chunk if needed."""
        while self._position >= len(self._buffer):
            following = next(self._chunks, None)
            if following is None:
                return True
            self._buffer_start, self._buffer = following
            self._position = 0
        return False

    def skip(self, count: int) -> int:
        """Skip `count` lines, or as many as there are; return how many."""
        passed = 0
        unfinished = False
        while passed < count and not self.at_end():
            here = self._buffer.count("\n", self._position)
            if passed + here < count:
                passed += here
                unfinished = not self._buffer.endswith("\n")
                self._position = len(self._buffer)
                continue
            for _ in range(count - passed):
                self._position = self._buffer.index("\n", self._position) + 1
            return count
        return passed + unfinished

    def skip_all(self) -> int:
        """Skip the rest; return its number of lines."""
        passed, last = 0, "\n"
        while not self.at_end():
            passed += self._buffer.count("\n", self._position)
            last = self._buffer[-1]
            self._position = len(self._buffer)
        return passed + (last != "\n")

    def take(self, count: int) -> Iterator[Line]:
        """Yield the next `count` lines, up to the byte limit of a window."""
        left = _WINDOW_BYTES
        for _ in range(count):
            if left <= 0 or self.at_end():
                return
            line = self._next_line(left)
            left -= line.size
            yield line

    def _next_line(self, most_bytes: int) -> Line:
        kept, kept_length, length, size, tail = [], 0, 0, 0, ""
        ended = False
        while not ended and size < most_bytes and not self.at_end():
            end = self._buffer.find("\n", self._position)
            ended = end >= 0
            piece = self._buffer[self._position : end + 1 if ended else len(self._buffer)]
            self._position += len(piece)
            if kept_length <= LINE_CHARACTERS:
                kept.append(piece[: LINE_CHARACTERS + 2 - kept_length])
                kept_length += len(kept[-1])
            size += self._size_of(piece)
            length += len(piece)
            tail = (tail + piece[-2:])[-2:]
            self.lost += self._lost_in(piece)
        crlf = tail == "\r\n"
        length -= ended + crlf
        text = "".join(kept)[: min(length, LINE_CHARACTERS)]
        cut_at = self._size_of(text) if len(text) < length else 0
        return Line(show_lost(text), length, size, ended or self.at_end(), crlf, cut_at)

    def _size_of(self, text: str) -> int:
        return len(text.encode(self._encoding.name, "surrogateescape"))

    def _lost_in(self, piece: str) -> int:
        if self._encoding.width > 1:
            return piece.count("\ufffd")
        return 0 if piece.isascii() else len(LOST_BYTE.findall(piece))
