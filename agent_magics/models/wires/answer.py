"""Parses the answers of both wire APIs: bytes to provider events to model events."""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from functools import cache
from typing import Any, ClassVar

from agent_magics.models.base import (
    CallChunk,
    ModelEvent,
    Notice,
    ReasoningChunk,
    ResponseDone,
    TextChunk,
)
from agent_magics.models.bounds import EVENT_BYTES, MOST_PARTS, TEXT_LENGTH, bounded, too_large
from agent_magics.models.faults import Fault, Garbled, cut_short
from agent_magics.models.wires.sse import SseDecoder, SseEvent
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import JsonObject

# Seconds to wait for further bytes after the end of an answer.
AFTER_THE_END = 1.0
# Seconds after a finish reason. Chat servers send the usage after it, some late, some never; and
# some never close the stream.
AFTER_THE_FINISH = 5.0

WHITE = b" \t\r\n"


class EventReader:
    """Splits an answer's bytes into events.

    A server that ignores ``stream: true`` answers with one JSON document; it becomes one event
    without a name, at the end.
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
        if len(self._document) > EVENT_BYTES:
            raise too_large("a document", EVENT_BYTES)
        return []

    def close(self) -> list[SseEvent]:
        """Return the events left at the end of the bytes."""
        if self._document is None:
            return self._sse.close()
        return [(b"", bytes(self._document))]


class ChunkBuffer:
    """Collects the model events of one answer, within the limits on its text and on their number.

    Consecutive fragments of text are joined.
    """

    def __init__(self) -> None:
        self._length = 0
        self._parts = 0
        self._events: list[ModelEvent] = []
        self._texts: list[str] = []
        self._kind: type[TextChunk] | type[ReasoningChunk] = TextChunk

    def add_text(self, kind: type[TextChunk] | type[ReasoningChunk], text: str) -> None:
        """Add a fragment of text or of reasoning."""
        self._length += len(text)
        if self._length > TEXT_LENGTH:
            raise too_large("a text", TEXT_LENGTH)
        if kind is not self._kind:
            self._flush()
            self._kind = kind
        self._texts.append(text)

    def add_arguments(self, name: str, text: str) -> None:
        """Add a piece of a call's arguments; who keeps them bounds their length."""
        self._flush()
        self._events.append(CallChunk(name, text))

    def add(self, *events: ModelEvent) -> None:
        """Add events, after the text so far."""
        self._parts += len(events)
        if self._parts > MOST_PARTS:
            raise too_large("a number of messages and calls", MOST_PARTS)
        self._flush()
        self._events += events

    def take(self) -> list[ModelEvent]:
        """Return the collected events, and clear them."""
        self._flush()
        events, self._events = self._events, []
        return events

    def _flush(self) -> None:
        text = "".join(self._texts)
        self._texts.clear()
        if text:
            self._events.append(self._kind(text))


class AnswerDecoder(ABC):
    """Decodes the bytes of one answer into model events; no I/O.

    Attributes:
        NOT_A_STREAM: says of an answer without any event what may be wrong.
        done: the answer's end, once it was received.
        finished: whether the answer is complete, even if its usage may still follow.
    """

    NOT_A_STREAM: ClassVar[str]

    def __init__(self) -> None:
        self.done: ResponseDone | None = None
        self.finished = False
        self._reader = EventReader()
        self._events = ChunkBuffer()
        self._received_any = False

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Return the events in `data`, with text deltas joined; `ResponseDone` is set as `done`."""
        self._decode(self._reader.feed(data))
        return self._events.take()

    def close(self) -> list[ModelEvent]:
        """Return the events left at the end of the bytes."""
        with suppress(Garbled):  # the connection broke in the middle of an event
            self._decode(self._reader.close())
        return self._events.take()

    def tell(self, message: str) -> None:
        """Add a notice for the person, before the answer."""
        self._events.add(Notice(message))

    def unfinished(self) -> FatalError:
        """Return the error for bytes that ended before the answer did."""
        return cut_short() if self._received_any else Fault(self.NOT_A_STREAM)

    @abstractmethod
    def _decode(self, received: Sequence[SseEvent]) -> None:
        """Add the model events of what was received to `_events`."""


async def read_answer(
    chunks: AsyncGenerator[bytes, None], decoder: AnswerDecoder
) -> AsyncGenerator[ModelEvent, None]:
    """Yield the model events of one answer's bytes, `ResponseDone` last.

    Raises:
        FatalError: the provider reported a failure, or the bytes ended too early.
    """
    async with aclosing(bounded(chunks)) as reads:
        ends_at: float | None = None  # of the wait for what may follow a finished answer
        while decoder.done is None:
            if decoder.finished and ends_at is None:
                ends_at = asyncio.get_running_loop().time() + AFTER_THE_FINISH
            data = await _next_read(reads, ends_at)
            for event in decoder.close() if data is None else decoder.feed(data):
                yield event
            if data is None:
                break
        else:
            await _read_out(reads)
    if decoder.done is None:
        raise decoder.unfinished()
    yield decoder.done


async def _next_read(reads: AsyncIterator[bytes], ends_at: float | None) -> bytes | None:
    """Return the next bytes, None at their end or, after a finished answer, at a time of the
    loop's clock.
    """
    if ends_at is None:
        return await anext(reads, None)
    try:
        async with asyncio.timeout_at(ends_at):
            return await anext(reads, None)
    except (TimeoutError, Fault):
        return None


async def _read_out(reads: AsyncIterator[bytes]) -> None:
    """Read to the end, so that the connection can be reused; give up after a short wait."""
    try:
        async with asyncio.timeout(AFTER_THE_END):
            async for _ in reads:
                pass
    except (TimeoutError, FatalError):
        return  # The answer is whole; only the connection is lost.


def parse_event(data: bytes) -> JsonObject:
    """Parse an event's JSON data; JSON that is not an object gives {}.

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


def _parse_leniently(data: bytes) -> object:
    """Parse JSON with lone surrogates, which the fast parser rejects, as question marks."""
    try:
        fields = json.loads(data.decode("utf-8", "replace"))
        whole = json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")
        return _fast_parser()(whole)  # which also limits the depth
    except (ValueError, RecursionError):
        raise Garbled from None
