"""Assigns display blocks to outputs of the cell, so that long runs stay short and linear.

Finished calls that follow each other share one output: when the next block begins, it takes the
output of the last call, which joins those before it. Twenty blocks seal an output, which is then
never sent again. JupyterLab shows the first 50 outputs of a cell, so a cell publishes at most 40:
past the 29th, blocks of all kinds share outputs. Where nobody watches (no stdin) nothing is
published twice: a block comes when it is done, calls that share an output when all of them are.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from time import monotonic
from typing import Any

from agent_magics.kernel.cell.publishing import CellPublisher
from agent_magics.protocol.items import Json
from agent_magics.render.blocks.display import DisplayBlock, notice_item
from agent_magics.render.mime import blocks_item, item_bundle, to_bundle
from agent_magics.render.view import TurnView

SINGLES = 29
LIMIT = 38  # the final answer and the token count make it 40
MOST = 40
SEALED_AT = 20
# Seconds between updates of what changes; with a command's stream beside it, under 20 a second.
INTERVAL = 0.12
# Bytes a second that growing outputs may cost: each is sent whole each time.
_RATE = 200_000
# The share of time that drawing may take, for long texts or on a busy machine.
_SHARE = 0.1
# The most seconds that something new waits because of that share.
_LONGEST = 1.0
# What may follow the final answer, which then stays in an output of its own.
_LAST = ("usage", "notice", "changes")


@dataclass(eq=False)
class _Output:
    """One output of the cell.

    Attributes:
        blocks: what it shows; none where they have joined another output.
        display_id: "" until it is published.
        is_live: whether a widget stands in place of its block.
        left_out: how many earlier blocks had no room in it.
    """

    blocks: list[DisplayBlock] = field(default_factory=list)
    display_id: str = ""
    is_live: bool = False
    left_out: int = 0

    @property
    def is_done(self) -> bool:
        return not self.is_live and all(block.done for block in self.blocks)

    @property
    def size(self) -> int:
        texts = (block.item.get(name, "") for block in self.blocks for name in ("text", "output"))
        return sum(len(str(text)) for text in texts)

    def bundle(self) -> dict[str, Json]:
        if len(self.blocks) == 1 and not self.left_out:
            return to_bundle(self.blocks[0])
        items = [block.item for block in self.blocks]
        if self.left_out:
            more = f"{self.left_out} more calls are not shown here; %agent history lists them."
            items.insert(0, notice_item(more))
        return item_bundle(blocks_item(items)) if items else {}


class CellOutputs:
    """The outputs of one cell.

    Args:
        publisher: the cell's output area.
        live: whether somebody watches: unfinished blocks are then shown and updated.
    """

    def __init__(self, publisher: CellPublisher, *, live: bool) -> None:
        self._publisher = publisher
        self._live = live
        self._outputs: list[_Output] = []
        self._of: dict[str, _Output] = {}
        self._taken: set[str] = set()  # blocks that have ended
        # The outputs at the end whose blocks may still join each other.
        self._tail: list[_Output] = []
        self._held: DisplayBlock | None = None
        self._dirty: list[_Output] = []
        self._flushed_at = 0.0
        self._took = 0.0  # seconds of the last update

    @property
    def waiting(self) -> bool:
        """Whether `tick` has something to send."""
        return bool(self._dirty)

    @property
    def full(self) -> bool:
        """Whether the limit of outputs is reached."""
        return len(self._outputs) >= LIMIT

    def show(self, block: DisplayBlock) -> None:
        """Show a new or changed block, at once or at the next flush."""
        if block.key in self._taken or not (self._live or block.done):
            return
        if block.done:
            self._taken.add(block.key)
        if not self._live and block.kind != "plan":
            # The last state of a plan is known only now; it is placed before the answer.
            self._release_held()
            if block.kind == "text":
                self._held = block
                return
        output = self._of.get(block.key)
        if output is None:
            self._place(block)
            return
        was_live, output.is_live = output.is_live, False
        self._change(output)
        if was_live:
            self._flush()
        elif block.done:
            self.tick()

    def tick(self) -> None:
        """Send changed blocks, if the update interval has passed; called several times a second."""
        if self.waiting and monotonic() - self._flushed_at >= self._interval():
            self._flush()

    def finish(self) -> None:
        """Send all that is left."""
        self._release_held()
        if len(self._outputs) < SINGLES:
            self._gather()
        self._flush()
        if not self._live:
            self._publish(self._tail)
            self._tail = []

    def show_live(self, block: DisplayBlock, bundle: dict[str, Json]) -> None:
        """Show a widget in an output of the block's own, until the block is shown again."""
        is_new = block.key not in self._of
        if is_new:
            self._place(block)
        output = self._separate(block)
        output.is_live = True
        if output in self._dirty:
            self._dirty.remove(output)
        elif is_new and bundle == output.bundle():
            return  # so it was just published
        self._publisher.update(bundle, output.display_id)

    # -- which output shows a block ----------------------------------------------------------------

    def _place(self, block: DisplayBlock) -> None:
        """Show a new block beside the calls that run, in a free output, or in a new one."""
        crowded = len(self._outputs) >= SINGLES
        if block.data is not None and self.full:
            block = DisplayBlock(block.key, notice_item("A figure is left out."), done=True)
        if self._tail and block.is_call and _takes_calls(self._tail[-1]):
            self._tail[-1].blocks.append(block)
            self._of[block.key] = self._tail[-1]
            self._change(self._tail[-1])
            return
        joins = block.data is None if crowded else block.is_call or block.kind == "reasoning"
        if not crowded or block.kind not in _LAST or len(self._outputs) >= MOST:
            self._gather()
        if not joins and not (crowded and self._live):
            self._close_tail()
        output = self._take([block])
        if joins:
            self._tail.append(output)
        elif not self._live:
            self._publish([output])

    def _take(self, blocks: list[DisplayBlock]) -> _Output:
        """Show blocks in the first output that has become free, or in a new one."""
        output = next((each for each in self._outputs if not each.blocks), None)
        if output is None:
            output = _Output()
            self._outputs.append(output)
        output.blocks = blocks
        self._of.update((block.key, output) for block in blocks)
        if output.display_id:
            self._change(output)
        elif self._live:
            self._publish([output])
        return output

    def _gather(self) -> None:
        """Join the finished blocks at the end in as few outputs as hold them; the rest are free."""
        done = list(takewhile(lambda output: output.is_done, reversed(self._tail)))[::-1]
        blocks = sorted((block for each in done for block in each.blocks), key=lambda b: b.number)
        if self.full and len(blocks) > SEALED_AT:
            # No room for another output: the last one goes on with the newest.
            done[0].left_out += len(blocks) - SEALED_AT
            del blocks[:-SEALED_AT]
        for at, output in enumerate(done):
            chunk = blocks[at * SEALED_AT : (at + 1) * SEALED_AT]
            if output.blocks != chunk:
                output.blocks = chunk
                self._of.update((block.key, output) for block in chunk)
                self._change(output)
        kept = [each for each in self._tail if each.blocks and not self._is_sealed(each)]
        if not self._live:
            self._publish([each for each in self._tail if self._is_sealed(each)])
        self._tail = kept

    def _is_sealed(self, output: _Output) -> bool:
        return not self.full and output.is_done and len(output.blocks) >= SEALED_AT

    def _close_tail(self) -> None:
        """Let nothing more join the outputs so far: something else follows them."""
        if not self._live:
            self._publish(self._tail)
        self._tail = []

    def _separate(self, block: DisplayBlock) -> _Output:
        """Give a block that shares its output with others one of its own, in the same order."""
        output = self._of[block.key]
        if len(output.blocks) == 1:
            return output
        at = next(index for index, each in enumerate(output.blocks) if each is block)
        before, after = output.blocks[:at], output.blocks[at + 1 :]
        if len(self._outputs) >= SINGLES:
            before, after = [*before, *after], []
        parts = [part for part in (before, [block], after) if part]
        output.blocks = parts[0]
        self._change(output)
        new = [self._take(part) for part in parts[1:]]
        if output in self._tail:
            self._tail += new
        return self._of[block.key]

    def _release_held(self) -> None:
        if self._held is not None:
            held, self._held = self._held, None
            self._place(held)

    # -- what is sent ------------------------------------------------------------------------------

    def _change(self, output: _Output) -> None:
        if output.display_id and output not in self._dirty:
            self._dirty.append(output)

    def _publish(self, outputs: Sequence[_Output]) -> None:
        for output in outputs:
            if output.blocks and not output.display_id:
                output.display_id = uuid.uuid4().hex
                self._publisher.publish(output.bundle(), output.display_id)

    def _flush(self) -> None:
        began = monotonic()
        for output in self._dirty:
            self._publisher.update(output.bundle(), output.display_id)
        self._dirty.clear()
        self._flushed_at = monotonic()
        self._took = self._flushed_at - began

    def _interval(self) -> float:
        size = sum(output.size for output in self._dirty)
        return max(INTERVAL, size / _RATE, min(self._took / _SHARE, _LONGEST))


def _takes_calls(output: _Output) -> bool:
    """Return whether an output shows running calls, and more that run beside them may join it."""
    has_room = len(output.blocks) < SEALED_AT and not output.is_live and not output.is_done
    return has_room and all(block.is_call for block in output.blocks)


def redraw(shell: Any, view: TurnView) -> None:
    """Show a finished turn again in the running cell."""
    outputs = CellOutputs(CellPublisher(shell), live=False)
    for block in view.blocks:
        outputs.show(block)
    outputs.finish()
