"""Writing recordings: several agents and kernels at a time, and never half a file."""

import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from agent_magics.models.recording import (
    Exchange,
    Header,
    Recording,
    exchange_line,
    header_line,
    parse_recording,
)
from agent_magics.protocol.errors import FatalError

# Seconds: writing takes milliseconds, so who holds a file for longer hangs.
LONGEST_WAIT = 10.0
BETWEEN_TRIES = 0.02


def recording_beside_notebook() -> Path | None:
    """Return ``x.agent.jsonl`` where this kernel knows that it runs the notebook ``x.ipynb``.

    Jupyter Server names the notebook by its path in JPY_SESSION_NAME; its kernel runs in the
    notebook's folder.
    """
    notebook = os.environ.get("JPY_SESSION_NAME", "")
    if not notebook.endswith(".ipynb"):
        return None
    path = Path.cwd() / (Path(notebook).stem + ".agent.jsonl")
    return path if path.is_file() else None


def start_recording(path: Path, header: Header) -> str:
    """Write the header where `path` does not exist yet; else check that it is a recording.

    Returns:
        What of the file could not be read, in one sentence, or "".

    Raises:
        FatalError: the file is something else, or cannot be written.
    """
    with _locked(path, create=True) as file:
        content = file.read()
        if content.strip():
            return parse_recording(content, path).notice
        file.write(header_line(header))
        return ""


def append_exchange(path: Path, exchange: Exchange) -> None:
    """Add `exchange` at the file's end, in one piece, whoever else writes to it.

    Raises:
        FatalError: the file cannot be written, or another process does not let go of it.
    """
    with _locked(path) as file:
        begin, last = _last_line(file)
        mended = _mended(last)
        file.truncate(begin + min(len(mended), len(last)))
        file.write(mended[len(last) :] + exchange_line(exchange))


def rewrite(
    path: Path,
    dropped: Callable[[Recording], Collection[int]],
    added: Iterable[Exchange] = (),
    *,
    header: Callable[[Recording, Collection[int]], Header] | None = None,
    backup: Path | None = None,
) -> int:
    """Take lines out of a recording and put exchanges in their place; all others stay as they are.

    The new file takes the place of the old one at once, or not at all.

    Args:
        path: the recording.
        dropped: returns which lines to take out, counted from 1.
        added: these come where the first of them stood, or at the end.
        header: returns the new header, of the old recording and the lines taken out.
        backup: where the old file is kept.

    Returns:
        How many lines were taken out; where nothing is taken out or added, nothing is written.

    Raises:
        FatalError: the file cannot be read or written.
    """
    with _locked(path) as file:
        content = _mended(file.read())
        recording = parse_recording(content, path)
        out = set(dropped(recording))
        new = [exchange_line(exchange) for exchange in added]
        if not out and not new:
            return 0
        lines = content.split(b"\n")
        rest = lines.pop()  # after the last line's end: nothing
        if header is not None:
            first = next(number for number, line in enumerate(lines) if line.strip())
            lines[first] = header_line(header(recording, out)).rstrip()
        at = min(out, default=len(lines) + 1) - 1
        before = [line for number, line in enumerate(lines[:at], 1) if number not in out]
        after = [line for number, line in enumerate(lines[at:], at + 1) if number not in out]
        pieces = [*(line + b"\n" for line in before), *new, *(line + b"\n" for line in after), rest]
        if backup is not None:
            shutil.copyfile(path, backup)
        _replace(path, b"".join(pieces))
    return len(out)


def _last_line(file: BinaryIO) -> tuple[int, bytes]:
    """Return where the last line begins, and the line: nothing where the file ends as it should."""
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
    """Return a file's content with its last line whole: without half a line, ended as a line."""
    begin = content.rfind(b"\n") + 1
    last = content[begin:]
    if not last.strip():
        return content
    try:
        json.loads(last)
    except (ValueError, RecursionError):
        return content[:begin]
    return content + b"\n"


def _replace(path: Path, content: bytes) -> None:
    target = Path(os.path.realpath(path))  # a link goes on being one
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with open(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(target, name)
        os.replace(name, target)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(name)
        raise


@contextmanager
def _locked(path: Path, *, create: bool = False) -> Iterator[BinaryIO]:
    """Open `path` for reading and adding, while nobody else has it open so.

    Raises:
        FatalError: that is not possible.
    """
    try:
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
        file = _open_locked(path, create)
        try:
            yield file
        finally:
            file.close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise FatalError(f"Cannot write the recording {path}: {reason}.") from None


def _open_locked(path: Path, create: bool) -> BinaryIO:
    """Open and lock; again where the file was replaced in between."""
    deadline = time.monotonic() + LONGEST_WAIT
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    while True:
        file = os.fdopen(os.open(path, flags, 0o666), "rb+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file
        except BlockingIOError:
            if time.monotonic() > deadline:
                file.close()
                raise FatalError(
                    f"Cannot write the recording {path}: another kernel has held it for "
                    f"{LONGEST_WAIT:g} seconds; let it end, or record to another file."
                ) from None
        except FileNotFoundError:  # taken away just now
            if not create:
                file.close()
                raise
        file.close()
        time.sleep(BETWEEN_TRIES)
