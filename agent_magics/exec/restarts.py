"""Limits how often a server that ends by itself is started again, and describes how it ended."""

import signal
import time
from collections import deque
from contextlib import suppress

from agent_magics.exec.process import Process

_BACK_OFF = 0.2  # seconds before the first restart; each further one waits twice as long
_MOST = 3  # unexpected ends within the time below; after one more there is no restart
_WITHIN = 60.0  # seconds


class Deaths:
    """Counts the recent unexpected ends of a server."""

    def __init__(self) -> None:
        self._times: deque[float] = deque()

    @property
    def number(self) -> int:
        """Number of them within a minute."""
        return len(self._times)

    def count(self) -> float | None:
        """Count one more; return the seconds to wait before a restart, None for no restart."""
        now = time.monotonic()
        self._times.append(now)
        while self._times[0] < now - _WITHIN:
            self._times.popleft()
        return None if self.number > _MOST else _BACK_OFF * 2 ** (self.number - 1)


def describe_exit(process: Process) -> str:
    """Describe how a server ended, in a few words."""
    code = process.exit_code
    if code is None:
        return process.lost.rstrip(".") or "its output was closed, and it was ended"
    if code > 128:
        with suppress(ValueError):
            return f"signal {signal.Signals(code - 128).name}"
    return f"exit code {code}"
