"""Server-sent events in both directions: a provider's bytes into events, a script into bytes.

No I/O and no JSON models: `SseDecoder` is fed whatever the network brought, split anywhere.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeAlias

SseEvent: TypeAlias = tuple[bytes, bytes]
"""The event's name (empty where the stream gives none) and its data."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

# A delta of a script carries one word with the space after it, as providers roughly do.
WORDS = re.compile(r"\S+\s*|\s+")


class SseDecoder:
    """Turns bytes into events, by the rules of the HTML standard.

    One rule is softer: an event that ends with the stream, without its blank line, still counts.
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
        if end < 0:
            return []
        blocks = bytes(rest[:end]).split(b"\n\n")
        del rest[: end + 2]
        return _events(blocks)

    def close(self) -> list[SseEvent]:
        """Return what stood at the end without a blank line."""
        blocks = bytes(self._rest).split(b"\n\n")
        self._rest.clear()
        return _events(blocks)

    def _with_plain_line_ends(self, chunk: bytes) -> bytes:
        """CR LF and CR alone end lines too; a pair may be split over two chunks."""
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
        """Return False while what has come so far may still be half a mark."""
        if len(self._rest) < len(BYTE_ORDER_MARK) and BYTE_ORDER_MARK.startswith(self._rest):
            return False
        if self._rest.startswith(BYTE_ORDER_MARK):
            del self._rest[: len(BYTE_ORDER_MARK)]
        self._started = True
        return True


def _events(blocks: Sequence[bytes]) -> list[SseEvent]:
    """Read each block; the form that providers send is taken apart without going line by line."""
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
        elif field == b"error":  # no field of the standard; older llama.cpp says its errors so
            name = b"error"
            data.append(value)
    return (name, b"\n".join(data)) if data else None


async def gather_reads(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield in one piece all chunks that came without waiting, that is, one network read.

    A server flushes every event as an HTTP chunk of its own; going through the reader's whole
    chain once per read instead of once per chunk is what keeps long answers cheap. A task reads
    ahead; what it may pile up is bounded by the length of one answer.
    """
    arrived: list[bytes] = []
    news = asyncio.Event()

    async def read() -> None:
        try:
            async with aclosing(chunks):
                async for chunk in chunks:
                    arrived.append(chunk)
                    news.set()
        finally:
            news.set()

    reader = asyncio.create_task(read(), name="agent-magics: read the model's answer")
    try:
        while arrived or not reader.done():
            await news.wait()
            news.clear()
            if arrived:
                together = b"".join(arrived)
                arrived.clear()
                yield together
        reader.result()
    finally:
        await _end(reader)


async def _end(reader: "asyncio.Task[None]") -> None:
    """Stop reading; closing a connection gets one second."""
    if not reader.done():
        reader.cancel()
        await asyncio.wait({reader}, timeout=1.0)
    if reader.done() and not reader.cancelled():
        reader.exception()  # Seen: otherwise asyncio complains that nobody asked.


def encode_event(name: str, fields: Mapping[str, Any]) -> bytes:
    """Return one event as a provider would send it, its name also as ``"type"`` in the data."""
    data = json.dumps({"type": name, **fields}, ensure_ascii=False, separators=(",", ":"))
    return f"event: {name}\ndata: {data}\n\n".encode("utf-8", "replace")


def reply_events(
    items: Sequence[Mapping[str, Any]],
    *,
    usage: Mapping[str, Any] | None = None,
    incomplete: str | None = None,
) -> list[bytes]:
    """Return the events of a whole Responses answer that consists of `items`.

    Args:
        items: output items as the API's JSON.
        usage: the API's usage object.
        incomplete: why the provider cut the answer short ("max_output_tokens"), or None.
    """
    events = [encode_event("response.created", {"response": {"status": "in_progress"}})]
    for index, item in enumerate(items):
        events += _item_events(index, item)
    status = "incomplete" if incomplete else "completed"
    response: dict[str, Any] = {"status": status, "output": [], "usage": usage}
    if incomplete:
        response["incomplete_details"] = {"reason": incomplete}
    events.append(encode_event(f"response.{status}", {"response": response}))
    return events


def _item_events(index: int, item: Mapping[str, Any]) -> list[bytes]:
    place = {"output_index": index}
    events = [encode_event("response.output_item.added", {**place, "item": {"type": item["type"]}})]
    for name, text in _shown_texts(item):
        events += [encode_event(name, {**place, "delta": word}) for word in WORDS.findall(text)]
    events.append(encode_event("response.output_item.done", {**place, "item": item}))
    return events


def _shown_texts(item: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What of an item is streamed, each text under the name of its delta."""
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
