"""Draws the open questions of one cell as widgets, and removes them."""

from collections.abc import Callable, Mapping, Set
from functools import partial
from typing import Any

from agent_magics.kernel.cell.publishing import question_item, widget_bundle
from agent_magics.kernel.questions.clicks import ask_by_page
from agent_magics.kernel.questions.drawing import question_widget
from agent_magics.kernel.questions.ways import NotebookHost
from agent_magics.protocol.events import FormRequested, Question
from agent_magics.protocol.items import Json
from agent_magics.protocol.ops import Answer


class OpenQuestions:
    """The questions of one cell that have been drawn.

    Args:
        host: answers questions in this kernel.
        show: shows a question's widget, given as a MIME bundle.
        language_of: returns the language of the arguments of a question's call.
    """

    def __init__(
        self,
        host: NotebookHost,
        show: Callable[[Question, dict[str, Json]], object],
        language_of: Callable[[Question], str] = lambda question: "text",
    ) -> None:
        self._host = host
        self._show = show
        self._language_of = language_of
        self._widgets: dict[str, Any] = {}
        self._waiting: dict[str, None] = {}  # the questions without an answer
        self._forms: dict[str, str] = {}  # the calls of open forms

    @property
    def widgets(self) -> Mapping[str, Any]:
        """The widgets of the questions that wait, by the question's id; from any thread."""
        widgets = dict(self._widgets)
        return {which: widgets[which] for which in tuple(self._waiting) if which in widgets}

    @property
    def form_calls(self) -> Set[str]:
        """The ids of the calls whose form is open."""
        return set(self._forms.values())

    def draw(self, question: Question, listen: Callable[[Any], None]) -> None:
        """Make a question's widget, pass it to `listen`, and then show it."""
        # A channel that a page has proven is used first: with ipykernel 6 a widget's own comm waits
        # for the end of the cell, also while that awaits.
        widget, text = question_widget(
            question, language=self._language_of(question), by_page=bool(self._host.lab.reach)
        )
        listen(widget)
        if isinstance(question, FormRequested):
            self._forms[question.question_id] = question.call_id
        self._widgets[question.question_id] = widget
        self._waiting[question.question_id] = None
        self._show(question, widget_bundle(widget, question_item(text)))

    def resolve(self, question_id: str) -> None:
        """Note that a question has its answer; its widget stays until the end of the call."""
        self._forms.pop(question_id, None)
        self._waiting.pop(question_id, None)

    def close(self, question: Question) -> None:
        """Remove the widget of a question."""
        self.resolve(question.question_id)
        widget = self._widgets.pop(question.question_id, None)
        if widget is not None:
            widget.close()

    def close_all(self) -> None:
        """Remove the widgets of all questions."""
        for widget in self._widgets.values():
            widget.close()
        self._waiting.clear()
        self._widgets.clear()

    def ask_by_page(self, question: Question, tick: Callable[[], object]) -> Answer | None:
        """Ask while the main thread blocks, by a click that the labextension delivers.

        Args:
            question: the question.
            tick: called several times a second meanwhile.

        Returns:
            The answer; None where no page drew the question.
        """
        host = self._host
        limit = host.drawn_limit
        if not (host.widgets_work and host.lab.wait_for_reach(limit)):
            return None
        answer = ask_by_page(host.lab, question, partial(self.draw, question), limit, tick)
        if answer is None:
            self.close(question)
        else:
            host.widgets_seen = True
        return answer
