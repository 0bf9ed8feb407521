"""The conversation as a list of items, with their wire form beside: none is encoded twice."""

from collections import Counter
from collections.abc import Iterable, Sequence

from agent_magics.models.base import Transcript, TranscriptMaker
from agent_magics.protocol.items import (
    CALL_TYPES,
    CustomToolCall,
    Item,
    LocalShellCall,
    OutputKind,
    ToolCallOutput,
)

INTERRUPTED = "Not finished: the person interrupted. Its effects, if any, are as far as they got."


class History:
    """Append-only; valid when every call has its output, which `close_open_calls` sees to."""

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._items = list(items)
        # By maker: the transcript, and how many of the items it has.
        self._transcripts: dict[TranscriptMaker, tuple[Transcript, int]] = {}

    @property
    def items(self) -> Sequence[Item]:
        """All items, oldest first; do not change the list."""
        return self._items

    def append(self, item: Item) -> None:
        """Add one item."""
        self._items.append(item)

    def extend(self, items: Iterable[Item]) -> None:
        """Add several items."""
        self._items.extend(items)

    def clear(self) -> None:
        """Forget everything."""
        self._items.clear()
        self._transcripts.clear()

    def encoded(self, maker: TranscriptMaker) -> bytes:
        """The items as the transcript of `maker` writes them; only new ones are encoded."""
        transcript, count = self._transcripts.get(maker) or (maker(), 0)
        for item in self._items[count:]:
            transcript.add(item)
        self._transcripts[maker] = (transcript, len(self._items))
        return transcript.encoded()

    def close_open_calls(self, reason: str = INTERRUPTED) -> None:
        """Give every call without an output one that says why; a provider refuses the rest."""
        # Counted, not looked up: some servers use an id again in a later turn.
        outputs = Counter(i.call_id for i in self._items if isinstance(i, ToolCallOutput))
        calls = [item for item in self._items if isinstance(item, CALL_TYPES) and item.call_id]
        for call in calls:
            outputs[call.call_id] -= 1
            if outputs[call.call_id] < 0:
                self._items.append(ToolCallOutput(call.call_id, reason, output_kind_of(call)))


def output_kind_of(item: Item) -> OutputKind:
    """Return in which form the output of this call goes back."""
    if isinstance(item, CustomToolCall):
        return "custom"
    return "local_shell" if isinstance(item, LocalShellCall) else "function"
