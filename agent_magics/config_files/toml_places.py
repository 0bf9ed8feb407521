"""TOML files with the line of every table and key, which tomllib does not tell, read with care.

A file of settings may stand in a project of strangers: it is a plain file of bounded size, or an
error that names it.
"""

import os
import re
import stat
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from agent_magics.protocol.errors import FatalError

_MOST_BYTES = 1 << 20
_LINE = re.compile(r"\s*\(at line (\d+), column (\d+)\)\Z")
_PART = r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|[A-Za-z0-9_-]+"
_DOTTED = rf"\s*((?:{_PART})(?:\s*\.\s*(?:{_PART}))*)\s*"
_TABLE = re.compile(rf"\s*\[{_DOTTED}\]")
_ARRAY = re.compile(rf"\s*\[\[{_DOTTED}\]\]")
_KEY = re.compile(rf"{_DOTTED}=")
_SPECIAL = re.compile(r'"""|\'\'\'|"(?:[^"\\]|\\.)*"|\'[^\']*\'|[#\[\]{}]')


# -- reading --------------------------------------------------------------------------------------


def identity_of(path: Path) -> tuple[int, ...]:
    """Return what changes when a file is written or replaced; () where there is none."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def read_plain(path: Path, what: str) -> bytes | None:
    """Return the bytes of a plain file of bounded size; None where there is no file.

    Args:
        path: where it stands.
        what: what it holds, for the sentence of an error ("rules").

    Raises:
        FatalError: it is there and cannot be read.
    """
    try:
        # Without waiting: a pipe in the project's folder must not stop every run.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise FatalError(f"The {what} in {path} cannot be read: {error.strerror}.") from None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_BYTES:
            raise FatalError(
                f"The {what} in {path} cannot be read: it is no file of at most 1 MiB."
            )
        with os.fdopen(fd, "rb", closefd=False) as file:
            return file.read(_MOST_BYTES)
    finally:
        os.close(fd)


def decode(data: bytes, path: Path) -> str:
    """Return the text of a file.

    Raises:
        FatalError: it is not UTF-8; says file and line.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FatalError(f"{path}, line {line}: this is not UTF-8 text; mend the file.") from None


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    """Return what a TOML text says.

    Raises:
        FatalError: it is not TOML; says file and line.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _LINE.search(str(error))
        line = int(found[1]) if found else text.count("\n") + 1
        what = _LINE.sub("", str(error)).replace(" (at end of document)", "")
        raise FatalError(f"{path}, line {line}: this is not TOML: {what}.") from None


# -- where things stand ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Statement:
    """A header of a table, or a key with its value.

    Attributes:
        path: the names from the top, those of the table before it included.
        kind: "table", "array" (a table of an array of tables) or "key".
        first, last: its lines, counted from 1.
    """

    path: tuple[str, ...]
    kind: str
    first: int
    last: int


class TomlPlaces:
    """The statements of a valid TOML text, in order; only the text's lines are looked at."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.statements = tuple(_statements(self.lines))

    def line_of(self, *path: str) -> int:
        """Return the line of a key or table, else of the nearest thing that it stands in."""
        best, line = 0, 1
        for statement in self.statements:
            if statement.path == path:
                return statement.first
            shared = _shared(statement.path, path)
            if shared > best:
                best, line = shared, statement.first
        return line


def _shared(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def _statements(lines: list[str]) -> Iterator[Statement]:
    table: tuple[str, ...] = ()
    at = 0
    while at < len(lines):
        line, first = lines[at], at + 1
        quote, depth = _state_after(line, "", 0)
        while (quote or depth) and at + 1 < len(lines):
            at += 1  # the value goes over lines
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
    """Return the open multi-line quote and the depth of brackets behind a line."""
    at = 0
    while at < len(line):
        if quote:
            end = line.find(quote, at)
            while quote == '"""' and end > 0 and _is_escaped(line, end):
                end = line.find(quote, end + 1)
            if end < 0:
                return quote, depth
            at = end + 3
            while at < end + 5 and line[at : at + 1] == quote[0]:
                at += 1  # quotes that belong to the text, right before the three that end it
            quote = ""
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


def _is_escaped(line: str, at: int) -> bool:
    before = line[:at]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1
