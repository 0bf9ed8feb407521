"""The conversation as a list of items, with their wire form beside: none is encoded twice.

All items stay. What is *sent* may become shorter: then a base stands for the older ones, and it is
encoded once, like everything after it.
"""

from collections.abc import Iterable, Sequence

from agent_magics.models.base import Transcript, TranscriptMaker
from agent_magics.protocol.items import (
    CALL_TYPES,
    CallItem,
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
        self._items: list[Item] = []
        self._open: list[CallItem] = []  # calls without an output, oldest first
        self._base: tuple[Item, ...] = ()  # sent in place of the first `_replaced` items
        self._replaced = 0
        # By maker: the transcript, and how many of the items it has.
        self._transcripts: dict[TranscriptMaker, tuple[Transcript, int]] = {}
        self.extend(items)

    @property
    def items(self) -> Sequence[Item]:
        """All items, oldest first; do not change the list."""
        return self._items

    @property
    def sent(self) -> Sequence[Item]:
        """The items that a request carries; the same as `items` until `shorten`."""
        return [*self._base, *self._items[self._replaced :]]

    def append(self, item: Item) -> None:
        """Add one item."""
        self._items.append(item)
        if isinstance(item, CALL_TYPES):
            self._open.append(item)
        elif isinstance(item, ToolCallOutput):
            self._answer(item.call_id)

    def _answer(self, call_id: str) -> None:
        # The first of this id: some servers use an id again in a later turn.
        for place, call in enumerate(self._open):
            if call.call_id == call_id:
                del self._open[place]
                return

    def extend(self, items: Iterable[Item]) -> None:
        """Add several items."""
        for item in items:
            self.append(item)

    def clear(self) -> None:
        """Forget everything."""
        self._items.clear()
        self._open.clear()
        self._base, self._replaced = (), 0
        self._transcripts.clear()

    def shorten(self, base: Iterable[Item], replaced: int) -> None:
        """Send `base` in place of the first `replaced` items from now on.

        Args:
            base: valid by itself: every call in it has its output.
            replaced: how many of `items` it stands for, earlier bases included.
        """
        self._base, self._replaced = tuple(base), replaced
        self._transcripts.clear()

    def encoded(self, maker: TranscriptMaker) -> bytes:
        """What is sent, as the transcript of `maker` writes it; only new items are encoded."""
        transcript, count = self._transcripts.get(maker) or (self._begin(maker), self._replaced)
        for item in self._items[count:]:
            transcript.add(item)
        self._transcripts[maker] = (transcript, len(self._items))
        return transcript.encoded()

    def _begin(self, maker: TranscriptMaker) -> Transcript:
        transcript = maker()
        for item in self._base:
            transcript.add(item)
        return transcript

    def close_open_calls(self, reason: str = INTERRUPTED) -> None:
        """Give every call without an output one that says why; a provider refuses the rest."""
        for call in [call for call in self._open if call.call_id]:
            self.append(ToolCallOutput(call.call_id or "", reason, output_kind_of(call)))


def output_kind_of(item: Item) -> OutputKind:
    """Return in which form the output of this call goes back."""
    if isinstance(item, CustomToolCall):
        return "custom"
    return "local_shell" if isinstance(item, LocalShellCall) else "function"
