"""Assigns display blocks to outputs of the cell, so that long runs stay short and linear.

JupyterLab shows the first 50 outputs of a cell. So a cell publishes at most 40: the first blocks
one by one; after that finished blocks are gathered, twenty to an output that is then sealed and
never sent again. Where nobody watches (no stdin) nothing is published twice: a block comes when
it is done.
"""

import uuid
from time import monotonic
from typing import Any, Protocol

from agent_magics.protocol.items import Json
from agent_magics.render.blocks.display import DisplayBlock
from agent_magics.render.mime import blocks_item, item_bundle, to_bundle

SINGLES = 29
LIMIT = 38  # the final answer and the token count make it 40
SLOTS = 31  # beyond that, live blocks reuse outputs of earlier ones
SEALED_AT = 20
# Seconds between updates of what changes; with a command's stream beside it, under 20 a second.
INTERVAL = 0.12
# Bytes a second that a growing text may cost: it is sent whole each time.
_TEXT_RATE = 200_000
# The share of time that drawing may take, for long texts or on a busy machine.
_SHARE = 0.1
# The most seconds that new text waits because of that share.
_LONGEST = 1.0


class Publisher(Protocol):
    """The output area of a cell."""

    def publish(self, bundle: dict[str, Json], display_id: str) -> None:
        """Add an output."""
        ...

    def update(self, bundle: dict[str, Json], display_id: str) -> None:
        """Replace an output."""
        ...


