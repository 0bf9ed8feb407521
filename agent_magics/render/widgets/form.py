"""Shows a form of an MCP server or of the model on the page, or an address to open.

Their text is shown as plain text. Answers are checked here, not in the page, so that a form
and a console accept the same ones.
"""

from collections.abc import Callable, Mapping
from typing import Any

import anywidget
import traitlets

from agent_magics.mcp.elicitation.answers import address_of, checked_content, fields_of
from agent_magics.mcp.elicitation.forms import FormField, host_of, read_typed_value
from agent_magics.protocol.events import FormRequested
from agent_magics.render.visible import show_invisible, show_shortened
from agent_magics.render.widgets.question import STATIC, script

_DECISIONS = ("approve", "deny", "abort")
_LONGEST_MESSAGE, _LONGEST_WORDS = 10_000, 1_000


class FormWidget(anywidget.AnyWidget):
    """Asks the person for the input that an MCP server (elicitation) or the model requests.

    Messages from the front end: ``{"type": "drawn"}``, and ``{"type": "answer", "id": …,
    "decision": …, "content": {field: value}}``, in which numbers are text. To the front end:
    ``decision``, a trait; and ``{"type": "problems", "problems": {field: sentence}}`` where an
    answer does not fit.

    Args:
        question: a server's message with a form's schema or an address, or the model's questions.
        by_page: as of `QuestionWidget`.

    Raises:
        UnusableForm: the schema cannot be shown as a form.
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

    def __init__(self, question: FormRequested, *, by_page: bool = False) -> None:
        self._on_drawn: list[Callable[[], None]] = []
        self._on_answer: list[Callable[[str, str, Any], None]] = []
        self._question = question
        self._form = fields_of(question)
        url = address_of(question)
        super().__init__(
            question_id=question.question_id,
            server=show_shortened(getattr(question, "server", ""), _LONGEST_WORDS),
            message=show_shortened(getattr(question, "message", ""), _LONGEST_MESSAGE),
            fields=[_drawn(field) for field in self._form],
            url=show_invisible(url),
            host=host_of(url) if url else "",
            by_page=by_page,
        )
        self.on_msg(self._receive)

    @property
    def text(self) -> str:
        """The question as text, for front ends that draw no widgets."""
        asked = self.message or " ".join(str(field["title"]) for field in self.fields)
        return f"{self.server or 'the agent'} asks: {asked}"

    def on_drawn(self, callback: Callable[[], None]) -> None:
        """Register a callback for each time that a view of the question is put on the page."""
        self._on_drawn.append(callback)

    def on_answer(self, callback: Callable[[str, str, Any], None]) -> None:
        """Register a callback that gets the decision, "", and the content of a sent form."""
        self._on_answer.append(callback)

    def hear(self, content: Mapping[str, Any]) -> None:
        """Handle a front-end message that arrived outside the widget's comm; from any thread."""
        self._receive(self, content, None)

    def _receive(self, _widget: object, content: Mapping[str, Any], _buffers: object) -> None:
        if content.get("type") == "drawn":
            for drawn in self._on_drawn:
                drawn()
        elif content.get("type") == "answer" and content.get("id") == self.question_id:
            decision = content.get("decision")
            if decision in _DECISIONS and not self.decision:
                self._take(str(decision), content.get("content"))

    def _take(self, decision: str, filled_in: object) -> None:
        content = None
        if decision == "approve" and not self.url:
            content = self._read(filled_in)
            _, problems = checked_content(self._question, content)
            if problems:
                self.send({"type": "problems", "problems": problems})
                return
        self.decision = decision
        for answer in self._on_answer:
            answer(decision, "", content)

    def _read(self, filled_in: object) -> dict[str, Any]:
        """Convert the page's untrusted field values to a form's content, parsing numbers."""
        given = filled_in if isinstance(filled_in, dict) else {}
        content = {field.name: given.get(field.name) for field in self._form}
        for field in self._form:
            value = content[field.name]
            if field.kind in ("number", "integer") and isinstance(value, str) and value.strip():
                content[field.name] = read_typed_value(field, value)
        return content


def _drawn(field: FormField) -> dict[str, Any]:
    """Return a form field as the JSON that the front end draws."""
    numbers = field.kind in ("number", "integer") and field.default is not None
    return {
        "name": field.name,
        "kind": field.kind,
        "title": show_shortened(field.title, _LONGEST_WORDS),
        "description": show_shortened(field.description, _LONGEST_WORDS),
        "hint": "" if field.format == "date" else field.hint,  # the browser shows its own hint
        "required": field.required,
        "format": field.format,
        "options": [
            [
                value,
                show_shortened(label, _LONGEST_WORDS),
                show_shortened(field.descriptions.get(value, ""), _LONGEST_WORDS),
            ]
            for value, label in field.options
        ],
        "open": field.is_open,
        "listed": field.is_listed,
        "default": str(field.default) if numbers else field.default,
    }
