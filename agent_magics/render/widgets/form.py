"""A server's question on the page: a form with typed fields, or an address to open.

What the server wrote is text there, whatever stands in it. What is filled in is checked here, not
in the page, so that a form and a console take the same answers.
"""

from collections.abc import Callable, Mapping
from typing import Any

import anywidget
import traitlets

from agent_magics.dispatch.elicitation import checked_content
from agent_magics.dispatch.forms import FormField, form_fields, host_of, read_typed_value
from agent_magics.protocol.events import ElicitationRequested
from agent_magics.render.visible import show_invisible, show_shortened
from agent_magics.render.widgets import STATIC, script

_DECISIONS = ("approve", "deny", "abort")
_LONGEST_MESSAGE, _LONGEST_WORDS = 10_000, 1_000


class FormWidget(anywidget.AnyWidget):  # type: ignore[misc]
    """Asks what an MCP server wants to know.

    Messages from the front end: ``{"type": "drawn"}``, and ``{"type": "answer", "id": …,
    "decision": …, "content": {field: value}}``, in which numbers are text. To it: ``decision``, a
    trait; and ``{"type": "problems", "problems": {field: sentence}}`` where an answer does not fit.

    Args:
        question: what the server asks.
        by_page: as of `QuestionWidget`.

    Raises:
        UnusableForm: it cannot be shown.
    """

    _esm = script("elements.js", "form.js")
    _css = (STATIC / "widgets.css").read_text(encoding="utf-8")

    question_id = traitlets.Unicode().tag(sync=True)
    server = traitlets.Unicode().tag(sync=True)
    message = traitlets.Unicode().tag(sync=True)
    fields = traitlets.List(traitlets.Dict()).tag(sync=True)
    url = traitlets.Unicode().tag(sync=True)
    host = traitlets.Unicode().tag(sync=True)
    decision = traitlets.Unicode().tag(sync=True)
    by_page = traitlets.Bool(False).tag(sync=True)

    def __init__(self, question: ElicitationRequested, *, by_page: bool = False) -> None:
        self._on_drawn: list[Callable[[], None]] = []
        self._on_answer: list[Callable[[str, str, Any], None]] = []
        self._question = question
        self._form = () if question.url else form_fields(question.schema)
        super().__init__(
            question_id=question.question_id,
            server=show_shortened(question.server, _LONGEST_WORDS),
            message=show_shortened(question.message, _LONGEST_MESSAGE),
            fields=[_drawn(field) for field in self._form],
            url=show_invisible(question.url),
            host=host_of(question.url) if question.url else "",
            by_page=by_page,
        )
        self.on_msg(self._receive)

    def on_drawn(self, callback: Callable[[], None]) -> None:
        """Call back each time a view of the question has been put on the page."""
        self._on_drawn.append(callback)

    def on_answer(self, callback: Callable[[str, str, Any], None]) -> None:
        """Call back with the decision, "", and for a form that is sent its content."""
        self._on_answer.append(callback)

    def hear(self, content: Mapping[str, Any]) -> None:
        """Take a message of the front-end half that came by another way; from any thread."""
        self._receive(self, content, None)

    def _receive(self, _widget: object, content: Mapping[str, Any], _buffers: object) -> None:
        if content.get("type") == "drawn":
            for drawn in self._on_drawn:
                drawn()
        elif content.get("type") == "answer" and content.get("id") == self.question_id:
            decision = content.get("decision")
            if decision in _DECISIONS and not self.decision:
                self._take(str(decision), content.get("content"))

    def _take(self, decision: str, filled_in: Any) -> None:
        content = None
        if decision == "approve" and not self._question.url:
            content, problems = checked_content(self._question, self._read(filled_in))
            if problems:
                self.send({"type": "problems", "problems": problems})
                return
        self.decision = decision
        for answer in self._on_answer:
            answer(decision, "", content)

    def _read(self, filled_in: Any) -> dict[str, Any]:
        """Return what the page sent, which can be anything, with numbers for their text."""
        given = filled_in if isinstance(filled_in, dict) else {}
        content = {field.name: given.get(field.name) for field in self._form}
        for field in self._form:
            value = content[field.name]
            if field.kind in ("number", "integer") and isinstance(value, str) and value.strip():
                content[field.name] = read_typed_value(field, value)
        return content


def _drawn(field: FormField) -> dict[str, Any]:
    """Return what the page needs of a field."""
    numbers = field.kind in ("number", "integer") and field.default is not None
    return {
        "name": field.name,
        "kind": field.kind,
        "title": show_shortened(field.title, _LONGEST_WORDS),
        "description": show_shortened(field.description, _LONGEST_WORDS),
        "hint": "" if field.format == "date" else field.hint,  # the browser has its own way
        "required": field.required,
        "format": field.format,
        "options": [
            [value, show_shortened(label, _LONGEST_WORDS)] for value, label in field.options
        ],
        "default": str(field.default) if numbers else field.default,
    }
