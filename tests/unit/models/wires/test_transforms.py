"""OpenAI's strict form of a schema: what it says otherwise, and what has none."""

import json

import pytest

from agent_magics.models.wires.transforms import strict_form
from tests.support.models.wire_shapes import LOOSE


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
            {"anyOf": [{"type": "string"}, NULL], "default": None, "description": "A name."},
            {"type": ["string", "null"], "description": "A name."},
        ),
        (
            {"anyOf": [{"type": "integer", "enum": [1]}, NULL]},
            {"type": ["integer", "null"], "enum": [1, None]},
        ),
        (
            {"anyOf": [{"type": "string", "description": "Inner."}, NULL], "description": "Outer."},
            {
                "anyOf": [{"type": "string", "description": "Inner."}, NULL],
                "description": "Outer.",
            },
        ),
        ({"type": "boolean", "default": False}, {"type": ["boolean", "null"]}),
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
