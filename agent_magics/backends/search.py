"""Searching files for a regular expression: with ripgrep where there is one, else with Python.

Law: both engines are handed the same files and report the same lines. Which files those are is
decided here and nowhere else: regular, not hidden, not protected, no link followed, whatever
ignore files say. Either engine is a process of its own, because a search must be stoppable; it is
handed opened files, since by then a path may lead elsewhere.
"""

import base64
import json
import os
import re
import resource
import selectors
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from agent_magics.backends.beneath import open_file, open_folder
from agent_magics.backends.folders import FolderWalk, name_matcher
from agent_magics.backends.paths import read_judge, shown_path
from agent_magics.backends.secret_places import secret_inodes
from agent_magics.protocol.errors import RespondToModel

SECONDS = 30.0
LINE_CHARACTERS = 500
_SHOWN_BEFORE_HIT = 100
_CHECK_SECONDS = 10.0
_HEARTBEAT = 0.1
_BATCH_FILES = 400  # opened at once; the person's code must find descriptors below 1024 for select
_SNIFFED_FROM_SIZE = 1024 * 1024
_SNIFFED_BYTES = 8 * 1024
_MOST_PATTERN_BYTES = 50_000
_PYTHON_SEARCH = Path(__file__).with_name("pygrep.py")
# All that the engines need of our environment; above all no keys.
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")
_MATCH_RECORD = b'{"type":"match"'
_LINE_BREAK = re.compile(r"(?<!\\)(?:\\\\)*\\n|\n")
_CLASS = re.compile(r"(?<!\\)\[\^?\]?(?:\\.|[^\]\\])*\]")


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
    command = _choose_engine(pattern, case_sensitive, context, distrusted)
    files = _Files(root, name_matcher(file_pattern), guarded, is_cancelled, deadline)
    collector = _Collector(cwd, max_results, context)
    engine = _Engine(is_cancelled, deadline)
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


# -- which files ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Files:
    """The files of one search, in the order of their names, counted on the way."""

    root: Path
    matches: Callable[[str], bool]
    guarded: bool
    is_cancelled: Callable[[], bool]
    deadline: float
    searched: int = 0
    protected: int = 0
    unreadable: int = 0
    timed_out: bool = False
    _most_at_once: int = field(default_factory=lambda: _most_at_once())
    _never: frozenset[tuple[int, int]] = frozenset()

    def __post_init__(self) -> None:
        """Look up which files are not shown under any name."""
        if self.guarded:
            self._never = secret_inodes()

    def batches(self) -> Iterator[list[str]]:
        """Yield the files in lists of as many as one process can open."""
        batch: list[str] = []
        for path in self._paths():
            self.searched += 1
            batch.append(path)
            if len(batch) >= self._most_at_once:
                yield batch
                batch = []
        if batch:
            yield batch

    def _paths(self) -> Iterator[str]:
        if not self.root.is_dir():
            yield str(self.root)
            return
        judge = read_judge() if self.guarded else None
        walk = FolderWalk(str(self.root), None, False, self.is_cancelled, judge)
        for name, entry in walk.entries():
            if time.monotonic() > self.deadline:
                self.timed_out = True
                break
            if entry.kind != "file" or not self.matches(name):
                continue
            if judge is not None and judge(entry.path):
                self.protected += 1
            elif not _is_big_binary(entry.path):
                yield entry.path
        self.protected += walk.protected

    @contextmanager
    def opened(self, paths: Sequence[str]) -> Iterator[dict[int, str]]:
        """Open files where their paths say, following no link; give descriptor -> path.

        What has changed since the walk, and is no longer such a file, is left out and counted.
        """
        opened: dict[int, str] = {}
        try:
            for folder, group in groupby(paths, key=os.path.dirname):
                self._open_in(folder, group, opened)
            yield opened
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def _open_in(self, folder: str, paths: Iterable[str], opened: dict[int, str]) -> None:
        try:
            parent = open_folder(folder)
        except OSError:
            self.unreadable += sum(1 for _ in paths)
            return
        for path in paths:
            try:
                descriptor = open_file(os.path.basename(path), parent)
            except OSError:
                self.unreadable += 1
                continue
            opened[descriptor] = path
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or (status.st_dev, status.st_ino) in self._never:
                self.protected += 1
                os.close(descriptor)
                del opened[descriptor]
        os.close(parent)


