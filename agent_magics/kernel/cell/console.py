"""Prints a turn in a console, in order of the events, since printed text cannot be updated."""

import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace

from agent_magics.exec.output import clean_output
from agent_magics.kernel.cell.countdown import is_wait
from agent_magics.kernel.cell.outputs import Publisher
from agent_magics.protocol.events import Event, ExecCommandOutputDelta, ToolCallRunning
from agent_magics.render.blocks.display import DisplayBlock
from agent_magics.render.mime import to_bundle
from agent_magics.render.text import to_plain

# Characters of one command's output that are printed as they come; of more, both ends at its end.
_MOST_STREAMED = 20_000


@dataclass
class _Stream:
    """The output of a running command that was printed so far."""

    printed: int = 0
    line: str = ""  # unfinished
    is_whole: bool = True


class ConsoleOutputs:
    """Prints each block once, and the progress of calls as lines.

    Args:
        publisher: publishes the blocks.
    """

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._printed: set[str] = set()
        self._streams: dict[str, _Stream] = {}
        self._current = ""  # the call whose lines are being printed

    def show(self, block: DisplayBlock) -> None:
        """Print a block when it is done; a plan or a wait at each change."""
        if is_wait(block) or block.kind == "plan":
            if not block.done and block.key + to_plain(block.item) not in self._printed:
                self._printed.add(block.key + to_plain(block.item))
                self._print_block(block)
        elif block.done and block.key not in self._printed:
            self._printed.add(block.key)
            self._print_block(self._without_streamed(block))

    def follow(self, event: Event, calls: Mapping[str, DisplayBlock]) -> None:
        """Print the start of a call, and whole lines of its command's output.

        Args:
            event: an event of the turn.
            calls: the blocks of the calls so far.
        """
        match event:
            case ToolCallRunning(call_id=call_id) if call_id in calls:
                self._print_lines(calls[call_id], "")
            case ExecCommandOutputDelta(call_id=call_id, session_id="") if call_id in calls:
                self._add(calls[call_id], event.text)

    def _add(self, block: DisplayBlock, text: str) -> None:
        stream = self._streams.setdefault(block.key, _Stream())
        if not stream.is_whole:
            return
        stream.printed += len(text)
        stream.is_whole = stream.printed <= _MOST_STREAMED
        if not stream.is_whole:
            self._print_lines(block, "… there is more; both ends come when it has ended\n")
            return
        lines, line_end, stream.line = (stream.line + text).rpartition("\n")
        if line_end:
            self._print_lines(block, f"{lines}\n")

    def _without_streamed(self, block: DisplayBlock) -> DisplayBlock:
        """Return the block of an ended call without the output that was printed already."""
        stream = self._streams.pop(block.key, None)
        if stream is None or not stream.is_whole:
            return block
        if stream.line:
            self._print_lines(block, f"{stream.line}\n")
        return replace(block, item={**block.item, "output": ""})

    def _print_lines(self, block: DisplayBlock, lines: str) -> None:
        if self._current != block.key:
            self._current = block.key
            lines = f"… running {block.item['name']}: {block.item['title']}\n{lines}"
        sys.stdout.write(clean_output(lines))
        sys.stdout.flush()

    def _print_block(self, block: DisplayBlock) -> None:
        self._current = ""
        self._publisher.publish(to_bundle(block), uuid.uuid4().hex)
