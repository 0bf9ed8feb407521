"""The kernel's half of a server's form: only what fits it gets through, once."""

from typing import Any
from urllib.parse import unquote

import pytest

from agent_magics.kernel.questions.typed_forms import address_text
from agent_magics.mcp.elicitation.forms import UnusableForm
from agent_magics.protocol.events import ElicitationRequested
from agent_magics.render.widgets.form import FormWidget
from tests.support.pages.recording_comm import RecordingComm

FORM = {
    "properties": {
        "name": {"type": "string", "title": "Na\u202eme", "description": "<b>you</b>"},
        "count": {"type": "integer", "default": 10**20},
        "kind": {"type": "string", "oneOf": [{"const": "", "title": "a\u200bb"}]},
        "day": {"type": "string", "format": "date"},
        "on": {"type": "boolean"},
    },
    "required": ["name"],
}


def ask(**more: Any) -> ElicitationRequested:
    fields = {"server": "s", "message": "m", "schema": FORM} | more
    return ElicitationRequested(question_id="q1", call_id="c1", **fields)


class Filled:
    """A widget, and what it told."""

    def __init__(self, question: ElicitationRequested) -> None:
        self.widget = FormWidget(question)
        self.widget.comm = self.comm = RecordingComm()
        self.answers: list[Any] = []
        self.drawn = 0
        self.widget.on_answer(lambda *answer: self.answers.append(answer))
        self.widget.on_drawn(self._draw)

    def _draw(self) -> None:
        self.drawn += 1

    def send(self, decision: Any = "approve", content: Any = None, **more: Any) -> None:
        message = {"type": "answer", "id": "q1", "decision": decision, "content": content} | more
        self.widget._handle_custom_msg(message, [])


def test_the_page_gets_fields_with_their_words_made_visible() -> None:
    widget = FormWidget(ask(message="a\u202eb"))
    name, count, kind, day, _ = widget.fields
    assert widget.message == "a⟨U+202E⟩b"
    assert (name["title"], name["description"]) == ("Na⟨U+202E⟩me", "<b>you</b>")
    assert (name["required"], name["kind"], name["default"]) == (True, "text", None)
    assert count["default"] == "100000000000000000000"
    assert kind["options"] == [["", "a⟨U+200B⟩b", ""]]
    assert (day["format"], day["hint"]) == ("date", "")


def test_what_fits_is_sent_as_it_is_meant() -> None:
    filled = Filled(ask())
    filled.send(content={"name": "x", "count": "12345678901234567890", "kind": "", "on": False})
    assert filled.answers == [
        (
            "approve",
            "",
            {"name": "x", "count": 12345678901234567890, "kind": "", "day": None, "on": False},
        )
    ]
    assert filled.widget.decision == "approve"
    filled.send("deny")
    assert len(filled.answers) == 1


def test_what_does_not_fit_is_told_and_can_be_sent_again() -> None:
    filled = Filled(ask())
    filled.send(content={"name": "", "count": "many", "other": 1, "day": "tomorrow"})
    assert filled.answers == []
    assert filled.comm.custom() == [
        {
            "type": "problems",
            "problems": {
                "name": "this is required",
                "count": "this must be a number",
                "day": "this must be such as 2026-01-31",
            },
        }
    ]
    assert filled.widget.decision == ""
    filled.send(content={"name": "x"})
    left_out = dict.fromkeys(("count", "kind", "day", "on"))
    assert filled.answers == [("approve", "", {"name": "x", **left_out})]


@pytest.mark.parametrize("content", [None, 5, "x", [], {"name": {"a": 1}}, {"name": ["x"]}])
def test_the_page_can_send_anything(content: Any) -> None:
    filled = Filled(ask())
    filled.send(content=content)
    assert filled.answers == []
    assert len(filled.comm.custom()) == 1


@pytest.mark.parametrize(
    "message",
    [{"id": "q2"}, {"decision": "approve_for_session"}, {"decision": None}, {"type": "other"}],
)
def test_only_an_answer_to_this_question_counts(message: dict[str, Any]) -> None:
    filled = Filled(ask())
    filled.send(**{"decision": "deny", **message})
    assert filled.answers == []
    filled.widget.hear({"type": "drawn"})
    assert filled.drawn == 1


@pytest.mark.parametrize("decision", ["deny", "abort"])
def test_a_form_need_not_be_filled_in_to_be_declined(decision: str) -> None:
    filled = Filled(ask())
    filled.send(decision)
    assert filled.answers == [(decision, "", None)]


def test_an_address_is_shown_with_its_host() -> None:
    filled = Filled(ask(schema={}, url="https://A.example:8443/b?c"))
    assert (filled.widget.host, filled.widget.url) == (
        "a.example:8443",
        "https://A.example:8443/b?c",
    )
    filled.send(content={"x": 1})
    assert filled.answers == [("approve", "", None)]


@pytest.mark.parametrize(
    "url",
    [
        "https://a.b/\u0430\u0440\u0440?q=\u0430b%20#\u00fc",
        "https://b\u00fccher.example/",
        "https://a.b/%",
    ],
)
def test_what_is_opened_is_the_address_in_letters_that_deceive_nobody(url: str) -> None:
    shown = Filled(ask(schema={}, url=url)).widget.url
    assert shown.isascii()
    assert unquote(shown) == unquote(url)
    assert shown in address_text(url)


def test_what_is_no_form_has_no_widget() -> None:
    for question in (ask(schema={"properties": {"x": 1}}), ask(url="file:///etc/passwd")):
        with pytest.raises(UnusableForm):
            FormWidget(question)
