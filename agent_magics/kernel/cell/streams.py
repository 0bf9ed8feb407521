"""Shows live output of commands in widgets, also for sessions that outlive their cell."""

from collections.abc import Callable
from time import monotonic
from typing import Any

from agent_magics.kernel.cell.outputs import INTERVAL
from agent_magics.kernel.questions.ladder import NotebookHost

# A command that ends sooner than this needs no live stream beside its result.
STREAM_AFTER = 0.4


class LiveStream:
    """The output of one command, collected and sent to a widget in intervals.

    Attributes:
        widget: None until the command has run for a moment.
    """

    def __init__(self, label: str, after: float) -> None:
        self._label = label
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
        from agent_magics.render.widgets.live import StreamWidget  # noqa: PLC0415

        self.widget = StreamWidget(self._label)
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
            self.widget.finish()
            self.widget.close()


class CommandStreams:
    """The live streams of one cell, by the id of the call or the session that prints.

    Args:
        host: knows whether this front end draws widgets.
        show: shows the widget of the stream with this key; with None, its block.
    """

    def __init__(self, host: NotebookHost, show: Callable[[str, Any], None]) -> None:
        self._host = host
        self._show = show
        self._streams: dict[str, LiveStream] = {}

    @property
    def waiting(self) -> bool:
        """Whether `tick` should be called again soon."""
        return any(stream.waiting for stream in self._streams.values())

    def begin(self, key: str, label: str, after: float = STREAM_AFTER) -> None:
        """Begin a stream; its widget opens with output, and not before `after` seconds."""
        if self._host.widgets_work:
            self._streams[key] = LiveStream(label, after)

    def add(self, key: str, text: str) -> bool:
        """Add output; return whether a widget shows it."""
        stream = self._streams.get(key)
        if stream is None:
            return False
        stream.add(text)
        return stream.widget is not None

    def end(self, key: str) -> None:
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
            stream.send(INTERVAL * max(1, opened))  # the more streams, the rarer
            if not stream.is_drawn_within(self._host.drawn_limit):
                # Nobody draws widgets here: go back to updating the block's own text.
                self._host.widgets_work = False
                self.end(key)
                self._show(key, None)
