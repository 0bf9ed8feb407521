"""The repetition detector: what repeats, what does not, and that each call costs the same."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magics.engine.repetition.detector import RepetitionDetector
from agent_magics.protocol.config import LoopLimits
from agent_magics.protocol.items import CustomToolCall, FunctionCall, LocalShellCall

NUMBERS = itertools.count()


def call(name="look", arguments="{}", call_id=None):
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return FunctionCall(call_id or f"c{next(NUMBERS)}", name, text)


def feed(detector, *pairs):
    """Give the detector calls with their outputs, each an answer of its own; return the notes."""
    for item, output in pairs:
        detector.arrived([item])
        detector.answered(item.call_id, output)
    return detector.take_notes()


SAME_CALLS = {
    "the order of keys": ['{"a": 1, "b": 2}', '{"b": 2, "a": 1}', '{"b":2,\n "a":1}'],
    "no JSON": ["{oops", " {oops", "{oops "],
    "an array": ["[1, 2]", "[1,2]", "[ 1, 2 ]"],
    "nested deeply": ["[" * 10_000] * 3,
    "very long": [json.dumps({"text": "x" * 50_000})] * 3,
}


@pytest.mark.parametrize("case", SAME_CALLS)
def test_identical_is_meant_as_json(case):
    notes = feed(
        RepetitionDetector(), *[(call(arguments=text), "same") for text in SAME_CALLS[case]]
    )
    assert len(notes) == 1 and "the same call, the same result (look), 3 times" in notes[0]


@pytest.mark.parametrize(
    "item",
    [CustomToolCall("c", "patch", "*** Begin"), LocalShellCall("c", ("ls", "-l"), "/x")],
)
def test_every_kind_of_call_is_compared(item):
    assert len(feed(RepetitionDetector(), *[(item, "same")] * 3)) == 1


DIFFERENT = {
    "other arguments": [(call(arguments={"path": name}), "same") for name in "abc"],
    "other tools": [(call(name), "same") for name in "abc"],
    "other results": [(call(), f"line {name}") for name in "abc"],
    "pages of a file": [
        (call(arguments={"path": "a", "start_line": 250 * n}), f"text {'abcdefgh'[n]}")
        for n in range(8)
    ],
    "one in between": [
        pair
        for name in "abc"
        for pair in ((call(), "same"), (call("edit", {"name": name}), "done"))
    ],
    "polling": [(call("write_stdin", {"session_id": 1}), "nothing new")] * 29,
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_what_is_no_circle(case):
    assert feed(RepetitionDetector(), *DIFFERENT[case]) == []


NEARLY = {
    "numbers": [{"cmd": "sleep", "n": number} for number in range(5)],
    "quotes": [{"cmd": f"grep {quote}x{quote} a"} for quote in ("'", '"', "", "`", " ")],
    "how, not what": [{"cmd": "make", "timeout_ms": n, "justification": "x" * n} for n in range(5)],
    "letters": [{"cmd": word} for word in ("make", "Make", "MAKE", "mAke", "maKe")],
}


@pytest.mark.parametrize("case", NEARLY)
def test_nearly_the_same_with_the_same_result(case):
    pairs = [(call(arguments=arguments), "no such file") for arguments in NEARLY[case]]
    assert feed(RepetitionDetector(), *pairs[:4]) == []
    detector = RepetitionDetector()
    (note,) = feed(detector, *pairs)
    assert "nearly the same call (look), 5 times" in note


def test_times_and_durations_are_no_difference():
    outputs = [
        f"exit code 1 after {number / 10} s at 2026-11-22 10:00:0{number}" for number in (1, 2, 3)
    ]
    assert len(feed(RepetitionDetector(), *[(call(), output) for output in outputs])) == 1


def test_of_long_outputs_both_ends_count():
    long = "x" * 20_000
    assert len(feed(RepetitionDetector(), *[(call(), f"{long} in {n} s") for n in (1, 2, 3)])) == 1
    assert feed(RepetitionDetector(), *[(call(), f"{long} {end}") for end in "abc"]) == []


@pytest.mark.parametrize("period", [2, 3, 4])
def test_short_periods(period):
    row = [(call(name), "same") for name in "abcd"[:period]]
    detector = RepetitionDetector()
    assert feed(detector, *row * 2, *row[:-1]) == []
    (note,) = feed(detector, row[-1])
    assert f"the same {period} calls in turn, 3 times" in note


def test_a_longer_row_is_not_looked_for():
    row = [(call(name), "same") for name in "abcde"]
    assert feed(RepetitionDetector(), *row * 6) == []


def test_the_model_is_told_once_of_a_row_and_again_of_the_next():
    detector = RepetitionDetector()
    assert len(feed(detector, *[(call(), "same")] * 8)) == 1
    feed(detector, (call("other"), "x"))
    assert len(feed(detector, *[(call(), "same")] * 3)) == 1


def test_a_question_comes_after_patience_has_ended():
    detector = RepetitionDetector(LoopLimits(identical=3, patience=2))
    questions = []
    for _ in range(6):
        item = call()
        detector.arrived([item])
        questions.append(bool(detector.question_about(item.call_id)))
        detector.answered(item.call_id, "same")
    assert questions == [False] * 4 + [True] * 2


def test_what_is_different_is_not_asked_about():
    detector = RepetitionDetector()
    feed(detector, *[(call(), "same")] * 6)
    item = call("other")
    detector.arrived([item])
    assert detector.question_about(item.call_id) == ""
    assert detector.question_about("unknown") == ""  # made by hand, or inside another call


def test_after_some_notes_in_a_turn_the_next_circle_is_asked_about_at_once():
    detector = RepetitionDetector(LoopLimits(notes=2))
    for name in "ab":
        assert len(feed(detector, *[(call(name), "same")] * 3)) == 1
    assert feed(detector, *[(call("c"), "same")] * 3) == []
    item = call("c")
    detector.arrived([item])
    assert "round in circles" in detector.question_about(item.call_id)
    detector.begin_turn()
    detector.arrived([item])
    assert detector.question_about(item.call_id) == ""


def test_an_approval_begins_anew():
    detector = RepetitionDetector()
    feed(detector, *[(call(), "same")] * 4)
    detector.forget()
    assert feed(detector, *[(call(), "same")] * 2) == []
    assert len(feed(detector, (call(), "same"))) == 1


def test_calls_of_one_answer_count_in_their_order():
    detector = RepetitionDetector()
    items = [call(), call(), call()]
    detector.arrived(items)
    for item in items:
        detector.answered(item.call_id, "same")
    assert len(detector.take_notes()) == 1


def test_short_words_and_other_words_are_nothing():
    detector = RepetitionDetector()
    for number in range(10):
        detector.record_text("Let me see.")
        detector.record_text(f"Now I am going to look at number {number}.")
        feed(detector, (call(arguments={"n": str(number) * 3}), f"text {'abcdefghij'[number]}"))
    assert detector.take_notes() == []


calls = st.tuples(
    st.builds(call, st.sampled_from("ab"), st.sampled_from(["{}", '{"a": 1}', '{"a": 2}', "{"])),
    st.sampled_from(["x", "y", "1 s", "2 s"]),
)


@settings(deadline=None)
@given(st.lists(calls, max_size=60))
def test_nothing_but_rows_is_ever_noted(pairs):
    detector, seen = RepetitionDetector(), []
    for item, output in pairs:
        notes = feed(detector, (item, output))
        seen.append((item.name, item.arguments, output.replace("2", "1")))
        if notes and "the same call, the same result" in notes[0]:
            assert len(set(seen[-3:])) == 1
        if len(seen) >= 3 and len(set(seen[-3:])) == 1 and len(set(seen[-4:])) > 1:
            assert notes or detector._notes_given >= detector.limits.notes


def test_what_it_keeps_does_not_grow():
    detector = RepetitionDetector()
    for number in range(500):
        feed(detector, (call(arguments={"n": number}), f"text {number}"))
    assert len(detector._calls) == 4 and detector._arrived == {}
