"""Defines errors for the end of a connection, and limits restarts."""

import time
from collections import deque

_BACK_OFF = 0.2  # seconds before the first restart; each further one waits twice as long
_MOST = 3  # unexpected ends within the time below; after one more there is no restart
_WITHIN = 60.0  # seconds


class LinkLost(Exception):
    """The connection ended while a request awaited its answer.

    Attributes:
        taken: whether the server may have received the request; False if certainly not.
    """

    def __init__(self, reason: str, *, taken: bool = True) -> None:
        super().__init__(reason)
        self.taken = taken


class LoginNeeded(Exception):
    """The server requires a login, and no valid token is stored."""


class HandshakeRefused(Exception):
    """The server does not support the handshake of this protocol version; another may be tried."""


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
