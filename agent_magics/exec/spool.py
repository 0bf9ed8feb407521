"""Stores the output of a command: both ends in memory, the whole in a file if it is long."""

import contextlib
import os
import tempfile
import threading
import weakref
from collections import deque
from pathlib import Path

from agent_magics.exec.output import omission_marker
from agent_magics.exec.temporary_files import scratch_folder
from agent_magics.protocol.errors import clause

END_LIMIT = 512 * 1024  # bytes of the beginning and of the end to keep in memory
FILE_LIMIT = 1 << 30  # bytes of one command that are kept on disk
MOST_ON_DISK = 2 << 30  # bytes of all commands of this process

_LOOKS_EVERY = 24  # exponent of two: disk usage is checked for each file, and every 16 MiB of it
# pieces of an end before they are joined, since small bytes objects have overhead
_MOST_PIECES = 1024
_MOST_MARKS = 1000  # returned positions with cached character counts
_CONTINUATION = bytes(range(0x80, 0xC0))  # the bytes of UTF-8 that do not begin a character


class Spool:
    """The bytes of stdout and stderr in order of arrival; thread-safe.

    Memory is bounded: the first and the last 512 KiB are kept there. Longer output is written to a
    file as well, readable by this user only, which is removed with the spool. A character that is
    split over two reads is joined before it is stored.

    Attributes:
        only: the stream from which all of it came; None where both had output, or none. Its ends
            then equal those of both.
        lost: why a long output was not kept whole, such as "No space left on device"; else "".
    """

    def __init__(self, end_limit: int = END_LIMIT, file_limit: int = FILE_LIMIT) -> None:
        self._end_limit = end_limit
        self._file_limit = file_limit
        self._lock = threading.Lock()
        self._merged = _Ends(end_limit)
        self.only: str | None = None
        self._streams: dict[str, _Ends] = {}
        self._begun: dict[str, bytes] = {}  # incomplete character of each stream
        self._file: _File | None = None
        self.lost = ""
        self._marks = {0: 0}  # returned position -> characters before it

    # -- adding --------------------------------------------------------------------------------

    def add(self, stream: str, data: bytes) -> bytes:
        """Store bytes that were read from a stream.

        Args:
            stream: "stdout" or "stderr".
            data: the bytes, of any length.

        Returns:
            The bytes that may be shown now: whole characters only, including one that `data`
                completes.
        """
        with self._lock:
            data = self._begun.pop(stream, b"") + data
            end = last_whole(data)
            if end < len(data):
                self._begun[stream] = data[end:]
                data = data[:end]
            if data:
                self._keep(stream, data)
            return data

    def finish(self) -> list[tuple[str, bytes]]:
        """Store the characters that stay incomplete; return them with their streams."""
        with self._lock:
            rest, self._begun = list(self._begun.items()), {}
            for stream, data in rest:
                self._keep(stream, data)
            if self._file is not None:
                self._file.close()
            return rest

    def _keep(self, stream: str, data: bytes) -> None:
        self._write(data)
        if not self._merged.size:
            self.only = stream
        elif self.only not in (None, stream):
            self._streams = {self.only: self._merged.copy(), stream: _Ends(self._end_limit)}
            self.only = None
        if self.only is None:
            self._streams[stream].add(data)
        self._merged.add(data)

    def _write(self, data: bytes) -> None:
        """Append to the file, creating it when the output becomes long."""
        size = self._merged.size + len(data)
        if self.lost or (self._file is None and size <= 2 * self._end_limit):
            return
        if size > self._file_limit:
            self._give_up(f"it is longer than {self._file_limit >> 20} MiB")
            return
        if self._file is None or size >> _LOOKS_EVERY != self._merged.size >> _LOOKS_EVERY:
            self._make_room()
        try:
            self._open_file().append(data)
        except OSError as error:
            self._give_up(clause(error))

    def _open_file(self) -> "_File":
        """Return the file, created with all output so far on first use."""
        if self._file is None:
            file = _File(scratch_folder())
            try:
                file.append(b"".join(self._merged.parts()))  # nothing was dropped until now
            except BaseException:
                file.discard()
                raise
            self._file = file
            _on_disk.append(weakref.ref(self))
            weakref.finalize(self, file.discard).atexit = False  # the folder goes at exit
        return self._file

    def _give_up(self, reason: str) -> None:
        """Continue with both ends only, and remove the file."""
        self.lost = reason
        if self._file is not None:
            self._file.discard()
            self._file = None

    def _make_room(self) -> None:
        """Give up the oldest outputs on disk while their total exceeds the limit."""
        kept = [spool for ref in _on_disk if (spool := ref()) is not None and spool._file]
        _on_disk[:] = map(weakref.ref, kept)
        excess = sum(spool.size for spool in kept) - MOST_ON_DISK
        for spool in kept:
            # A spool that is being read is skipped this time.
            if excess > 0 and spool is not self and spool._lock.acquire(blocking=False):
                excess -= spool.size
                spool._give_up("later outputs needed its room on the disk")
                spool._lock.release()

    # -- reading -------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Number of bytes received; also the position after the last of them."""
        return self._merged.size

    @property
    def total(self) -> int:
        """Number of characters received, whether kept or not."""
        return self._merged.characters

    def text(self, stream: str | None = None) -> str:
        """Return the beginning and the end as one text.

        Args:
            stream: "stdout" or "stderr"; both in order of arrival if not given.

        Returns:
            The whole output if it fits into the two ends; else with a marker line between them.
        """
        return _with_marker(*self.ends(stream))

    def ends(self, stream: str | None = None) -> tuple[str, str, int]:
        """Return the beginning, the end, and how many characters between them were omitted."""
        with self._lock:
            kept = self._streams.get(stream or "") or _Ends(self._end_limit)
            if stream is None or stream == self.only:
                kept = self._merged
            head, tail = kept.parts()
            gap = kept.size > len(head) + len(tail) or len(tail) > self._end_limit
            if gap:
                tail = tail[-self._end_limit :]
            return _decoded(head, tail, kept.characters if gap else None)

    def window(self, position: int) -> tuple[str, str, int, int]:
        """Return the output since `position` (in bytes), 0 being the start.

        Returns:
            The beginning, the end, how many characters between them were omitted, and the
            position to continue from.
        """
        with self._lock:
            size = self._merged.size
            position = min(max(0, position), size)
            middle = min(position + self._end_limit, size)
            head = self._read(position, middle)
            tail = self._read(max(middle, size - self._end_limit), size)
            gap = size - position - len(head) - len(tail)
            characters = None
            if gap and position in self._marks:
                characters = self._merged.characters - self._marks[position]
            elif gap:  # an estimate by bytes
                characters = _count(head) + _count(tail) + gap
            self._mark(size)
            return *_decoded(head, tail, characters), size

    def path(self) -> Path:
        """Return the path of a file with the whole output, which is created if there is none yet.

        The file grows with the output and is removed with the spool.

        Raises:
            OSError: it cannot be written, or the output was not kept whole (see `lost`).
        """
        with self._lock:
            if self.lost:
                raise OSError(f"the whole output was not kept: {self.lost}")
            file = self._open_file()
            file.close()  # opened again when more comes
            return file.path

    def _read(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` to `end`; only the first ones if some are lost."""
        head, tail = self._merged.parts()
        tail_start = self._merged.size - len(tail)
        if start >= tail_start:
            return tail[start - tail_start : end - tail_start]
        if end > len(head) and self._file is not None:
            with contextlib.suppress(OSError):  # the file was deleted
                return self._file.read(start, end)
        if tail_start == len(head):
            return (head + tail)[start:end]
        return head[start:end]

    def _mark(self, position: int) -> None:
        self._marks[position] = self._merged.characters
        if len(self._marks) > _MOST_MARKS:
            del self._marks[next(iter(self._marks))]

    def renew_lock(self) -> None:
        """In a forked child: replace the lock, which a thread of the parent may hold."""
        self._lock = threading.Lock()


_on_disk: list[weakref.ref[Spool]] = []  # the oldest first


class _Ends:
    """The beginning and the end of a stream of bytes.

    Attributes:
        size: number of bytes received.
        characters: number of characters received.
    """

    def __init__(self, limit: int) -> None:
        self.size = 0
        self.characters = 0
        self._limit = limit
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0

    def add(self, data: bytes) -> None:
        """Add the next piece."""
        room = self._limit - len(self._head)
        rest = data
        if room:
            self._head += data[:room]
            rest = data[room:]
        self.size += len(data)
        self.characters += _count(data)
        if rest:
            self._tail.append(rest[-self._limit :])
            self._tail_size += len(self._tail[-1])
            self._trim()

    def parts(self) -> tuple[bytes, bytes]:
        """Return the head and the tail; the tail may be longer than the limit."""
        return bytes(self._head), b"".join(self._tail)

    def copy(self) -> "_Ends":
        """Return an independent copy."""
        twin = _Ends(self._limit)
        twin.size, twin.characters = self.size, self.characters
        twin._head, twin._tail = bytearray(self._head), deque(self._tail)
        twin._tail_size = self._tail_size
        return twin

    def _trim(self) -> None:
        while self._tail_size - len(self._tail[0]) >= self._limit:
            self._tail_size -= len(self._tail.popleft())
        if len(self._tail) > _MOST_PIECES:
            self._tail = deque([b"".join(self._tail)])


class _File:
    """An append-only file for this user only."""

    def __init__(self, folder: Path) -> None:
        fd, name = tempfile.mkstemp(prefix="output-", suffix=".txt", dir=folder)
        self.path = Path(name)
        self._fd: int | None = fd
        self._owner = os.getpid()

    def append(self, data: bytes) -> None:
        """Write all of `data`."""
        if self._fd is None:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` to `end`."""
        with open(self.path, "rb") as file:
            file.seek(start)
            return file.read(end - start)

    def close(self) -> None:
        """Close the descriptor; `append` opens the file again."""
        fd, self._fd = self._fd, None
        if fd is not None:
            with contextlib.suppress(OSError):
                os.close(fd)

    def discard(self) -> None:
        """Close and remove the file; a forked child keeps the parent's."""
        self.close()
        if os.getpid() == self._owner:
            with contextlib.suppress(OSError):
                os.unlink(self.path)


def _decoded(head: bytes, tail: bytes, characters: int | None) -> tuple[str, str, int]:
    """Decode both ends at character boundaries; return them and how many of `characters` they lack.

    None for `characters` means that nothing is missing between them.
    """
    if characters is None:
        return (head + tail).decode("utf-8", "replace"), "", 0
    head, tail = head[: last_whole(head)], tail[_first_whole(tail) :]
    omitted = max(0, characters - _count(head) - _count(tail))
    return head.decode("utf-8", "replace"), tail.decode("utf-8", "replace"), omitted


def _with_marker(head: str, tail: str, omitted: int) -> str:
    return head + omission_marker(omitted, head) + tail if omitted else head + tail


def _count(data: bytes) -> int:
    """Count the characters of `data`; an invalid byte counts as one or as none."""
    return len(data) if data.isascii() else len(data.translate(None, _CONTINUATION))


def last_whole(data: bytes) -> int:
    """Return the end of the last complete character of `data`; invalid bytes count as complete."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            break
        if byte >= 0xC0:  # begins a character of two, three or four bytes
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) - back if back < length else len(data)
    return len(data)


def _first_whole(data: bytes) -> int:
    """Return the start of the first character in `data`, after at most three bytes of a cut one."""
    start = 0
    while start < min(3, len(data)) and 0x80 <= data[start] < 0xC0:
        start += 1
    return start
