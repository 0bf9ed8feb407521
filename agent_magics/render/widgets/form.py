"""Shows a form of an MCP server or of the model on the page, or an address to open.

Their text is shown as plain text. Answers are checked here, not in the page, so that a form
and a console accept the same ones.
"""

from collections.abc import Mapping
from typing import Any

import traitlets

from agent_magics.mcp.elicitation.answers import address_of, checked_content, fields_of
from agent_magics.mcp.elicitation.forms import (
    FormField,
    ascii_address,
    host_of,
    read_typed_value,
)
from agent_magics.protocol.events import FormRequested
from agent_magics.render.visible import show_shortened
from agent_magics.render.widgets.page import AskingWidget, script

_DECISIONS = ("approve", "deny", "abort")
_LONGEST_MESSAGE, _LONGEST_WORDS = 10_000, 1_000


class FormWidget(AskingWidget):
    """Asks the person for the input that an MCP server (elicitation) or the model requests.

    An answer has also ``content``, in which numbers are text. Where it does not fit, the front end
    gets ``{"type": "problems", "problems": {field: sentence}}``.

    Args:
        question: a server's message with a form's schema or an address, or the model's questions.
        by_page: see `HearingWidget`.

    Raises:
        UnusableForm: the schema cannot be shown as a form.
    """

    _esm = script("elements.js", "form.js")

    server = traitlets.Unicode().tag(sync=True)
    message = traitlets.Unicode().tag(sync=True)
    fields = traitlets.List(traitlets.Dict()).tag(sync=True)
    url = traitlets.Unicode().tag(sync=True)
    host = traitlets.Unicode().tag(sync=True)

    def __init__(self, question: FormRequested, *, by_page: bool = False) -> None:
        self._question = question
        self._form = fields_of(question)
        url = address_of(question)
        super().__init__(
            question_id=question.question_id,
            server=show_shortened(getattr(question, "server", ""), _LONGEST_WORDS),
            message=show_shortened(getattr(question, "message", ""), _LONGEST_MESSAGE),
            fields=[_drawn(field) for field in self._form],
            url=ascii_address(url),
            host=host_of(url) if url else "",
            by_page=by_page,
        )

    @property
    def text(self) -> str:
        """The question as text, for front ends that draw no widgets."""
        asked = self.message or " ".join(str(field["title"]) for field in self.fields)
        return f"{self.server or 'the agent'} asks: {asked}"

    def _take(self, content: Mapping[str, Any]) -> None:
        decision = content.get("decision")
        if decision not in _DECISIONS or self.decision:
            return
        filled_in = None
        if decision == "approve" and not self.url:
            filled_in = self._read(content.get("content"))
            _, problems = checked_content(self._question, filled_in)
            if problems:
                self.send({"type": "problems", "problems": problems})
                return
        self.decision = decision
        self._report(decision, "", filled_in)

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
