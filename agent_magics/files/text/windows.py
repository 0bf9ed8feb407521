"""Reads ranges of lines from text files, at a cost that depends on the range and not on the
file.
"""

import codecs
import errno
import io
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from agent_magics.files.beneath import PathChanged, open_file
from agent_magics.files.paths import nearest_names, printable
from agent_magics.files.text.encoding import LOST_BYTE, SNIFFED_BYTES, Encoding, detect_encoding
from agent_magics.files.text.lines import Line, LineReader, count_lines, decoded, skip_lines
from agent_magics.protocol.errors import RespondToModel, clause

COUNTED_BYTES = 64 * 1024 * 1024  # lines are counted up to this file size
# Length of a multi-byte character, by the upper five bits of its first byte.
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
class TextWindow:
    """Lines of a file with their line breaks, unshortened.

    Attributes:
        lost: number of undecodable bytes; each is replaced by U+FFFD.
    """

    text: str
    encoding: Encoding
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """A range of lines of a file, and facts about the rest.

    Attributes:
        first: number of the first line, from 1; counted from `offset`, where that was given.
        total: number of lines in the whole file, or None when they were not counted.
        more: whether the file continues after these lines.
        offset: byte offset of the first of these lines.
        size: bytes of the whole file.
        lost: undecodable bytes in these lines.
    """

    lines: tuple[Line, ...]
    first: int
    total: int | None
    more: bool
    offset: int
    size: int
    encoding: Encoding
    lost: int = 0


def open_regular(path: Path, shown: str, is_withheld: Callable[[str], bool] | None = None) -> int:
    """Open a regular file for reading and return its descriptor, which the caller closes.

    No link is followed, and the opened file itself is checked, so that it cannot be replaced in
    between; a FIFO or a device neither blocks nor is read.

    Args:
        path: an absolute path without symlinks.
        shown: its name in messages.
        is_withheld: tells whether messages may not name a path.

    Raises:
        RespondToModel: there is no such file, it is not regular, or it may not be read.
    """
    try:
        _refuse_irregular(os.lstat(path), shown)
        descriptor = open_file(str(path))
    except OSError as error:
        raise RespondToModel(explain(error, path, shown, is_withheld)) from None
    try:
        _refuse_irregular(os.fstat(descriptor), shown)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def opened_path(descriptor: int) -> Path | None:
    """Return the current path of an opened file, or None where the system does not report it."""
    try:
        return Path(os.readlink(f"/proc/self/fd/{descriptor}"))
    except OSError:
        return None


