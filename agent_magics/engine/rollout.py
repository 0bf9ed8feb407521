"""The record of a session: one JSON line per event, written before the event is shown."""

import json
import os
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

from agent_magics.protocol.codec import to_json
from agent_magics.protocol.events import Event, ReasoningDelta, TextDelta

KEEP_DAYS = 30
_LEFT_OUT = (TextDelta, ReasoningDelta)


class Rollout:
    """Appends events to ``<folder>/YYYY/MM/DD/<session>.jsonl``, mode 0600.

    Deltas are left out: the item they add up to follows whole.
    """

    def __init__(self, folder: Path, session_id: str) -> None:
        day = time.strftime("%Y/%m/%d")
        self.path = folder / day / f"{session_id}.jsonl"
        self._folder = folder
        self._fd: int | None = None
        self._closing: weakref.finalize[[int], Rollout] | None = None

    def write(self, events: Iterable[Event]) -> None:
        """Append events with one write.

        Raises:
            OSError: the file cannot be written; the caller warns once and goes on without.
        """
        lines = [_line(event) for event in events if not isinstance(event, _LEFT_OUT)]
        if not lines:
            return
        if self._fd is None:
            self._fd = self._open()
            # An agent that is dropped without `close` gives its file back too.
            self._closing = weakref.finalize(self, os.close, self._fd)
            self._closing.atexit = False  # the last events may still be on their way
        os.write(self._fd, b"".join(lines))

    def close(self) -> None:
        """Give the file back."""
        if self._closing is not None:
            self._closing()
            self._closing = self._fd = None

    def _open(self) -> int:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        remove_old(self._folder)
        return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _line(event: Event) -> bytes:
    data = to_json(event)
    try:
        return _encoder()(data, fallback=str) + b"\n"
    except ValueError:  # half a character, which JSON can only escape
        return json.dumps(data, default=str).encode("ascii") + b"\n"


@cache
def _encoder() -> Callable[..., bytes]:
    # Late: `import agent_magics` must not pay for it. Three times as fast as json.
    from pydantic_core import to_json as encode  # noqa: PLC0415

    return encode


def remove_old(folder: Path, days: int = KEEP_DAYS) -> None:
    """Delete rollouts older than `days`, and the day folders that this empties."""
    limit = time.time() - days * 86_400
    for path in folder.glob("*/*/*/*.jsonl"):
        with suppress(OSError):
            if path.stat().st_mtime < limit:
                path.unlink()
                path.parent.rmdir()
