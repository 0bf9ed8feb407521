"""Writes recordings, safely with several processes, and never half a file."""

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from agent_magics.files.locks import LONGEST_WAIT, FileHeld, append, open_locked
from agent_magics.files.plain_files import load_json, replace_file
from agent_magics.models.recordings.format import (
    MOST_BYTES,
    Exchange,
    Header,
    Recording,
    exchange_line,
    header_line,
    parse_recording,
)
from agent_magics.protocol.errors import FatalError, clause


def recording_beside_notebook() -> Path | None:
    """Return ``x.agent.jsonl`` if it exists and this kernel runs the notebook ``x.ipynb``.

    Jupyter Server sets JPY_SESSION_NAME to the notebook's path; the kernel runs in the
    notebook's folder.
    """
    notebook = os.environ.get("JPY_SESSION_NAME", "")
    if not notebook.endswith(".ipynb"):
        return None
    path = Path.cwd() / (Path(notebook).stem + ".agent.jsonl")
    return path if path.is_file() else None


def start_recording(path: Path, header: Header) -> str:
    """Write the header if `path` does not exist yet; else check that it is a recording.

    Returns:
        One sentence on what of the file could not be read, or "".

    Raises:
        FatalError: the file is not a recording, is full, or cannot be written.
    """
    with _locked(path, create=True) as file:
        _check_size(path, os.fstat(file.fileno()).st_size)
        content = file.read()
        if content.strip():
            return parse_recording(content, path).notice
        append(file.fileno(), header_line(header))
        return ""


def append_exchange(path: Path, exchange: Exchange) -> None:
    """Append `exchange` to the file, atomically with respect to other writers.

    Raises:
        FatalError: the file cannot be written or is full, or another process holds its lock too
            long.
    """
    with _locked(path) as file:
        begin, last = _last_line(file)
        mended, line = _mended(last), exchange_line(exchange)
        _check_size(path, begin + len(mended) + len(line))
        file.truncate(begin + min(len(mended), len(last)))
        file.write(mended[len(last) :] + line)


def rewrite(
    path: Path,
    dropped: Callable[[Recording], Collection[int]],
    added: Iterable[Exchange] = (),
    *,
    header: Callable[[Recording, Collection[int]], Header] | None = None,
    backup: Path | None = None,
) -> int:
    """Remove lines of a recording and insert exchanges in their place; all other lines are kept.

    The file is replaced atomically.

    Args:
        path: the recording.
        dropped: returns the lines to remove, counted from 1.
        added: exchanges to insert in place of the first of them, or at the end.
        header: returns the new header, from the old recording and the removed lines.
        backup: where to copy the old file.

    Returns:
        The number of removed lines; if nothing is removed or added, nothing is written.

    Raises:
        FatalError: the file cannot be read or written.
    """
    with _locked(path) as file:
        found, mode = file.read(), stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        content = _mended(found)
        recording = parse_recording(content, path)
        out = set(dropped(recording))
        new = [exchange_line(exchange) for exchange in added]
        if not out and not new:
            return 0
        lines = content.split(b"\n")
        rest = lines.pop()  # b"" after the last line break
        if header is not None:
            first = next(number for number, line in enumerate(lines) if line.strip())
            lines[first] = header_line(header(recording, out)).rstrip()
        at = min(out, default=len(lines) + 1) - 1
        before = [line for number, line in enumerate(lines[:at], 1) if number not in out]
        after = [line for number, line in enumerate(lines[at:], at + 1) if number not in out]
        pieces = [*(line + b"\n" for line in before), *new, *(line + b"\n" for line in after), rest]
        if backup is not None:
            replace_file(backup, found, mode)
        replace_file(path, b"".join(pieces), mode)
    return len(out)


def _check_size(path: Path, size: int) -> None:
    """Refuse what `read_recording` would refuse, since it could never be played."""
    if size >= MOST_BYTES:
        raise FatalError(
            f"The recording {path} is full: more than {MOST_BYTES >> 20} MiB are not read back; "
            "record to another file."
        )


def _last_line(file: BinaryIO) -> tuple[int, bytes]:
    """Return (offset, bytes) of an unterminated last line, or (end, b"")."""
    end = file.seek(0, os.SEEK_END)
    size = 4096
    while True:
        begin = max(0, end - size)
        file.seek(begin)
        tail = file.read(end - begin)
        found = tail.rfind(b"\n")
        if found >= 0 or begin == 0:
            return begin + found + 1, tail[found + 1 :]
        size *= 8


def _mended(content: bytes) -> bytes:
    """Return a file's content with an incomplete last line removed, or a missing line break
    added.
    """
    begin = content.rfind(b"\n") + 1
    last = content[begin:]
    if not last.strip():
        return content
    try:
        load_json(last)
    except ValueError:
        return content[:begin]
    return content + b"\n"


@contextmanager
def _locked(path: Path, *, create: bool = False) -> Iterator[BinaryIO]:
    """Open `path` for reading and appending under an exclusive lock.

    Raises:
        FatalError: it cannot be opened or locked.
    """
    try:
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_APPEND | (os.O_CREAT if create else 0)
        descriptor = open_locked(path, flags, mode=0o666, wait=LONGEST_WAIT)
        with os.fdopen(descriptor, "rb+") as file:
            yield file
    except FileHeld:
        raise FatalError(
            f"Cannot write the recording {path}: another kernel has held it for "
            f"{LONGEST_WAIT:g} seconds; let it end, or record to another file."
        ) from None
    except OSError as error:
        raise FatalError(
            f"Cannot write the recording {path}: {clause(error)}; record to another file."
        ) from None
