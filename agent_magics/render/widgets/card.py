"""The widget of a map that runs: its progress, with buttons to pause, go on and stop."""

from collections.abc import Callable, Mapping
from typing import Any

import traitlets

from agent_magics.render.widgets.page import HearingWidget, script

WISHES = ("pause", "go on", "stop")


class CardWidget(HearingWidget):
    """Shows a map's progress.

    Messages from the front end: ``{"type": "wish", "id": …, "wish": …}`` for a click, with the
    card's own id.

    Args:
        question_id, by_page: see `HearingWidget`.
        on_wish: called with one of `WISHES`, on any thread.
    """

    _esm = script("elements.js", "card.js")

    text = traitlets.Unicode().tag(sync=True)
    share = traitlets.Float(-1.0).tag(sync=True)
    state = traitlets.Enum(("running", "paused", "asking", "stopping"), "running").tag(sync=True)

    def __init__(self, question_id: str, on_wish: Callable[[str], None], *, by_page: bool) -> None:
        self._on_wish = on_wish
        super().__init__(question_id=question_id, by_page=by_page)

    def show(self, text: str, share: float | None, state: str) -> None:
        """Show the present progress; the share of rows done is None where it is not known."""
        with self.hold_sync():
            self.text, self.share, self.state = text, -1.0 if share is None else share, state

    def _receive(self, _widget: object, content: Mapping[str, Any], _buffers: object) -> None:
        if content.get("id") == self.question_id and content.get("wish") in WISHES:
            self._on_wish(str(content["wish"]))
