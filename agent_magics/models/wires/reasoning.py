"""Reasoning of a chat stream in the structured form that a server wants to have back unchanged.

OpenRouter sends ``reasoning_details`` beside the plain text: blocks with signatures or encrypted
data, without which Anthropic's and Google's models refuse the calls that followed, or think anew.
Its documentation ("Preserving reasoning blocks") wants the whole sequence as it came.
"""

import json
from collections.abc import Mapping
from typing import Any

# A `Reasoning` item keeps the blocks where others keep their encrypted form; this tells them apart.
MARK = "reasoning_details:"

# Kind of block -> the field whose text comes in pieces.
_IN_PIECES = {"reasoning.text": "text", "reasoning.summary": "summary"}


class ReasoningDetails:
    """Puts the blocks together from their pieces."""

    def __init__(self) -> None:
        self._blocks: list[dict[str, Any]] = []

    def add(self, pieces: Any) -> None:
        """Take the ``reasoning_details`` of one chunk."""
        for piece in pieces if isinstance(pieces, list) else ():
            if isinstance(piece, Mapping):
                self._add(piece)

    def _add(self, piece: Mapping[str, Any]) -> None:
        last = self._blocks[-1] if self._blocks else {}
        field = _IN_PIECES.get(str(piece.get("type")))
        if field is None or any(piece.get(n) != last.get(n) for n in ("type", "index")):
            self._blocks.append(dict(piece))
            return
        text = f"{last.get(field) or ''}{piece.get(field) or ''}"
        last.update((name, value) for name, value in piece.items() if value is not None)
        last[field] = text

    def kept(self) -> str | None:
        """Return the blocks as a `Reasoning` item keeps them, None where there are none."""
        if not self._blocks:
            return None
        return MARK + json.dumps(self._blocks, ensure_ascii=False, separators=(",", ":"))


def is_details(encrypted: str | None) -> bool:
    """Return whether what a `Reasoning` item keeps are such blocks."""
    return encrypted is not None and encrypted.startswith(MARK)


def details_of(encrypted: str) -> bytes:
    """Return the blocks as elements of a JSON array, joined by commas."""
    return encrypted.removeprefix(MARK)[1:-1].encode("utf-8", "replace")
