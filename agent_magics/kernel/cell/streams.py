"""Live output of commands: a widget while one runs, also for sessions that outlive their cell."""

from collections.abc import Callable
from time import monotonic
from typing import Any

from agent_magics.kernel.answers import NotebookHost
from agent_magics.kernel.outputs import INTERVAL

# A command that ends sooner than this needs no live stream beside its result.
STREAM_AFTER = 0.4


class LiveStream:
    """The output of one command: gathered, then sent to a widget in steps.

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
        """Whether it wants to be looked at again soon."""
        return bool(self._pieces) or (self.widget is not None and not self.widget.drawn)

    def add(self, text: str) -> None:
        """Take more output."""
        self._pieces.append(text)

    def due(self) -> bool:
        """Tell whether it is time for a widget."""
        return self.widget is None and bool(self._pieces) and monotonic() >= self._opens_at

    def open(self) -> Any:
        """Make the widget and return it."""
        # Late on purpose: only long commands need the widget.
        from agent_magics.render.widgets import StreamWidget  # noqa: PLC0415

        self.widget = StreamWidget(self._label)
        self._opened_at = monotonic()
        return self.widget

    def send(self, interval: float) -> None:
        """Send what is new, if the last time is long enough ago."""
        now = monotonic()
        if self.widget is not None and self._pieces and now - self._sent_at >= interval:
            self.widget.append("".join(self._pieces))
            self._pieces.clear()
            self._sent_at = now

    def is_drawn_within(self, limit: float) -> bool:
        """Tell whether the page has drawn the widget, or still has time to."""
        if self.widget is None:
            return True
        return bool(self.widget.drawn) or monotonic() - self._opened_at < limit

    def close(self) -> None:
        """Take the widget away."""
        if self.widget is not None:
            self.widget.finish()
            self.widget.close()


class CommandStreams:
    """The live streams of one cell, by the key of what prints: a call's id, or a session's.

    Args:
        host: knows whether this front end draws widgets.
        show: puts the widget of the stream with this key in its place; with None, the block.
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
        """Begin a stream, whose widget comes `after` seconds and not before the first output."""
        if self._host.widgets_work:
            self._streams[key] = LiveStream(label, after)

    def add(self, key: str, text: str) -> bool:
        """Take more output; tell whether a widget shows it."""
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
        """Open and send what is due; called several times a second."""
        opened = sum(stream.widget is not None for stream in self._streams.values())
        for key, stream in list(self._streams.items()):
            if stream.due():
                self._show(key, stream.open())
            stream.send(INTERVAL * max(1, opened))  # however many there are, as few messages
            if not stream.is_drawn_within(self._host.drawn_limit):
                # Nobody draws widgets here: go back to updating the block's own text.
                self._host.widgets_work = False
                self.end(key)
                self._show(key, None)
