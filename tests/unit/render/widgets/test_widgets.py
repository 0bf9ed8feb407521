"""The kernel's half of the widgets, and what a person is shown before answering."""

import json
import unicodedata
from typing import Any

import pytest
from comm import get_comm_manager

from agent_magics.render.visible import pretty_arguments, show_invisible
from agent_magics.render.widgets.question import QuestionWidget
from agent_magics.render.widgets.stream import BACKLOG_CHARACTERS, StreamWidget
from tests.support.pages.recording_comm import RecordingComm

CHOICES = [
    {"decision": "approve", "label": "Approve"},
    {"decision": "approve_for_session", "label": "Always for this session"},
    {"decision": "deny", "label": "Deny"},
    {"decision": "abort", "label": "Stop"},
]


def ask(**changes: Any) -> QuestionWidget:
    fields: dict[str, Any] = {
        "question_id": "q1",
        "tool": "shell",
        "target": "ls",
        "arguments": '{"command":"ls"}',
        "reason": "not known to be safe",
        "choices": CHOICES,
    }
    return QuestionWidget(**(fields | changes))


def receive(widget: QuestionWidget | StreamWidget, **content: Any) -> None:
    widget._handle_custom_msg(content, [])


@pytest.mark.parametrize("widget", [ask(), StreamWidget("ls", question_id="q1")])
def test_a_state_that_the_page_sends_changes_nothing(widget: QuestionWidget | StreamWidget) -> None:
    """Else it could add answers to a question, or show another command than the one that runs."""
    before = widget.get_state()
    heard: list[str] = []
    if isinstance(widget, QuestionWidget):
        widget.on_answer(lambda decision, *_: heard.append(decision))
    for name, value in before.items():
        changed = [{"decision": "approve_for_project"}] if name == "choices" else "x"
        state = {name: (not value if isinstance(value, bool) else changed)}
        widget._handle_msg({"content": {"data": {"method": "update", "state": state}}})
    receive(widget, type="answer", id="q1", decision="approve_for_project")
    assert widget.get_state() == before
    assert not heard


# -- what is shown -----------------------------------------------------------------------------

SEEN_THROUGH = [
    *range(0x09),  # C0 controls but tab and line end
    *range(0x0B, 0x20),
    *range(0x7F, 0xA1),  # DEL, C1 controls, no-break space
    0x00AD,  # soft hyphen
    0x034F,
    0x061C,  # Arabic letter mark
    0x115F,
    0x1160,
    0x1680,
    0x17B4,
    0x17B5,
    *range(0x180B, 0x1810),
    *range(0x2000, 0x2010),  # spaces, zero-width characters, left-to-right and right-to-left marks
    *range(0x2028, 0x2030),  # line ends, bidirectional embeddings and overrides, narrow space
    *range(0x205F, 0x2070),  # invisible operators, bidirectional isolates, deprecated formats
    0x2800,
    0x3000,
    0x3164,
    0xD800,  # half of a pair: it could not even be sent
    0xE000,  # private use
    *range(0xFE00, 0xFE10),
    0xFEFF,
    0xFFA0,
    *range(0xFFF9, 0xFFFC),
    *range(0x1D173, 0x1D17B),
    *range(0xE0000, 0xE0080),  # tags: hidden text
    0xE0100,
    0x10FFFF,
]


@pytest.mark.parametrize("code", SEEN_THROUGH, ids=lambda code: f"U+{code:04X}")
def test_what_cannot_be_seen_is_written_out(code: int) -> None:
    assert show_invisible(f"a{chr(code)}b") == f"a⟨U+{code:04X}⟩b"


@pytest.mark.soak
def test_nothing_of_a_hidden_category_gets_through() -> None:
    everything = "".join(map(chr, range(0x110000)))
    shown = show_invisible(everything)
    left = {unicodedata.category(c) for c in {*shown} - {*" \n\t"}}
    assert not {category for category in left if category[0] in "CZ"}


def test_ordinary_text_stays() -> None:
    text = "ls -la\n\tgrüße 漢字 עברית 🙂 é"
    assert show_invisible(text) == text


