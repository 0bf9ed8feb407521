"""Events folded into what a program gets back."""

import pytest

from agent_magics.engine.results.run import FinishedCall, RunResult, summarise
from agent_magics.protocol.events import (
    TextDelta,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallPending,
    TurnAborted,
    TurnCompleted,
    TurnFailed,
)
from agent_magics.protocol.items import InputImage, InputText, Usage


def test_a_completed_turn():
    events = [TextDelta(text="He"), TurnCompleted(text="Hello.", usage=Usage(3, 4), requests=1)]
    result = summarise(iter(events))
    assert (result.status, result.text, result.error) == ("completed", "Hello.", None)
    assert result.usage == Usage(3, 4)
    assert result.events == events
    assert repr(result) == "Run completed (0 tool calls):\nHello."


@pytest.mark.parametrize(
    ("end", "status", "error"),
    [
        (TurnAborted(reason="the person", usage=Usage(1)), "aborted", "the person"),
        (TurnFailed(error="No key.", usage=Usage(1)), "failed", "No key."),
        (TextDelta(text="…"), "failed", "the engine stopped"),
    ],
)
def test_a_turn_that_did_not_complete(end, status, error):
    result = summarise([end])
    assert (result.status, result.error, result.text) == (status, error, "")
    assert repr(result) == f"Run {status} (0 tool calls):\n{error}"
    assert result.usage.input_tokens == (0 if isinstance(end, TextDelta) else 1)


def test_a_result_shows_itself_as_plain_text_only():
    result = RunResult("completed", calls=[FinishedCall("read", {}, "", True, 0.0)])
    assert repr(result) == "Run completed (1 tool call)."
    assert not hasattr(result, "_repr_markdown_")


def test_no_events_at_all():
    assert summarise([]).status == "failed"


def test_calls_in_the_order_they_ended_with_their_arguments():
    events = [
        ToolCallPending(call_id="a", name="read", arguments='{"path": "x"}'),
        ToolCallPending(call_id="b", name="patch", arguments="*** Begin"),
        ToolCallFailed(call_id="b", name="patch", output="no", duration=0.5),
        ToolCallCompleted(
            call_id="a",
            name="read",
            output=(InputText("words"), InputImage("data:")),
            parent_call_id="b",
        ),
        TurnCompleted(text=""),
    ]
    assert summarise(events).calls == [
        FinishedCall("patch", "*** Begin", "no", False, 0.5, "b"),
        FinishedCall("read", {"path": "x"}, "words\n[image]", True, 0.0, "a", "b"),
    ]


@pytest.mark.parametrize("arguments", ["*** Begin", "[" * 100_000, '{"a": ' + "9" * 5000 + "}"])
def test_arguments_that_python_cannot_read_as_json_stay_text(arguments):
    events = [
        ToolCallPending(call_id="a", name="n", arguments=arguments),
        ToolCallFailed(call_id="a", name="n", output="no"),
    ]
    assert summarise(events).calls[0].arguments == arguments


def test_a_call_that_never_ended_is_no_finished_call():
    events = [ToolCallPending(call_id="a", name="n", arguments="{}"), TurnAborted(reason="x")]
    assert summarise(events).calls == []
