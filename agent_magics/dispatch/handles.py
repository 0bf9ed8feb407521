"""Keeps results that are too long to be read at once under short names: ``@r1``, ``@r2``, …

A name stands wherever a tool takes a path, and leads to a file that is written when it is first
asked for. Names belong to one conversation and are never used twice in it.
"""

import os
import re
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agent_magics.protocol.errors import RespondToModel

MEMORY_LIMIT = 256 * 1024 * 1024  # characters of all results of a conversation
DISK_LIMIT = 4 * 1024 * 1024 * 1024  # bytes
_NAME = re.compile(r"@r\d+")
_MOST_NAMED = 10


class Source(Protocol):
    """A text that is longer than memory may like, and that may still grow."""

    @property
    def size(self) -> int:
        """How much there is; it changes with every change of the text."""
        ...

    @property
    def in_memory(self) -> int:
        """How much memory it takes."""
        ...

    def pieces(self) -> Iterator[str]:
        """Yield the whole text as it is now, a piece at a time."""
        ...

    def grows(self) -> bool:
        """Tell whether more may come."""
        ...


class Text:
    """A finished text in memory, as a source."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.size = self.in_memory = len(text)

    def pieces(self) -> Iterator[str]:
        """Yield it all."""
        yield self._text

    def grows(self) -> bool:
        """Never."""
        return False


@dataclass(slots=True)
class _Entry:
    """One kept result.

    Attributes:
        source: None once the file is all there is, and where the result was dropped.
        path: the file, where there is one.
        written: the source's size when the file was written.
        bytes: the file's size.
    """

    source: Source | None
    path: Path | None = None
    written: int = -1
    bytes: int = 0


def is_handle(path: str) -> bool:
    """Tell whether `path` is the name of a kept result."""
    return _NAME.fullmatch(path) is not None


class HandleStore:
    """The kept results of one conversation; safe from every thread.

    Beyond `memory_limit` the oldest go to disk, beyond `disk_limit` the oldest are dropped; asking
    for a dropped one is an error that says so.

    Args:
        memory_limit: characters of all sources together.
        disk_limit: bytes of all files together.
        parent: makes or finds the folder in which the folder for the files is made; None is the
            system's for temporary files.
    """

    def __init__(
        self,
        memory_limit: int = MEMORY_LIMIT,
        disk_limit: int = DISK_LIMIT,
        parent: Callable[[], Path] | None = None,
    ) -> None:
        self._memory_limit = memory_limit
        self._disk_limit = disk_limit
        self._parent = parent
        self._entries: dict[str, _Entry] = {}
        self._folder: Path | None = None
        self._remove_folder: weakref.finalize[[Path, int], HandleStore] | None = None
        self._lock = threading.Lock()

    def keep(self, text: str | Source) -> str:
        """Keep `text` and return its name; the same source keeps the name it has."""
        source = Text(text) if isinstance(text, str) else text
        with self._lock:
            for name, entry in self._entries.items():
                if entry.source == source:
                    return name
            name = f"@r{len(self._entries) + 1}"
            self._entries[name] = _Entry(source)
            self._shrink()
        return name

    def path_of(self, name: str) -> Path:
        """Return a file (mode 0600) that holds the result as it is now.

        Raises:
            RespondToModel: there is no such result, it was dropped, or the disk is full.
        """
        with self._lock:
            entry = self._entries.get(name)
            if entry is None:
                raise RespondToModel(f"There is no {name} in this conversation; {self._known()}.")
            if entry.source is not None and entry.written != entry.source.size:
                self._write(name, entry)
                self._shrink_disk(keep=entry)
            if entry.path is None:
                raise RespondToModel(
                    f"{name} was dropped: the kept results took more than "
                    f"{self._disk_limit / 1024**3:g} GiB, and it was the oldest. Run the call "
                    f"again; {self._known()}."
                )
            return entry.path

    def close(self) -> None:
        """Forget everything and remove the files."""
        with self._lock:
            self._entries.clear()
            if self._remove_folder is not None:
                self._remove_folder()
            self._folder = self._remove_folder = None

    # -- keeping within the limits ----------------------------------------------------------------

    def _shrink(self) -> None:
        held = [e.source.in_memory for e in self._entries.values() if e.source is not None]
        excess = sum(held) - self._memory_limit
        for name, entry in self._entries.items():
            if excess <= 0:
                break
            if entry.source is None or entry.source.grows():
                continue
            # Where the disk takes no more, memory goes on holding it: better than losing it.
            with suppress(RespondToModel):
                if entry.written != entry.source.size:
                    self._write(name, entry)
                excess -= entry.source.in_memory
                entry.source = None
        self._shrink_disk()

    def _shrink_disk(self, keep: _Entry | None = None) -> None:
        excess = sum(entry.bytes for entry in self._entries.values()) - self._disk_limit
        for entry in self._entries.values():
            if excess <= 0:
                break
            if entry.path is not None and entry is not keep:
                excess -= entry.bytes
                entry.path.unlink(missing_ok=True)
                entry.path, entry.bytes, entry.written = None, 0, -1

    def _write(self, name: str, entry: _Entry) -> None:
        assert entry.source is not None
        size = entry.source.size  # before the reading: what comes meanwhile is written next time
        try:
            path = self._own_folder() / f"{name[1:]}.txt"
            path.unlink(missing_ok=True)
            path.touch(mode=0o600, exist_ok=False)
            with path.open("wb") as file:
                for piece in entry.source.pieces():
                    file.write(piece.encode("utf-8", "replace"))
                entry.bytes = file.tell()
        except OSError as error:
            raise RespondToModel(
                f"{name} cannot be written to a file: {error.strerror or error}."
            ) from None
        entry.path, entry.written = path, size

    def _own_folder(self) -> Path:
        if self._folder is None:
            parent = None if self._parent is None else self._parent()
            self._folder = Path(tempfile.mkdtemp(prefix="results-", dir=parent))
            self._remove_folder = weakref.finalize(self, _remove, self._folder, os.getpid())
        return self._folder

    def _known(self) -> str:
        names = [n for n, e in self._entries.items() if e.source is not None or e.path is not None]
        if not names:
            return "no result has been kept so far"
        earlier = "… " if len(names) > _MOST_NAMED else ""
        return f"there are: {earlier}{', '.join(names[-_MOST_NAMED:])}"


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked child leaves its parent's files alone
        shutil.rmtree(folder, ignore_errors=True)
