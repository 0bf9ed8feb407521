"""How a connection ends: the errors by which its parts speak, and when they are too many."""

import time
from collections import deque

_BACK_OFF = 0.2  # seconds before the first restart; each further one waits twice as long
_MOST = 3  # deaths within the time below; after one more a server is left alone
_WITHIN = 60.0  # seconds


class LinkLost(Exception):
    """The connection ended while somebody waited for an answer.

    Attributes:
        taken: whether the server may have taken the request: False where it surely has not.
    """

    def __init__(self, reason: str, *, taken: bool = True) -> None:
        super().__init__(reason)
        self.taken = taken


class LoginNeeded(Exception):
    """The server wants a login, and there is none that it takes."""


class HandshakeRefused(Exception):
    """The server does not know the handshake of this protocol version; another may be tried."""


class Deaths:
    """Counts how often a server ended by itself of late."""

    def __init__(self) -> None:
        self._times: deque[float] = deque()

    @property
    def number(self) -> int:
        """How many there were within a minute."""
        return len(self._times)

    def count(self) -> float | None:
        """Count one more; return how many seconds to wait before a restart, None for no restart."""
        now = time.monotonic()
        self._times.append(now)
        while self._times[0] < now - _WITHIN:
            self._times.popleft()
        return None if self.number > _MOST else _BACK_OFF * 2 ** (self.number - 1)
