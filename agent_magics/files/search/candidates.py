"""Which files a search looks into, each opened where its path says.

They are regular, not hidden, not ignored, not protected; no link is followed.
"""

import os
import resource
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from agent_magics.backends.beneath import open_file, open_folder
from agent_magics.backends.folders import FolderWalk
from agent_magics.backends.paths import read_judge
from agent_magics.backends.secret_places import secret_inodes

# Opened at once; the person's code must find descriptors below 1024 for select, so there is one
# batch at a time in the whole process, and only until an engine has them.
_BATCH_FILES = 800
_FIRST_BATCH = 50  # small, so that the search begins while the walk goes on
_OPENING = threading.Lock()
_SNIFFED_FROM_SIZE = 1024 * 1024
_SNIFFED_BYTES = 8 * 1024


@dataclass(slots=True)
class SearchedFiles:
    """The files of one search, in the order of their names, counted on the way."""

    root: Path
    matches: Callable[[str], bool]
    guarded: bool
    is_cancelled: Callable[[], bool]
    deadline: float
    searched: int = 0
    protected: int = 0
    unreadable: int = 0
    ignored: int = 0
    ignored_names: tuple[str, ...] = ()
    timed_out: bool = False
    _most_at_once: int = field(default_factory=lambda: _most_at_once())
    _never: frozenset[tuple[int, int]] = frozenset()

    def __post_init__(self) -> None:
        """Look up which files are not shown under any name."""
        if self.guarded:
            self._never = secret_inodes()

    def batches(self) -> Iterator[list[tuple[str, str]]]:
        """Yield the files, as (folder, name), in lists of as many as one process can open."""
        batch: list[tuple[str, str]] = []
        most = min(_FIRST_BATCH, self._most_at_once)
        for place in self._places():
            batch.append(place)
            if len(batch) >= most:
                self.searched += len(batch)
                yield batch
                batch, most = [], min(4 * most, self._most_at_once)
                if time.monotonic() > self.deadline:
                    self.timed_out = True
                    return
        self.searched += len(batch)
        if batch:
            yield batch

    def _places(self) -> Iterator[tuple[str, str]]:
        if not self.root.is_dir():
            yield os.path.split(self.root)
            return
        judge = read_judge() if self.guarded else None
        walk = FolderWalk(str(self.root), None, False, self.is_cancelled, judge)
        for name, entry in walk.entries():
            if entry.kind != "file" or not self.matches(name):
                continue
            if judge is not None and judge(entry.path):
                self.protected += 1
            else:
                yield entry.path[: -len(entry.name) - 1], entry.name
        self.protected += walk.protected
        self.ignored, self.ignored_names = walk.ignored, tuple(walk.ignored_names)

    @contextmanager
    def opened(self, places: Sequence[tuple[str, str]]) -> Iterator[dict[int, str]]:
        """Open files, given as (folder, name), following no link; give descriptor -> path.

        What has changed since the walk, and is no longer such a file, is left out and counted.
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
        for name in names:
            try:
                descriptor = open_file(name, parent)
            except OSError:
                self.unreadable += 1
                continue
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or (status.st_dev, status.st_ino) in self._never:
                self.protected += 1
                os.close(descriptor)
            elif status.st_size >= _SNIFFED_FROM_SIZE and _is_binary(descriptor):
                self.searched -= 1
                os.close(descriptor)
            else:
                opened[descriptor] = f"{folder}/{name}"
        os.close(parent)


def _most_at_once() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _BATCH_FILES if soft == resource.RLIM_INFINITY else max(1, min(_BATCH_FILES, soft // 3))


def _is_binary(descriptor: int) -> bool:
    """Tell big binaries by their start; the engines would read them whole to find out."""
    try:
        head = os.pread(descriptor, _SNIFFED_BYTES, 0)
    except OSError:
        return False
    return b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff"))
