"""Collects structured reasoning of a chat stream, which the server requires back unchanged.

OpenRouter sends ``reasoning_details`` beside the plain text: blocks with signatures or encrypted
data, without which Anthropic's and Google's models refuse the following calls, or reason again.
Its documentation ("Preserving reasoning blocks") requires the whole sequence unchanged.
Signatures and encrypted data are readable to their vendor alone, so another one's models get none.
"""

from collections.abc import Mapping

from agent_magics.models.wires.bodies import json_text
from agent_magics.protocol.items import JsonMapping, JsonObject

# Prefix of blocks stored in `Reasoning.encrypted`, to tell them from encrypted reasoning. The
# vendor of the model follows, which has no bracket, then the blocks as a JSON array.
MARK = "reasoning_details:"

# Kind of block -> the field whose text is split over chunks.
_IN_PIECES = {"reasoning.text": "text", "reasoning.summary": "summary"}


class ReasoningDetails:
    """Assembles the blocks from their fragments."""

    def __init__(self) -> None:
        self._blocks: list[JsonObject] = []
        self._texts: list[str] = []  # fragments of the last block's text

    def add(self, pieces: object) -> None:
        """Add the ``reasoning_details`` of one chunk."""
        for piece in pieces if isinstance(pieces, list) else ():
            if isinstance(piece, Mapping):
                self._add(piece)

    def _add(self, piece: JsonMapping) -> None:
        last = self._blocks[-1] if self._blocks else {}
        field = _IN_PIECES.get(str(piece.get("type")))
        if field is None or any(piece.get(n) != last.get(n) for n in ("type", "index")):
            self._close()
            self._blocks.append(dict(piece))
        else:
            last.update((name, value) for name, value in piece.items() if value is not None)
        if field is not None:
            self._texts.append(str(piece.get(field) or ""))

    def _close(self) -> None:
        """Join the text of the last block."""
        if self._texts:
            last = self._blocks[-1]
            last[_IN_PIECES[str(last["type"])]] = "".join(self._texts)
            self._texts.clear()

    def kept(self, vendor: str = "") -> str | None:
        """Return the blocks of a model of `vendor` for `Reasoning.encrypted`, or None."""
        self._close()
        if not self._blocks:
            return None
        return f"{MARK}{vendor}{json_text(self._blocks)}"


def is_details(encrypted: str | None) -> bool:
    """Tell whether a value of `Reasoning.encrypted` holds such blocks."""
    return encrypted is not None and encrypted.startswith(MARK)


def details_for(vendor: str, encrypted: str | None) -> bytes:
    """Return such blocks as elements of a JSON array, joined by commas; b"" for other vendors.

    Blocks of an unknown vendor are for all: so they were kept before it was noted.
    """
    if encrypted is None or not is_details(encrypted):
        return b""
    maker, _, blocks = encrypted.removeprefix(MARK).partition("[")
    return blocks[:-1].encode("utf-8", "replace") if maker in ("", vendor) else b""