def explain(
    error: OSError,
    path: Path,
    shown: str,
    is_withheld: Callable[[str], bool] | None = None,
) -> str:
    """Return one sentence on why `path` could not be used, with similar names where it is
    missing.
    """
    if isinstance(error, PathChanged):
        return f"{shown} leads elsewhere now than it did when it was checked. Call again."
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        if not os.path.isdir(path.parent):
            return f"There is no {shown}: its folder does not exist."
        near = ", ".join(printable(name) for name in nearest_names(path, is_withheld))
        return f"There is no {shown}." + (
            f" Did you mean, in the same folder: {near}?" if near else ""
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{shown} may not be read by this user."
    return f"{shown} cannot be opened: {clause(error)}."


def _refuse_irregular(status: os.stat_result, shown: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "no regular file")
        raise RespondToModel(f"{shown} is {kind}; only regular files are read.")


def read_window(
    descriptor: int,
    shown: str,
    first: int = 1,
    count: int = 250,
    offset: int | None = None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Window:
    """Read `count` lines of an opened file from line `first` on, holding only these in memory.

    Args:
        descriptor: the opened file.
        shown: its name in messages.
        first: number of the first line wanted, from 1; counted from `offset` where that is given.
        count: maximal number of lines to read.
        offset: byte to start at instead of the start of the file; reached without reading what
            precedes.
        is_cancelled: polled while reading; True ends it.

    Raises:
        RespondToModel: the file is not text, ends before `first` or `offset`, or was cancelled.
    """
    encoding, start = _where_to_start(descriptor, shown, offset)
    size = os.fstat(descriptor).st_size
    skipped = 0
    if encoding.width == 1:  # lines are skipped as bytes, which takes a fifth of the time
        skipped, start = skip_lines(descriptor, start, first - 1, is_cancelled)
    text = LineReader(decoded(descriptor, start, encoding, is_cancelled), encoding)
    skipped += text.skip(first - 1 - skipped)
    if skipped < first - 1 or (first > 1 and text.at_end()):
        raise RespondToModel(_too_short(shown, skipped, first))
    text.at_end()  # loads the next chunk, so that the position is that of the next line
    begin = text.byte_position
    lines = tuple(text.take(count))
    lost, more, total = text.lost, not text.at_end(), None
    if offset is None and (not more or size < COUNTED_BYTES):
        rest_of_last = bool(lines) and not lines[-1].ended
        if encoding.width == 1:
            rest = count_lines(descriptor, text.byte_position, is_cancelled)
        else:
            rest = text.skip_all()
        total = first - 1 + len(lines) + rest - rest_of_last
    return Window(lines, first, total, more, begin, size, encoding, lost)


def read_text(
    descriptor: int, shown: str, first: int = 1, count: int | None = None, offset: int | None = None
) -> TextWindow:
    """Return lines of an opened file with their line breaks; without limits, the whole text.

    Args:
        descriptor: the opened file.
        shown: its name in messages.
        first: number of the first line wanted, from 1; counted from `offset` where that is given.
        count: maximal number of lines to return, None for all.
        offset: byte to start at instead of the start of the file.

    Raises:
        RespondToModel: the file is not text, or ends before `first` or `offset`.
    """
    encoding, start = _where_to_start(descriptor, shown, offset)
    with open(descriptor, "rb", closefd=False) as raw:
        raw.seek(start)
        lines = io.TextIOWrapper(raw, encoding.name, encoding.errors, newline="\n")
        skipped = sum(1 for _ in islice(lines, first - 1))
        text = "".join(islice(lines, count))
        if first > 1 and not text:
            raise RespondToModel(_too_short(shown, skipped, first))
        lines.detach()
    shown_text, lost = LOST_BYTE.subn("\ufffd", text)
    return TextWindow(shown_text, encoding, lost)


def read_start(descriptor: int, shown: str, size: int) -> TextWindow:
    """Return the text of an opened file's first `size` bytes; see `read_text`.

    Raises:
        RespondToModel: the file is not text.
    """
    encoding, start = _where_to_start(descriptor, shown, None)
    decoder = codecs.getincrementaldecoder(encoding.name)(encoding.errors)
    text, lost = LOST_BYTE.subn("\ufffd", decoder.decode(os.pread(descriptor, size, start)))
    return TextWindow(text, encoding, lost)


def _where_to_start(descriptor: int, shown: str, offset: int | None) -> tuple[Encoding, int]:
    size = os.fstat(descriptor).st_size
    encoding = detect_encoding(os.pread(descriptor, SNIFFED_BYTES, 0), size, shown)
    if offset is None:
        return encoding, encoding.mark
    if offset and offset >= size:
        raise RespondToModel(f"{shown} has only {size:,} bytes, so nothing is at byte {offset:,}.")
    return encoding, _character_start(descriptor, offset, encoding)


def _too_short(shown: str, lines: int, first: int) -> str:
    return f"{shown} has {lines:,} line{'s' * (lines != 1)}, so there is no line {first:,}."


def _character_start(descriptor: int, offset: int, encoding: Encoding) -> int:
    """Move `offset` to the next start of a character, so that none is read in half."""
    offset = max(offset, encoding.mark)
    if encoding.name != "utf-8":
        return offset + -offset % encoding.width
    for back in range(1, min(3, offset) + 1):
        around = os.pread(descriptor, 4, offset - back)
        length = _UTF8_LENGTHS.get(around[0] >> 3 if around else 0, 0)
        if length > back and len(around[:length].decode("utf-8", "surrogateescape")) == 1:
            return offset - back + length
    return offset
