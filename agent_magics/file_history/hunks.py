"""Takes a single change of a text out of it again, where the text still holds the changed lines.

Law: bytes are replaced only where they are the agent's, line by line, beside a line that the agent
left there, too; everything else in the text stays as it is, byte by byte.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_HEADER = re.compile(r"^@@ -\d+(?:,\d+)? \+(\d+)(?:,(\d+))? @@")
# Lines around a change that must be there too; fewer, where the person has changed one of them.
_REACHES = (3, 2, 1)


@dataclass(slots=True)
class Hunk:
    """One change of a text.

    Attributes:
        shown: its lines as a unified diff shows them, the header first.
        at: where it begins in the changed text, in bytes.
        old, new: its lines before and after.
    """

    shown: tuple[str, ...]
    at: int
    old: bytes
    new: bytes


class ChangedText:
    """A text as an agent left it, with the changes that the agent made.

    Args:
        left: the text.
        old: the text before.
        hunks: the changes, as `file_diff` returns them.
    """

    def __init__(self, left: bytes, old: bytes, hunks: Sequence[tuple[str, ...]]) -> None:
        self._left = left
        self.hunks: list[Hunk] = []
        lines_left, lines_old = _line_starts(left), _line_starts(old)
        shift = 0  # of line numbers, from the changed text to the one before
        for shown in hunks:
            found = _HEADER.match(shown[0])
            assert found is not None, shown[0]
            count = int(found[2] or 1)
            before = _leading(shown[1:])
            after = _leading(shown[:0:-1]) if before < len(shown) - 1 else 0
            first = int(found[1]) - (count > 0) + before
            last = first + count - before - after
            removed = sum(line.startswith("-") for line in shown[1:])
            added = sum(line.startswith("+") for line in shown[1:])
            start, end = lines_left[first], lines_left[last]
            old_start = lines_old[first + shift]
            shift += removed - added
            hunk = Hunk(shown, start, old[old_start : lines_old[last + shift]], left[start:end])
            self.hunks.append(hunk)

    def without(self, hunk: Hunk, now: bytes) -> bytes | None:
        """Return a text with the old lines of a change in place of the new ones.

        Args:
            hunk: one of `hunks`.
            now: the text as it is now; it may have changed in other places.

        Returns:
            The text; None where it does not hold the new lines, or not clearly.
        """
        at = self._find(hunk, now)
        if at is None:
            return None
        end = at + len(hunk.new)
        if hunk.old and not hunk.old.endswith(b"\n") and end < len(now):
            return None  # its last line would join the next one
        return now[:at] + hunk.old + now[end:]

    def forget(self, hunk: Hunk) -> None:
        """Take a change out of the agent's text, because it has been taken out of the file."""
        self._left = self._left[: hunk.at] + hunk.old + self._left[hunk.at + len(hunk.new) :]
        self.hunks.remove(hunk)
        for other in self.hunks:
            if other.at > hunk.at:
                other.at += len(hunk.old) - len(hunk.new)

    def _find(self, hunk: Hunk, now: bytes) -> int | None:
        """Return where a change stands in a text; None where it does not, or not clearly.

        Equal pieces must be as many as the agent left: the same one of them is meant.
        """
        left, end = self._left, hunk.at + len(hunk.new)
        for reach in _REACHES:
            first = _line_before(left, hunk.at, reach)
            piece = left[first : _line_after(left, end, reach)]
            there, here = _places(piece, left), _places(piece, now)
            if len(there) == len(here):
                return here[there.index(first)] + hunk.at - first
        return None


def _line_starts(text: bytes) -> list[int]:
    """Return where each line begins, and where the text ends."""
    places = [0, *(found.end() for found in re.finditer(b"\n", text))]
    return places if places[-1] == len(text) else [*places, len(text)]


def _leading(lines: Sequence[str]) -> int:
    """Return how many lines at the beginning are context."""
    return next((n for n, line in enumerate(lines) if not line.startswith(" ")), len(lines))


def _line_before(text: bytes, at: int, count: int) -> int:
    """Return where the line begins that is so many lines before the one at `at`."""
    for _ in range(count):
        at = text.rfind(b"\n", 0, max(at - 1, 0)) + 1
    return at


def _line_after(text: bytes, at: int, count: int) -> int:
    """Return where the line ends that is so many lines after `at`, which begins a line."""
    for _ in range(count):
        at = text.find(b"\n", at) + 1 or len(text)
    return at


def _places(piece: bytes, text: bytes) -> list[int]:
    """Return where whole lines of a text are those of a piece."""
    if not piece:
        return [0] if not text else []
    found, at = [], text.find(piece)
    while at >= 0:
        ends_line = piece.endswith(b"\n") or at + len(piece) == len(text)
        if ends_line and (at == 0 or text[at - 1 : at] == b"\n"):
            found.append(at)
        at = text.find(piece, at + 1)
    return found
