"""Every noun goes to JSON and comes back equal; what does not fit is named."""

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_magics.protocol import codec, events, items, ops
from agent_magics.protocol.codec import NOUNS, from_json, to_json
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.events import (
    ApprovalRequested,
    ItemCompleted,
    PlanStep,
    PlanUpdated,
    ToolCallCompleted,
)
from agent_magics.protocol.items import FunctionCall, InputImage, InputText, UserMessage
from agent_magics.protocol.ops import Answer, CallTool

TEXT = st.text(st.characters(), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def values_of(hint):
    """Return a strategy for a field's annotation."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(values_of(arguments[0]), max_size=3).map(tuple)
    if origin in (typing.Union, types.UnionType):
        if any(typing.get_origin(each) is dict for each in arguments):
            return JSON
        return st.one_of(*map(values_of, arguments))
    if origin is Mapping:
        return st.dictionaries(TEXT, JSON, max_size=3)
    plain = {str: TEXT, int: st.integers(), float: st.floats(allow_nan=False), bool: st.booleans()}
    if hint in plain:
        return plain[hint]
    return st.none() if hint is type(None) else nouns_of(hint)


def nouns_of(kind):
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{name: values_of(hint) for name, hint in hints.items()})


def test_the_codec_knows_every_event_op_and_item():
    for module in (events, ops, items):
        for name, kind in vars(module).items():
            if dataclasses.is_dataclass(kind):
                assert NOUNS[name] is kind


@pytest.mark.parametrize("kind", list(NOUNS.values()), ids=list(NOUNS))
@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_every_noun_comes_back_equal_through_json_text(kind, data):
    noun = data.draw(nouns_of(kind))
    text = json.dumps(to_json(noun))
    assert from_json(json.loads(text)) == noun


def test_the_json_of_an_event_is_its_fields_under_its_type():
    event = PlanUpdated(seq=3, steps=(PlanStep("a", "look", "pending"),))
    assert to_json(event) == {
        "type": "PlanUpdated",
        "seq": 3,
        "at": 0.0,
        "turn_id": "",
        "agent": "",
        "steps": [{"type": "PlanStep", "id": "a", "description": "look", "status": "pending"}],
        "explanation": "",
    }


def test_nested_nouns_and_parts_keep_their_types():
    event = ItemCompleted(item=UserMessage((InputText("a"), InputImage("data:x"))))
    assert from_json(to_json(event)).item.content == (InputText("a"), InputImage("data:x"))
    assert from_json(to_json(ItemCompleted(item=FunctionCall("c", "n", "{}")))).item.name == "n"


def test_a_mapping_that_looks_like_a_noun_stays_a_mapping():
    event = ToolCallCompleted(call_id="c", name="n", output="o", details={"x": {"type": "Answer"}})
    assert from_json(to_json(event)).details == {"x": {"type": "Answer"}}
    op = CallTool(turn_id="t", name="n", arguments={"type": "Usage"})
    assert from_json(to_json(op)) == op


def test_what_is_no_json_is_left_to_the_writer():
    event = ToolCallCompleted(call_id="c", name="n", output="o", details={"p": Path("a")})
    assert to_json(event)["details"] == {"p": Path("a")}


def test_a_missing_field_with_a_default_is_filled():
    assert from_json({"type": "Answer", "question_id": "q", "decision": "deny"}) == Answer(
        question_id="q", decision="deny"
    )


@pytest.mark.parametrize(
    ("data", "names"),
    [
        ({"type": "Nonsense"}, "Nonsense"),
        ({}, "None"),
        ({"type": "Answer", "question_id": "q", "decision": "deny", "mood": "good"}, "mood"),
        ({"type": "Answer", "decision": "deny"}, "question_id"),
        ({"type": "ItemCompleted", "item": {"type": "Gone"}}, "Gone"),
        ({"type": "ApprovalRequested", "scopes": 5}, "ApprovalRequested"),
    ],
)
def test_what_does_not_fit_is_named(data, names):
    with pytest.raises(FatalError, match=names):
        from_json(data)


def test_nouns_are_frozen():
    question = ApprovalRequested(
        question_id="q", call_id="c", tool="t", target="", arguments="", reason=""
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        question.tool = "other"
    assert codec.to_json(question)["tool"] == "t"
