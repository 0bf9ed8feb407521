"""Reads the front matter of a Markdown file: the small part of YAML that people write there.

A line is ``key: value``. A value is plain or quoted text, a list (``[a, b]``, or lines ``- a``), or
a block of text (``|`` or ``>``). Mappings, which no key of ours has, are kept as they are written.
Anything else of YAML (anchors, tags, nested lists) is an error that names its line.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

Value: TypeAlias = str | tuple[str, ...]

_END = re.compile(r"(?:---|\.\.\.)[ \t]*")
_PAIR = re.compile(r"([A-Za-z_][\w.-]{0,63})[ \t]*:(?:[ \t]+(.*)|[ \t]*)")
_BLOCK = re.compile(r"([|>])[+-]?")
_SINGLE = re.compile(r"'((?:[^']|'')*)'(?:[ \t]+#.*)?")
_DOUBLE = re.compile(r'("(?:[^"\\]|\\.)*+")(?:[ \t]+#.*)?')
_COMMENT = re.compile(r"(?:^|(?<=[ \t]))#.*")
# An entry of a list and the comma behind it; in quotes it may have commas of its own.
_ENTRY = re.compile(r"""([ \t]*(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*')?[^,]*),""")
_RESERVED = tuple("'\"[]&*!%@`")
_MOST_LINES, _MOST_CHARACTERS = 200, 1 << 16


class NotFrontMatter(ValueError):
    """The front matter cannot be read; the text says which line and why."""


def split_front_matter(text: str) -> tuple[dict[str, Value], str]:
    """Split a Markdown text into its front matter and the rest.

    Args:
        text: the file; front matter stands between two lines ``---`` at its very beginning.

    Returns:
        The values by key, none where there is no front matter, and the text below it.

    Raises:
        NotFrontMatter: it is not closed, or a line is not of the supported part of YAML.
    """
    lines = text.splitlines()
    if not lines or lines[0].rstrip() != "---":
        return {}, text
    ends = (n for n, line in enumerate(lines[1 : _MOST_LINES + 2], 1) if _END.fullmatch(line))
    end = next(ends, None)
    if end is None:
        raise NotFrontMatter(f"no line --- ends the front matter within {_MOST_LINES} lines")
    if sum(map(len, lines[:end])) > _MOST_CHARACTERS:
        raise NotFrontMatter(f"its front matter has more than {_MOST_CHARACTERS:,} characters")
    return _FrontMatterReader(lines[1:end]).read(), "\n".join(lines[end + 1 :])


class _FrontMatterReader:
    """Reads the lines between the fences, from the first to the last."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._at = 0  # the line that is read next

    def read(self) -> dict[str, Value]:
        """Return the values by key."""
        found: dict[str, Value] = {}
        while self._at < len(self._lines):
            line = self._lines[self._at]
            self._at += 1
            if not _uncommented(line):
                continue
            pair = _PAIR.fullmatch(line)
            if pair is None:
                raise self._error("expected `key: value`")
            if pair[1] in found:
                raise self._error(f"the key {pair[1]!r} stands twice")
            found[pair[1]] = self._value((pair[2] or "").strip())
        return found

    def _value(self, text: str) -> Value:
        if block := _BLOCK.fullmatch(text):
            return ("\n" if block[1] == "|" else " ").join(map(str.strip, self._below())).strip()
        if not _uncommented(text):
            return self._below_a_key()
        if text.startswith("["):
            return self._list(_uncommented(text))
        return self._scalar(text)

    def _below(self) -> Iterator[str]:
        """Yield the lines that belong to the last key: indented ones, entries, and empty ones."""
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.strip() and not line.startswith((" ", "\t", "- ")):
                return
            self._at += 1
            yield line

    def _below_a_key(self) -> Value:
        lines, entries = list[str](), list[str]()
        for line in self._below():
            lines.append(line)
            if line.lstrip().startswith("- "):
                entries.append(self._scalar(line.lstrip()[2:].strip()))
            elif entries and _uncommented(line):
                raise self._error("expected `- entry`")
        return tuple(entries) if entries else "\n".join(lines).strip()

    def _list(self, text: str) -> Value:
        if not text.endswith("]"):
            raise self._error("the list has no closing ]")
        inside = text[1:-1].strip()
        entries = _ENTRY.findall(f"{inside},") if inside else []
        return tuple(self._scalar(entry.strip()) for entry in entries)

    def _scalar(self, text: str) -> str:
        if single := _SINGLE.fullmatch(text):
            return single[1].replace("''", "'")
        if double := _DOUBLE.fullmatch(text):
            try:
                return str(json.loads(double[1]))
            except ValueError:
                raise self._error("an escape in the quotes is not known") from None
        if text.startswith(_RESERVED):
            raise self._error(f"a value cannot begin with {text[0]}; put it into quotes")
        return _uncommented(text)

    def _error(self, why: str) -> NotFrontMatter:
        return NotFrontMatter(f"line {self._at + 1}: {why}")


def _uncommented(text: str) -> str:
    return _COMMENT.sub("", text, count=1).strip()
