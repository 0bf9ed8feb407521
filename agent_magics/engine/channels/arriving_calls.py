"""Reports the progress of a call whose arguments the model is still streaming."""

import re
import time

from agent_magics.dispatch.context import Emit
from agent_magics.models.base import CallChunk
from agent_magics.protocol.events import ToolCallArriving

# Seconds before a call that takes long to write is told of, and between two times.
INTERVAL = 0.3
# Of a patch, or of the JSON of a call: which file it is about. What is looked through again is as
# long as such a line may be.
_FILES = re.compile(
    r'\*\*\* (?:Add|Update|Delete) File: ([^\n\\]+)(?:\\n|\n)|"(?:file_)?path"\s*:\s*"([^"\\]+)"'
)
_LONGEST_LINE = 1_000


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
        self._tail += chunk.text
        for found in _FILES.finditer(self._tail):
            self._file = found[1] or found[2]
        self._tail = self._tail[-_LONGEST_LINE:]
        if now - self._told_at >= INTERVAL:
            self._told_at = now
            self._emit(ToolCallArriving, name=self._name, size=self._size, file=self._file)
