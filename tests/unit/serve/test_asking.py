"""Questions as forms for a client's person, and what the answers mean."""

import pytest
from mcp_types import ElicitResult

from agent_magics.protocol.events import ApprovalRequested
from agent_magics.serve.asking import CANNOT_ASK, answer_of, form_of

QUESTION = ApprovalRequested(
    question_id="q1",
    call_id="c1",
    tool="shell",
    target="rm a\u202eb",
    arguments='{"cmd": "rm a"}',
    reason="it may change something",
)


def test_a_form_has_one_box_that_is_not_ticked():
    form = form_of(QUESTION)
    assert form.requested_schema["required"] == ["approve"]
    assert form.requested_schema["properties"]["approve"]["default"] is False
    assert "May shell run?" in form.message
    assert "it may change something" in form.message
    assert "\u202e" not in form.message, "what is invisible is written out"


def test_long_arguments_are_shortened_and_say_so():
    long = ApprovalRequested(
        question_id="q1", call_id="c1", tool="t", target="t", arguments="x" * 50_000, reason="r"
    )
    assert len(form_of(long).message) < 10_000


@pytest.mark.parametrize(
    ("result", "decision"),
    [
        (ElicitResult(action="accept", content={"approve": True}), "approve"),
        (ElicitResult(action="accept", content={"approve": False}), "deny"),
        (ElicitResult(action="accept", content={"approve": "true"}), "deny"),
        (ElicitResult(action="accept", content={"approve": 1}), "deny"),
        (ElicitResult(action="accept"), "deny"),
        (ElicitResult(action="decline", content={"approve": True}), "deny"),
        (ElicitResult(action="cancel"), "deny"),
        (None, "deny"),
    ],
)
def test_only_a_clear_yes_is_one(result, decision):
    assert answer_of(QUESTION, result).decision == decision


def test_a_client_that_cannot_be_asked_is_told():
    answer = answer_of(QUESTION, None)
    assert (answer.by, answer.feedback) == ("policy", CANNOT_ASK)
