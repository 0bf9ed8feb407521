"""Items and tool specs as the Responses API's JSON, and its items back."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.engine.context.history import History
from agent_magics.models.base import ModelRequest
from agent_magics.models.providers.endpoints import OPENAI_ADDRESS
from agent_magics.models.wires.reasoning import MARK
from agent_magics.models.wires.responses.items import (
    ResponsesTranscript,
    decode_item,
    decode_usage,
    encode_choice,
    encode_item,
    encode_tools,
)
from agent_magics.models.wires.responses.model import ResponsesWire
from agent_magics.protocol.items import (
    AssistantMessage,
    Citation,
    CustomToolCall,
    FunctionCall,
    LocalShellCall,
    Reasoning,
    ToolCallOutput,
    Usage,
    UserMessage,
    WebSearchCall,
)
from agent_magics.protocol.tools import (
    FunctionToolSpec,
    LocalShellSpec,
    WebSearchSpec,
)
from tests.support.models.wire_shapes import GRAMMAR, HISTORIES, LOOSE, PARTS, PNG, SCHEMA, offered

PARTS_JSON = [
    {"type": "input_text", "text": "see"},
    {"type": "input_image", "image_url": PNG, "detail": "low"},
]


CAT = Citation("https://cats.example/", "Cats", 0, 4)
CAT_JSON = {
    "type": "url_citation",
    "url": "https://cats.example/",
    "title": "Cats",
    "start_index": 0,
    "end_index": 4,
}
FILE = Citation(title="a.txt", start=5, file_id="file_1")
FILE_JSON = {"type": "file_citation", "file_id": "file_1", "filename": "a.txt", "index": 5}


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (UserMessage("hi"), {"type": "message", "role": "user", "content": "hi"}),
        (
            UserMessage(PARTS, "developer"),
            {"type": "message", "role": "developer", "content": PARTS_JSON},
        ),
        (
            AssistantMessage("yes", "msg_1"),
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "yes"}],
            },
        ),
        (
            AssistantMessage("Cats.", citations=(CAT, FILE)),
            {
                "type": "message",
                "role": "assistant",
                "content": [
                    {
                        "type": "output_text",
                        "text": "Cats.",
                        "annotations": [CAT_JSON, FILE_JSON],
                    }
                ],
            },
        ),
        (
            WebSearchCall({"type": "search", "query": "cats"}, "completed", "ws_1"),
            {
                "type": "web_search_call",
                "id": "ws_1",
                "status": "completed",
                "action": {"type": "search", "query": "cats"},
            },
        ),
        (
            Reasoning(("why",), "secret", "rs_1"),
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "why"}],
                "encrypted_content": "secret",
            },
        ),
        (
            FunctionCall("c1", "f", '{"a": 1}', "fc_1"),
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'},
        ),
        (
            CustomToolCall("c1", "p", "text\n"),
            {"type": "custom_tool_call", "call_id": "c1", "name": "p", "input": "text\n"},
        ),
        (
            LocalShellCall("c1", ("ls", "-l"), "/x", 5, "ls_1"),
            {
                "type": "local_shell_call",
                "id": "ls_1",
                "call_id": "c1",
                "status": "completed",
                "action": {
                    "type": "exec",
                    "command": ["ls", "-l"],
                    "env": {},
                    "working_directory": "/x",
                    "timeout_ms": 5,
                },
            },
        ),
        (
            ToolCallOutput("c1", "out"),
            {"type": "function_call_output", "call_id": "c1", "output": "out"},
        ),
        (
            ToolCallOutput("c1", PARTS, "custom"),
            {"type": "custom_tool_call_output", "call_id": "c1", "output": PARTS_JSON},
        ),
        (
            ToolCallOutput("c1", PARTS, "local_shell"),
            {
                "type": "local_shell_call_output",
                "id": "c1",
                "call_id": "c1",
                "output": "see\n[image]",
            },
        ),
    ],
)
def test_items_as_the_api_wants_them(item, expected):
    encoded = encode_item(item)
    assert json.loads(encoded) == expected
    assert b'": ' not in encoded.replace(b'{\\"a\\": 1}', b"")


@given(HISTORIES)
def test_any_history_is_json(items):
    transcript = ResponsesTranscript()
    for item in items:
        transcript.add(item)
    assert isinstance(json.loads(b"[%s]" % transcript.encoded()), list)


@given(st.text())
def test_any_text_can_be_sent(text):
    odd = text + "\udc80"
    sent = json.loads(encode_item(ToolCallOutput("c", odd)))["output"]
    assert sent == text + "?"


@given(st.text(), st.text(), st.text())
def test_calls_come_back_as_they_went(call_id, name, text):
    for item in (FunctionCall(call_id, name, text), CustomToolCall(call_id, name, text)):
        assert decode_item(json.loads(encode_item(item))) == item


@pytest.mark.parametrize("arguments", ['{"cut', "[1]", '{"a": NaN}', "[" * 5_000])
def test_what_the_model_wrote_wrongly_goes_back_in_a_form_that_servers_accept(arguments):
    transcript = ResponsesTranscript()
    transcript.add(FunctionCall("c" * 70, "functions.f x", arguments))
    transcript.add(CustomToolCall("d", "a.b", "text"))
    transcript.add(ToolCallOutput("c" * 70, "done"))
    call, custom, output = json.loads(b"[%s]" % transcript.encoded())
    assert call["name"] == "functions_f_x" and custom["name"] == "a_b"
    assert json.loads(call["arguments"]) == {"invalid_json": arguments}
    assert len(call["call_id"]) <= 64 and output["call_id"] == call["call_id"]
    assert custom["call_id"] == "d"


def test_messages_with_refusals_are_text():
    parts = [{"type": "output_text", "text": "So: "}, {"type": "refusal", "refusal": "no."}]
    message = {"type": "message", "id": "m", "content": parts}
    assert decode_item(message) == AssistantMessage("So: no.", "m")


def test_what_an_answer_cites_is_kept_and_placed_in_the_whole_text():
    odd = [{"type": "url_citation"}, {"type": "new", "url": 3}, "x", None]
    parts = [
        {"type": "output_text", "text": "So: ", "annotations": odd},
        {"type": "output_text", "text": "Cats.", "annotations": [CAT_JSON, FILE_JSON]},
    ]
    decoded = decode_item({"type": "message", "content": parts})
    assert decoded == AssistantMessage(
        "So: Cats.", citations=(replace(CAT, start=4, end=8), replace(FILE, start=9))
    )
    assert decode_item(json.loads(encode_item(decoded))) == decoded


def test_a_web_search_comes_back_whatever_it_did():
    for status in ("completed", "failed"):
        search = WebSearchCall({"type": "open_page", "url": "https://x"}, status, "ws")
        assert decode_item(json.loads(encode_item(search))) == search
    assert decode_item({"type": "web_search_call", "action": "?"}) == WebSearchCall()


def test_reasoning_in_another_server_s_form_is_not_sent():
    transcript = ResponsesTranscript()
    transcript.add(Reasoning(("a",), MARK + "[]"))
    transcript.add(Reasoning(("a",)))
    assert transcript.encoded() == b""


@pytest.mark.parametrize(
    ("model", "gets_it"),
    [
        ("gpt-5.5", True),
        ("o3", True),
        ("openai/o4-mini", True),
        ("gpt-5-chat-latest", False),
        ("gpt-4.1", False),
        ("grok-4", False),
    ],
)
def test_sealed_reasoning_is_sent_to_models_that_are_asked_for_it(model, gets_it):
    said = (UserMessage("hi"), Reasoning((), "enc", "rs"), AssistantMessage("yo"))
    history, wire = History((*said, UserMessage("and?"))), ResponsesWire()
    bodies = [
        json.loads(wire.body(ModelRequest(name, "", history, (), "and?", 2), OPENAI_ADDRESS))
        for name in ("gpt-5.5", model, "gpt-5.5")
    ]
    first, body, last = bodies
    kinds = [item["type"] for item in body["input"]]
    assert kinds == ["message", *["reasoning"] * gets_it, "message", "message"]
    assert ("include" in body) == gets_it
    assert first["input"] == last["input"] and first["input"][1]["encrypted_content"] == "enc"


def test_reasoning_and_local_shell_come_back():
    reasoning = Reasoning(("a", "b"), "enc", "rs")
    assert decode_item(json.loads(encode_item(reasoning))) == reasoning
    shell = LocalShellCall("c", ("ls",), "/w", 9, "id")
    assert decode_item(json.loads(encode_item(shell))) == shell
    nameless = {"type": "local_shell_call", "action": {"command": ["ls"]}}
    assert decode_item(nameless) == LocalShellCall(None, ("ls",))
    action = {"command": ["make"], "env": {"A": "1", "B": "x y"}}
    asked = decode_item({"type": "local_shell_call", "action": action})
    assert asked == LocalShellCall(None, ("env", "--", "A=1", "B=x y", "make"))


def test_unknown_items_are_nothing():
    assert decode_item({"type": "image_generation_call", "id": "w"}) is None
    assert decode_item({}) is None


def test_usage_with_and_without_details():
    full = {
        "input_tokens": 1,
        "output_tokens": 2,
        "input_tokens_details": {"cached_tokens": 3},
        "output_tokens_details": {"reasoning_tokens": 4},
    }
    assert decode_usage(full) == Usage(1, 2, 3, 4)
    assert decode_usage({"input_tokens": 1, "input_tokens_details": None}) == Usage(1)
    assert decode_usage(None) == Usage()


def tools_json(*specs):
    return json.loads(encode_tools(offered(*specs)))


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ("f", {"type": "function", "name": "f"}),
        ("patch", {"type": "custom", "name": "patch"}),
        ("web_search", {"type": "web_search"}),
    ],
)
def test_which_tool_must_be_called(choice, sent):
    specs = (FunctionToolSpec("f", "Do.", SCHEMA), GRAMMAR, WebSearchSpec())
    assert encode_choice(choice, offered(*specs)) == sent


def test_native_and_freeform_tools():
    assert tools_json(GRAMMAR, LocalShellSpec(), WebSearchSpec(), WebSearchSpec(False)) == [
        {
            "type": "custom",
            "name": "patch",
            "description": "Change files.",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: /x/"},
        },
        {"type": "local_shell"},
        {"type": "web_search"},
        {"type": "web_search", "external_web_access": False},
    ]


def test_a_strict_function_is_sent_in_strict_form():
    tool, loose = tools_json(
        FunctionToolSpec("f", "Do.", LOOSE, strict=True), FunctionToolSpec("g", "Do.", LOOSE)
    )
    assert tool["strict"] is True
    assert tool["parameters"] == {
        "type": "object",
        "properties": {
            "a": {"type": "string"},
            "n": {"type": ["integer", "null"], "description": "(default: 5)"},
        },
        "required": ["a", "n"],
        "additionalProperties": False,
    }
    assert loose["strict"] is False
    assert loose["parameters"] == LOOSE


def test_what_has_no_strict_form_is_sent_unenforced():
    mapping = {
        "type": "object",
        "properties": {"m": {"type": "object", "additionalProperties": {"type": "string"}}},
        "required": ["m"],
    }
    (tool,) = tools_json(FunctionToolSpec("f", "Do.", mapping, strict=True))
    assert tool["strict"] is False
    assert tool["parameters"] == mapping
