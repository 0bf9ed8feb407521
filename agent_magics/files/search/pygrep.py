"""Searches files without ripgrep, as a separate script so that an endless regex can be killed.

Run as ``python -I -S -X utf8 pygrep.py PATTERN CASE BREAKS KINDS CONTEXT FILE...`` with CASE "s"
(sensitive) or "i", BREAKS "lf", or "crlf" where no match may contain a carriage return, and KINDS
"text", or "all" where files with NUL bytes are searched, too. It prints the records of
``rg --json`` that `matches.py` reads, and imports nothing of the package. Its exit code is 2 when
PATTERN is not a regular expression; standard error then says why.

A file is read in blocks of whole lines. Where every match has to contain a certain text, blocks and
lines without that text are skipped, which makes the search fast.
"""

import base64
import codecs
import collections
import io
import json
import os
import re
import resource
import sys
from collections.abc import Iterable, Iterator
from re import _constants as codes  # type: ignore[attr-defined] # in no stub
from re import _parser as parser  # type: ignore[attr-defined] # in no stub
from typing import Any

_BLOCK = 256 * 1024
# Seconds of processor time. The caller ends a search long before; this limit ends one whose caller
# was killed, which an endless regex would not notice.
_MOST_SECONDS = 600
# ASCII letters equal to a non-ASCII one when case is ignored: dotless i, long s, the kelvin sign
_FOLDED_FROM_AFAR = frozenset(map(ord, "iIkKsS"))
_LOOKS_AHEAD = re.compile(r"\$|\\Z|\(\?[=!]")
_WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def main(arguments: list[str]) -> int:
    """Search every file; return the exit code."""
    resource.setrlimit(resource.RLIMIT_CPU, (_MOST_SECONDS, _MOST_SECONDS))
    pattern, case, breaks, kinds, context, *files = arguments
    try:
        regex = re.compile(pattern, re.IGNORECASE if case == "i" else 0)
    except (re.error, OverflowError, RecursionError) as error:
        sys.stderr.write(str(error))
        return 2
    search = Search(regex, int(context), is_crlf=breaks == "crlf", takes_nul=kinds == "all")
    for path in files:
        try:
            search.file(path)
        except OSError as error:
            sys.stderr.write(f"{path!a}: {error.strerror}\n")
    return 0


# -- the text that every match contains ------------------------------------------------------------


def required_text(regex: re.Pattern[str]) -> bytes:
    """Return the longest text that each match of `regex` contains, in lower case if case is
    ignored.

    Empty where none is known.
    """
    try:
        parsed = parser.parse(regex.pattern, regex.flags & re.IGNORECASE)
    except (re.error, OverflowError, RecursionError):
        return b""
    ignores_case = bool(parsed.state.flags & re.IGNORECASE)
    runs = _runs(parsed)
    if ignores_case:
        runs = (part for run in runs for part in _foldable(run))
    longest = max(runs, key=len, default=[])
    text = "".join(map(chr, longest))
    return (text.lower() if ignores_case else text).encode("utf-8", "replace")


def _runs(parsed: Iterable[tuple[Any, Any]]) -> Iterator[list[int]]:
    """Yield the sequences of literal characters that every match contains."""
    run: list[int] = []
    for kind, value in parsed:
        if kind is codes.LITERAL:
            run.append(value)
            continue
        if kind is codes.AT:
            continue
        yield run
        run = []
        if kind is codes.SUBPATTERN and not value[1] and not value[2]:
            yield from _runs(value[3])
        elif kind in (codes.MAX_REPEAT, codes.MIN_REPEAT) and value[0] > 0:
            yield from _runs(value[2])
    yield run


def _foldable(run: list[int]) -> Iterator[list[int]]:
    part: list[int] = []
    for code in run:
        if code < 128 and code not in _FOLDED_FROM_AFAR:
            part.append(code)
        else:
            yield part
            part = []
    yield part


# -- searching -------------------------------------------------------------------------------------


