"""Which outputs of the cell show which blocks, so that a long run stays short, linear and visible.

JupyterLab shows the first 50 outputs of a cell. So a cell publishes at most 40: the first blocks
one by one; after that finished blocks are gathered, twenty to an output that is then sealed and
never sent again. Where nobody watches (no stdin) nothing is published twice: a block comes when
it is done.
"""

import uuid
from time import monotonic
from typing import Any, Protocol

from agent_magics.protocol.items import Json
from agent_magics.render.mime import blocks_item, item_bundle, to_bundle
from agent_magics.render.view import Block

SINGLES = 29
LIMIT = 38  # what the last words and the token count add makes 40
SLOTS = 31  # what is live beyond that takes the place of what was
SEALED_AT = 20
# Seconds between updates of what changes; with a command's stream beside it, under 20 a second.
INTERVAL = 0.12
# Bytes a second that a growing text may cost: it is sent whole each time.
_TEXT_RATE = 200_000


class Publisher(Protocol):
    """The cell's output area."""

    def publish(self, bundle: dict[str, Json], display_id: str) -> None:
        """Add an output."""
        ...

    def update(self, bundle: dict[str, Json], display_id: str) -> None:
        """Replace an output."""
        ...


class CellOutputs:
    """The outputs of one cell.

    Args:
        publisher: where they go.
        live: whether somebody watches: unfinished blocks are shown and updated.
    """

    def __init__(self, publisher: Publisher, *, live: bool) -> None:
        self._publisher = publisher
        self._live = live
        self._ids: dict[str, str] = {}
        self._dirty: dict[str, Block] = {}
        self._flushed_at = 0.0
        self._count = 0
        self._gathered: list[dict[str, Json]] = []
        self._gathering_id: str | None = None
        self._gathered_anew = False
        self._left_out = 0
        self._held: Block | None = None
        # Blocks beyond the singles that have an output because something was live in them.
        self._slots: list[Block] = []
        self._taken: set[str] = set()

    @property
    def waiting(self) -> bool:
        """Whether `tick` has something to send."""
        return bool(self._dirty) or self._gathered_anew

    @property
    def full(self) -> bool:
        """Whether there is no room for another output."""
        return self._count >= LIMIT

    def show(self, block: Block) -> None:
        """Show a new or changed block, now or a moment later."""
        if block.key in self._taken:
            return
        if not self._live and not block.done:
            return
        if not self._live and block.kind == "plan":
            # Its last state is known only now; it goes before the answer, not behind it.
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
        """Send what has changed, if it is time; called several times a second."""
        if self.waiting and monotonic() - self._flushed_at >= self._interval():
            self._flush()

    def finish(self) -> None:
        """Send all that is left; the last words and the token count stand by themselves."""
        self._flush()
        if self._held is not None:
            held, self._held = self._held, None
            self._publish_last(held)
        self._publish_rest()

    # -- one block, one output --------------------------------------------------------------------

    def show_live(self, block: Block, bundle: dict[str, Json]) -> None:
        """Show a widget in the block's own output, until the block is shown again."""
        self._dirty.pop(block.key, None)
        if block.key in self._ids or self._takes_over_slot(block):
            self._publisher.update(bundle, self._ids[block.key])
            return
        self._ids[block.key] = display_id = uuid.uuid4().hex
        self._count += 1
        self._slots.append(block)
        self._publisher.publish(bundle, display_id)

    def _takes_over_slot(self, block: Block) -> bool:
        """Near the limit, give the block the output of an earlier one, which is gathered."""
        former = next((each for each in reversed(self._slots) if each.done), None)
        if self._count < SLOTS or former is None:
            return False
        self._slots.remove(former)
        self._slots.append(block)
        self._dirty.pop(former.key, None)
        self._ids[block.key] = self._ids.pop(former.key)
        self._add(former)
        return True

    def _show_single(self, block: Block) -> None:
        if block.key not in self._ids:
            self._publish(block)
        else:
            self._dirty[block.key] = block
            if block.done:
                self._flush()
        if block.done:
            self._taken.add(block.key)

    def _publish(self, block: Block) -> None:
        self._ids[block.key] = display_id = uuid.uuid4().hex
        self._count += 1
        self._publisher.publish(to_bundle(block), display_id)

    def _flush(self) -> None:
        for key, block in self._dirty.items():
            self._publisher.update(to_bundle(block), self._ids[key])
        self._dirty.clear()
        self._update_gathered()
        self._flushed_at = monotonic()

    def _interval(self) -> float:
        size = sum(len(str(block.item.get("text", ""))) for block in self._dirty.values())
        return max(INTERVAL, size / _TEXT_RATE)

    # -- many blocks, one output ------------------------------------------------------------------

    def _gather(self, block: Block) -> None:
        self._taken.add(block.key)
        if block.kind in ("text", "usage", "notice"):
            # It may be the last word, which stands by itself; the next block tells.
            self._held = block
            return
        self._add(block)

    def _release_held(self, block: Block) -> None:
        if self._held is None or block.key == self._held.key:
            return
        held, self._held = self._held, None
        if block.kind in ("usage", "notice") or self._count < SINGLES:
            self._publish_last(held)
        else:
            self._add(held)

    def _publish_last(self, block: Block) -> None:
        """Publish words that stand by themselves, behind all that was gathered."""
        self._publish_rest()
        self._publish(block)

    def _publish_rest(self) -> None:
        if self._gathered and not self._live:
            self._publish_gathered()
            self._gathered = []

    def _add(self, block: Block) -> None:
        if block.data is not None:
            if self._count < LIMIT:
                self._publish(block)
                return
            item = {
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
            # A moment later: each update draws up to twenty items anew, and quick calls would
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
