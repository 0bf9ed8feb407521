"""The line about a running turn: what it waits for, in every moment."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.protocol.events import (
    ApprovalRequested,
    Event,
    MainThreadWork,
    ModelRetry,
    PromptsQueued,
    QuestionResolved,
    QueuedPrompt,
    ReasoningDelta,
    TextDelta,
    TokensCounted,
    ToolCallArriving,
    ToolCallCompleted,
    ToolCallPending,
    ToolCallRunning,
    TurnStarted,
)
from agent_magics.protocol.items import Usage
from agent_magics.render.status import TurnStatus


def pending(which: str, at: float = 0.0) -> ToolCallPending:
    return ToolCallPending(
        at=at, call_id=which, name="shell", arguments=json.dumps({"command": ["ls", which]})
    )


ASKED = ApprovalRequested(
    question_id="q", call_id="a", tool="shell", target="ls a", arguments="{}", reason="so"
)
ANSWERED = QuestionResolved(question_id="q", decision="approve", by="person")
QUESTIONS = json.dumps({"questions": [{"question": "Which?"}]})
FORM = ToolCallPending(call_id="a", name="request_user_input", arguments=QUESTIONS)
ENDED = ToolCallCompleted(call_id="a", name="shell", output="")


@pytest.mark.parametrize(
    ("events", "doing"),
    [
        ([], "Waits for the model"),
        ([TurnStarted(prompt="Go")], "Waits for the model"),
        ([ReasoningDelta(text="Hm")], "The model thinks"),
        ([TextDelta(text="So")], "The model answers"),
        ([ToolCallArriving(name="shell", size=40)], "The model writes shell (40 B)"),
        (
            [ToolCallArriving(name="apply_patch", size=12_345, file="src/a.py")],
            "The model writes apply_patch (12.3 kB): src/a.py",
        ),
        ([ModelRetry(reason="busy", attempt=1, delay=2.0)], "Waits to ask the model once more"),
        ([TextDelta(text="So"), pending("a")], "Runs shell: ls a"),
        ([pending("a"), pending("b"), pending("c")], "Runs shell: ls a, and 2 more"),
        ([pending("a"), ASKED], "Waits for your answer: shell: ls a"),
        ([FORM, ASKED], "Waits for your answer: Which?"),
        (
            [pending("a"), ASKED, ANSWERED],
            "Runs shell: ls a",
        ),
        ([pending("a"), MainThreadWork(question_id="w", call_id="a", work="sync", name="f")],
         "Runs shell: ls a"),
        ([TextDelta(text="So"), pending("a"), ENDED], "Waits for the model"),
    ],
)  # fmt: skip
def test_what_it_does(events: list[Event], doing: str) -> None:
    status = TurnStatus()
    for event in events:
        status.apply(event)
    assert status.doing == doing


def test_the_seconds_of_a_phase_begin_with_it() -> None:
    clock = [1.0]
    status = TurnStatus(lambda: clock[0])
    for clock[0], size in ((5.0, 1), (9.0, 2_000)):
        status.apply(ToolCallArriving(name="shell", size=size))
    assert (status.phase_seconds, status.seconds) == (4.0, 8.0)
    clock[0] = 12.0
    status.apply(pending("a"))
    assert (status.phase_seconds, status.seconds) == (0.0, 11.0)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1))
def test_no_seconds_are_below_zero_however_the_computers_clock_is_set(times: list[float]) -> None:
    status = TurnStatus()
    for at in times:
        for event in (pending("a", at), ToolCallRunning(at=at, call_id="a", name="shell")):
            status.apply(event)
        assert 0 <= status.phase_seconds <= status.seconds
        assert 0 <= (status.call_seconds or 0) <= status.seconds


def test_what_it_took_and_what_waits() -> None:
    status = TurnStatus()
    usage = Usage(input_tokens=10, output_tokens=2)
    status.apply(TokensCounted(request=usage, turn=usage, cost=0.5))
    status.apply(PromptsQueued(prompts=(QueuedPrompt("p", "And April?"),)))
    assert (status.usage, status.cost) == (usage, 0.5)
    assert [each.text for each in status.queued] == ["And April?"]


def test_questions_to_the_person_are_counted() -> None:
    status, counts = TurnStatus(), []
    work = MainThreadWork(question_id="m", call_id="a", work="sync", name="f")
    other = ApprovalRequested(
        question_id="r", call_id="b", tool="shell", target="", arguments="{}", reason=""
    )
    for event in (pending("a"), ASKED, other, work, ANSWERED):
        status.apply(event)
        counts.append(status.questions)
    assert counts == [0, 1, 2, 2, 1]


def test_a_question_of_a_sub_agent_names_it() -> None:
    status = TurnStatus()
    status.apply(replace(ASKED, call_id="main/worker-1/a"))
    assert status.doing == "Waits for your answer: main/worker-1"


def test_the_oldest_running_call_is_known_while_it_runs() -> None:
    clock = [1.0]
    status = TurnStatus(lambda: clock[0])
    status.apply(pending("a"))
    assert status.call_seconds is None  # it may wait for an answer
    for clock[0], which in ((2.0, "a"), (5.0, "b")):
        status.apply(ToolCallRunning(call_id=which, name="shell"))
    assert status.call_seconds == 3.0
    status.apply(ENDED)
    assert status.call_seconds == 0.0
