"""Searching files for a regular expression: with ripgrep where there is one, else with Python.

Law: both engines are handed the same files and report the same lines. Which files those are,
`search_files` decides. An engine is handed opened files, since by then a path may lead elsewhere.
"""

import base64
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_magics.backends.folders import name_matcher
from agent_magics.backends.paths import shown_path
from agent_magics.backends.search_engine import SearchEngine, choose_engine
from agent_magics.backends.search_files import SearchedFiles

SECONDS = 30.0
LINE_CHARACTERS = 500
_SHOWN_BEFORE_HIT = 100
_MATCH_RECORD = b'{"type":"match"'


@dataclass(frozen=True, slots=True)
class Match:
    """A line that matched.

    Attributes:
        path: its file, relative to the working folder where it is inside.
        line: its number, from 1.
        text: the line; a long one is cut around what matched.
        before: (number, text) of the lines before it, as many as were asked for.
        after: the same for the lines after it.
    """

    path: str
    line: int
    text: str
    before: tuple[tuple[int, str], ...] = ()
    after: tuple[tuple[int, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


@dataclass(frozen=True, slots=True)
class Found:
    """The first matches of a search, and the true counts.

    Attributes:
        total: lines that matched in all, of which `matches` are the first.
        files: files with at least one of them.
        searched: files that were looked into.
        protected: files and folders left out because only the person may read them.
        unreadable: files that could not be read.
        complete: False when the time was over first; the counts are then lower bounds.
    """

    matches: tuple[Match, ...]
    total: int
    files: int
    searched: int
    protected: int
    unreadable: int
    complete: bool


def search(
    root: Path,
    pattern: str,
    *,
    cwd: Path,
    file_pattern: str | None = None,
    case_sensitive: bool = True,
    max_results: int | None = None,
    context: int = 0,
    guarded: bool = False,
    distrusted: Sequence[Path] = (),
    is_cancelled: Callable[[], bool] = lambda: False,
    seconds: float = SECONDS,
) -> Found:
    """Search a file, or the files below a folder, line by line.

    Args:
        root: an absolute path without symlinks.
        pattern: a regular expression, held against one line at a time.
        cwd: what the paths of the result are relative to.
        file_pattern: glob the files have to match; see `folders.name_matcher`.
        case_sensitive: False treats capital and small letters as equal.
        max_results: most matches to keep; all are counted. None keeps all.
        context: lines to keep before and after each match.
        guarded: leave protected files out.
        distrusted: folders whose programs are not run, because a model may have written them.
        is_cancelled: asked ten times a second; True ends the search.
        seconds: how long the search may take.

    Raises:
        RespondToModel: `pattern` is no regular expression, or the search was cancelled.
    """
    deadline = time.monotonic() + seconds
    command = choose_engine(pattern, case_sensitive, context, distrusted)
    files = SearchedFiles(root, name_matcher(file_pattern), guarded, is_cancelled, deadline)
    collector = _Collector(cwd, max_results, context)
    engine = SearchEngine(is_cancelled, deadline)
    for batch in files.batches():
        with files.opened(batch) as opened:
            for record in engine.records(command, opened):
                collector.add(record, opened)
        if engine.timed_out:
            break
    return Found(
        tuple(collector.matches),
        collector.total,
        collector.files,
        files.searched,
        files.protected,
        engine.unreadable + files.unreadable,
        complete=not (engine.timed_out or files.timed_out),
    )


# -- what they say -------------------------------------------------------------------------------


@dataclass(slots=True)
class _Collector:
    """Reads the engines' records; keeps the first matches and counts them all.

    A file counts only once it is over, because a NUL late in it makes it binary after all.
    """

    cwd: Path
    limit: int | None
    context: int
    matches: list[Match] = field(default_factory=list)
    total: int = 0
    files: int = 0
    _count: int = 0
    _lines: list[tuple[int, str, bool]] = field(default_factory=list)
    _last_kept: int = 0

    def add(self, record: bytes, opened: Mapping[int, str]) -> None:
        """Take one record in; it names a file by its descriptor, a key of `opened`."""
        is_match = record.startswith(_MATCH_RECORD)
        if is_match:
            self._count += 1
            if not self.context and not self._has_room():
                return
        if not record:
            return
        parsed = json.loads(record)
        kind, data = parsed["type"], parsed["data"]
        if kind == "begin":
            self._count, self._lines, self._last_kept = 0, [], 0
        elif kind == "end":
            self._end_file(data, opened)
        elif kind in ("match", "context"):
            self._keep_line(data, is_match)

    def _has_room(self) -> bool:
        return self.limit is None or len(self.matches) + self._count <= self.limit

    def _keep_line(self, data: dict[str, Any], is_match: bool) -> None:
        number = data["line_number"]
        is_kept_match = is_match and self._has_room()
        if is_kept_match:
            self._last_kept = number
        # Past the last match that is kept, a line is of use only as its context.
        if is_kept_match or self._has_room() or number <= self._last_kept + self.context:
            start = data["submatches"][0]["start"] if data.get("submatches") else 0
            raw = _bytes_of(data["lines"])
            hit = len(raw[:start].decode("utf-8", "replace"))
            text = raw.decode("utf-8", "replace").rstrip("\r\n")
            self._lines.append((number, _shortened(text, hit), is_kept_match))

    def _end_file(self, data: dict[str, Any], opened: Mapping[int, str]) -> None:
        if data.get("binary_offset") is not None or not self._count:
            return
        self.total += self._count
        self.files += 1
        if not self._lines:
            return
        descriptor = int(_bytes_of(data["path"]).rpartition(b"/")[2])
        path = shown_path(Path(opened[descriptor]), self.cwd)
        for at, (number, text, is_match) in enumerate(self._lines):
            if is_match:
                around = self._lines[max(0, at - self.context) : at + self.context + 1]
                near = [(n, t) for n, t, _ in around if abs(n - number) <= self.context]
                before = tuple((n, t) for n, t in near if n < number)
                after = tuple((n, t) for n, t in near if n > number)
                self.matches.append(Match(path, number, text, before, after))


def _bytes_of(data: dict[str, str]) -> bytes:
    if "bytes" in data:
        return base64.b64decode(data["bytes"])
    return data["text"].encode("utf-8", "surrogateescape")


def _shortened(text: str, hit: int) -> str:
    """Cut a long line to `LINE_CHARACTERS` around character `hit`, and say so."""
    if len(text) <= LINE_CHARACTERS:
        return text
    start = max(0, min(hit - _SHOWN_BEFORE_HIT, len(text) - LINE_CHARACTERS))
    piece = text[start : start + LINE_CHARACTERS]
    return f"{'…' if start else ''}{piece}… [{LINE_CHARACTERS} of {len(text):,} characters]"