class Search:
    """Finds the matching lines of files, and prints them with `context` lines around each."""

    def __init__(
        self, regex: re.Pattern[str], context: int, *, is_crlf: bool, takes_nul: bool
    ) -> None:
        self.regex = regex
        self.is_crlf = is_crlf
        self.takes_nul = takes_nul
        self.unmatched = re.compile("[\r\udc80-\udcff]" if is_crlf else "[\udc80-\udcff]")
        self.looks_ahead = bool(_LOOKS_AHEAD.search(regex.pattern))
        self.context = context
        self.needle = required_text(regex)
        self.folds = bool(regex.flags & re.IGNORECASE)
        self.buffer = bytearray(_BLOCK)

    def file(self, path: str) -> None:
        """Search one file."""
        self.path, self.begun, self.left_after, self.number = path, False, 0, 0
        self.before: collections.deque[tuple[int, bytes]] = collections.deque(maxlen=self.context)
        with open_file(path) as file:
            head = os.pread(file.fileno(), 3, 0)
            if head.startswith(_WIDE_MARKS):
                is_text = self._wide_lines(file)
            else:
                marked = head.startswith(codecs.BOM_UTF8)
                is_text = self._blocks(file, len(codecs.BOM_UTF8) if marked else 0)
        if self.begun:
            show("end", path=path, binary_offset=None if is_text else self.number)

    def _wide_lines(self, file: io.FileIO) -> bool:
        """Search a file with a UTF-16 byte order mark; return whether it is text."""
        for text in io.TextIOWrapper(io.BufferedReader(file), "utf-16", "replace", newline="\n"):
            if "\0" in text and not self.takes_nul:
                return False
            self._line(text.encode())
        return True

    def _blocks(self, file: io.FileIO, start: int) -> bool:
        """Search a file block by block; return whether it is text."""
        likely_only = bool(self.needle) and not self.context
        counted = start  # lines are counted up to this byte
        for at, end in self._filled(file, start):
            if self._is_binary(end):
                return False
            if not self._may_match(end):
                if (
                    not likely_only
                ):  # else they are counted only after a match: most files have none
                    self._pass_over(lines_of(bytes(self.buffer[:end])))
            elif likely_only:
                self.number += count_lines(file.fileno(), counted, at)
                counted = at + self._only_likely(bytes(self.buffer[:end]))
            else:
                for line in lines_of(bytes(self.buffer[:end])):
                    self._line(line)
        return True

    def _filled(self, file: io.FileIO, start: int) -> Iterator[tuple[int, int]]:
        """Fill the buffer with whole lines repeatedly; yield (offset in the file, length)."""
        file.seek(start)
        held = 0
        while read := file.readinto(memoryview(self.buffer)[held:]):
            held += read
            end = self.buffer.rfind(b"\n", 0, held) + 1
            if not end and self._is_binary(held):
                end = held  # binary: no need to wait for the end of the line
            if end:
                yield start, end
                start += end
                self.buffer[: held - end] = self.buffer[end:held]
                held -= end
            elif held == len(self.buffer):
                self.buffer.extend(bytes(held))
        if held:
            yield start, held

    def _is_binary(self, end: int) -> bool:
        return not self.takes_nul and self.buffer.find(b"\0", 0, end) >= 0

    def _may_match(self, end: int) -> bool:
        looked_in = self.buffer[:end].lower() if self.folds and self.needle else self.buffer
        return not self.needle or looked_in.find(self.needle, 0, end) >= 0

    def _pass_over(self, lines: list[bytes]) -> None:
        """Count lines that cannot match, and print or keep those that are context of others."""
        if self.context:
            for number, line in enumerate(lines[: self.left_after], self.number + 1):
                show_line("context", number, line)
            first = max(len(lines) - self.context, self.left_after)
            self.left_after = max(0, self.left_after - len(lines))
            self.before.extend(enumerate(lines[first:], self.number + first + 1))
        self.number += len(lines)

    def _only_likely(self, block: bytes) -> int:
        """Match only lines that contain the required text; return up to where lines were
        counted.
        """
        looked_in = block.lower() if self.folds else block
        counted = 0
        at = looked_in.find(self.needle)
        while at >= 0:
            start = block.rfind(b"\n", 0, at) + 1
            end = block.find(b"\n", at) + 1 or len(block)
            self.number += block.count(b"\n", counted, start)
            self._line(block[start:end])
            counted = end
            at = looked_in.find(self.needle, end)
        return counted

    def _line(self, line: bytes) -> None:
        self.number += 1
        start = self._found(line.rstrip(b"\r\n") if self.is_crlf else line.removesuffix(b"\n"))
        if start is not None:
            if not self.begun:
                show("begin", path=self.path)
            self.begun = True
            for earlier in self.before:
                show_line("context", *earlier)
            self.before.clear()
            show_line("match", self.number, line, start)
            self.left_after = self.context
        elif self.left_after:
            show_line("context", self.number, line)
            self.left_after -= 1
        elif self.context:
            self.before.append((self.number, line))

    def _found(self, line: bytes) -> int | None:
        """Return the byte offset of the first match in `line`."""
        try:
            text = line.decode()
        except UnicodeDecodeError:
            return self._found_between(line)
        if self.is_crlf and "\r" in text:
            return self._found_between(line)
        found = self.regex.search(text)
        return None if found is None else len(text[: found.start()].encode())

    def _found_between(self, line: bytes) -> int | None:
        """Return the byte offset of the first match in a line with what no match may contain:
        undecodable bytes, and carriage returns in "crlf".

        Each is replaced by a line break, as which the dot does not match it. The parts between are
        searched each by itself; but of a pattern that looks ahead, to which the end of a part would
        be the end of the line, matches that contain a break are skipped.
        """
        decoded = line.decode("utf-8", "surrogateescape")
        text = self.unmatched.sub("\n", decoded)
        found = self._between_breaks(text) if self.looks_ahead else self._within_parts(text)
        if found is None:
            return None
        return len(decoded[: found.start()].encode("utf-8", "surrogateescape"))

    def _within_parts(self, text: str) -> re.Match[str] | None:
        start = 0
        for part in text.split("\n"):
            end = start + len(part)
            if found := self.regex.search(text, start, end):
                return found
            start = end + 1
        return None

    def _between_breaks(self, text: str) -> re.Match[str] | None:
        if text.endswith("\n"):
            text += "\n"  # else `$` would match before a final line break that replaces a byte
        found = self.regex.search(text)
        while found is not None and "\n" in found[0]:
            found = self.regex.search(text, found.start() + 1)
        return found


