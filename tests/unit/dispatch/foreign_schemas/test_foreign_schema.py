"""Schemas of others: one test a rule; any schema at all comes out as the subset that is sent."""

import json
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_magics.dispatch.foreign_schemas.sanitizer import (
    DEEPEST,
    MOST_CHARACTERS,
    sanitize_json_schema,
    sanitize_parameters,
)

STRING = {"type": "string"}
FREE = {"type": "object", "properties": {}, "required": [], "additionalProperties": True}


def object_of(properties, required=(), **more):
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
        **more,
    }


@pytest.mark.parametrize(
    ("given", "clean"),
    [
        # -- a type where there is none ---------------------------------------------------------
        ({}, STRING),
        (True, STRING),
        (False, STRING),
        (None, STRING),
        ("nonsense", STRING),
        ({"description": "Any."}, {"type": "string", "description": "Any."}),
        ({"properties": {"a": {"type": "integer"}}}, object_of({"a": {"type": "integer"}})),
        ({"required": ["a"]}, FREE),
        ({"items": {"type": "integer"}}, {"type": "array", "items": {"type": "integer"}}),
        (
            {"minimum": 1, "maximum": 9},
            {"type": "number", "description": "(minimum: 1, maximum: 9)"},
        ),
        ({"format": "date"}, {"type": "string", "description": '(format: "date")'}),
        ({"default": 5}, {"type": "integer", "description": "(default: 5)"}),
        ({"minItems": 2}, {"type": "array", "items": STRING, "description": "(minItems: 2)"}),
        # -- words of other dialects ------------------------------------------------------------
        ({"type": "int"}, {"type": "integer"}),
        ({"type": "float"}, {"type": "number"}),
        ({"type": "bool"}, {"type": "boolean"}),
        ({"type": "dict"}, FREE),
        ({"type": "list"}, {"type": "array", "items": STRING}),
        ({"type": "STRING"}, STRING),
        ({"type": "any"}, STRING),
        ({"type": 5}, STRING),
        # -- const and enum ---------------------------------------------------------------------
        ({"const": "a"}, {"type": "string", "enum": ["a"]}),
        ({"const": 5}, {"type": "integer", "enum": [5]}),
        ({"const": None}, {"type": "null"}),
        ({"enum": ["a", "b"]}, {"type": "string", "enum": ["a", "b"]}),
        ({"enum": [1, 2.5]}, {"type": "number", "enum": [1, 2.5]}),
        ({"enum": ["a", None]}, {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]}),
        (
            {"enum": [True, 1]},
            {"anyOf": [{"type": "boolean", "enum": [True]}, {"type": "integer", "enum": [1]}]},
        ),
        ({"enum": ["a", "a"]}, {"type": "string", "enum": ["a"]}),
        ({"enum": []}, STRING),
        ({"enum": "abc"}, STRING),
        ({"type": "integer", "enum": ["1", "2"]}, {"type": "string", "enum": ["1", "2"]}),
        ({"type": "number", "enum": [1, 2]}, {"type": "number", "enum": [1, 2]}),
        # -- several types ----------------------------------------------------------------------
        ({"type": ["string", "null"]}, {"anyOf": [STRING, {"type": "null"}]}),
        ({"type": ["string"]}, STRING),
        ({"type": "string", "nullable": True}, {"anyOf": [STRING, {"type": "null"}]}),
        (
            {"type": ["integer", "null"], "description": "N."},
            {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "N."},
        ),
        # -- alternatives -----------------------------------------------------------------------
        ({"oneOf": [STRING, {"type": "integer"}]}, {"anyOf": [STRING, {"type": "integer"}]}),
        ({"anyOf": [STRING]}, STRING),
        ({"anyOf": [STRING, STRING]}, STRING),
        ({"anyOf": []}, STRING),
        (
            {"anyOf": [{"anyOf": [STRING, {"type": "null"}]}, {"type": "null"}]},
            {"anyOf": [STRING, {"type": "null"}]},
        ),
        (
            {"anyOf": [{"type": "string", "description": "inner"}], "description": "outer"},
            {"type": "string", "description": "outer inner"},
        ),
        (
            {"type": "object", "properties": {"a": STRING}, "anyOf": [{"required": ["a"]}, {}]},
            object_of({"a": STRING}),
        ),
        (
            {"properties": {"a": STRING}, "oneOf": [{"properties": {"b": {"type": "integer"}}}]},
            object_of({"a": STRING, "b": {"type": "integer"}}),
        ),
        # -- all of several ---------------------------------------------------------------------
        (
            {
                "allOf": [
                    {"properties": {"a": STRING}, "required": ["a"]},
                    {"properties": {"b": STRING}},
                ]
            },
            object_of({"a": STRING, "b": STRING}, ["a"]),
        ),
        ({"allOf": "nonsense", "type": "integer"}, {"type": "integer"}),
        # -- objects ----------------------------------------------------------------------------
        ({"type": "object"}, FREE),
        ({"type": "object", "properties": None}, FREE),
        (
            {"type": "object", "additionalProperties": {"type": "int"}},
            {**FREE, "additionalProperties": {"type": "integer"}},
        ),
        (
            {"type": "object", "patternProperties": {"^x": {"type": "integer"}}},
            {**FREE, "additionalProperties": {"type": "integer"}},
        ),
        (
            {"properties": {"a": False, "b": True}, "required": ["a", "b", "c", 5]},
            object_of({"b": STRING}, ["b"]),
        ),
        # -- arrays -----------------------------------------------------------------------------
        ({"type": "array"}, {"type": "array", "items": STRING}),
        ({"type": "array", "items": True}, {"type": "array", "items": STRING}),
        ({"type": "array", "items": []}, {"type": "array", "items": STRING}),
        (
            {"prefixItems": [STRING, {"type": "integer"}]},
            {"type": "array", "items": {"anyOf": [STRING, {"type": "integer"}]}},
        ),
        ({"items": [STRING, STRING]}, {"type": "array", "items": STRING}),
        # -- what is dropped, and what is told --------------------------------------------------
        ({"$schema": "x", "title": "T", "type": "string", "not": {}, "$comment": "c"}, STRING),
        ({"type": "string", "if": {}, "then": {}, "else": {}}, STRING),
        (
            {"type": "string", "pattern": "^a", "description": "Name."},
            {"type": "string", "description": 'Name. (pattern: "^a")'},
        ),
        ({"type": "string", "description": 5}, STRING),
        # -- references -------------------------------------------------------------------------
        ({"$ref": "https://example.org/schema"}, STRING),
        ({"properties": {"a": {"$ref": "#/nowhere"}}}, object_of({"a": STRING})),
        ({"properties": {"a": {"$ref": "other.json#/x"}}}, object_of({"a": STRING})),
        (
            {"$ref": "#/definitions/A", "definitions": {"A": {"type": "integer"}}},
            {"type": "integer"},
        ),
        (
            {
                "properties": {"a": {"$ref": "#/definitions/A"}},
                "definitions": {"A": {"type": "int"}, "B": {}},
            },
            object_of({"a": {"$ref": "#/$defs/A"}}, **{"$defs": {"A": {"type": "integer"}}}),
        ),
        (
            {"properties": {"a": {"type": "integer"}, "b": {"$ref": "#/properties/a"}}},
            object_of(
                {"a": {"type": "integer"}, "b": {"$ref": "#/$defs/a"}},
                **{"$defs": {"a": {"type": "integer"}}},
            ),
        ),
        (
            {
                "properties": {"a": {"allOf": [{"$ref": "#/$defs/A"}], "description": "D."}},
                "$defs": {"A": STRING},
            },
            object_of(
                {"a": {"$ref": "#/$defs/A", "description": "D."}}, **{"$defs": {"A": STRING}}
            ),
        ),
        (
            {"properties": {"a": {"$ref": "#/$defs/x~1y z"}}, "$defs": {"x/y z": STRING}},
            object_of({"a": {"$ref": "#/$defs/x_1y_z"}}, **{"$defs": {"x_1y_z": STRING}}),
        ),
        (
            {
                "properties": {"a": {"$ref": "#/%24defs/Part%3Cx%7E1y%3E"}},
                "$defs": {"Part<x/y>": STRING},
            },
            object_of({"a": {"$ref": "#/$defs/Part_x_1y_"}}, **{"$defs": {"Part_x_1y_": STRING}}),
        ),
    ],
)
def test_each_rule(given, clean):
    assert sanitize_json_schema(given) == clean


