"""Keeps what a command prints: both ends in memory, the whole in a file once it is long."""

import contextlib
import os
import tempfile
import threading
import weakref
from collections import deque
from pathlib import Path

from agent_magics.backends.exec.output import omission_marker
from agent_magics.backends.exec.scratch import scratch_folder

END_LIMIT = 512 * 1024  # bytes of the beginning, and of the end, that are kept in memory
FILE_LIMIT = 1 << 30  # bytes of one command that are kept on disk

_MOST_PIECES = 1024  # of an end; more are joined, as small bytes objects cost more than their bytes
_MOST_MARKS = 1000  # positions handed out whose count of characters is remembered
_CONTINUATION = bytes(range(0x80, 0xC0))  # the bytes of UTF-8 that do not begin a character


class Spool:
    """The bytes of stdout and stderr in the order in which they arrived; safe to use from threads.

    Memory stays bounded: the first and the last 512 KiB are kept there. What is longer than both
    is written to a file as well, readable by this user only, which is removed with the spool. A
    character that two reads cut in half is put together again before it is kept.
    """

    def __init__(self, end_limit: int = END_LIMIT, file_limit: int = FILE_LIMIT) -> None:
        self._end_limit = end_limit
        self._file_limit = file_limit
        self._lock = threading.Lock()
        self._merged = _Ends(end_limit)
        # As long as only one stream has printed, its ends are those of both.
        self._only: str | None = None
        self._streams: dict[str, _Ends] = {}
        self._begun: dict[str, bytes] = {}  # of each stream, a character that is not whole yet
        self._file: _File | None = None
        self._lost = ""
        self._marks = {0: 0}  # position handed out -> characters before it

    # -- while it comes ------------------------------------------------------------------------

    def add(self, stream: str, data: bytes) -> bytes:
        """Take in what was read from a stream.

        Args:
            stream: "stdout" or "stderr".
            data: the bytes, of any length.

        Returns:
            What may be shown now: whole characters only, also one that `data` ends.
        """
        with self._lock:
            data = self._begun.pop(stream, b"") + data
            end = _last_whole(data)
            if end < len(data):
                self._begun[stream] = data[end:]
                data = data[:end]
            if data:
                self._keep(stream, data)
            return data

    def finish(self) -> list[tuple[str, bytes]]:
        """Take in the characters that will never be whole; return them with their streams."""
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
            self._only = stream
        elif self._only not in (None, stream):
            self._streams = {self._only: self._merged.copy(), stream: _Ends(self._end_limit)}
            self._only = None
        if self._only is None:
            self._streams[stream].add(data)
        self._merged.add(data)

    def _write(self, data: bytes) -> None:
        """Write to the file, where there is one or must be one from now on."""
        size = self._merged.size + len(data)
        if self._lost or (self._file is None and size <= 2 * self._end_limit):
            return
        if size > self._file_limit:
            self._give_up(f"it is longer than {self._file_limit >> 20} MiB")
            return
        try:
            self._open_file().append(data)
        except OSError as error:
            self._give_up(error.strerror or str(error))

    def _open_file(self) -> "_File":
        """The file, made with all that came so far when first asked for."""
        if self._file is None:
            self._file = file = _File(scratch_folder())
            weakref.finalize(self, file.discard).atexit = False  # the folder goes at exit
            file.append(b"".join(self._merged.parts()))  # nothing was dropped until now
        return self._file

    def _give_up(self, reason: str) -> None:
        """Go on with both ends alone, and give the disk back."""
        self._lost = reason
        if self._file is not None:
            self._file.discard()
            self._file = None

    # -- reading -------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Bytes that came; also the position after the last of them."""
        return self._merged.size

    @property
    def total(self) -> int:
        """Characters that came, whether kept or not."""
        return self._merged.characters

    @property
    def lines(self) -> int:
        """Lines that came, whether kept or not; the last one counts also where it has no end."""
        return self._merged.newlines + (not self._merged.ends_line)

    @property
    def lost(self) -> str:
        """Why a long output was not kept whole, such as "No space left on device"; else ""."""
        return self._lost

    def text(self, stream: str | None = None) -> str:
        """Return the beginning and the end as one text.

        Args:
            stream: "stdout" or "stderr"; both in order of arrival if not given.

        Returns:
            The whole where it fits into the two ends; else with a marker line between them.
        """
        return _with_marker(*self.ends(stream))

    def ends(self, stream: str | None = None) -> tuple[str, str, int]:
        """Return the beginning, the end, and how many characters between them were left out."""
        with self._lock:
            kept = self._streams.get(stream) or _Ends(self._end_limit)
            if stream is None or stream == self._only:
                kept = self._merged
            head, tail = kept.parts()
            gap = kept.size > len(head) + len(tail) or len(tail) > self._end_limit
            if gap:
                tail = tail[-self._end_limit :]
            return _decoded(head, tail, kept.characters if gap else None)

    def window(self, position: int) -> tuple[str, str, int, int]:
        """Return what came since `position`, 0 being the start.

        Returns:
            The beginning, the end, how many characters between them were left out, and the
            position to ask from next time.
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
            elif gap:  # where nothing better is known, bytes are counted
                characters = _count(head) + _count(tail) + gap
            self._mark(size)
            return *_decoded(head, tail, characters), size

    def since(self, position: int) -> tuple[str, int, int]:
        """Return what came since `position`, 0 being the start.

        Returns:
            The text, at most 1 MiB of it, with a marker line where something was left out; the
            position to ask from next time; and how many characters were left out.
        """
        head, tail, missed, position = self.window(position)
        return _with_marker(head, tail, missed), position, missed

    def path(self) -> Path:
        """Return the path of a file with the whole output, which is made if there is none yet.

        The file grows with the output and is removed with the spool.

        Raises:
            OSError: it cannot be written, or the output was not kept whole (see `lost`).
        """
        with self._lock:
            if self._lost:
                raise OSError(f"the whole output was not kept: {self._lost}")
            file = self._open_file()
            file.close()  # opened again when more comes
            return file.path

    def _read(self, start: int, end: int) -> bytes:
        """The bytes from `start` to `end`; where neither end nor a file has them all, the first."""
        head, tail = self._merged.parts()
        tail_start = self._merged.size - len(tail)
        if start >= tail_start:
            return tail[start - tail_start : end - tail_start]
        if end > len(head) and self._file is not None:
            with contextlib.suppress(OSError):  # somebody has tidied the folder
                return self._file.read(start, end)
        if tail_start == len(head):
            return (head + tail)[start:end]
        return head[start:end]

    def _mark(self, position: int) -> None:
        self._marks[position] = self._merged.characters
        if len(self._marks) > _MOST_MARKS:
            del self._marks[next(iter(self._marks))]

    def renew_lock(self) -> None:
        """In a forked child: take a lock that no thread of the parent holds."""
        self._lock = threading.Lock()


class _Ends:
    """The beginning and the end of bytes that come in pieces.

    Attributes:
        size: bytes that came.
        characters: characters that came.
        newlines: line ends that came.
        ends_line: whether nothing came after the last of them.
    """

    def __init__(self, limit: int) -> None:
        self.size = 0
        self.characters = 0
        self.newlines = 0
        self.ends_line = True
        self._limit = limit
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0

    def add(self, data: bytes) -> None:
        """Take in the next piece."""
        room = self._limit - len(self._head)
        rest = data
        if room:
            self._head += data[:room]
            rest = data[room:]
        self.size += len(data)
        self.characters += _count(data)
        self.newlines += data.count(b"\n")
        self.ends_line = data.endswith(b"\n")
        if rest:
            self._tail.append(rest[-self._limit :])
            self._tail_size += len(self._tail[-1])
            self._trim()

    def parts(self) -> tuple[bytes, bytes]:
        """Return the head and the tail; the tail may be longer than the limit."""
        return bytes(self._head), b"".join(self._tail)

    def copy(self) -> "_Ends":
        """Return ends of their own that have taken in the same."""
        twin = _Ends(self._limit)
        twin.size, twin.characters = self.size, self.characters
        twin.newlines, twin.ends_line = self.newlines, self.ends_line
        twin._head, twin._tail = bytearray(self._head), deque(self._tail)
        twin._tail_size = self._tail_size
        return twin

    def _trim(self) -> None:
        while self._tail_size - len(self._tail[0]) >= self._limit:
            self._tail_size -= len(self._tail.popleft())
        if len(self._tail) > _MOST_PIECES:
            self._tail = deque([b"".join(self._tail)])


class _File:
    """A file for this user only, which grows at its end."""

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
        """Give the descriptor back; `append` opens the file again."""
        fd, self._fd = self._fd, None
        if fd is not None:
            with contextlib.suppress(OSError):
                os.close(fd)

    def discard(self) -> None:
        """Close and remove the file; in a forked child the parent's stays."""
        self.close()
        if os.getpid() == self._owner:
            with contextlib.suppress(OSError):
                os.unlink(self.path)


