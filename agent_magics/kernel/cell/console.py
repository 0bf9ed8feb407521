"""Prints a turn in a console, in order of the events, since printed text cannot be updated.

Only the last line of a terminal can: it shows what the turn waits for while nothing is printed.
"""

import os
import shutil
import sys
import unicodedata
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace

from agent_magics.exec.output import clean_output
from agent_magics.kernel.cell.countdown import is_wait
from agent_magics.kernel.cell.publishing import CellPublisher
from agent_magics.protocol.events import Event, ExecCommandOutputDelta, Question, ToolCallRunning
from agent_magics.render.blocks.display import DisplayBlock
from agent_magics.render.mime import to_bundle
from agent_magics.render.status import TurnStatus
from agent_magics.render.text import to_plain
from agent_magics.render.visible import show_invisible

# Characters of one command's output that are printed as they come; of more, both ends at its end.
_MOST_STREAMED = 20_000
# Seconds until a stage of the turn is shown; where each is a line more, until a later one is.
_SHOWN_AFTER, _LATER_AFTER = 0.3, 1.0
_CLEAR = "\r\x1b[K"


@dataclass
class _PrintedOutput:
    """The output of a running command that was printed so far."""

    printed: int = 0
    line: str = ""  # unfinished
    is_whole: bool = True


class ConsoleOutputs:
    """Prints each block once, and the progress of calls as lines.

    Args:
        publisher: publishes the blocks.
    """

    def __init__(self, publisher: CellPublisher) -> None:
        self._publisher = publisher
        self._printed: set[str] = set()
        self._streams: dict[str, _PrintedOutput] = {}
        self._current = ""  # the call whose lines are being printed
        self._is_terminal = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._activity = ""  # the one shown last

    def show_activity(self, status: TurnStatus) -> None:
        """Show what the turn waits for: in the terminal's last line, else a line for each stage.

        Args:
            status: what it does at present.
        """
        age = status.phase_seconds
        if not self._is_terminal:
            # The start of a call is printed anyway.
            is_new = status.phase != self._activity and not status.phase.startswith("Runs ")
            if is_new and age >= (_LATER_AFTER if self._activity else _SHOWN_AFTER):
                self._activity = status.phase
                self._write(f"… {status.phase}\n")
        elif age >= _SHOWN_AFTER:
            line = _fitting(f"… {status.doing}, {age:.0f} s")
            if line != self._activity:
                self._activity = line
                self._write(f"{_CLEAR}{line}")

    def clear_activity(self) -> None:
        """Remove the line, before something else is printed."""
        if self._is_terminal and self._activity:
            self._activity = ""
            self._write(_CLEAR)

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
            case Question():  # which is asked in this line, or is code that may print there
                self.clear_activity()
            case ToolCallRunning(call_id=call_id) if call_id in calls:
                self._print_lines(calls[call_id], "")
            case ExecCommandOutputDelta(call_id=call_id, session_id="") if call_id in calls:
                self._add(calls[call_id], event.text)

    def _add(self, block: DisplayBlock, text: str) -> None:
        stream = self._streams.setdefault(block.key, _PrintedOutput())
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
        lines = clean_output(lines)  # by itself, since it may write over what stands above it
        if self._current != block.key:
            self._current = block.key
            head = show_invisible(f"… running {block.item['name']}: {block.item['title']}")
            lines = f"{head}\n{lines}"
        self.clear_activity()
        self._write(lines)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def _print_block(self, block: DisplayBlock) -> None:
        self._current = ""
        self.clear_activity()
        self._publisher.publish(to_bundle(block), uuid.uuid4().hex)


def _fitting(line: str) -> str:
    """Cut a line to the terminal's width; one that wraps could not be cleared."""
    room = shutil.get_terminal_size().columns - 1
    for place, sign in enumerate(line):
        room -= 2 if unicodedata.east_asian_width(sign) in "WF" else 1
        if room < 0:
            return line[:place]
    return line
