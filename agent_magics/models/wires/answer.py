"""Reading an answer, the same for both wires: bytes to events, events to the model's events."""

import asyncio
import json
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from functools import cache
from typing import Any, Protocol

from agent_magics.models.base import ModelEvent, ReasoningChunk, ResponseDone, TextChunk
from agent_magics.models.faults import Fault, Garbled
from agent_magics.models.sse import SseDecoder, SseEvent, gather_reads
from agent_magics.protocol.errors import FatalError

# Seconds: how long to wait for what may follow the end of an answer.
AFTER_THE_END = 1.0
# Chat servers send the usage after the end, some late, some never; and some never close.
AFTER_THE_FINISH = 5.0

WHITE = b" \t\r\n"


class AnswerDecoder(Protocol):
    """Turns the bytes of one answer into model events; no I/O.

    Attributes:
        done: the answer's end, once it has come.
        finished: whether the answer is whole, even if more may be said about it.
    """

    done: ResponseDone | None
    finished: bool

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Return what `data` brought."""
        ...

    def close(self) -> list[ModelEvent]:
        """Return what the end of the bytes brought."""
        ...

    def unfinished(self) -> FatalError:
        """Return what to tell the person when the bytes ended before the answer did."""
        ...


async def read_answer(
    chunks: AsyncGenerator[bytes, None], decoder: AnswerDecoder
) -> AsyncGenerator[ModelEvent, None]:
    """Yield the model events of one answer's bytes, `ResponseDone` last.

    Raises:
        FatalError: the provider reported a failure, or the bytes ended too early.
    """
    async with aclosing(gather_reads(chunks)) as reads:
        while decoder.done is None:
            data = await _next_read(reads, decoder)
            for event in decoder.close() if data is None else decoder.feed(data):
                yield event
            if data is None:
                break
        else:
            await _read_out(reads)
    if decoder.done is None:
        raise decoder.unfinished()
    yield decoder.done


async def _next_read(reads: AsyncIterator[bytes], decoder: AnswerDecoder) -> bytes | None:
    """Return the next bytes, None at their end; a finished answer is not waited for long."""
    if not decoder.finished:
        return await anext(reads, None)
    try:
        async with asyncio.timeout(AFTER_THE_FINISH):
            return await anext(reads, None)
    except (TimeoutError, Fault):
        return None


async def _read_out(reads: AsyncIterator[bytes]) -> None:
    """Read to the end, so that the connection can serve the next request; do not insist."""
    try:
        async with asyncio.timeout(AFTER_THE_END):
            async for _ in reads:
                pass
    except (TimeoutError, FatalError):
        return  # The answer is whole; only the connection is lost.


class EventReader:
    """Cuts an answer's bytes into events.

    A server that ignores ``stream: true`` answers with one JSON document; it is one event without
    a name, at the end.
    """

    def __init__(self) -> None:
        self._sse = SseDecoder()
        self._document: bytearray | None = None
        self._started = False

    def feed(self, data: bytes) -> list[SseEvent]:
        """Return the events that `data` completes."""
        if not self._started and data.strip(WHITE):
            self._started = True
            if data.lstrip(WHITE).startswith(b"{"):
                self._document = bytearray()
        if self._document is None:
            return self._sse.feed(data)
        self._document += data
        return []

    def close(self) -> list[SseEvent]:
        """Return what stood at the end."""
        if self._document is None:
            return self._sse.close()
        return [(b"", bytes(self._document))]


class ChunkBuffer:
    """Gathers model events; pieces of text that come without anything between become one."""

    def __init__(self) -> None:
        self._events: list[ModelEvent] = []
        self._texts: list[str] = []
        self._kind: type[TextChunk] | type[ReasoningChunk] = TextChunk

    def add_text(self, kind: type[TextChunk] | type[ReasoningChunk], text: str) -> None:
        """Add a piece of text or of reasoning."""
        if kind is not self._kind:
            self._flush()
            self._kind = kind
        self._texts.append(text)

    def add(self, *events: ModelEvent) -> None:
        """Add events, after the text so far."""
        self._flush()
        self._events += events

    def take(self) -> list[ModelEvent]:
        """Return what is there, and forget it."""
        self._flush()
        events, self._events = self._events, []
        return events

    def _flush(self) -> None:
        text = "".join(self._texts)
        self._texts.clear()
        if text:
            self._events.append(self._kind(text))


def parse_event(data: bytes) -> dict[str, Any]:
    """Return an event's data; what is JSON but no object is an empty one.

    Raises:
        Garbled: it is not JSON.
    """
    try:
        fields = _fast_parser()(data)
    except ValueError:
        fields = _parse_leniently(data)
    return fields if isinstance(fields, dict) else {}


@cache
def _fast_parser() -> Callable[[bytes], Any]:
    from pydantic_core import from_json  # noqa: PLC0415 - 25 ms, not needed before an answer

    return from_json


def _parse_leniently(data: bytes) -> Any:
    """Half a surrogate pair is no text to the fast parser; here it becomes a question mark."""
    try:
        fields = json.loads(data.decode("utf-8", "replace"))
        whole = json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")
        return json.loads(whole)
    except (ValueError, RecursionError):
        raise Garbled from None


def stated_cost(usage: Mapping[str, Any]) -> float | None:
    """Return what the server says that a request cost, in USD (OpenRouter's "Usage Accounting")."""
    cost = usage.get("cost")
    is_amount = isinstance(cost, int | float) and not isinstance(cost, bool)
    return float(cost) if is_amount and 0 <= cost < math.inf else None