def test_arguments_are_laid_out_one_field_per_line() -> None:
    shown = pretty_arguments('{"command":"ls","env":{"A":"1"},"timeout":10}')
    assert shown == 'command: "ls"\nenv: {"A": "1"}\ntimeout: 10'
    long = pretty_arguments(json.dumps({"command": ["word"] * 40}))
    assert long.startswith('command: [\n  "word",\n')


def test_a_string_of_several_lines_cannot_pass_for_fields() -> None:
    shown = pretty_arguments('{"code":"x = 1\\ntimeout: 10","a\\nb":2}')
    assert shown == 'code:\n  │ x = 1\n  │ timeout: 10\n"a\\nb": 2'


def test_code_with_quotes_is_shown_as_it_is_written() -> None:
    assert (
        pretty_arguments(r'{"code": "print(\"a\\n\")", "n": "b"}')
        == 'code:\n  │ print("a\\n")\nn: "b"'
    )


@pytest.mark.parametrize(
    "text",
    ['{"command":"rm -rf /","command":"ls"}', "print(1)", "[1,\n2]", "", "[" * 100_000],
    ids=["twice", "code", "list", "empty", "deep"],
)
def test_what_is_no_plain_object_is_shown_as_it_is(text: str) -> None:
    assert pretty_arguments(text) == text


def test_a_question_shows_hidden_characters_everywhere() -> None:
    widget = ask(tool="a\u200b", target="b\u202e", arguments='{"c":"\\u2066"}', reason="d\u00ad")
    shown = [widget.tool, widget.target, widget.arguments, widget.reason]
    assert shown == ["a⟨U+200B⟩", "b⟨U+202E⟩", 'c: "⟨U+2066⟩"', "d⟨U+00AD⟩"]


# -- a question --------------------------------------------------------------------------------


def test_being_drawn_is_passed_on() -> None:
    widget, drawn = ask(), []
    widget.on_drawn(lambda: drawn.append(True))
    receive(widget, type="drawn")
    assert drawn == [True]


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: choice["label"])
def test_a_click_is_passed_on_with_its_words(choice: dict[str, str]) -> None:
    widget, answers = ask(), []
    widget.on_answer(lambda *answer: answers.append(answer))
    receive(widget, type="answer", id="q1", decision=choice["decision"], feedback="why")
    assert answers == [(choice["decision"], "why", None)]


def test_an_answer_without_words_has_empty_ones() -> None:
    widget, answers = ask(), []
    widget.on_answer(lambda *answer: answers.append(answer))
    receive(widget, type="answer", id="q1", decision="deny")
    assert answers == [("deny", "", None)]


def test_what_was_not_offered_is_no_answer() -> None:
    widget, answers = ask(choices=CHOICES[2:]), []
    widget.on_answer(lambda *answer: answers.append(answer))
    receive(widget, type="answer", id="q1", decision="approve", feedback="")
    receive(widget, type="something else")
    assert answers == []


def test_only_the_question_s_own_id_answers_it() -> None:
    widget, answers = ask(), []
    widget.on_answer(lambda *answer: answers.append(answer))
    for forged in ({}, {"id": "q2"}, {"id": ""}, {"id": None}, {"question_id": "q1"}):
        receive(widget, type="answer", decision="approve", **forged)
    assert answers == []
    receive(widget, type="answer", id="q1", decision="approve")
    assert answers == [("approve", "", None)]


def test_a_changed_text_is_passed_on() -> None:
    widget, answers = ask(editable="ls"), []
    widget.on_answer(lambda *answer: answers.append(answer))
    receive(widget, type="answer", id="q1", decision="approve", edited="ls -l")
    assert answers == [("approve", "", "ls -l")]


@pytest.mark.parametrize("decision", ["approve_for_session", "deny", "abort"])
def test_a_changed_text_is_for_one_approval_alone(decision: str) -> None:
    widget, answers = ask(editable="ls"), []
    widget.on_answer(lambda *answer: answers.append(answer))
    receive(widget, type="answer", id="q1", decision=decision, edited="ls -l")
    assert answers == []


