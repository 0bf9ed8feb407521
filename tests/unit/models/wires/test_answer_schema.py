"""The schema of an answer on both wires: in which form, to whom, and what a refusal is."""

import json
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

import pytest
from pydantic import TypeAdapter

from agent_magics.engine.results.structured import OutputType
from agent_magics.models.base import ContextOverflow, ModelRequest
from agent_magics.models.faults import Fault, UnknownModel
from agent_magics.models.providers.endpoints import Dialect
from agent_magics.models.recordings.scripted import SeenHistory
from agent_magics.models.wires.answer_schema import (
    chat_format,
    fitted,
    is_refusal,
    responses_format,
)
from agent_magics.models.wires.chat.model import ChatWire
from agent_magics.models.wires.responses.model import ResponsesWire
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import UserMessage
from agent_magics.protocol.tools import ConfiguredToolSpec, FunctionToolSpec
from tests.support.models.gemini_schemas import gemini_allows

OPENAI = "https://api.openai.com/v1"
ELSEWHERE = "http://127.0.0.1:8000/v1"
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer", "default": 1}},
    "required": [],
    "additionalProperties": False,
}
FREE = {"type": "object", "additionalProperties": {"type": "number"}}
TOOL = ConfiguredToolSpec(FunctionToolSpec("look", "Look.", {"type": "object", "properties": {}}))


def request(schema=SCHEMA, tools=()):
    history = SeenHistory((UserMessage("Go."),))
    return ModelRequest("m", "", history, tuple(tools), "Go.", 1, output_schema=schema)


def test_openai_s_strict_form_is_used_where_there_is_one():
    named = responses_format(SCHEMA)["format"]
    assert (named["type"], named["name"], named["strict"]) == ("json_schema", "answer", True)
    assert named["schema"]["required"] == ["a"]
    assert named["schema"]["properties"]["a"]["type"] == ["integer", "null"]
    assert chat_format(SCHEMA, Dialect())["json_schema"]["strict"] is True


def test_what_has_no_strict_form_is_sent_as_it_is():
    assert responses_format(FREE)["format"]["schema"] == FREE
    assert responses_format(FREE)["format"]["strict"] is False


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("gemini", {"type": "integer", "nullable": True}),
        ("kimi", {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
    ],
)
def test_each_maker_gets_the_form_it_takes(form, expected):
    part = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    schema = {"type": "object", "properties": {"a": part}, "required": ["a"]}
    sent = chat_format(schema, Dialect(schema=form))["json_schema"]
    assert sent["schema"]["properties"]["a"] == expected


class Stars(IntEnum):
    ONE = 1
    TWO = 2


@dataclass
class Review:
    stars: Literal[1, 2, 3]
    liked: Literal[True, False] = True


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        (Literal[1, 2, 3], 2, {"type": "integer", "description": "(enum: [1, 2, 3])"}),
        (Literal[7], 7, {"type": "integer", "description": "(enum: [7])"}),
        (Stars, Stars.TWO, {"type": "integer", "description": "(enum: [1, 2])"}),
        (list[Literal[0, 1]], [0, 1], None),
        (Review, Review(2, True), None),
        (Literal["a", 1], 1, None),
        (Literal["a", 1], "a", None),
        (Literal[True, None], None, None),
        (Literal["a", None], "a", {"type": "string", "enum": ["a"], "nullable": True}),
        (Literal["a", "b"], "b", {"type": "string", "enum": ["a", "b"]}),
    ],
)
def test_an_answer_that_gemini_s_form_allows_is_read(kind, value, told):
    output = OutputType(kind)
    sent = chat_format(output.schema, Dialect(schema="gemini"))["json_schema"]["schema"]
    assert told is None or sent["properties"]["value"] == told
    whole = json.loads(TypeAdapter(kind).dump_json(value))
    answer = whole if isinstance(whole, dict) else {"value": whole}
    assert gemini_allows(sent, answer)
    assert output.read(json.dumps(answer)) == value


@pytest.mark.parametrize(
    ("address", "tools", "sent"),
    [(OPENAI, [TOOL], True), (ELSEWHERE, [], True), (ELSEWHERE, [TOOL], False), (OPENAI, [], True)],
)
def test_who_gets_the_schema(address, tools, sent):
    given = fitted(request(tools=tools), address)
    assert (given.output_schema is not None) == sent
    body = json.loads(ResponsesWire().body(request(tools=tools), address))
    assert ("text" in body) == sent
    body = json.loads(ChatWire().body(request(tools=tools), address))
    assert ("response_format" in body) == sent


@pytest.mark.parametrize("wire", [ResponsesWire(), ChatWire()])
def test_each_request_has_its_own_schema(wire):
    bodies = [json.loads(wire.body(request(schema), OPENAI)) for schema in (SCHEMA, None, FREE)]
    told = [json.dumps(body.get("text") or body.get("response_format")) for body in bodies]
    assert '"a"' in told[0]
    assert told[1] == "null"
    assert "additionalProperties" in told[2]
    assert '"a"' not in told[2]


@pytest.mark.parametrize(
    "said",
    [
        "x rejected the request to 'm' (400): This response_format type is unavailable now",
        "x rejected the request to 'm' (400): Invalid schema for text.format 'answer'",
        "x (400): Function calling with a response mime type: 'application/json' is unsupported",
        "x answered with an error (status 422): unknown field json_schema",
    ],
)
def test_a_refusal_of_the_schema(said):
    assert is_refusal(Fault(said))
    assert not is_refusal(Fault(said, passing=True))


@pytest.mark.parametrize(
    "fault",
    [
        Fault("x refused the API key (401): set a valid one."),
        UnknownModel("no model grammar-1"),
        ContextOverflow("The conversation is too long for the model (json_schema)."),
        FatalError("No key for response_format."),
    ],
)
def test_other_faults_are_no_refusal(fault):
    assert not is_refusal(fault)
