"""Locates the chunks of a patch in a file and computes the edits; it writes no file.

Law: a chunk is applied at a unique place or not at all. Exact matches are preferred to inexact
ones, and if two places match equally well and neither an anchor nor a line number decides, the
patch is refused.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from unicodedata import normalize

from agent_magics.patch.grammar import Chunk
from agent_magics.protocol.errors import RespondToModel

_DASHES = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"), "-")
_SINGLE_QUOTES = dict.fromkeys(map(ord, "\u2018\u2019\u201a\u201b"), "'")
_DOUBLE_QUOTES = dict.fromkeys(map(ord, "\u201c\u201d\u201e\u201f"), '"')
_SPACES = dict.fromkeys([0xA0, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000], " ")
_PLAIN = _DASHES | _SINGLE_QUOTES | _DOUBLE_QUOTES | _SPACES


def _fold(line: str) -> str:
    return normalize("NFC", with_plain_signs(line)).strip()


def with_plain_signs(text: str) -> str:
    """Return `text` with ASCII dashes, quotes and spaces; the length is unchanged."""
    return text.translate(_PLAIN)


# Levels of matching: name for messages, normalisation of lines; the first level that matches is
# used.
_LEVELS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("", str),
    ("trailing whitespace", str.rstrip),
    ("whitespace", str.strip),
    ("punctuation", _fold),
)
_IGNORES_INDENT = 2
_BEGINNING = "beginning of the line"

# Limit of candidates listed in a message.
_SHOWN = 8
# Lines of the file, and of the chunk, shown when a chunk is not found.
_WINDOW = 12
_LINE_LIMIT = 200


@dataclass(frozen=True, slots=True)
class Edit:
    """Replaces lines `start` to `end` (from 0, `end` not included) by `lines`."""

    start: int
    end: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Fit:
    """Where a chunk is applied, and the level at which it matched."""

    start: int
    level: int = 0


class LineIndex:
    """An index of a file's lines for each level of matching.

    Args:
        lines: the file.
        asked: all lines that will be searched for; indexing all lines would cost most of the time.
    """

    def __init__(self, lines: Sequence[str], asked: Iterable[str]) -> None:
        self.lines = lines
        self._asked = frozenset(asked)
        self._levels: dict[int, tuple[list[str], dict[str, list[int]]]] = {}
        self._sorted: list[tuple[str, int]] = []

    def level(self, level: int) -> tuple[list[str], dict[str, list[int]]]:
        """Return the normalised lines of `level`, and the positions of each searched one."""
        if level not in self._levels:
            normal = _LEVELS[level][1]
            keys = [normal(line) for line in self.lines] if level else list(self.lines)
            asked = set(map(normal, self._asked))
            table: dict[str, list[int]] = defaultdict(list)
            for number, key in enumerate(keys):
                if key in asked:
                    table[key].append(number)
            self._levels[level] = keys, table
        return self._levels[level]

    def matches(self, pattern: Sequence[str], start: int, level: int) -> Iterator[int]:
        """Yield the positions of `pattern` from line `start` on, in order."""
        keys, table = self.level(level)
        normal = _LEVELS[level][1]
        wanted = [normal(line) for line in pattern]
        # Only the positions of the pattern's rarest line are examined.
        offset = min(range(len(wanted)), key=lambda i: len(table.get(wanted[i], ())))
        places = table.get(wanted[offset], [])
        for at in range(bisect_left(places, start + offset), len(places)):
            first = places[at] - offset
            if keys[first : first + len(wanted)] == wanted:
                yield first

    def beginning_with(self, text: str, start: int) -> list[int]:
        """Return the lines from `start` on that begin with the words of `text`."""
        text = text.strip()
        if not self._sorted:
            self._sorted = sorted((line.strip(), n) for n, line in enumerate(self.lines))
        at = bisect_left(self._sorted, (text, -1))
        found = []
        while at < len(self._sorted) and self._sorted[at][0].startswith(text):
            line, number = self._sorted[at]
            # "def a" is the beginning of "def a(b):", not of "def abc():".
            in_word = re.match(r"\w\w", line[len(text) - 1 : len(text) + 1])
            if number >= start and not in_word:
                found.append(number)
            at += 1
        return sorted(found)


def match_chunks(lines: Sequence[str], chunks: Sequence[Chunk]) -> tuple[list[Edit], list[str]]:
    """Locate the chunks, each below the one before.

    Returns:
        The edits in file order, and "line N: applied by: LEVEL" for inexact matches.

    Raises:
        RespondToModel: a chunk matches nowhere or in several places; the message shows the nearest
            lines.
    """
    index = LineIndex(lines, _asked(chunks))
    edits: list[Edit] = []
    notes: list[str] = []
    cursor = drift = 0
    for chunk in chunks:
        place = _locate(index, chunk, cursor, notes, drift)
        if chunk.near is not None:
            drift = place.start - chunk.near
        if place.level:
            notes.append(f"line {place.start + 1}: applied by: {_LEVELS[place.level][0]}")
        edits += _edits_of(chunk, place, lines)
        cursor = place.start + len(chunk.old)
    return edits, notes


def _asked(chunks: Sequence[Chunk]) -> Iterator[str]:
    for chunk in chunks:
        yield from chunk.anchors
        yield from (text for _, text in chunk.lines)


# -- finding a place --------------------------------------------------------------------------


def _locate(index: LineIndex, chunk: Chunk, cursor: int, notes: list[str], drift: int) -> _Fit:
    """Return where a chunk is applied.

    Args:
        index: the file.
        chunk: the chunk.
        cursor: the first line at which it may begin.
        notes: receives notes about inexact matches.
        drift: number of lines by which the previous chunk was below its stated line.
    """
    starts = _seek_anchors(index, chunk, cursor, notes) if chunk.anchors else []
    if not chunk.old:
        return _insertion_place(index, chunk, cursor, starts)
    for level in range(len(_LEVELS)):
        if chunk.at_end:
            places = _place_at_end(index, chunk, max(cursor, *starts[:1], 0), level)
        elif starts:
            places = _places_after(index, chunk.old, [max(s, cursor) for s in starts], level)
        elif chunk.near is not None:
            places = _nearest_to(chunk.near + drift, index.matches(chunk.old, cursor, level))
        else:
            places = _first(index.matches(chunk.old, cursor, level), _SHOWN)
        if len(places) == 1:
            return _Fit(places[0], level)
        if places:
            raise RespondToModel(_ambiguous("its lines are", chunk, places))
    raise RespondToModel(_miss(index, chunk, cursor, starts))


def _first(found: Iterator[int], limit: int) -> list[int]:
    return [place for place, _ in zip(found, range(limit), strict=False)]


def _nearest_to(near: int, places: Iterator[int]) -> list[int]:
    """Return the position nearest to a line; two if they are equally near."""
    found = list(places)
    least = min((abs(place - near) for place in found), default=0)
    return [place for place in found if abs(place - near) == least]


def _place_at_end(index: LineIndex, chunk: Chunk, lowest: int, level: int) -> list[int]:
    start = len(index.lines) - len(chunk.old)
    return _first(index.matches(chunk.old, start, level), 1) if start >= lowest else []


def _places_after(
    index: LineIndex, pattern: Sequence[str], starts: Sequence[int], level: int
) -> list[int]:
    """Return the first position of `pattern` from each of `starts` on, without duplicates."""
    places: list[int] = []
    for start in starts:
        if places and start <= places[-1]:
            continue
        found = _first(index.matches(pattern, start, level), 1)
        if not found or len(places) == _SHOWN:
            break
        places += found
    return places


def _insertion_place(index: LineIndex, chunk: Chunk, cursor: int, starts: Sequence[int]) -> _Fit:
    """Return where a chunk of only added lines goes: below its anchor, else at the file's end."""
    if chunk.near is not None:
        return _Fit(max(cursor, min(chunk.near, len(index.lines))))
    if not starts or chunk.at_end:
        return _Fit(len(index.lines))
    if len(starts) > 1:
        raise RespondToModel(_ambiguous(f"'@@ {chunk.anchors[-1]}' is", chunk, starts[:_SHOWN]))
    if starts[0] + 1 < cursor:
        raise RespondToModel(
            f"{_name(chunk)}: '@@ {chunk.anchors[-1]}' is line {starts[0] + 1}, above the end of "
            "the chunk before it; write the chunks in the order of the file"
        )
    return _Fit(starts[0] + 1)