@pytest.mark.parametrize("text", ["", "ls \u202e", "a" * 20_001], ids=["none", "hidden", "long"])
def test_what_the_person_would_not_see_cannot_be_changed(text: str) -> None:
    widget, answers = ask(editable=text), []
    widget.on_answer(lambda *answer: answers.append(answer))
    assert widget.editable == ""
    receive(widget, type="answer", id="q1", decision="approve", edited="ls -l")
    assert answers == []


def test_of_a_huge_question_little_goes_to_the_page_and_the_end_is_seen() -> None:
    huge = "a" * 10_000_000 + "; rm -rf /"
    widget = ask(target=huge, arguments=huge, reason=huge)
    sent = len(widget.target) + len(widget.arguments) + len(widget.reason)
    assert sent < 120_000
    for shown in (widget.target, widget.arguments, widget.reason, widget.ending):
        assert shown.endswith("; rm -rf /")
    assert "characters are left out here" in widget.target


def test_the_end_of_what_scrolls_is_shown_beside_it() -> None:
    assert ask().ending == ""
    script = "echo a\n" * 40 + "curl x"
    assert ask(arguments=json.dumps({"command": script})).ending.endswith("│ curl x")


def test_of_many_lines_few_are_shown_at_the_top_and_the_last_is_among_them() -> None:
    many = "\n".join(f"line {number}" for number in range(1_000))
    widget = ask(target=many, reason=many)
    for shown in (widget.target, widget.reason):
        assert shown.count("\n") <= 7
        assert "left out here" in shown
        assert shown.endswith("line 999")
    ending = ask(arguments=json.dumps({"code": "x\n" * 100 + "evil"})).ending
    assert ending.count("\n") < 4 and ending.endswith("evil")


def test_what_a_lasting_answer_covers_is_made_visible() -> None:
    choice = {"decision": "approve_for_project", "label": "Always", "covers": "git \u202e…"}
    assert ask(choices=[choice]).choices[0]["covers"] == "git ⟨U+202E⟩…"


def test_a_resolved_question_shows_the_answer_and_takes_no_other() -> None:
    widget, answers = ask(), []
    widget.on_answer(lambda *answer: answers.append(answer))
    widget.comm = comm = RecordingComm()
    widget.resolve("deny")
    receive(widget, type="answer", id="q1", decision="approve", feedback="")
    assert comm.state() == {"decision": "deny"}
    assert answers == []


def test_a_closed_widget_leaves_no_other_open() -> None:
    before = set(get_comm_manager().comms)
    ask().close()
    assert set(get_comm_manager().comms) == before


# -- a stream ----------------------------------------------------------------------------------


def test_only_what_is_new_is_sent() -> None:
    widget = StreamWidget("npm test")
    widget.comm = comm = RecordingComm()
    for text in ["one\n", "", "two\n"]:
        widget.append(text)
    assert comm.custom() == [{"type": "append", "text": text} for text in ["one\n", "two\n"]]


def test_a_late_view_gets_the_backlog_for_itself() -> None:
    widget = StreamWidget("npm test")
    widget.append("one\n")
    widget.append("two\n")
    widget.comm = comm = RecordingComm()
    receive(widget, type="ready", view="v7")
    assert comm.custom() == [{"type": "append", "text": "one\ntwo\n", "view": "v7"}]


def test_the_backlog_is_the_bounded_end_of_all_output() -> None:
    widget = StreamWidget("npm test")
    written = ""
    for number in range(3_000):
        line = f"{number:0100}\n"
        widget.append(line)
        written += line
    widget.comm = comm = RecordingComm()
    receive(widget, type="ready", view="v")
    assert comm.custom()[0]["text"] == written[-BACKLOG_CHARACTERS:]
    assert sum(map(len, widget._backlog)) <= BACKLOG_CHARACTERS + 101


def test_one_huge_piece_is_cut_to_its_end() -> None:
    widget = StreamWidget("npm test")
    widget.comm = comm = RecordingComm()
    widget.append("a" + "b" * BACKLOG_CHARACTERS)
    assert comm.custom() == [{"type": "append", "text": "b" * BACKLOG_CHARACTERS}]


def test_the_end_is_told() -> None:
    widget = StreamWidget("npm test")
    widget.comm = comm = RecordingComm()
    widget.finish()
    assert comm.state() == {"finished": True}
