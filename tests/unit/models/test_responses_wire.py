"""Items and tool specs as the Responses API's JSON, and its items back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.models.responses_wire import (
    decode_item,
    decode_usage,
    encode_item,
    encode_tools,
)
from agent_magics.models.transforms import strict_form
from agent_magics.protocol.items import (
    AssistantMessage,
    CustomToolCall,
    FunctionCall,
    InputImage,
    InputText,
    LocalShellCall,
    Reasoning,
    ToolCallOutput,
    Usage,
    UserMessage,
)
from agent_magics.protocol.tools import (
    ConfiguredToolSpec,
    FreeformToolSpec,
    FunctionToolSpec,
    LocalShellSpec,
    WebSearchSpec,
)

PARTS = (InputText("see"), InputImage("data:image/png;base64,AA==", "low"))
PARTS_JSON = [
    {"type": "input_text", "text": "see"},
    {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"},
]


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


@given(st.text())
def test_any_text_can_be_sent(text):
    odd = text + "\udc80"
    sent = json.loads(encode_item(ToolCallOutput("c", odd)))["output"]
    assert sent == text + "?"


@given(st.text(), st.text(), st.text())
def test_calls_come_back_as_they_went(call_id, name, text):
    for item in (FunctionCall(call_id, name, text), CustomToolCall(call_id, name, text)):
        assert decode_item(json.loads(encode_item(item))) == item


def test_messages_with_refusals_are_text():
    parts = [{"type": "output_text", "text": "So: "}, {"type": "refusal", "refusal": "no."}]
    message = {"type": "message", "id": "m", "content": parts}
    assert decode_item(message) == AssistantMessage("So: no.", "m")


def test_reasoning_and_local_shell_come_back():
    reasoning = Reasoning(("a", "b"), "enc", "rs")
    assert decode_item(json.loads(encode_item(reasoning))) == reasoning
    shell = LocalShellCall("c", ("ls",), "/w", 9, "id")
    assert decode_item(json.loads(encode_item(shell))) == shell
    nameless = {"type": "local_shell_call", "action": {"command": ["ls"]}}
    assert decode_item(nameless) == LocalShellCall(None, ("ls",))


def test_unknown_items_are_nothing():
    assert decode_item({"type": "web_search_call", "id": "w"}) is None
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
    return json.loads(encode_tools([ConfiguredToolSpec(spec) for spec in specs]))


def test_native_and_freeform_tools():
    patch = FreeformToolSpec("apply_patch", "Edit.", "lark", "start: x")
    assert tools_json(patch, LocalShellSpec(), WebSearchSpec(), WebSearchSpec(False)) == [
        {
            "type": "custom",
            "name": "apply_patch",
            "description": "Edit.",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"},
        },
        {"type": "local_shell"},
        {"type": "web_search"},
        {"type": "web_search", "external_web_access": False},
    ]


LOOSE = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "n": {"type": "integer", "default": 5}},
    "required": ["a"],
}


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


def property_form(schema, *, required=False):
    whole = {"type": "object", "properties": {"p": schema}, "required": ["p"] if required else []}
    strict = strict_form(whole)
    return strict and strict["properties"]["p"]


NULL = {"type": "null"}


@pytest.mark.parametrize(
    ("schema", "optional"),
    [
        ({"type": "string"}, {"type": ["string", "null"]}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        (
            {"type": "string", "enum": ["a"]},
            {"type": ["string", "null"], "enum": ["a", None]},
        ),
        ({"const": 1}, {"anyOf": [{"const": 1}, NULL]}),
        (
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            {"anyOf": [{"type": "string"}, {"type": "integer"}, NULL]},
        ),
        (
            {"anyOf": [{"type": "string"}, NULL], "default": None},
            {"anyOf": [{"type": "string"}, NULL]},
        ),
        (
            {"$ref": "#/$defs/X", "description": "An X."},
            {"anyOf": [{"$ref": "#/$defs/X"}, NULL], "description": "An X."},
        ),
        (
            {"type": "array", "items": {"type": "string", "minLength": 1}, "description": "All."},
            {
                "anyOf": [
                    {
                        "type": "array",
                        "items": {"type": "string", "description": "(minLength: 1)"},
                    },
                    NULL,
                ],
                "description": "All.",
            },
        ),
        (
            {"type": "string", "maxLength": 9, "default": "x", "description": "A name."},
            {
                "type": ["string", "null"],
                "description": 'A name. (maxLength: 9; default: "x")',
            },
        ),
    ],
)
def test_optional_properties_may_be_null(schema, optional):
    assert property_form(schema) == optional


def test_what_strict_mode_knows_stays():
    schema = {"type": "integer", "minimum": 1, "maximum": 5, "title": "P"}
    assert property_form(schema, required=True) == {"type": "integer", "minimum": 1, "maximum": 5}
    date = {"type": "string", "format": "date"}
    assert property_form(date, required=True) == date


def test_what_it_refuses_is_told_in_words():
    schema = {"type": "string", "format": "path", "pattern": "^(?=a)", "description": "A file."}
    assert property_form(schema, required=True) == {
        "type": "string",
        "description": 'A file. (format: "path"; pattern: "^(?=a)")',
    }


def test_references_stand_alone_and_definitions_are_strict_too():
    item = {"type": "object", "properties": {"y": {"type": "integer"}}, "title": "X"}
    whole = {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/X", "description": "One."}},
        "required": ["x"],
        "$defs": {"X": item},
    }
    assert strict_form(whole) == {
        "type": "object",
        "properties": {"x": {"anyOf": [{"$ref": "#/$defs/X"}], "description": "One."}},
        "required": ["x"],
        "additionalProperties": False,
        "$defs": {
            "X": {
                "type": "object",
                "properties": {"y": {"type": ["integer", "null"]}},
                "required": ["y"],
                "additionalProperties": False,
            }
        },
    }


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "object", "additionalProperties": True},
        {"type": ["object", "null"]},
        {"type": "array"},
        {"type": "array", "items": {}},
        {"type": "array", "prefixItems": [{"type": "string"}]},
        {"allOf": [{"type": "string"}]},
        {"type": "string", "not": {"const": "x"}},
    ],
)
def test_schemas_without_strict_form(schema):
    assert property_form(schema) is None


def test_the_root_must_be_an_object_and_the_input_is_not_changed():
    assert strict_form({"anyOf": [LOOSE, NULL]}) is None
    before = json.dumps(LOOSE)
    strict_form(LOOSE)
    assert json.dumps(LOOSE) == before


def test_a_function_without_parameters():
    empty = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    assert strict_form({"type": "object", "properties": {}}) == empty