def _seek_anchors(index: LineIndex, chunk: Chunk, cursor: int, notes: list[str]) -> list[int]:
    """Return the lines that match the last anchor, each below a match of the anchor before it."""
    starts: list[int] = []
    for number, anchor in enumerate(chunk.anchors):
        by, found = _seek(index, anchor, starts if number else [cursor - 1], number == 0)
        if not found and number == 0:
            # Later chunks of a function often repeat its anchor, which is then above the cursor.
            by, found = _seek(index, anchor, [-1], True)
            found = found[-1:]
        if not found:
            raise RespondToModel(_anchor_miss(index, chunk, anchor, starts))
        starts = found
        if by:
            notes.append(f"line {found[0] + 1}: anchor '@@ {anchor}' applied by: {by}")
    return starts


def _seek(
    index: LineIndex, anchor: str, above: Sequence[int], every: bool
) -> tuple[str, list[int]]:
    """Return the lines below `above` that match `anchor`: all, or the first below each."""
    for level, (by, _) in enumerate(_LEVELS):
        if every:
            found = list(index.matches([anchor], above[0] + 1, level))
        else:
            found = _places_after(index, [anchor], [line + 1 for line in above], level)
        if found:
            return by, found
    lines = index.beginning_with(anchor, above[0] + 1)
    if every:
        return _BEGINNING, lines
    firsts = {lines[at] for line in above if (at := bisect_left(lines, line + 1)) < len(lines)}
    return _BEGINNING, sorted(firsts)


