"""Bases of the widgets: their scripts and styles, and how messages of the page reach them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import anywidget
import traitlets
from comm import get_comm_manager

_STATIC: Final = Path(__file__).parent / "static"


def script(*names: str) -> str:
    """Concatenate files of ``static/`` into one ES module; the files import nothing."""
    return "".join((_STATIC / name).read_text(encoding="utf-8") for name in names)


class PageWidget(anywidget.AnyWidget):
    """A widget in the style of the others. Its handlers may run on any thread."""

    _css = script("widgets.css")

    def __init__(self, **traits: object) -> None:
        super().__init__(**traits)
        self.on_msg(self._receive)
        # Else the shell draws all figures there are after each message, also on another thread
        # while code is still drawing.
        self.comm.handle_msg = self._handle_msg
        self.comm.on_close(self._stay_open)

    def close(self) -> None:
        """Close the widget, and the layout that each has: ipywidgets would keep that for ever."""
        super().close()
        self.layout.close()

    def _stay_open(self, _message: object) -> None:
        """Stay connected though a page has closed its model: others show the same one."""
        self.comm._closed = False
        get_comm_manager().register_comm(self.comm)

    def set_state(self, sync_data: object) -> None:
        """Ignore a state that the page sends: what is asked, and which answers there are, is the
        kernel's to say.
        """

    def _receive(self, widget: object, content: Mapping[str, Any], buffers: object) -> None:
        """Handle a message of the page, which is not trusted."""


class HearingWidget(PageWidget):
    """A widget whose messages may also come by way of the page's extension.

    Args:
        question_id: the id by which such messages find it.
        by_page: whether they come that way; its own comm waits for the main thread.
        traits: the other traits.
    """

    question_id = traitlets.Unicode().tag(sync=True)
    by_page = traitlets.Bool(False).tag(sync=True)

    def hear(self, content: Mapping[str, Any]) -> None:
        """Handle a front-end message that arrived outside the widget's comm; from any thread."""
        self._receive(self, content, None)


class AskingWidget(HearingWidget):
    """A widget that asks a question, and calls the registered functions with its answer.

    Messages from the front end: ``{"type": "drawn"}`` once it is on the page, and ``{"type":
    "answer", "id": …, "decision": …, …}``. The id is the question's own, which nothing else knows.
    To it: ``decision``, a trait rather than a message, so that views drawn later show the answer.
    """

    decision = traitlets.Unicode().tag(sync=True)

    def __init__(self, **traits: object) -> None:
        self._on_drawn: list[Callable[[], None]] = []
        self._on_answer: list[Callable[[str, str, Any], None]] = []
        super().__init__(**traits)

    def on_drawn(self, callback: Callable[[], None]) -> None:
        """Register a callback for each time that a view of the question is put on the page."""
        self._on_drawn.append(callback)

    def on_answer(self, callback: Callable[[str, str, Any], None]) -> None:
        """Register a callback that gets the decision, the feedback, and what was filled in.

        The feedback is "" if there is none. The third is the edited text, or the content of a form;
        None for neither.
        """
        self._on_answer.append(callback)

    def _receive(self, widget: object, content: Mapping[str, Any], buffers: object) -> None:
        if content.get("type") == "drawn":
            for drawn in self._on_drawn:
                drawn()
        elif content.get("type") == "answer" and content.get("id") == self.question_id:
            self._take(content)

    def _take(self, content: Mapping[str, Any]) -> None:
        """Check the message of an answer, and report it."""
        raise NotImplementedError

    def _report(self, decision: str, feedback: str, filled_in: Any) -> None:
        for answer in self._on_answer:
            answer(decision, feedback, filled_in)
