"""Reports what arrives of a response: its text, calls as they are written, web searches."""

import asyncio
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent_magics.dispatch.context import Emit
from agent_magics.models.base import CallChunk, SearchProgress
from agent_magics.protocol.events import (
    Event,
    TextDelta,
    ToolCallArriving,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallPending,
    ToolCallRunning,
)

# Seconds before a call that takes long to write is told of, and between two times.
INTERVAL = 0.3
# Of a patch, or of the JSON of a call: which file it is about. What is looked through again is as
# long as such a line may be.
_FILES = re.compile(
    r"\*\*\* (?:Add|Update|Delete) File: ([^\n\\]{1,1000}+)(?:\\n|\n)"
    r'|"(?:file_)?path"\s*:\s*"([^"\\]{1,1000}+)"'
)
_LONGEST_LINE = 1_000
# Characters at both ends of a long piece that are looked through: a whole call may be one piece.
_LOOKED_THROUGH = 4_000


# Seconds between updates of text: 25 a second look continuous.
DELTA_INTERVAL = 0.04


class DeltaBuffer:
    """Collects pieces of text for a moment, so that 20,000 deltas are not 20,000 events."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._kind: type[Event] = TextDelta
        self._pieces: list[str] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, kind: type[Event], text: str) -> None:
        """Add text, to be shown within `DELTA_INTERVAL` seconds."""
        if kind is not self._kind:
            self.flush()
            self._kind = kind
        self._pieces.append(text)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(DELTA_INTERVAL, self.flush)

    def flush(self) -> None:
        """Show the collected text."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pieces:
            text = "".join(self._pieces)
            self._pieces.clear()
            self._emit(self._kind, text=text)


class ArrivingCall:
    """The call that is being streamed.

    Args:
        emit: emits its progress, a few times a second.
    """

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self.end()

    def end(self) -> None:
        """Reset for the next call, since this one is complete."""
        self._name = self._file = self._tail = ""
        self._size = 0
        self._told_at = 0.0

    def add(self, chunk: CallChunk) -> None:
        """Add a piece of its arguments."""
        now = time.monotonic()
        self._told_at = self._told_at or now
        self._name = chunk.name or self._name
        self._size += len(chunk.text.encode("utf-8", "replace"))
        self._tail += _ends_of(chunk.text)
        for found in _FILES.finditer(self._tail):
            self._file = found[1] or found[2]
        self._tail = self._tail[-_LONGEST_LINE:]
        if now - self._told_at >= INTERVAL:
            self._told_at = now
            self._emit(ToolCallArriving, name=self._name, size=self._size, file=self._file)


def _ends_of(text: str) -> str:
    """Return a text, of a long one the beginning and the end."""
    if len(text) <= 2 * _LOOKED_THROUGH:
        return text
    return f"{text[:_LOOKED_THROUGH]}\n{text[-_LOOKED_THROUGH:]}"


WEB_SEARCH = "web_search"
SEARCH_FAILED = "The provider says that this search failed."
SEARCH_CUT_OFF = "The answer ended before this search did."


@dataclass(slots=True)
class WebSearches:
    """The web searches of one request, reported as tool calls: they run at the provider, not here.

    Args:
        emit: sends the events.
        request: the number of the request in its turn; part of the ids of its searches.
    """

    emit: Emit
    request: int
    _begun: int = 0
    _open: dict[str, str] = field(default_factory=dict)

    def receive(self, progress: SearchProgress) -> None:
        """Emit the begin or the end of a search."""
        action = dict(progress.action)
        call_id = self._open.get(progress.call_id) or self._begin(progress)
        if progress.status == "running":
            return
        del self._open[progress.call_id]
        ended, text = (
            (ToolCallFailed, SEARCH_FAILED)
            if progress.status == "failed"
            else (ToolCallCompleted, _sources(action))
        )
        self.emit(ended, call_id=call_id, name=WEB_SEARCH, output=text, details={"action": action})

    def _begin(self, progress: SearchProgress) -> str:
        self._begun += 1
        call_id = self._open[progress.call_id] = f"{WEB_SEARCH}_{self.request}_{self._begun}"
        arguments = json.dumps(dict(progress.action), ensure_ascii=False)
        self.emit(ToolCallPending, call_id=call_id, name=WEB_SEARCH, arguments=arguments)
        self.emit(ToolCallRunning, call_id=call_id, name=WEB_SEARCH)
        return call_id

    def close(self) -> None:
        """End the open searches: the response has ended, or is requested again."""
        for call_id in self._open.values():
            self.emit(ToolCallFailed, call_id=call_id, name=WEB_SEARCH, output=SEARCH_CUT_OFF)
        self._open.clear()


def _sources(action: Mapping[str, object]) -> str:
    """Return the addresses that were searched, one per line, if the provider reports them."""
    sources = action.get("sources")
    rows = sources if isinstance(sources, list) else []
    return "\n".join(str(row["url"]) for row in rows if isinstance(row, dict) and row.get("url"))
