"""The widget that shows the output of a running command."""

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import traitlets

from agent_magics.render.visible import show_invisible
from agent_magics.render.widgets.page import HearingWidget, script

BACKLOG_CHARACTERS: Final = 100_000


class StreamWidget(HearingWidget):
    """Shows the growing output of one command, sending each piece of text once per view.

    A view asks with ``{"type": "ready", "view": id}`` and is answered with the backlog, marked with
    its id; from then on it takes the ``{"type": "append", "text": …}`` that all views get.

    Attributes:
        drawn: whether a view has asked for the backlog, so that somebody sees it.

    Args:
        label: the title, such as the command.
        question_id, by_page: see `HearingWidget`.
    """

    _esm = script("elements.js", "stream.js")

    label = traitlets.Unicode().tag(sync=True)
    finished = traitlets.Bool(False).tag(sync=True)

    def __init__(
        self, label: str = "Output", *, question_id: str = "", by_page: bool = False
    ) -> None:
        self._backlog: deque[str] = deque()
        self._backlog_size = 0
        self.drawn = False
        super().__init__(label=show_invisible(label), question_id=question_id, by_page=by_page)

    def append(self, text: str) -> None:
        """Show more output; the backlog keeps the last 100,000 characters."""
        text = text[-BACKLOG_CHARACTERS:]
        if not text:
            return
        self._backlog.append(text)
        self._backlog_size += len(text)
        while self._backlog_size - len(self._backlog[0]) >= BACKLOG_CHARACTERS:
            self._backlog_size -= len(self._backlog.popleft())
        self.send({"type": "append", "text": text})

    def finish(self) -> None:
        """Mark the output as complete."""
        self.finished = True

    def _receive(self, _widget: object, content: Mapping[str, Any], _buffers: object) -> None:
        if content.get("type") == "ready":
            self.drawn = True
            backlog = "".join(self._backlog)[-BACKLOG_CHARACTERS:]
            self.send({"type": "append", "text": backlog, "view": content.get("view")})
