"""Which files a search looks into, each opened where its path says.

They are regular, not hidden, not protected; no link is followed, whatever ignore files say.
"""

import os
import resource
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from agent_magics.backends.beneath import open_file, open_folder
from agent_magics.backends.folders import FolderWalk
from agent_magics.backends.paths import read_judge
from agent_magics.backends.secret_places import secret_inodes

_BATCH_FILES = 400  # opened at once; the person's code must find descriptors below 1024 for select
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
