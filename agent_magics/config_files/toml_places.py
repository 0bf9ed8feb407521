"""Parses TOML files with the line of every table and key, which tomllib does not report.

A configuration file may come with an untrusted project: it must be a regular file of bounded size,
else the error names it.
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from agent_magics.files.plain_files import load_toml, read_plain
from agent_magics.protocol.errors import FatalError, clause, short_message

_DEEPEST = 4  # names of a path by whose beginning a line is found
_LINE = re.compile(r"\s*\(at line (\d+), column (\d+)\)\Z")
_PART = r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|[A-Za-z0-9_-]+"
_DOTTED = rf"\s*((?:{_PART})(?:\s*\.\s*(?:{_PART}))*)\s*"
_TABLE = re.compile(rf"\s*\[{_DOTTED}\]")
_ARRAY = re.compile(rf"\s*\[\[{_DOTTED}\]\]")
_KEY = re.compile(rf"{_DOTTED}=")
_SPECIAL = re.compile(r'"""|\'\'\'|"(?:[^"\\]|\\.)*"|\'[^\']*\'|[#\[\]{}]')
# The rest of a text in three quotes; up to two more right before its end belong to the text.
_ENDS = {
    '"""': re.compile(r'(?>(?:[^"\\]+|\\.|"(?!""))*)"{3,5}'),
    "'''": re.compile(r"(?>(?:[^']+|'(?!''))*)'{3,5}"),
}


# -- reading --------------------------------------------------------------------------------------


def read_settings(path: Path, what: str, *, links: bool) -> bytes | None:
    """Read the bytes of a configuration file.

    Args:
        path: the file.
        what: its kind of content, for an error's sentence ("rules").
        links: whether it may be a symbolic link, as the person's own files may.

    Returns:
        Its bytes, or None where there is no file.

    Raises:
        FatalError: it exists and cannot be read.
    """
    try:
        return read_plain(path, links=links)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise FatalError(f"The {what} in {path} cannot be read: {clause(error)}.") from None


def decode(data: bytes, path: Path) -> str:
    """Decode the content of a file as UTF-8.

    Raises:
        FatalError: it is not UTF-8; the message names file and line.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FatalError(f"{path}, line {line}: this is not UTF-8 text; mend the file.") from None


def parse_toml(text: str, path: Path) -> dict[str, object]:
    """Parse TOML text.

    Raises:
        FatalError: it is not TOML; the message names file and line.
    """
    try:
        return load_toml(text)
    except tomllib.TOMLDecodeError as error:
        found = _LINE.search(short_message(error))
        line = int(found[1]) if found else text.count("\n") + 1
        what = _LINE.sub("", short_message(error)).replace(" (at end of document)", "")
        raise FatalError(f"{path}, line {line}: this is not TOML: {clause(what)}.") from None
    except ValueError as error:
        raise FatalError(f"{path}: this TOML is not read: {clause(error)}.") from None


# -- line numbers ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Statement:
    """A table header, or a key with its value.

    Attributes:
        path: names from the outermost, including those of the table that contains it.
        kind: "table", "array" (a table of an array of tables) or "key".
        first, last: its lines, counted from 1.
    """

    path: tuple[str, ...]
    kind: str
    first: int
    last: int


class TomlPlaces:
    """The statements of a valid TOML text, in order, with their line numbers."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.statements = tuple(_statements(self.lines))
        self._exact: dict[tuple[str, ...], int] = {}
        self._beginning: dict[tuple[str, ...], int] = {}
        for each in self.statements:
            self._exact.setdefault(each.path, each.first)
            for count in range(1, min(len(each.path), _DEEPEST) + 1):
                self._beginning.setdefault(each.path[:count], each.first)

    def line_of(self, *path: str) -> int:
        """Return the line of a key or table, or of the nearest table around it, counted from 1."""
        if path in self._exact:
            return self._exact[path]
        counts = range(min(len(path), _DEEPEST), 0, -1)
        return next((line for n in counts if (line := self._beginning.get(path[:n]))), 1)


def _statements(lines: list[str]) -> Iterator[Statement]:
    table: tuple[str, ...] = ()
    at = 0
    while at < len(lines):
        line, first = lines[at], at + 1
        quote, depth = _state_after(line, "", 0)
        while (quote or depth) and at + 1 < len(lines):
            at += 1  # the value spans lines
            quote, depth = _state_after(lines[at], quote, depth)
        at += 1
        if header := _ARRAY.match(line):
            table = _names(header[1])
            yield Statement(table, "array", first, at)
        elif header := _TABLE.match(line):
            table = _names(header[1])
            yield Statement(table, "table", first, at)
        elif key := _KEY.match(line):
            yield Statement(table + _names(key[1]), "key", first, at)


@lru_cache(maxsize=512)
def _names(dotted: str) -> tuple[str, ...]:
    return tuple(_name(part) for part in re.findall(_PART, dotted))


def _name(part: str) -> str:
    if part[0] not in "\"'":
        return part
    return str(tomllib.loads(f"name = {part}")["name"])


def _state_after(line: str, quote: str, depth: int) -> tuple[str, int]:
    """Return the open multi-line quote and the depth of brackets at the end of a line."""
    at = 0
    while at < len(line):
        if quote:
            end = _ENDS[quote].match(line, at)
            if end is None:
                return quote, depth
            at, quote = end.end(), ""
            continue
        found = _SPECIAL.search(line, at)
        if found is None or found[0] == "#":
            break
        at = found.end()
        if found[0] in ('"""', "'''"):
            quote = found[0]
        elif found[0] in "[{":
            depth += 1
        elif found[0] in "]}":
            depth -= 1
    return quote, depth
