"""Windows of text files: reading costs what is shown, not what is there."""

import codecs
import errno
import io
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from agent_magics.backends.beneath import PathChanged, open_file
from agent_magics.backends.paths import nearest_names, printable
from agent_magics.protocol.errors import RespondToModel

LINE_CHARACTERS = 2_000
COUNTED_BYTES = 64 * 1024 * 1024  # up to this size all lines of a file are counted
_WINDOW_BYTES = 16 * 1024 * 1024  # most bytes that one window reads after its first line
_CHUNK_BYTES = 256 * 1024
_SNIFFED_BYTES = 8 * 1024
_TOLERATED_LOSS = 0.3  # share of undecodable bytes at the start that text in Latin-1 stays below
_TOLERATED_BYTES = 16
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LOST_BYTE = re.compile("[\udc80-\udcff]")  # how `surrogateescape` keeps an undecodable byte
# What the first five bits of a character's first byte say of its length; 1 and the rest aside.
_UTF8_LENGTHS = {**dict.fromkeys(range(24, 28), 2), **dict.fromkeys(range(28, 30), 3), 30: 4}
_KINDS = {
    stat.S_IFDIR: "a folder; use list_dir",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link now",
}


@dataclass(frozen=True, slots=True)
class Encoding:
    """How the bytes of a text file are to be read.

    Attributes:
        name: the codec's name, without the byte order mark.
        mark: bytes of the byte order mark at the start.
    """

    name: str
    mark: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a window: its first `LINE_CHARACTERS` characters, and how long it really is.

    Attributes:
        length: characters of the whole line without its end; for an unfinished one, at least that.
        size: bytes of the whole line with its end.
        ended: False when the window's own limit came before the end of the line.
        ends_crlf: whether it ends as lines do on Windows.
    """

    text: str
    length: int
    size: int
    ended: bool = True
    ends_crlf: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """Some lines of a file, and what is known of the rest.

    Attributes:
        first: number of the first line, counted from 1; from `offset`, where that was given.
        total: number of lines in the whole file, or None when they were not counted.
        more: whether the file goes on after these lines.
        offset: byte at which the first of these lines starts.
        size: bytes of the whole file.
        lost: bytes that are not text in this encoding, in the lines read.
    """

    lines: tuple[Line, ...]
    first: int
    total: int | None
    more: bool
    offset: int
    size: int
    encoding: Encoding
    lost: int = 0


def open_regular(path: Path, shown: str) -> int:
    """Open a regular file for reading and return its descriptor, which the caller closes.

    No link is followed and it is the opened file that is looked at, so that nothing can be put in
    its place meanwhile; a FIFO or a device neither blocks nor is touched.

    Args:
        path: an absolute path without symlinks.
        shown: how messages name it.

    Raises:
        RespondToModel: there is no such file, it is no regular file, or it may not be read.
    """
    try:
        _refuse_irregular(os.lstat(path), shown)
        descriptor = open_file(str(path))
    except OSError as error:
        raise RespondToModel(explain(error, path, shown)) from None
    try:
        _refuse_irregular(os.fstat(descriptor), shown)
    except RespondToModel:
        os.close(descriptor)
        raise
    return descriptor


def opened_path(descriptor: int) -> Path | None:
    """Return where the opened file really stands, or None where the system does not tell."""
    try:
        return Path(os.readlink(f"/proc/self/fd/{descriptor}"))
    except OSError:
        return None


def explain(error: OSError, path: Path, shown: str) -> str:
    """Say in one sentence why `path` could not be used, and what there is instead."""
    if isinstance(error, PathChanged):
        return f"{shown} leads elsewhere now than it did when it was checked. Call again."
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        if not os.path.isdir(path.parent):
            return f"There is no {shown}: its folder does not exist."
        near = ", ".join(printable(name) for name in nearest_names(path))
        return f"There is no {shown}." + (
            f" Did you mean, in the same folder: {near}?" if near else ""
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{shown} may not be read by this user."
    return f"{shown} cannot be opened: {error.strerror}."


def _refuse_irregular(status: os.stat_result, shown: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "no regular file")
        raise RespondToModel(f"{shown} is {kind}; only regular files are read.")


def detect_encoding(head: bytes, size: int, shown: str) -> Encoding:
    """Return how a file that starts with `head` is to be read.

    Raises:
        RespondToModel: it is no text.
    """
    for mark, name in _BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return Encoding(name, len(mark))
    lost = len(_LOST_BYTE.findall(head.decode("utf-8", "surrogateescape")))
    if b"\0" in head or lost > max(_TOLERATED_LOSS * len(head), _TOLERATED_BYTES):
        raise RespondToModel(
            f"{shown} ({size:,} bytes) is binary, or text in neither UTF-8 nor UTF-16; "
            "look at it with a program that knows its format."
        )
    return Encoding("utf-8")


def read_window(
    descriptor: int,
    shown: str,
    first: int = 1,
    count: int = 250,
    offset: int | None = None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Window:
    """Read `count` lines of an opened file, from line `first` on; memory is that of the window.

    Args:
        descriptor: the opened file.
        shown: how messages name it.
        first: number of the first line wanted, from 1; counted from `offset` where that is given.
        count: most lines to read.
        offset: byte to start at instead of the start of the file, which costs no time.
        is_cancelled: asked now and then; True ends the reading.

    Raises:
        RespondToModel: the file is no text, ends before `first` or `offset`, or was cancelled.
    """
    encoding, start = _where_to_start(descriptor, shown, offset)
    size = os.fstat(descriptor).st_size
    text = _LineReader(_decoded(descriptor, start, encoding, is_cancelled), encoding)
    skipped = text.skip(first - 1)
    if skipped < first - 1 or (first > 1 and text.at_end()):
        raise RespondToModel(_too_short(shown, skipped, first))
    text.at_end()  # looks ahead, so that the position is that of the line to come
    begin = text.byte_position
    lines = tuple(text.take(count))
    lost, more, total = text.lost, not text.at_end(), None
    if offset is None and (not more or size < COUNTED_BYTES):
        rest_of_last = bool(lines) and not lines[-1].ended
        total = first - 1 + len(lines) + text.skip_all() - rest_of_last
    return Window(lines, first, total, more, begin, size, encoding, lost)


def read_text(
    descriptor: int, shown: str, first: int = 1, count: int | None = None, offset: int | None = None
) -> tuple[str, int]:
    """Return lines of an opened file exactly as they stand there; without limits, the whole text.

    Args:
        descriptor: the opened file.
        shown: how messages name it.
        first: number of the first line wanted, from 1; counted from `offset` where that is given.
        count: most lines to return, None for all.
        offset: byte to start at instead of the start of the file.

    Returns:
        (text, number of bytes that are no text and were replaced).

    Raises:
        RespondToModel: the file is no text, or ends before `first` or `offset`.
    """
    encoding, start = _where_to_start(descriptor, shown, offset)
    with open(descriptor, "rb", closefd=False) as raw:
        raw.seek(start)
        errors = "surrogateescape" if encoding.name == "utf-8" else "replace"
        lines = io.TextIOWrapper(raw, encoding.name, errors, newline="\n")
        skipped = sum(1 for _ in islice(lines, first - 1))
        text = "".join(islice(lines, count))
        if first > 1 and not text:
            raise RespondToModel(_too_short(shown, skipped, first))
        lines.detach()
    return _LOST_BYTE.subn("\ufffd", text)


def _where_to_start(descriptor: int, shown: str, offset: int | None) -> tuple[Encoding, int]:
    size = os.fstat(descriptor).st_size
    encoding = detect_encoding(os.pread(descriptor, _SNIFFED_BYTES, 0), size, shown)
    if offset is None:
        return encoding, encoding.mark
    if offset and offset >= size:
        raise RespondToModel(f"{shown} has only {size:,} bytes, so nothing is at byte {offset:,}.")
    return encoding, _character_start(descriptor, offset, encoding)


def _too_short(shown: str, lines: int, first: int) -> str:
    return f"{shown} has {lines:,} line{'s' * (lines != 1)}, so there is no line {first:,}."


def _character_start(descriptor: int, offset: int, encoding: Encoding) -> int:
    """Move `offset` to the start of the next character, so that none is read in half."""
    offset = max(offset, encoding.mark)
    if encoding.name != "utf-8":
        return offset + offset % 2
    for back in range(1, min(3, offset) + 1):
        around = os.pread(descriptor, 4, offset - back)
        length = _UTF8_LENGTHS.get(around[0] >> 3 if around else 0, 0)
        if length > back and len(around[:length].decode("utf-8", "surrogateescape")) == 1:
            return offset - back + length
    return offset


def _decoded(
    descriptor: int, start: int, encoding: Encoding, is_cancelled: Callable[[], bool]
) -> Iterator[tuple[int, str]]:
    """Yield (byte where it starts, text) of a file, chunk by chunk."""
    # UTF-16 has no way to keep a wrong byte; there the replacement itself stands in the text.
    errors = "surrogateescape" if encoding.name == "utf-8" else "replace"
    decoder = codecs.getincrementaldecoder(encoding.name)(errors)
    while chunk := os.pread(descriptor, _CHUNK_BYTES, start):
        if is_cancelled():
            raise RespondToModel("Interrupted while reading.")
        held_back = len(decoder.getstate()[0])  # the start of a character cut by the last chunk
        yield start - held_back, decoder.decode(chunk)
        start += len(chunk)
    yield start - len(decoder.getstate()[0]), decoder.decode(b"", final=True)


class _LineReader:
    """Cuts a stream of text into lines without ever holding more of a line than is shown.

    A line ends with "\\n"; a "\\r" before it belongs to the end. A last line without an end counts.
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
        """Byte of the file that comes next; right as soon as `at_end` was asked."""
        return self._buffer_start + self._size_of(self._buffer[: self._position])

    def at_end(self) -> bool:
        """Tell whether all text was taken or passed over."""
        while self._position >= len(self._buffer):
            following = next(self._chunks, None)
            if following is None:
                return True
            self._buffer_start, self._buffer = following
            self._position = 0
        return False

    def skip(self, count: int) -> int:
        """Pass over `count` lines, or as many as there are; return how many."""
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
        """Pass over the rest; return how many lines it has."""
        passed, last = 0, "\n"
        while not self.at_end():
            passed += self._buffer.count("\n", self._position)
            last = self._buffer[-1]
            self._position = len(self._buffer)
        return passed + (last != "\n")

    def take(self, count: int) -> Iterator[Line]:
        """Yield the next `count` lines, as far as the window's limit in bytes goes."""
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
        return Line(_LOST_BYTE.sub("\ufffd", text), length, size, ended or self.at_end(), crlf)

    def _size_of(self, text: str) -> int:
        return len(text.encode(self._encoding.name, "surrogateescape"))

    def _lost_in(self, piece: str) -> int:
        if self._encoding.name != "utf-8":
            return piece.count("\ufffd")
        return 0 if piece.isascii() else len(_LOST_BYTE.findall(piece))