# -- edits ------------------------------------------------------------------------------------


def _edits_of(chunk: Chunk, place: _Fit, lines: Sequence[str]) -> list[Edit]:
    """Return one edit for each run of removed and added lines; context keeps the file's text."""
    fit = _Indent(chunk, place, lines) if place.level >= _IGNORES_INDENT else None
    edits: list[Edit] = []
    start = at = below = place.start
    added: list[str] = []
    for sign, text in (*chunk.lines, (" ", "")):
        if sign == "+":
            below = below if added else at
            added.append(text)
            continue
        if sign == " ":
            if added or at > start:
                fitting = fit.adapt(added, below - place.start) if fit else added
                edits.append(Edit(start, at, tuple(fitting)))
            start, added = at + 1, []
        at += 1
    return edits


class _Indent:
    """Adapts the indentation of added lines to that of the file."""

    def __init__(self, chunk: Chunk, place: _Fit, lines: Sequence[str]) -> None:
        there = lines[place.start : place.start + len(chunk.old)]
        self._pairs = [
            (_indent(wrote), _indent(real), number)
            for number, (wrote, real) in enumerate(zip(chunk.old, there, strict=True))
            if wrote.strip()
        ]
        self._written = {wrote for wrote, _, _ in self._pairs}
        self._there = {real for _, real, _ in self._pairs}
        self._old, self._new, self._ratio = self._units()

    def _units(self) -> tuple[str, str, float]:
        """Return the characters of both indentations, and how many new ones replace an old one."""
        for wrote, real, _ in self._pairs:
            if {wrote[:1], real[:1]} == {" ", "\t"} and len({*wrote}) == len({*real}) == 1:
                return wrote[0], real[0], len(real) / len(wrote)
        return "", "", 1.0

    def adapt(self, added: Sequence[str], offset: int) -> list[str]:
        """Return lines added below the chunk's old line `offset`, with the file's indentation.

        If the first added line has an indentation that occurs in the file but not in the chunk's
        old lines, the added lines already follow the file: then only those indented like the old
        lines are changed.
        """
        first = next((_indent(line) for line in added if line.strip()), "")
        if first in self._written or first not in self._there:
            return [self._moved(line, offset) for line in added]
        foreign = self._written - self._there
        return [self._moved(line, offset) if _indent(line) in foreign else line for line in added]

    def _moved(self, text: str, offset: int) -> str:
        """Return `text` with the file's indentation of the nearest old line of similar depth."""
        wrote = _indent(text)
        if not self._pairs or wrote == text:
            return text
        body = text[len(wrote) :]
        near, real, _ = min(
            self._pairs, key=lambda pair: (abs(len(pair[0]) - len(wrote)), abs(pair[2] - offset))
        )
        if wrote.startswith(near):
            return real + self._convert(wrote[len(near) :]) + body
        if near.startswith(wrote):
            surplus = self._convert(near[len(wrote) :])
            if real.endswith(surplus):
                return real[: len(real) - len(surplus)] + body
        return text

    def _convert(self, indent: str) -> str:
        if self._old and set(indent) == {self._old}:
            return self._new * round(len(indent) * self._ratio)
        return indent


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


