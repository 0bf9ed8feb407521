"""Requests of rows, the answers to them, and refusals as one sentence."""

import json
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.models.transport import Reply
from agent_magics.models.wires.chat.model import ChatWire
from agent_magics.models.wires.remote import refusal_of
from agent_magics.models.wires.responses.model import ResponsesWire
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import AssistantMessage, InputText, UserMessage
from agent_magics.rows.asking import Terms
from agent_magics.rows.remote.exchange import RequestForm, read_answer, request_of

ADDRESS = "http://127.0.0.1:9"
WIRES = [ResponsesWire, ChatWire]
SCHEMA = {"type": "object", "properties": {"kind": {"type": "string"}}, "required": ["kind"]}


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 429, 500])
@pytest.mark.parametrize("code", ["", "model_not_found"])
def test_a_refusal_of_what_has_no_model_names_none(status, code):
    body = json.dumps({"error": {"message": "No such file.", "code": code}}).encode()
    said = str(refusal_of(Reply(status, {}, body), ADDRESS, "", "batch API"))
    assert "''" not in said and "model" not in said and str(status) in said


TEXTS = ["", "plain", 'with "quotes", \\ and\nlines', "é 漢 🙂 \u2028 \x00", "half \ud800 a pair"]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("has_schema", [True, False])
@pytest.mark.parametrize(
    "items",
    [
        *((UserMessage(text),) for text in TEXTS),
        (UserMessage("as a developer", "developer"),),
        (UserMessage((InputText("a part"),)),),
        (UserMessage("first"), AssistantMessage("unfit"), UserMessage("again")),
    ],
)
def test_a_row_is_asked_by_the_bytes_of_a_whole_request(wire, has_schema, items):
    terms = Terms("gpt-4o-mini", 'Say "kind".', SCHEMA, name="abc")
    form = RequestForm(wire(), terms, ADDRESS, has_schema=has_schema)
    whole = wire().body(request_of(terms, items, has_schema=has_schema), ADDRESS)
    assert form.body(items) == whole


PART = {"type": "output_text", "text": "yes", "annotations": []}
MESSAGE = {"type": "message", "id": "m1", "role": "assistant", "content": [PART]}
REASONING = {"type": "reasoning", "id": "r1", "summary": []}
DOCUMENTS = {
    ResponsesWire: {
        "object": "response",
        "status": "completed",
        "error": None,
        "output": [REASONING, MESSAGE],
        "usage": {"input_tokens": 12, "output_tokens": 3, "cost": 0.5},
    },
    ChatWire: {
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "yes", "refusal": None},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 12, "completion_tokens": 3},
    },
}


@pytest.mark.parametrize("wire", WIRES)
def test_a_usual_answer_is_read_without_its_decoder(wire):
    text, usage = wire().plain_answer(DOCUMENTS[wire])
    assert (text, usage.input_tokens, usage.output_tokens) == ("yes", 12, 3)


ODD = st.sampled_from(
    [None, "", "no", 0, 7, True, [], {}, [None], [PART], [MESSAGE, MESSAGE], {"type": "refusal"},
     "response", "message", "reasoning", "refusal", "incomplete", "length", "error"]
)  # fmt: skip
NAMES = st.sampled_from(
    ["object", "status", "error", "output", "usage", "type", "text", "content", "annotations",
     "refusal", "summary", "choices", "index", "message", "delta", "finish_reason", "tool_calls",
     "function_call", "reasoning_details", "reasoning_content", "incomplete_details", "cost"]
)  # fmt: skip


@given(st.sampled_from(WIRES), st.lists(st.tuples(NAMES, ODD, st.integers(0, 6)), max_size=3))
def test_what_is_read_without_the_decoder_is_what_the_decoder_reads(wire, changes):
    """Fields of a usual answer, at any depth, are changed, added and taken away."""
    document = deepcopy(DOCUMENTS[wire])
    for name, value, place in changes:
        objects = list(_objects(document))
        chosen = objects[place % len(objects)]
        if value == "no":
            chosen.pop(name, None)
        else:
            chosen[name] = deepcopy(value)
    plain = wire().plain_answer(document)
    if plain is not None:
        text, usage = plain
        patient = _patient(wire(), document)
        assert (text, usage) == (patient.text, patient.usage)
        assert patient.error is None


def _objects(value):
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, dict | list):
            yield from _objects(each)


def _patient(wire, document):
    """Read an answer by the decoder of the wire, as one that is too long for the short way."""
    content = b" " + json.dumps(document).encode()
    try:
        return read_answer(content, wire, request_of(Terms("gpt-4o-mini"), ()), ADDRESS)
    except FatalError as error:
        pytest.fail(f"the decoder refuses it: {error}")
