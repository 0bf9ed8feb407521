"""Records a conversation: one JSON line per event or entry, written before it is shown.

Law: a record holds whole lines, and all entries, in order. Events that could not be written are
replaced by a line that says how many are missing and why, as soon as writing is possible again.
"""

import json
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from agent_magics.files.beneath import closing_descriptor
from agent_magics.files.locks import FileHeld, append, open_locked, release
from agent_magics.protocol.codec import to_json
from agent_magics.protocol.errors import FatalError, clause
from agent_magics.protocol.events import Event, ReasoningDelta, TextDelta, TurnDiffUpdated, Warned
from agent_magics.protocol.records import Entry, RecordBegun
from agent_magics.records.places import PAST

HELD = (
    "This conversation is open in another kernel, or by another agent; close it there, or fork it."
)
_DELTAS = (TextDelta, ReasoningDelta)
# Day, month, year, all records, the package's folder, and the one in which that may be new.
_FOLDERS = 6
# Read from the end of a record that is written on, to find whole lines.
_TAIL = 1 << 16


class Rollout:
    """Appends to the record of one conversation, mode 0600; thread-safe.

    What is told whole later is left out: deltas, since the complete item follows them, and reports
    of changed files but the last of a turn. Each names all files, so they would take room with the
    square of the files.

    Args:
        path: the record; created with the first line that is written.
        begun: returns its first line; called once, for a new record.
        on_open: called when it was opened for writing.
    """

    def __init__(
        self,
        path: Path,
        begun: Callable[[], RecordBegun],
        on_open: Callable[[], None] = lambda: None,
    ) -> None:
        self.path = path
        self._begun = begun
        self._on_open = on_open
        self._fd: int | None = None
        self._owed: list[Entry] = []  # entries that could not be written
        self._missed: Event | None = None  # the first event that could not be written
        self._missed_count = 0
        self._reason = ""
        self._lock = threading.Lock()
        self._syncing = threading.Lock()
        self._is_placed = False  # whether its folders were flushed
        self._closing: weakref.finalize[[int], Rollout] | None = None

    def begin(self) -> None:
        """Create the record where there is none yet, and lock it.

        Raises:
            FatalError: it cannot be written, or another kernel has locked it.
        """
        with self._lock:
            try:
                self._opened()
            except OSError as error:
                raise FatalError(f"{self.path} cannot be written: {clause(error)}.") from None

    def set_aside(self, size: int) -> None:
        """Move the content after `size` bytes, which is damaged, into a file of its own."""
        with self._lock:
            fd = self._opened()
            rest = os.pread(fd, os.fstat(fd).st_size - size, size)
            aside = os.open(f"{self.path}.damaged", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with closing_descriptor(aside):
                append(aside, rest)
            os.ftruncate(fd, size)

    def write(self, happened: Iterable[Event | Entry]) -> bool:
        """Append lines with one write, after lines that could not be written before.

        Returns:
            Whether there was anything to write: pieces of texts are not kept.

        Raises:
            Exception: the file cannot be written, or an event has no JSON form: these events are
                missing in it, entries are written later; a later write may succeed.
        """
        kept = [each for each in happened if _is_kept(each)]
        if not kept:
            return False
        with self._lock:
            try:
                data = b"".join(map(_line, [*self._owed, *self._gap(), *kept]))
                append(self._opened(), data)
            except Exception as error:
                self._miss(kept, error)
                raise
            self._owed.clear()
            self._missed, self._missed_count = None, 0
        return True

    def _gap(self) -> list[Event]:
        first = self._missed
        if first is None:
            return []
        message = f"{self._missed_count} events are missing here: {self._reason}."
        stamp = {name: getattr(first, name) for name in ("seq", "at", "turn_id", "agent")}
        return [Warned(**stamp, message=message)]

    def _miss(self, happened: Sequence[Event | Entry], error: Exception) -> None:
        self._owed += [each for each in happened if isinstance(each, Entry)]
        events = [each for each in happened if isinstance(each, Event)]
        self._missed = self._missed or next(iter(events), None)
        self._missed_count += len(events)
        self._reason = clause(error)

    def sync(self) -> None:
        """Flush the file to the disk (fsync), which takes 2 ms; not on the loop.

        The first time also its place: the folders, any of which may be new, and what it shares.
        """
        with self._syncing, suppress(OSError):
            if self._fd is not None:
                os.fsync(self._fd)
                if not self._is_placed:
                    self._is_placed = True
                    past = self.path.with_suffix(PAST)
                    for each in (*past.glob("*"), past, *self.path.parents[:_FOLDERS]):
                        _sync(each)

    def close(self) -> None:
        """Close the file; others may then append to it."""
        # A file that is being flushed stays open, and locked, after its descriptor was closed.
        with self._syncing, self._lock:
            if self._closing is not None:
                self._closing()
                self._closing = self._fd = None

    def _opened(self) -> int:
        if self._fd is None:
            self._fd = self._open()
            # The file of an agent that is dropped without `close` is closed, too.
            self._closing = weakref.finalize(self, release, self._fd)
            self._closing.atexit = False  # the last events may not be written yet
            self._on_open()  # now that it is locked, so that it is not deleted itself
        return self._fd

    def _open(self) -> int:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            fd = open_locked(self.path, os.O_APPEND | os.O_CREAT)
        except FileHeld:
            raise FatalError(HELD) from None
        try:
            if os.fstat(fd).st_size == 0:
                append(fd, _line(self._begun()))
            else:
                _cut_to_lines(fd)
        except BaseException:
            os.close(fd)
            raise
        return fd


def _sync(path: Path) -> None:
    """Flush a file, or the list of names in a folder."""
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with closing_descriptor(fd):
            os.fsync(fd)


def _is_kept(happened: Event | Entry) -> bool:
    if isinstance(happened, TurnDiffUpdated):
        return happened.is_last
    return not isinstance(happened, _DELTAS)


def _cut_to_lines(fd: int) -> None:
    """Remove a partial last line, which a killed kernel leaves."""
    size = os.fstat(fd).st_size
    while size:
        start = max(0, size - _TAIL)
        tail = os.pread(fd, size - start, start)
        if tail.endswith(b"\n"):
            break
        size -= len(tail) - tail.rfind(b"\n") - 1
    os.ftruncate(fd, size)


def _line(happened: Event | Entry) -> bytes:
    data = to_json(happened)
    try:
        return _encoder()(data, fallback=str) + b"\n"
    except ValueError:  # a lone surrogate, which JSON can only escape
        return json.dumps(data, default=str).encode("ascii") + b"\n"


@cache
def _encoder() -> Callable[..., bytes]:
    # Late: `import agent_magics` must not pay for it. Three times as fast as json.
    from pydantic_core import to_json as encode  # noqa: PLC0415

    return encode
