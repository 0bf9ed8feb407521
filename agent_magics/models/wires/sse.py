"""Decodes and encodes server-sent events (SSE).

No I/O: `SseDecoder` accepts bytes split anywhere.
"""

import re
from collections.abc import Sequence
from typing import TypeAlias

from agent_magics.models.bounds import EVENT_BYTES, too_large
from agent_magics.models.wires.bodies import compact
from agent_magics.protocol.items import JsonMapping, JsonObject

SseEvent: TypeAlias = tuple[bytes, bytes]
"""The event's name (empty if the stream gives none) and its data."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

# One delta per word with the space after it, roughly as providers do.
WORDS = re.compile(r"\S+\s*|\s+")


class SseDecoder:
    """Decodes bytes into events, by the rules of the HTML standard ("Server-sent events").

    With one exception: an event at the end of the stream counts even without its blank line.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._started = False
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Return the events that `chunk` completes."""
        rest = self._rest
        seen = max(len(rest) - 1, 0)
        rest += self._with_plain_line_ends(chunk)
        if not self._started:
            if not self._drop_byte_order_mark():
                return []
            seen = 0
        end = rest.rfind(b"\n\n", seen)
        if len(rest) - max(end, 0) > EVENT_BYTES:
            raise too_large("an event", EVENT_BYTES)
        if end < 0:
            return []
        blocks = bytes(rest[:end]).split(b"\n\n")
        del rest[: end + 2]
        return _events(blocks)

    def close(self) -> list[SseEvent]:
        """Return the events left at the end without a blank line."""
        blocks = bytes(self._rest).split(b"\n\n")
        self._rest.clear()
        return _events(blocks)

    def _with_plain_line_ends(self, chunk: bytes) -> bytes:
        """Return the chunk with CR LF and CR as LF; a pair may be split over two chunks."""
        if not chunk:
            return chunk
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = False
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return chunk

    def _drop_byte_order_mark(self) -> bool:
        """Remove a byte order mark; return False while it may still be incomplete."""
        if len(self._rest) < len(BYTE_ORDER_MARK) and BYTE_ORDER_MARK.startswith(self._rest):
            return False
        if self._rest.startswith(BYTE_ORDER_MARK):
            del self._rest[: len(BYTE_ORDER_MARK)]
        self._started = True
        return True


def _events(blocks: Sequence[bytes]) -> list[SseEvent]:
    """Parse each block; the usual form is handled without splitting it into lines."""
    events = []
    for block in blocks:
        if block.startswith(b"event: "):
            head, found, data = block.partition(b"\ndata: ")
            if found and b"\n" not in data and b"\n" not in head:
                events.append((head[7:], data))
                continue
        elif block.startswith(b"data: ") and b"\n" not in block:
            events.append((b"", block[6:]))
            continue
        event = _read_lines(block)
        if event is not None:
            events.append(event)
    return events


def _read_lines(block: bytes) -> SseEvent | None:
    name, data = b"", []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
        elif field == b"error":  # not in the standard; older llama.cpp reports errors so
            name = b"error"
            data.append(value)
    return (name, b"\n".join(data)) if data else None


def encode_event(name: str, fields: JsonMapping) -> bytes:
    """Encode one event as a provider would send it, with its name also as ``"type"`` in the
    data.
    """
    return b"event: " + name.encode() + b"\ndata: " + compact({"type": name, **fields}) + b"\n\n"


def reply_events(
    items: Sequence[JsonMapping], *, usage: JsonMapping | None = None, incomplete: str | None = None
) -> list[bytes]:
    """Encode a whole Responses answer that consists of `items` as events.

    Args:
        items: output items as the API's JSON.
        usage: the API's usage object.
        incomplete: why the provider truncated the answer ("max_output_tokens"), or None.
    """
    events = [encode_event("response.created", {"response": {"status": "in_progress"}})]
    for index, item in enumerate(items):
        events += _item_events(index, item)
    status = "incomplete" if incomplete else "completed"
    response: JsonObject = {"status": status, "output": [], "usage": usage}
    if incomplete:
        response["incomplete_details"] = {"reason": incomplete}
    events.append(encode_event(f"response.{status}", {"response": response}))
    return events


def _item_events(index: int, item: JsonMapping) -> list[bytes]:
    place = {"output_index": index}
    events = [encode_event("response.output_item.added", {**place, "item": {"type": item["type"]}})]
    for name, text in _shown_texts(item):
        events += [encode_event(name, {**place, "delta": word}) for word in WORDS.findall(text)]
    events.append(encode_event("response.output_item.done", {**place, "item": item}))
    return events


def _shown_texts(item: JsonMapping) -> list[tuple[str, str]]:
    """Return the streamed texts of an item, each with the name of its delta event."""
    if item["type"] == "message":
        return [
            ("response.refusal.delta", part["refusal"])
            if part.get("type") == "refusal"
            else ("response.output_text.delta", part.get("text", ""))
            for part in item.get("content", ())
        ]
    if item["type"] == "reasoning":
        summary = item.get("summary", ())
        return [("response.reasoning_summary_text.delta", part["text"]) for part in summary]
    return []
