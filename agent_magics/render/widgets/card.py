"""The widget of a map that runs: its progress, with buttons to pause, go on and stop."""

from collections.abc import Callable, Mapping
from typing import Any

import anywidget
import traitlets

from agent_magics.render.widgets.question import STATIC, script

WISHES = ("pause", "go on", "stop")


class CardWidget(anywidget.AnyWidget):
    """Shows a map's progress.

    Messages from the front end: ``{"type": "wish", "id": …, "wish": …}`` for a click, with the
    card's own id.

    Args:
        question_id: the card's id, by which messages through the page's extension find it.
        by_page: see `QuestionWidget`.
        on_wish: called with one of `WISHES`, on any thread.
    """

    _esm = script("elements.js", "card.js")
    _css = (STATIC / "widgets.css").read_text(encoding="utf-8")

    question_id = traitlets.Unicode().tag(sync=True)
    text = traitlets.Unicode().tag(sync=True)
    share = traitlets.Float(-1.0).tag(sync=True)
    state = traitlets.Enum(("running", "paused", "stopping"), "running").tag(sync=True)
    by_page = traitlets.Bool(False).tag(sync=True)

    def __init__(self, question_id: str, on_wish: Callable[[str], None], *, by_page: bool) -> None:
        self._on_wish = on_wish
        super().__init__(question_id=question_id, by_page=by_page)
        self.on_msg(self._receive)

    def show(self, text: str, share: float | None, state: str) -> None:
        """Show the present progress; the share of rows done is None where it is not known."""
        with self.hold_sync():
            self.text, self.share, self.state = text, -1.0 if share is None else share, state

    def hear(self, content: Mapping[str, Any]) -> None:
        """Handle a front-end message that arrived outside the widget's comm; from any thread."""
        self._receive(self, content, None)

    def _receive(self, _widget: object, content: Mapping[str, Any], _buffers: object) -> None:
        if content.get("id") == self.question_id and content.get("wish") in WISHES:
            self._on_wish(str(content["wish"]))
