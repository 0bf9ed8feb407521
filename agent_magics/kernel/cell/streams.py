"""Shows live output of commands in widgets, also for sessions that outlive their cell."""

import uuid
from collections.abc import Mapping
from time import monotonic
from typing import Any

from agent_magics.kernel.cell.outputs import INTERVAL, CellOutputs
from agent_magics.kernel.cell.publishing import widget_bundle
from agent_magics.kernel.lab.link import LabLink
from agent_magics.kernel.questions.ways import NotebookHost
from agent_magics.protocol.events import (
    Event,
    ExecCommandBegin,
    ExecCommandEnd,
    ExecCommandOutputDelta,
    ToolCallCompleted,
    ToolCallFailed,
)
from agent_magics.render.blocks.display import DisplayBlock
from agent_magics.render.mime import to_bundle

# A command that ends sooner than this needs no live stream beside its result.
STREAM_AFTER = 0.4


class LiveStream:
    """The output of one command, collected and sent to a widget in intervals.

    Args:
        label: the title, such as the command.
        after: seconds until its widget may open.
        lab: the link by which clicks of pages arrive, even while the main thread is busy.

    Attributes:
        widget: None until the command has run for a moment.
    """

    def __init__(self, label: str, after: float, lab: LabLink) -> None:
        self._label = label
        self._lab = lab
        self._id = f"stream-{uuid.uuid4().hex}"
        self._opens_at = monotonic() + after
        self._pieces: list[str] = []
        self._sent_at = 0.0
        self._opened_at = 0.0
        self.widget: Any = None

    @property
    def waiting(self) -> bool:
        """Whether it must be checked again soon."""
        return bool(self._pieces) or (self.widget is not None and not self.widget.drawn)

    def add(self, text: str) -> None:
        """Add output."""
        self._pieces.append(text)

    def due(self) -> bool:
        """Return whether its widget should be opened now."""
        return self.widget is None and bool(self._pieces) and monotonic() >= self._opens_at

    def open(self) -> Any:
        """Create the widget and return it."""
        # Late on purpose: only long commands need the widget.
        from agent_magics.render.widgets.stream import StreamWidget  # noqa: PLC0415

        by_page = bool(self._lab.reach)
        self.widget = StreamWidget(self._label, question_id=self._id, by_page=by_page)
        self._lab.hear_question(self._id, self.widget.hear)
        self._opened_at = monotonic()
        return self.widget

    def send(self, interval: float) -> None:
        """Send new output, if `interval` seconds have passed since the last time."""
        now = monotonic()
        if self.widget is not None and self._pieces and now - self._sent_at >= interval:
            self.widget.append("".join(self._pieces))
            self._pieces.clear()
            self._sent_at = now

    def is_drawn_within(self, limit: float) -> bool:
        """Return whether the page has drawn the widget, or `limit` seconds have not passed yet."""
        if self.widget is None:
            return True
        return bool(self.widget.drawn) or monotonic() - self._opened_at < limit

    def close(self) -> None:
        """Close the widget."""
        if self.widget is not None:
            self._lab.hear_question(self._id, None)
            self.widget.finish()
            self.widget.close()


class CommandStreams:
    """The live streams of one cell, by the id of the call or the session that prints.

    Args:
        host: knows whether this front end draws widgets.
        outputs: the cell's outputs.
        calls: the blocks of the cell's calls so far, by the call's id.
    """

    def __init__(
        self, host: NotebookHost, outputs: CellOutputs, calls: Mapping[str, DisplayBlock]
    ) -> None:
        self._host = host
        self._outputs = outputs
        self._calls = calls
        self._sessions: dict[str, DisplayBlock] = {}
        self._streams: dict[str, LiveStream] = {}

    @property
    def waiting(self) -> bool:
        """Whether `tick` should be called again soon."""
        return any(stream.waiting for stream in self._streams.values())

    def follow(self, event: Event, blocks: list[DisplayBlock]) -> list[DisplayBlock]:
        """Handle an event of a command.

        Args:
            event: an event of the turn.
            blocks: the blocks that it changes.

        Returns:
            The blocks that no widget shows.
        """
        match event:
            case ToolCallCompleted() | ToolCallFailed():
                self._end(event.call_id)
            case ExecCommandBegin(session_id=""):
                block = self._calls.get(event.call_id)
                if block is not None:
                    label = f"… running {block.item['name']}: {block.item['title']}"
                    self._begin(event.call_id, label, STREAM_AFTER)
            case ExecCommandBegin():
                return self._begin_session(event, blocks)
            case ExecCommandOutputDelta():
                shown = self._add(event.session_id or event.call_id, event.text)
                return [] if shown else blocks
            case ExecCommandEnd() if event.session_id:
                self._end(event.session_id)
                self._sessions.pop(event.session_id, None)
        return blocks

    def end_calls(self) -> None:
        """Close the streams of all calls; those of sessions go on."""
        for call_id in self._calls:
            self._end(call_id)

    def _begin_session(
        self, event: ExecCommandBegin, blocks: list[DisplayBlock]
    ) -> list[DisplayBlock]:
        """Give a session an output of its own while the cell can; later it is only updated."""
        *others, block = blocks
        if self._outputs.full:
            return others
        self._sessions[event.session_id] = block
        self._outputs.show_live(block, to_bundle(block))
        self._begin(event.session_id, f"session {event.session_id}: {block.item['title']}", 0.0)
        return others

    def _begin(self, key: str, label: str, after: float) -> None:
        """Begin a stream; its widget opens with output, and not before `after` seconds."""
        if self._host.widgets_work:
            self._streams[key] = LiveStream(label, after, self._host.lab)

    def _add(self, key: str, text: str) -> bool:
        """Add output; return whether a widget shows it."""
        stream = self._streams.get(key)
        if stream is None:
            return False
        stream.add(text)
        return stream.widget is not None

    def _end(self, key: str) -> None:
        """Close a stream, if there is one."""
        stream = self._streams.pop(key, None)
        if stream is not None:
            stream.close()

    def tick(self) -> None:
        """Open the widgets and send the output that are due; called several times a second."""
        opened = sum(stream.widget is not None for stream in self._streams.values())
        for key, stream in list(self._streams.items()):
            if stream.due():
                self._show(key, stream.open())
            stream.send(INTERVAL * max(1, opened))  # with more streams each sends less often
            if not stream.is_drawn_within(self._host.drawn_limit):
                # Nobody draws widgets here: go back to updating the block's own text.
                self._host.widgets_work = False
                self._end(key)
                self._show(key, None)

    def _show(self, key: str, widget: Any) -> None:
        """Show a stream's widget in the output of its command; with None, the block again."""
        block = self._sessions.get(key) or self._calls.get(key)
        if block is not None:
            bundle = to_bundle(block) if widget is None else widget_bundle(widget, block.item)
            self._outputs.show_live(block, bundle)
