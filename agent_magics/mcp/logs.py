"""What a server writes beside the protocol: kept as far as there is room, and counted beyond."""

from collections import deque
from collections.abc import Callable

MOST_KEPT = 256 * 1024  # bytes of one server
_LONGEST_LINE = 2_000  # characters of a line of ours


class LogRing:
    """The last of what one server wrote, and how much came before it.

    Pieces stay as they came; only whoever reads them pays for decoding and redacting, so that a
    flood costs next to nothing.
    """

    def __init__(self, redact: Callable[[str], str]) -> None:
        self.redact = redact
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._at_line_start = True
        self.dropped = 0

    def feed(self, data: bytes) -> None:
        """Take in bytes as the server wrote them."""
        if not data:
            return
        self._at_line_start = data.endswith(b"\n")
        self._pieces.append(data)
        self._size += len(data)
        while self._size > MOST_KEPT:
            oldest = self._pieces.popleft()
            surplus = self._size - MOST_KEPT
            if len(oldest) > surplus:
                self._pieces.appendleft(oldest[surplus:])
                oldest = oldest[:surplus]
            self._size -= len(oldest)
            self.dropped += len(oldest)

    def note(self, text: str) -> None:
        """Take in a line of our own."""
        line = " ".join(text[:_LONGEST_LINE].splitlines())
        start = "" if self._at_line_start else "\n"
        self.feed(f"{start}[{line}]\n".encode("utf-8", "replace"))

    def text(self) -> str:
        """Return what is there, without secrets; where something was dropped, how much."""
        kept = b"".join(self._pieces)
        dropped = self.dropped
        if dropped:  # a line that was cut could begin with half a secret
            cut = kept.find(b"\n") + 1
            dropped += cut
            kept = kept[cut:]
        text = self.redact(kept.decode("utf-8", "replace"))
        return f"[{dropped:,} bytes before this were dropped]\n{text}" if dropped else text

    def last_words(self) -> str:
        """Return its last line that is not ours, as the end of a sentence; "" without one."""
        for line in reversed(self.text().splitlines()):
            words = " ".join(line.split())
            if words and not words.startswith("["):
                return f"; it said: {words[:300]}"
        return ""
