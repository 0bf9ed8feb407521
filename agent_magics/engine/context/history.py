"""Holds a conversation as a list of items with their wire form, encoded once each.

All items stay. The part that is *sent* may become shorter: then a base replaces the older ones, and
is encoded once, like everything after it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from agent_magics.models.base import Encoded, Transcript, TranscriptMaker
from agent_magics.protocol.items import CALL_TYPES, CallItem, Item, ToolCallOutput, output_kind_of
from agent_magics.protocol.records import (
    Entry,
    HistoryShortened,
    ItemAdded,
    TurnOpened,
    TurnsRestored,
    TurnsTakenBack,
)

Keep: TypeAlias = Callable[[Entry], None]
"""Takes down what is done, so that it can be done again; see ``protocol.records``."""

INTERRUPTED = "Not finished: the person interrupted. Its effects, if any, are as far as they got."
FAILED = (
    "Not finished: an error ended the turn, and the person was told of it. Its effects, if any, "
    "are as far as they got."
)


@dataclass(frozen=True, slots=True)
class _HistoryState:
    """The items and the sent base at one moment; immutable.

    Attributes:
        count: the number of items.
        later: the items after them that were taken back.
        turns: the starts of the turns that were taken back.
    """

    count: int
    base: tuple[Item, ...]
    replaced: int
    later: tuple[Item, ...] = ()
    turns: "tuple[tuple[str, _HistoryState], ...]" = ()


class History:
    """The items of a conversation, which grow by items and are taken back by turns.

    It is valid for providers when every call has its output.

    Args:
        items: the items to begin with.

    Attributes:
        keep: records each change.
        settle: called before each request: all changes are then on disk.
    """

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self.keep: Keep = lambda entry: None
        self.settle: Callable[[], None] = lambda: None
        self._items: list[Item] = []
        self._open: list[CallItem] = []  # calls without an output, oldest first
        self._base: tuple[Item, ...] = ()  # sent in place of the first `_replaced` items
        self._replaced = 0
        # By maker: the transcript, and how many of the items it has.
        self._transcripts: dict[TranscriptMaker, tuple[Transcript, int]] = {}
        self._turns: dict[str, _HistoryState] = {}  # what it was when each began
        self._taken_back: list[_HistoryState] = []
        self.extend(items)

    @property
    def items(self) -> Sequence[Item]:
        """All items, oldest first; do not change the list."""
        return self._items

    @property
    def sent(self) -> Sequence[Item]:
        """The items that a request carries; the same as `items` until `shorten`."""
        return [*self._base, *self._items[self._replaced :]]

    @property
    def open_calls(self) -> Sequence[CallItem]:
        """The calls without an output, oldest first."""
        return tuple(self._open)

    def append(self, item: Item) -> None:
        """Add one item."""
        self.keep(ItemAdded(item=item))
        self._taken_back.clear()
        self._items.append(item)
        self._follow(item)

    def _follow(self, item: Item) -> None:
        """Note a call as open, or as answered by its output."""
        if isinstance(item, CALL_TYPES):
            self._open.append(item)
        elif isinstance(item, ToolCallOutput):
            # The first of this id: some servers use an id again in a later turn.
            for place, call in enumerate(self._open):
                if call.call_id == item.call_id:
                    del self._open[place]
                    return

    def extend(self, items: Iterable[Item]) -> None:
        """Add several items."""
        for item in items:
            self.append(item)

    def shorten(self, base: Iterable[Item], replaced: int) -> None:
        """Send `base` in place of the first `replaced` items from now on.

        Args:
            base: items that are valid by themselves: every call in them has its output.
            replaced: the number of `items` that it replaces, earlier bases included.
        """
        self._base, self._replaced = tuple(base), replaced
        self._transcripts.clear()
        self.keep(HistoryShortened(items=self._base, replaced=replaced))

    # -- by turns ---------------------------------------------------------------------------------

    @property
    def turns(self) -> Sequence[str]:
        """The ids of its turns, oldest first."""
        return tuple(self._turns)

    @property
    def taken_back(self) -> Sequence[str]:
        """The ids of the turns that `restore` brings back."""
        return [turn for state in self._taken_back for turn, _ in state.turns]

    def begin_turn(self, turn_id: str) -> None:
        """Mark the start of a turn, which may be taken back."""
        self._turns[turn_id] = _HistoryState(len(self._items), self._base, self._replaced)
        self.keep(TurnOpened(turn_id=turn_id))

    def items_since(self, turn_id: str) -> Sequence[Item]:
        """Return the items of a turn and of all later ones."""
        return self._items[self._turns[turn_id].count :]

    def take_back(self, turn_id: str) -> None:
        """Return to the state before a turn; `restore` undoes this until an item is added."""
        places = list(self._turns.items())
        first = list(self._turns).index(turn_id)
        then = places[first][1]
        self._taken_back.append(
            _HistoryState(
                then.count,
                self._base,
                self._replaced,
                tuple(self._items[then.count :]),
                tuple(places[first:]),
            )
        )
        del self._items[then.count :]
        self._turns = dict(places[:first])
        self._base, self._replaced = then.base, then.replaced
        self._look_again()
        self.keep(TurnsTakenBack(turn_id=turn_id))

    def restore(self) -> bool:
        """Restore the items taken back last; return False where there are none."""
        if not self._taken_back:
            return False
        was = self._taken_back.pop()
        self._items += was.later
        self._turns.update(was.turns)
        self._base, self._replaced = was.base, was.replaced
        self._look_again()
        self.keep(TurnsRestored())
        return True

    def _look_again(self) -> None:
        self._transcripts.clear()
        self._open.clear()
        for item in self._items:
            self._follow(item)

    # -- as it is sent ----------------------------------------------------------------------------

    def encoded(self, maker: TranscriptMaker) -> Encoded:
        """Return the wire form of the sent items, written by `maker`; only new ones are encoded."""
        self.settle()
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
        """Add an output with `reason` for every call without one; providers refuse open calls."""
        for call in [call for call in self._open if call.call_id]:
            self.append(ToolCallOutput(call.call_id or "", reason, output_kind_of(call)))