# -- error messages ---------------------------------------------------------------------------


def _name(chunk: Chunk) -> str:
    return chunk.asked_as or f"the chunk at line {chunk.line} of the patch"


def _ambiguous(what: str, chunk: Chunk, places: Sequence[int]) -> str:
    numbers = ", ".join(str(place + 1) for place in places)
    more = " and more" if len(places) == _SHOWN else ""
    anchor = ", or a line '@@ ' with the def, class or heading above the place you mean"
    return (
        f"{_name(chunk)} fits in several places: {what} at lines {numbers}{more}; add lines "
        f"around it{'' if chunk.asked_as else anchor}"
    )


def _anchor_miss(index: LineIndex, chunk: Chunk, anchor: str, starts: Sequence[int]) -> str:
    below = f" below line {starts[0] + 1}" if starts else ""
    shown = _window(index, _nearest(index, [anchor], 0), 3)
    return f"{_name(chunk)}: no line{below} is '@@ {anchor}'; nearest lines of the file:\n{shown}"


def _miss(index: LineIndex, chunk: Chunk, cursor: int, starts: Sequence[int]) -> str:
    """Return the message for a chunk that was not found, with a reason and the nearest lines."""
    wanted = "\n".join(line[:_LINE_LIMIT] for line in chunk.old[:_WINDOW])
    if len(chunk.old) > _WINDOW:
        wanted += f"\n({len(chunk.old) - _WINDOW} more lines)"
    nearest = _nearest(index, chunk.old, cursor)
    shown = _window(index, nearest, min(len(chunk.old) + 2, _WINDOW))
    why = _why_missed(index, chunk, cursor, starts)
    return (
        f"{_name(chunk)} was not found{why}. It expects:\n{wanted}\n"
        f"Nearest lines of the file:\n{shown}"
    )


def _why_missed(index: LineIndex, chunk: Chunk, cursor: int, starts: Sequence[int]) -> str:
    anywhere = _anywhere(index, chunk.old)
    if anywhere is not None:
        line = f"its lines stand at line {anywhere + 1}"
        if chunk.at_end and anywhere >= cursor:
            return f": {line}, which is not the end of the file"
        if starts and anywhere >= cursor:
            return f" below '@@ {chunk.anchors[-1]}': {line}"
        return f": {line}, above the end of the chunk before it; keep the order of the file"
    changed = any(sign == "+" and text.strip() for sign, text in chunk.lines)
    done = _anywhere(index, chunk.new) if changed else None
    if done is not None:
        return f": what it would make is already there, at line {done + 1}"
    return ""


def _anywhere(index: LineIndex, pattern: Sequence[str]) -> int | None:
    levels = range(len(_LEVELS))
    return next((place for level in levels for place in index.matches(pattern, 0, level)), None)


def _nearest(index: LineIndex, pattern: Sequence[str], cursor: int) -> int:
    """Return where most lines of `pattern` occur together, else the line with most of its words."""
    folded = [_fold(line) for line in pattern]
    _, table = index.level(len(_LEVELS) - 1)
    votes: dict[int, int] = {}
    for offset, line in enumerate(folded):
        # Very frequent lines do not help to locate it.
        places = table.get(line, ()) if line else ()
        for place in places if len(places) <= 1000 else ():
            votes[place - offset] = votes.get(place - offset, 0) + 1
    if votes:
        return max(0, min(votes, key=lambda start: (-votes[start], abs(start - cursor))))
    words = set(re.findall(r"\w+", " ".join(folded[:_WINDOW])))
    scores = [
        (len(words.intersection(re.findall(r"\w+", line))), -abs(number - cursor), number)
        for number, line in enumerate(index.lines)
    ]
    return max(scores)[2] if scores else 0


def _window(index: LineIndex, start: int, height: int) -> str:
    first = max(0, start - 1)
    lines = index.lines[first : first + height]
    shown = (f"{first + n:4}| {line[:_LINE_LIMIT]}" for n, line in enumerate(lines, start=1))
    return "\n".join(shown) or "(the file is empty)"