def _decoded(head: bytes, tail: bytes, characters: int | None) -> tuple[str, str, int]:
    """Both ends as text, cut between characters, and how many of `characters` they lack.

    None for `characters`: nothing is missing between them.
    """
    if characters is None:
        return (head + tail).decode("utf-8", "replace"), "", 0
    head, tail = head[: _last_whole(head)], tail[_first_whole(tail) :]
    omitted = max(0, characters - _count(head) - _count(tail))
    return head.decode("utf-8", "replace"), tail.decode("utf-8", "replace"), omitted


def _with_marker(head: str, tail: str, omitted: int) -> str:
    return head + omission_marker(omitted, head) + tail if omitted else head + tail


def _count(data: bytes) -> int:
    """The characters of `data`; a byte that belongs to none counts as one or as none."""
    return len(data) if data.isascii() else len(data.translate(None, _CONTINUATION))


def _last_whole(data: bytes) -> int:
    """Where the last whole character of `data` ends; bytes that are none count as whole."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            break
        if byte >= 0xC0:  # begins a character of two, three or four bytes
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) - back if back < length else len(data)
    return len(data)


def _first_whole(data: bytes) -> int:
    """Where the first character begins in `data`: after at most three bytes of one cut before."""
    start = 0
    while start < min(3, len(data)) and 0x80 <= data[start] < 0xC0:
        start += 1
    return start