# -- reading and printing --------------------------------------------------------------------------


def open_file(path: str) -> io.FileIO:
    """Open a regular file."""
    folder, _, name = path.rpartition("/")
    if folder == "/dev/fd":  # opened already, by the process that started this one
        return io.FileIO(os.dup(int(name)))
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
    return io.FileIO(os.open(path, flags))


def count_lines(descriptor: int, start: int, end: int) -> int:
    """Count the line breaks between two byte offsets of a file."""
    count = 0
    while start < end and (block := os.pread(descriptor, min(_BLOCK, end - start), start)):
        count += block.count(b"\n")
        start += len(block)
    return count


def lines_of(block: bytes) -> list[bytes]:
    """Split a block into lines, keeping their line breaks."""
    lines = [line + b"\n" for line in block.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def show_line(kind: str, number: int, line: bytes, start: int | None = None) -> None:
    """Print one line of a file; `start` is the byte offset of its match."""
    hits = [] if start is None else [{"start": start}]
    try:
        lines = {"text": line.decode()}
    except UnicodeDecodeError:
        lines = {"bytes": base64.b64encode(line).decode()}
    show(kind, lines=lines, line_number=number, submatches=hits)


def show(kind: str, path: str | None = None, **data: object) -> None:
    """Print one record."""
    if path is not None:
        data["path"] = {"text": path}
    sys.stdout.write(json.dumps({"type": kind, "data": data}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
