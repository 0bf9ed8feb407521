"""Searches files for a regular expression, with ripgrep if it is installed, else with Python.

Law: both engines get the same files and report the same lines. `search` selects the files. An
engine gets file descriptors and not paths, which could be redirected meanwhile.
"""

import base64
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from agent_magics.files.folders import ALL_RIGHTS, WalkRights
from agent_magics.files.name_globs import name_matcher
from agent_magics.files.paths import shown_path
from agent_magics.files.search.candidates import SearchedFiles
from agent_magics.files.search.engines import SearchEngine, choose_engine

SECONDS = 30.0
LINE_CHARACTERS = 500
_SHOWN_BEFORE_HIT = 100
_MATCH_RECORD = b'{"type":"match"'


@dataclass(frozen=True, slots=True)
class Match:
    """A matching line.

    Attributes:
        path: its file, relative to the working folder where it is inside.
        line: its number, from 1.
        text: the line; a long one is cut around the match.
        before: (number, text) of the context lines before it.
        after: (number, text) of the context lines after it.
    """

    path: str
    line: int
    text: str
    before: tuple[tuple[int, str], ...] = ()
    after: tuple[tuple[int, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


@dataclass(frozen=True, slots=True)
class FileCount:
    """A file and its number of matching lines."""

    path: str
    count: int

    def __str__(self) -> str:
        return f"{self.path}: {self.count:,}"


@dataclass(frozen=True, slots=True)
class Found:
    """The first matches of a search, and counts over the whole search.

    Attributes:
        counts: the first files with matches.
        total: number of all matching lines, of which `matches` are the first.
        files: number of files with a match.
        searched: number of files searched.
        protected: files and folders left out because the model may not read them.
        ignored: files and folders left out because of ignore files.
        ignored_names: the first of these.
        unreadable: files that could not be read.
        complete: False when time ran out; the counts are then lower bounds.
        too_long: files that were not searched, because they have an overlong line.
        unseen: what was not looked through when time ran out; see `FolderWalk.unseen_from`.
        closed: number of folders that could not be read.
    """

    matches: tuple[Match, ...]
    counts: tuple[FileCount, ...]
    total: int
    files: int
    searched: int
    protected: int
    ignored: int
    ignored_names: tuple[str, ...]
    unreadable: int
    complete: bool
    too_long: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    closed: int = 0


def search(
    root: Path,
    pattern: str,
    *,
    cwd: Path,
    file_pattern: str | None = None,
    case_sensitive: bool = True,
    max_results: int | None = None,
    max_files: int | None = None,
    context: int = 0,
    rights: WalkRights = ALL_RIGHTS,
    roots: Sequence[Path] = (),
    seconds: float = SECONDS,
) -> Found:
    """Search a file, or the text files below a folder, line by line.

    Args:
        root: an absolute path without symlinks.
        pattern: a regular expression, matched against one line at a time.
        cwd: the folder to which paths in the result are relative.
        file_pattern: glob that files have to match; see `name_globs.name_matcher`.
        case_sensitive: whether capital and small letters differ.
        max_results: maximal number of matches to keep; all are counted. None keeps all, 0 none.
        max_files: maximal number of files to list with their counts. None lists all.
        context: lines to keep before and after each match.
        rights: what may be read; protected files and folders are left out.
        roots: the workspace's folders; programs in them are not run, because a model may have
            written them, and their protected files are left out under every name.
        seconds: time limit of the search.

    Returns:
        The first matches, and counts over all files.

    Raises:
        RespondToModel: `pattern` is not a regular expression, or the search was cancelled.
    """
    deadline = time.monotonic() + seconds
    is_file = not root.is_dir()
    command, first_batch = choose_engine(pattern, case_sensitive, context, roots, is_file)
    matches = name_matcher(file_pattern)
    files = SearchedFiles(root, matches, rights, deadline, roots, first_batch)
    collector = _Collector(cwd, max_results, max_files, context)
    with SearchEngine(command, rights.is_cancelled, deadline) as engine:
        for batch in files.batches():
            with files.opened(batch) as opened:
                engine.start(opened)
            if engine.is_busy:
                collector.take(*engine.finish_first())
            if engine.timed_out:
                break
        while not (engine.is_idle or engine.timed_out):
            collector.take(*engine.finish_first())
    return Found(
        tuple(collector.matches),
        tuple(collector.counts),
        collector.total,
        collector.files,
        files.searched,
        files.protected,
        files.ignored,
        files.ignored_names,
        engine.unreadable + files.unreadable,
        complete=not (engine.timed_out or files.timed_out),
        too_long=tuple(shown_path(path, cwd) for path in files.too_long),
        unseen=files.unseen_from(engine.stopped_at),
        closed=files.closed,
    )


# -- the engines' output -------------------------------------------------------------------------


@dataclass(slots=True)
class _Collector:
    """Merges the output of successive processes; keeps the first matches and counts all."""

    cwd: Path
    limit: int | None
    file_limit: int | None
    context: int
    matches: list[Match] = field(default_factory=list)
    counts: list[FileCount] = field(default_factory=list)
    total: int = 0
    files: int = 0

    def take(self, paths: Mapping[int, str], records: Iterator[bytes]) -> None:
        """Add the output of a process that searched `paths` (descriptor -> path)."""
        room = None if self.limit is None else self.limit - len(self.matches)
        batch = _RecordParser({number: at for at, number in enumerate(paths)}, room, self.context)
        for record in records:
            batch.add(record)
        self.total += sum(batch.counts.values())
        self.files += len(batch.counts)
        named = list(paths.values())
        for at, count in sorted(batch.counts.items()):
            if self.file_limit is None or len(self.counts) < self.file_limit:
                self.counts.append(FileCount(shown_path(named[at], self.cwd), count))
        for at, lines in sorted(batch.kept.items()):
            path = shown_path(named[at], self.cwd)
            for match in self._matches(path, lines):
                if self.limit is None or len(self.matches) < self.limit:
                    self.matches.append(match)

    def _matches(self, path: str, lines: "list[_Line]") -> Iterator[Match]:
        for at, (number, text, is_match) in enumerate(lines):
            if is_match:
                around = lines[max(0, at - self.context) : at + self.context + 1]
                near = [(n, t) for n, t, _ in around if abs(n - number) <= self.context]
                before = tuple((n, t) for n, t in near if n < number)
                after = tuple((n, t) for n, t in near if n > number)
                yield Match(path, number, text, before, after)


_Line = tuple[int, str, bool]  # number, text, whether it is a kept match


@dataclass(slots=True)
class _RecordParser:
    """Parses the JSON records of one process, which are grouped by file, the files in any order.

    A file counts only once its last record is read, because a late NUL byte makes it binary.

    Attributes:
        places: descriptor -> index of the file in the order of names.
        room: maximal number of matches to keep.
        counts: matching lines, by the file's index.
        kept: lines, by the file's index.
    """

    places: Mapping[int, int]
    room: int | None
    context: int
    counts: dict[int, int] = field(default_factory=dict)
    kept: dict[int, list[_Line]] = field(default_factory=dict)
    _kept_count: int = 0
    _last_useful: int | None = None
    _place: int = -1
    _count: int = 0
    _lines: list[_Line] = field(default_factory=list)
    _last_kept: int = 0

    def add(self, record: bytes) -> None:
        """Parse one record."""
        is_match = record.startswith(_MATCH_RECORD)
        if is_match:
            self._count += 1
            if not (self.context and self._is_useful()) and not self._has_room():
                return
        if not record:
            return
        parsed = json.loads(record)
        kind, data = parsed["type"], parsed["data"]
        if kind == "begin":
            descriptor = int(_bytes_of(data["path"]).rpartition(b"/")[2])
            self._place = self.places[descriptor]
            self._count, self._lines, self._last_kept = 0, [], 0
        elif kind == "end":
            self._end_file(data)
        elif kind in ("match", "context"):
            self._keep_line(data, is_match)

    def _is_useful(self) -> bool:
        """Tell whether matches of the current file can be among the first."""
        return self._last_useful is None or self._place <= self._last_useful

    def _has_room(self) -> bool:
        return self.room is None or (self._count <= self.room and self._is_useful())

    def _keep_line(self, data: dict[str, Any], is_match: bool) -> None:
        number = data["line_number"]
        is_kept_match = is_match and self._has_room()
        if is_kept_match:
            self._last_kept = number
        # After the last kept match, a line is needed only as that match's context.
        if is_kept_match or self._has_room() or number <= self._last_kept + self.context:
            start = data["submatches"][0]["start"] if data.get("submatches") else 0
            raw = _bytes_of(data["lines"])
            hit = len(raw[:start].decode("utf-8", "replace"))
            text = raw.decode("utf-8", "replace").rstrip("\r\n")
            self._lines.append((number, _shortened(text, hit), is_kept_match))

    def _end_file(self, data: dict[str, Any]) -> None:
        if data.get("binary_offset") is not None or not self._count:
            return
        self.counts[self._place] = self._count
        if self._lines and self._is_useful():
            self.kept[self._place] = self._lines
            if self.room is not None:
                self._kept_count += min(self._count, self.room)
                if self._kept_count > 2 * self.room:
                    self._drop_useless(self.room)

    def _drop_useless(self, room: int) -> None:
        """Drop the files after those that hold the first `room` matches."""
        places = sorted(self.kept)
        sums = accumulate(min(self.counts[place], room) for place in places)
        enough = next(at for at, so_far in enumerate(sums) if so_far >= room)
        self._last_useful = places[enough]
        self.kept = {place: self.kept[place] for place in places[: enough + 1]}
        self._kept_count = sum(min(self.counts[place], room) for place in self.kept)


def _bytes_of(data: dict[str, str]) -> bytes:
    if "bytes" in data:
        return base64.b64decode(data["bytes"])
    return data["text"].encode("utf-8", "surrogateescape")


def _shortened(text: str, hit: int) -> str:
    """Cut a long line to `LINE_CHARACTERS` around index `hit`, and note its full length."""
    if len(text) <= LINE_CHARACTERS:
        return text
    start = max(0, min(hit - _SHOWN_BEFORE_HIT, len(text) - LINE_CHARACTERS))
    piece = text[start : start + LINE_CHARACTERS]
    return f"{'…' if start else ''}{piece}… [{LINE_CHARACTERS} of {len(text):,} characters]"
