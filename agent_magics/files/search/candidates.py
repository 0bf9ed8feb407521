"""Selects the files of a search, and opens them without following links.

They are regular, not hidden, not ignored and not protected.
"""

import fcntl
import os
import resource
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from agent_magics.files.beneath import closing_descriptor, open_file, open_folder
from agent_magics.files.folders import FolderWalk, WalkRights
from agent_magics.files.locks import thread_lock
from agent_magics.files.paths import second_name_judge

# Files open at once: the process opens one batch at a time, and closes it once an engine has
# inherited it. `select` in the person's code needs numbers below 1024; these are left to it.
_BATCH_FILES = 4000
_FIRST_NUMBER = 1024
_OPENING = thread_lock()
_SNIFFED_FROM_SIZE = 1024 * 1024
_SNIFFED_BYTES = 8 * 1024
_READ_BACK = 64 * 1024  # bytes, in search of a line break
LONGEST_LINE = 8 * 1024 * 1024  # bytes; an engine holds several copies of a line


@dataclass(slots=True)
class SearchedFiles:
    """The files of one search in the order of their names, with counts of those left out.

    Attributes:
        deadline: time of `time.monotonic` at which the search ends.
        first_batch: files of the first batch; each following one has up to four times as many.
        most_at_once: files that are opened at once.
    """

    root: Path
    matches: Callable[[str], bool]
    rights: WalkRights
    deadline: float
    roots: Sequence[Path] = ()
    first_batch: int = 50
    searched: int = 0
    protected: int = 0
    unreadable: int = 0
    ignored: int = 0
    ignored_names: tuple[str, ...] = ()
    timed_out: bool = False
    too_long: list[str] = field(default_factory=list)
    most_at_once: int = field(default_factory=lambda: _most_at_once())
    _is_second: Callable[[os.stat_result], bool] = field(init=False)
    _walk: FolderWalk = field(init=False)

    def __post_init__(self) -> None:
        """Make the judge of secret files, which are not searched under any name."""
        self._is_second = second_name_judge(self.roots)
        self._walk = FolderWalk(str(self.root), None, False, self.rights, self.deadline)

    def batches(self) -> Iterator[list[tuple[str, str]]]:
        """Yield the files, as (folder, name), in lists as long as one process can open."""
        batch: list[tuple[str, str]] = []
        most = min(self.first_batch, self.most_at_once)
        for place in self._places():
            batch.append(place)
            if len(batch) >= most:
                self.searched += len(batch)
                yield batch
                batch, most = [], min(4 * most, self.most_at_once)
        self.searched += len(batch)
        if batch:
            yield batch

    def is_late(self) -> bool:
        """Tell whether the search has to end, and note that it is not complete then."""
        self.timed_out = self.timed_out or time.monotonic() > self.deadline
        return self.timed_out

    @property
    def closed(self) -> int:
        """The number of folders that could not be read."""
        return self._walk.unreadable

    def unseen_from(self, path: str) -> tuple[str, ...]:
        """Return what a search that ended before file `path` has not looked through; see
        `FolderWalk.unseen_from`. Of "", what the walk had not reached.
        """
        walk = self._walk
        return walk.unseen_from(os.path.relpath(path, walk.root) if path else walk.stopped_at)

    def _places(self) -> Iterator[tuple[str, str]]:
        if not self.root.is_dir():
            yield os.path.split(self.root)
            return
        judge = self.rights.judge
        walk = self._walk
        for name, entry in walk.entries():
            if entry.kind != "file" or not self.matches(name):
                continue
            if judge is not None and judge(entry.path):
                self.protected += 1
            else:
                yield entry.path[: -len(entry.name) - 1], entry.name
        self.timed_out |= bool(walk.stopped_at)
        self.protected += walk.protected + walk.withheld
        self.ignored, self.ignored_names = walk.ignored, tuple(walk.ignored_names)

    @contextmanager
    def opened(self, places: Sequence[tuple[str, str]]) -> Iterator[dict[int, str]]:
        """Open files, given as (folder, name), without following links; yield descriptor -> path.

        A file that was replaced since the walk by something else is left out and counted.
        """
        opened: dict[int, str] = {}
        with _OPENING:
            try:
                for folder, group in groupby(places, key=itemgetter(0)):
                    self._open_in(folder, [name for _, name in group], opened)
                yield opened
            finally:
                for descriptor in opened:
                    os.close(descriptor)

    def _open_in(self, folder: str, names: Sequence[str], opened: dict[int, str]) -> None:
        try:
            parent = open_folder(folder)
        except OSError:
            self.unreadable += len(names)
            return
        with closing_descriptor(parent):
            for name in names:
                try:
                    descriptor = open_file(name, parent)
                except OSError:
                    self.unreadable += 1
                    continue
                if self._takes(descriptor, f"{folder}/{name}"):
                    opened[_moved(descriptor)] = f"{folder}/{name}"
                else:
                    os.close(descriptor)

    def _takes(self, descriptor: int, path: str) -> bool:
        """Tell whether an opened file is searched; where not, count why."""
        try:
            status = os.fstat(descriptor)
            is_second = self.rights.judge is not None and self._is_second(status)
            if not stat.S_ISREG(status.st_mode) or is_second:
                self.protected += 1
            elif (
                status.st_size >= _SNIFFED_FROM_SIZE
                and path != str(self.root)  # what is given is searched whatever is in it
                and _is_binary(descriptor)
            ):
                self.searched -= 1
            elif status.st_size > LONGEST_LINE and _has_long_line(descriptor, status.st_size):
                self.searched -= 1
                self.too_long.append(path)
            else:
                return True
        except OSError:  # a block of it cannot be read
            self.unreadable += 1
        return False


def _most_at_once() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _BATCH_FILES if soft == resource.RLIM_INFINITY else max(1, min(_BATCH_FILES, soft // 3))


def _moved(descriptor: int) -> int:
    """Give a file a number from `_FIRST_NUMBER` on, where this process may have such; return it."""
    try:
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST_NUMBER)
    except OSError:
        return descriptor
    os.close(descriptor)
    return moved


def _has_long_line(descriptor: int, size: int) -> bool:
    """Tell whether a line exceeds `LONGEST_LINE`; both engines hold whole lines in memory.

    From the start of a line, the last line break within that length is the next place to look from,
    so that little of a file is read.
    """
    start = 0
    while start + LONGEST_LINE < size:
        last = _last_break(descriptor, start, start + LONGEST_LINE + 1)
        if last < 0:
            return True
        start = last + 1
    return False


def _last_break(descriptor: int, start: int, end: int) -> int:
    """Return the offset of the last line break in a part of a file, or -1."""
    while end > start:
        at = max(start, end - _READ_BACK)
        found = os.pread(descriptor, end - at, at).rfind(b"\n")
        if found >= 0:
            return at + found
        end = at
    return -1


def _is_binary(descriptor: int) -> bool:
    """Tell whether a large file is binary from its first bytes; an engine would read all of it."""
    try:
        head = os.pread(descriptor, _SNIFFED_BYTES, 0)
    except OSError:
        return False
    return b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff"))
