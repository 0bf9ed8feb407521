"""Which questions of the model can be asked, and which answers fit them."""

import json
from typing import Any

import pytest

from agent_magics.mcp.elicitation.answers import accepted, checked_content
from agent_magics.mcp.elicitation.forms import UnusableForm, read_typed_value
from agent_magics.mcp.elicitation.user_input import question_fields
from agent_magics.protocol.codec import from_json, to_json
from agent_magics.protocol.events import UserInputRequested, UserOption, UserQuestion

OPTIONS = (UserOption("CSV", "small"), UserOption("Parquet"))
FORMAT = UserQuestion("format", "Which format?", "Export", OPTIONS, free_text=False)


def asked(*questions: UserQuestion) -> UserInputRequested:
    return UserInputRequested(question_id="q", call_id="c", questions=questions)


def options(*labels: str) -> tuple[UserOption, ...]:
    return tuple(map(UserOption, labels))


@pytest.mark.parametrize(
    ("questions", "why"),
    [
        ([], "expected 1 to 4, got 0"),
        ([UserQuestion(str(n), "?") for n in range(5)], "expected 1 to 4, got 5"),
        ([FORMAT, FORMAT], "a different id for each"),
        ([UserQuestion("", "What?")], "question '': id: expected 1 to 64 letters"),
        ([UserQuestion("a b", "What?")], "id: expected"),
        ([UserQuestion("a\n", "What?")], "id: expected"),
        ([UserQuestion("a" * 65, "What?")], "id: expected"),
        ([UserQuestion("a", " \n")], "question 'a': question: expected text, got none"),
        ([UserQuestion("a", "x" * 2_001)], "expected at most 2000 characters, got 2001"),
        ([UserQuestion("a", "What?", "h" * 81)], "header: expected at most 80"),
        ([UserQuestion("a", "What?", options=options("l" * 201))], "label: expected at most 200"),
        ([UserQuestion("a", "What?", options=options("x", ""))], "label: expected text"),
        ([UserQuestion("a", "What?", options=options("x", "x"))], "with different labels"),
        ([UserQuestion("a", "What?", options=options(*map(str, range(21))))], "at most 20"),
        ([UserQuestion("a", "?", options=(UserOption("x", "d" * 501),))], "description: expected"),
        ([UserQuestion("a", "What?", free_text=False)], "so free_text must be true"),
        ([UserQuestion("a", "Your password, please?")], "no form may ask for a secret"),
        ([UserQuestion("api_key", "What is it?")], "no form may ask for a secret"),
        ([UserQuestion("a", "?", "Secret", OPTIONS)], "no form may ask for a secret"),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused_in_one_sentence(
    questions: list[UserQuestion], why: str
) -> None:
    with pytest.raises(UnusableForm, match=r"^quest") as refused:
        question_fields(questions)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_question_may_speak_of_secrets() -> None:
    asked = UserQuestion("a", "Which repository should be scanned for leaked secrets?")
    assert question_fields([asked])


def test_options_alone_may_be_about_secrets() -> None:
    kept = UserQuestion("a", "Where is the password kept?", options=OPTIONS, free_text=False)
    assert question_fields([kept])[0].kind == "choice"


@pytest.mark.parametrize(
    ("question", "value", "fits"),
    [
        (FORMAT, "CSV", True),
        (FORMAT, "JSON", False),
        (FORMAT, ["CSV"], False),
        (FORMAT, None, False),
        (FORMAT, "", False),
        (UserQuestion("format", "?", options=OPTIONS), "JSON", True),
        (UserQuestion("format", "?", options=OPTIONS), "  ", False),
        (UserQuestion("format", "?", options=OPTIONS), 5, False),
        (UserQuestion("format", "?", options=OPTIONS, multi=True), ["Parquet", "CSV"], True),
        (UserQuestion("format", "?", options=OPTIONS, multi=True), ["CSV", "JSON"], True),
        (UserQuestion("format", "?", options=OPTIONS, multi=True), [], False),
        (UserQuestion("format", "?", options=OPTIONS, multi=True), "CSV", False),
        (UserQuestion("format", "?", options=OPTIONS, multi=True), ["CSV", ["x"]], False),
        (UserQuestion("format", "?", options=OPTIONS, multi=True, free_text=False), ["X"], False),
        (UserQuestion("format", "What?"), "any words", True),
        (UserQuestion("format", "What?"), "", False),
        (UserQuestion("format", "What?"), ["any"], False),
    ],
)
def test_only_what_fits_is_an_answer(question: UserQuestion, value: Any, fits: bool) -> None:
    answer = accepted(asked(question), {"format": value})
    assert (answer.decision == "approve") is fits
    if not fits:
        assert answer.feedback.startswith("the answer does not fit the form: format: ")


def test_labels_come_in_the_order_of_the_options_and_own_words_last() -> None:
    many = UserQuestion("format", "?", options=OPTIONS, multi=True)
    content, _ = checked_content(asked(many), {"format": ["JSON", "Parquet", "CSV", "CSV"]})
    assert content == {"format": ["CSV", "Parquet", "JSON"]}


@pytest.mark.parametrize(
    ("question", "typed", "value"),
    [
        (FORMAT, "2", "Parquet"),
        (FORMAT, "CSV", "CSV"),
        (FORMAT, "3", "3"),
        (FORMAT, "9" * 5_000, "9" * 5_000),
        (UserQuestion("n", "How many?", options=options("5", "1")), "1", "1"),
        (UserQuestion("n", "How many?", options=options("5", "1")), "2", "2"),
        (UserQuestion("n", "?", options=OPTIONS, multi=True), "2, 1", ["Parquet", "CSV"]),
        (UserQuestion("n", "?", options=OPTIONS, multi=True), "1, a, b", ["CSV", "a, b"]),
    ],
)
def test_what_is_typed_is_a_place_a_label_or_own_words(
    question: UserQuestion, typed: str, value: Any
) -> None:
    assert read_typed_value(question_fields([question])[0], typed) == value


def test_the_event_goes_to_json_and_back() -> None:
    event = asked(FORMAT, UserQuestion("b", "Why?", multi=True))
    assert from_json(json.loads(json.dumps(to_json(event)))) == event