def _most_at_once() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _BATCH_FILES if soft == resource.RLIM_INFINITY else max(1, min(_BATCH_FILES, soft // 3))


def _is_big_binary(path: str) -> bool:
    """Tell big binaries by their start; the engines would read them whole to find out."""
    try:
        if os.lstat(path).st_size < _SNIFFED_FROM_SIZE:
            return False
        with open(open_file(path), "rb") as file:
            head = file.read(_SNIFFED_BYTES)
    except OSError:
        return False
    return b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff"))


# -- with what -----------------------------------------------------------------------------------


def _choose_engine(
    pattern: str, case_sensitive: bool, context: int, distrusted: Sequence[Path]
) -> list[str]:
    """Return the command to which the files are added: ripgrep's if it understands `pattern`."""
    _refuse_pattern(pattern)
    ripgrep = find_ripgrep(distrusted)
    if ripgrep is not None:
        command = [ripgrep, "--no-config", "--json", "--no-ignore", "--no-mmap", "--threads=1"]
        command += ["--case-sensitive" if case_sensitive else "--ignore-case"]
        command += [f"--context={context}", "-e", pattern, "--"]
        if _try_out(command, "-").returncode in (0, 1):
            return command
    # What ripgrep does not know, such as a look-behind, Python may; it also names an error's place.
    case = "s" if case_sensitive else "i"
    script = [sys.executable, "-I", "-S", "-X", "utf8", "-W", "ignore", str(_PYTHON_SEARCH)]
    command = [*script, pattern, case, str(context)]
    tried = _try_out(command)
    if tried.returncode == 2:
        message = tried.stderr.decode("utf-8", "replace")
        raise RespondToModel(f"{pattern!r} is not a regular expression: {message}.")
    return command


def find_ripgrep(distrusted: Sequence[Path]) -> str | None:
    """Return the path of ``rg``, or None; never one below a folder in `distrusted`."""
    roots = [os.path.realpath(folder) for folder in distrusted]

    def is_trusted(path: str) -> bool:
        real = Path(os.path.realpath(path))
        return os.path.isabs(path) and not any(real.is_relative_to(root) for root in roots)

    folders = filter(is_trusted, os.environ.get("PATH", "").split(os.pathsep))
    found = shutil.which("rg", path=os.pathsep.join(folders))
    return found if found is not None and is_trusted(found) else None


def _refuse_pattern(pattern: str) -> None:
    if not pattern:
        raise RespondToModel("The pattern is empty; give a regular expression to look for.")
    if "\0" in pattern or len(pattern.encode("utf-8", "replace")) > _MOST_PATTERN_BYTES:
        raise RespondToModel(
            "The pattern is too long or holds a NUL character; give a plainer one."
        )
    if any(0xD800 <= ord(c) <= 0xDFFF for c in pattern):
        raise RespondToModel("The pattern holds half a character (a surrogate); write it whole.")
    if _LINE_BREAK.search(_CLASS.sub("", pattern)):
        raise RespondToModel(
            f"{pattern!r} spans lines, but one line is searched at a time; "
            "look for one of its lines and use context."
        )


def _try_out(command: list[str], *files: str) -> subprocess.CompletedProcess[bytes]:
    """Run `command` on nothing, to see whether it takes its pattern."""
    try:
        return subprocess.run(
            [*command, *files],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=_environment(),
            timeout=_CHECK_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RespondToModel("The pattern takes too long to prepare; give a plainer one.") from None


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ}


@dataclass(slots=True)
class _Engine:
    """Runs one process after the other until the search is cancelled or its time is over."""

    is_cancelled: Callable[[], bool]
    deadline: float
    unreadable: int = 0
    timed_out: bool = False

    def records(self, command: list[str], opened: Mapping[int, str]) -> Iterator[bytes]:
        """Yield what `command` prints, line by line; whatever happens, it is not left running.

        Args:
            command: the engine; the files are added to it as ``/dev/fd/N``.
            opened: their descriptors.
        """
        if not opened:
            return
        with tempfile.TemporaryFile() as complaints:
            process = subprocess.Popen(
                [*command, *(f"/dev/fd/{descriptor}" for descriptor in opened)],
                pass_fds=tuple(opened),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=complaints,
                env=_environment(),
                cwd="/",
                start_new_session=True,  # Jupyter's interrupt goes to our group; we end this one
            )
            try:
                yield from self._lines(process.stdout.fileno())
            finally:
                process.kill()
                process.wait()
                process.stdout.close()
            complaints.seek(0)
            self.unreadable += sum(1 for line in complaints if line.strip())

    def _lines(self, pipe: int) -> Iterator[bytes]:
        parts: list[bytes] = []
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while True:
                if self.is_cancelled():
                    raise RespondToModel("Interrupted while searching.")
                if time.monotonic() > self.deadline:
                    self.timed_out = True
                    return
                if not selector.select(_HEARTBEAT):
                    continue
                chunk = os.read(pipe, 1 << 16)
                if not chunk:
                    return
                first, *rest = chunk.split(b"\n")
                parts.append(first)
                for following in rest:
                    yield b"".join(parts)
                    parts = [following]


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