# -- references that go round ----------------------------------------------------------------------


def test_a_tree_stays_a_tree():
    node = {"properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}}
    clean = sanitize_json_schema({"$ref": "#/$defs/Node", "$defs": {"Node": node}})
    assert clean["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    assert clean["$defs"]["Node"]["properties"] == clean["properties"]


def test_a_schema_that_refers_to_itself_as_a_whole():
    clean = sanitize_json_schema({"properties": {"again": {"$ref": "#"}}})
    assert clean["properties"]["again"] == {"$ref": "#/$defs/root"}
    assert clean["$defs"]["root"]["properties"]["again"] == {"$ref": "#/$defs/root"}


def test_references_that_only_lead_to_each_other_mean_nothing():
    given = {"$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}}
    assert sanitize_json_schema({**given, "$ref": "#/$defs/A"}) == STRING
    inside = sanitize_json_schema({**given, "properties": {"x": {"$ref": "#/$defs/A"}}})
    assert inside["properties"] == {"x": STRING}


def test_all_of_itself_ends():
    given = {"$defs": {"A": {"allOf": [{"$ref": "#/$defs/A"}, {"type": "integer"}]}}}
    assert sanitize_json_schema({**given, "$ref": "#/$defs/A"})["type"] == "integer"


def test_references_that_multiply_end():
    defs = {
        f"L{n}": {"allOf": [{"$ref": f"#/$defs/L{n + 1}"}, {"$ref": f"#/$defs/L{n + 1}"}]}
        for n in range(60)
    }
    defs["L60"] = {"properties": {"a": STRING}}
    assert sanitize_json_schema({"$ref": "#/$defs/L0", "$defs": defs})["type"]


MANY = range(5_000)
LARGE: dict[str, Any] = {
    "members": {"allOf": [{"properties": {f"k{n}": True for n in range(m, m + 50)}} for m in MANY]},
    "enum": {"enum": [f"v{n}" for n in MANY]},
    "alternatives": {"anyOf": [*(False for _ in MANY), STRING]},
    "required": {"type": "object", "required": ["a" for _ in MANY]},
    "default": {"default": {f"k{n}": [n] * 5 for n in MANY}},
    "inner members": {"properties": {"x": {"allOf": [True for _ in MANY]}}},
    "description": {"description": "word " * 20_000},
    "types": {"type": ["string" for _ in MANY]},
}


@pytest.mark.soak
@pytest.mark.parametrize("slashes", [False, True], ids=["merged", "pointed at in many ways"])
@pytest.mark.parametrize("case", LARGE)
def test_what_many_refer_to_is_not_looked_at_for_each(case, slashes):
    def refer(number: int) -> dict[str, Any]:
        if slashes:
            return {"$ref": f"#{'/' * number}/$defs/Large"}
        return {"allOf": [{"$ref": "#/$defs/Large"}, {"title": "x"}]}

    large = {"type": "string", **LARGE[case]}
    properties = {f"p{number}": refer(number) for number in range(1_000)}
    start = time.process_time()
    sanitize_json_schema({"properties": properties, "$defs": {"Large": large}})
    assert time.process_time() - start < 5


def test_the_first_member_of_an_all_of_wins():
    given = {
        "allOf": [
            {"properties": {"a": STRING, "b": STRING}, "required": ["a"]},
            {"properties": {"a": {"type": "integer"}, "c": STRING}, "required": ["c"]},
        ],
        "properties": {"b": {"type": "integer"}},
    }
    clean = sanitize_json_schema(given)
    kinds = {name: each["type"] for name, each in clean["properties"].items()}
    assert kinds == {"a": "string", "b": "integer", "c": "string"}
    assert clean["required"] == ["a", "c"]


def test_alternatives_of_alternatives_that_go_round_end():
    again = {"$ref": "#/$defs/A"}
    each = {"type": "object", "properties": {"a": again}, "anyOf": [again, again, {"required": []}]}
    given = {"$defs": {"A": {**each, "oneOf": [again, {"items": again}]}}, "anyOf": [again] * 5}
    clean = sanitize_json_schema(given)
    assert sanitize_json_schema(clean) == clean
    assert len(json.dumps(clean)) <= MOST_CHARACTERS


def test_two_definitions_of_one_name_stay_two():
    given = {
        "properties": {"a": {"$ref": "#/$defs/X"}, "b": {"$ref": "#/definitions/X"}},
        "$defs": {"X": STRING},
        "definitions": {"X": {"type": "integer"}},
    }
    clean = sanitize_json_schema(given)
    assert clean["$defs"] == {"X": STRING, "X_2": {"type": "integer"}}


# -- sizes -----------------------------------------------------------------------------------------


def test_what_is_too_deep_is_closed():
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(40):
        schema = {"properties": {"in": schema}}
    clean, depth = sanitize_json_schema(schema), 0
    while clean["properties"]:
        clean, depth = clean["properties"]["in"], depth + 1
    assert depth == DEEPEST
    assert clean["additionalProperties"] is True


def test_a_thousand_levels_do_no_harm():
    schema: Any = {}
    for _ in range(100_000):
        schema = {"items": schema}
    assert sanitize_json_schema(schema)["type"] == "array"


def test_long_descriptions_go_before_properties():
    given = {"properties": {f"p{n}": {"description": "long " * 200} for n in range(60)}}
    clean = sanitize_json_schema(given)
    assert len(json.dumps(clean)) <= MOST_CHARACTERS
    assert list(clean["properties"]) == [f"p{n}" for n in range(60)]


def test_what_is_far_too_large_becomes_a_free_object():
    given = {"properties": {f"p{n:0100}": {"type": "integer"} for n in range(500)}}
    assert sanitize_json_schema(given) == FREE


# -- the schema of a tool --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given", [True, None, {"type": "string"}, {"type": "array"}, {"$ref": "#"}]
)
def test_what_takes_no_object_takes_any(given):
    assert sanitize_parameters(given)["properties"] == {}
    assert sanitize_parameters(given)["additionalProperties"] is True


def test_alternatives_become_one_object():
    given = {
        "anyOf": [
            {"properties": {"a": STRING}, "required": ["a"]},
            {"$ref": "#/$defs/B"},
        ],
        "$defs": {"B": {"properties": {"b": {"type": "integer"}}}},
        "description": "One of two.",
    }
    clean = sanitize_parameters(given)
    assert clean["properties"] == {"a": STRING, "b": {"type": "integer"}}
    assert clean["required"] == []
    assert clean["description"] == "One of two."


# -- any schema ------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "A", "type", "$ref", "x/y", "~", "é", ""])
SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | NAMES
POINTERS = st.sampled_from(
    [
        "#",
        "#/",
        "#/$defs/a",
        "#/$defs/b",
        "#/definitions/A",
        "#/properties/a",
        "#/anyOf/0",
        "x#y",
        "",
    ]
)
TYPES = st.sampled_from(
    ["string", "integer", "number", "boolean", "object", "array", "null", "int", "any", ""]
)


def keywords(inner):
    maps = st.dictionaries(NAMES, inner, max_size=3)
    lists = st.lists(inner, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | st.lists(TYPES, max_size=3),
            "properties": maps | SCALARS,
            "required": st.lists(NAMES, max_size=3) | SCALARS,
            "additionalProperties": inner,
            "patternProperties": maps,
            "items": inner | lists,
            "prefixItems": lists | SCALARS,
            "anyOf": lists | SCALARS,
            "oneOf": lists,
            "allOf": lists | SCALARS,
            "enum": st.lists(SCALARS | lists, max_size=4) | SCALARS,
            "const": SCALARS,
            "$ref": POINTERS | SCALARS,
            "$defs": maps,
            "definitions": maps,
            "description": SCALARS,
            "default": SCALARS,
            "nullable": st.booleans(),
            "minimum": SCALARS,
            "format": SCALARS,
            "not": inner,
        },
    )


SCHEMAS = st.recursive(st.booleans() | SCALARS | keywords(st.booleans()), keywords, max_leaves=12)
SHAPES = {
    "object": {"type", "properties", "required", "additionalProperties"},
    "array": {"type", "items"},
}


def assert_subset(schema, root):
    assert isinstance(schema, dict)
    words = schema.keys() - {"description"} - ({"$defs"} if schema is root else set())
    assert isinstance(schema.get("description", ""), str)
    if "$ref" in schema:
        assert words == {"$ref"}
        assert schema["$ref"].removeprefix("#/$defs/") in root["$defs"]
    elif "anyOf" in schema:
        assert words == {"anyOf"}
        assert len(schema["anyOf"]) > 1
        for each in schema["anyOf"]:
            assert_subset(each, root)
    else:
        kind = schema["type"]
        assert kind in ("string", "integer", "number", "boolean", "object", "array", "null")
        assert words <= SHAPES.get(kind, {"type", "enum"})
        if kind == "object":
            assert set(schema["required"]) <= schema["properties"].keys()
            inner = [*schema["properties"].values(), schema["additionalProperties"]]
            for each in inner:
                assert isinstance(each, bool) or assert_subset(each, root) is None
        if kind == "array":
            assert_subset(schema["items"], root)
        assert "enum" not in schema or schema["enum"]
    if schema is root:
        for each in schema.get("$defs", {}).values():
            assert_subset(each, root)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(SCHEMAS)
def test_any_schema_becomes_the_subset_and_stays_so(schema):
    before = json.dumps(schema)
    for sanitize in (sanitize_json_schema, sanitize_parameters):
        clean = sanitize(schema)
        assert_subset(clean, clean)
        assert sanitize(clean) == clean
        assert json.loads(json.dumps(clean)) == clean
    assert sanitize_parameters(schema)["type"] == "object"
    assert json.dumps(schema) == before