class CellOutputs:
    """The outputs of one cell.

    Args:
        publisher: the cell's output area.
        live: whether somebody watches: unfinished blocks are then shown and updated.
    """

    def __init__(self, publisher: Publisher, *, live: bool) -> None:
        self._publisher = publisher
        self._live = live
        self._ids: dict[str, str] = {}
        self._dirty: dict[str, DisplayBlock] = {}
        self._flushed_at = 0.0
        self._took = 0.0  # seconds of the last update
        self._count = 0
        self._gathered: list[dict[str, Json]] = []
        self._gathering_id: str | None = None
        self._gathered_anew = False
        self._left_out = 0
        self._held: DisplayBlock | None = None
        # Blocks beyond the single ones that have an output because they showed something live.
        self._slots: list[DisplayBlock] = []
        self._taken: set[str] = set()

    @property
    def waiting(self) -> bool:
        """Whether `tick` has something to send."""
        return bool(self._dirty) or self._gathered_anew

    @property
    def full(self) -> bool:
        """Whether the limit of outputs is reached."""
        return self._count >= LIMIT

    def show(self, block: DisplayBlock) -> None:
        """Show a new or changed block, at once or at the next flush."""
        if block.key in self._taken:
            return
        if not self._live and not block.done:
            return
        if not self._live and block.kind == "plan":
            # Its last state is known only now; it is placed before the answer, not after it.
            self._show_single(block)
            return
        self._release_held(block)
        if not self._live and block.kind == "text":
            self._taken.add(block.key)
            self._held = block
        elif block.key in self._ids or self._count < SINGLES:
            self._show_single(block)
        elif block.done:
            self._gather(block)

    def tick(self) -> None:
        """Send changed blocks, if the update interval has passed; called several times a second."""
        if self.waiting and monotonic() - self._flushed_at >= self._interval():
            self._flush()

    def finish(self) -> None:
        """Send all that is left; the final answer and the token count get outputs of their own."""
        self._flush()
        if self._held is not None:
            held, self._held = self._held, None
            self._publish_last(held)
        self._publish_rest()

    # -- one block, one output --------------------------------------------------------------------

    def show_live(self, block: DisplayBlock, bundle: dict[str, Json]) -> None:
        """Show a widget in the block's own output, until the block is shown again."""
        self._dirty.pop(block.key, None)
        if block.key in self._ids or self._takes_over_slot(block):
            self._publisher.update(bundle, self._ids[block.key])
            return
        self._ids[block.key] = display_id = uuid.uuid4().hex
        self._count += 1
        self._slots.append(block)
        self._publisher.publish(bundle, display_id)

    def _takes_over_slot(self, block: DisplayBlock) -> bool:
        """Near the limit, reuse the output of an earlier block, which joins a gathered output."""
        former = next((each for each in reversed(self._slots) if each.done), None)
        if self._count < SLOTS or former is None:
            return False
        self._slots.remove(former)
        self._slots.append(block)
        self._dirty.pop(former.key, None)
        self._ids[block.key] = self._ids.pop(former.key)
        self._add(former)
        return True

    def _show_single(self, block: DisplayBlock) -> None:
        if block.key not in self._ids:
            self._publish(block)
        else:
            self._dirty[block.key] = block
            if block.done:
                self._flush()
        if block.done:
            self._taken.add(block.key)

    def _publish(self, block: DisplayBlock) -> None:
        self._ids[block.key] = display_id = uuid.uuid4().hex
        self._count += 1
        self._publisher.publish(to_bundle(block), display_id)

    def _flush(self) -> None:
        began = monotonic()
        for key, block in self._dirty.items():
            self._publisher.update(to_bundle(block), self._ids[key])
        self._dirty.clear()
        self._update_gathered()
        self._flushed_at = monotonic()
        self._took = self._flushed_at - began

    def _interval(self) -> float:
        size = sum(len(str(block.item.get("text", ""))) for block in self._dirty.values())
        return max(INTERVAL, size / _TEXT_RATE, min(self._took / _SHARE, _LONGEST))

    # -- many blocks, one output ------------------------------------------------------------------

    def _gather(self, block: DisplayBlock) -> None:
        self._taken.add(block.key)
        if block.kind in ("text", "usage", "notice"):
            # It may be the final answer, which gets its own output; the next block will show.
            self._held = block
            return
        self._add(block)

    def _release_held(self, block: DisplayBlock) -> None:
        if self._held is None or block.key == self._held.key:
            return
        held, self._held = self._held, None
        if block.kind in ("usage", "notice") or self._count < SINGLES:
            self._publish_last(held)
        else:
            self._add(held)

    def _publish_last(self, block: DisplayBlock) -> None:
        """Publish a block in an output of its own, after all gathered ones."""
        self._publish_rest()
        self._publish(block)

    def _publish_rest(self) -> None:
        if self._gathered and not self._live:
            self._publish_gathered()
            self._gathered = []

    def _add(self, block: DisplayBlock) -> None:
        if block.data is not None:
            if self._count < LIMIT:
                self._publish(block)
                return
            item: dict[str, Json] = {
                "version": 1,
                "kind": "notice",
                "level": "info",
                "text": "A figure is left out.",
            }
        else:
            item = block.item
        self._gathered.append(item)
        if self._live:
            self._show_gathered()
        if len(self._gathered) >= SEALED_AT:
            self._seal()

    def _show_gathered(self) -> None:
        if self._gathering_id is None:
            self._gathering_id = self._publish_gathered()
        else:
            # Delayed: each update draws up to twenty items again, and quick calls would
            # bury the page, and with it the next question, under them.
            self._gathered_anew = True

    def _update_gathered(self) -> None:
        if self._gathered_anew and self._gathering_id is not None:
            bundle = item_bundle(blocks_item(self._with_note()))
            self._publisher.update(bundle, self._gathering_id)
        self._gathered_anew = False

    def _publish_gathered(self) -> str:
        self._count += 1
        display_id = uuid.uuid4().hex
        self._publisher.publish(item_bundle(blocks_item(self._with_note())), display_id)
        return display_id

    def _seal(self) -> None:
        if self._count + (not self._live) >= LIMIT:
            # No room for another output: the last one goes on with the newest items.
            self._left_out += 1
            del self._gathered[0]
            return
        if self._live:
            self._update_gathered()
        else:
            self._publish_gathered()
        self._gathered, self._gathering_id = [], None

    def _with_note(self) -> list[dict[str, Json]]:
        if not self._left_out:
            return self._gathered
        text = f"{self._left_out} more calls are not shown here; %agent history lists them."
        note: dict[str, Any] = {"version": 1, "kind": "notice", "level": "info", "text": text}
        return [note, *self._gathered]
