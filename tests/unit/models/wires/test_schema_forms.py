"""Schemas in the forms of Gemini, Kimi and Anthropic: each rule, and that the result fits."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magics.models.wires.schema_forms import (
    GEMINI_KNOWN,
    RULES,
    fit_schema,
    has_other_enums,
    lean_form,
    resolve_references,
    restore_enums,
)
from agent_magics.models.wires.transforms import CALL_ID_FORMS, fit_call_id, strict_form
from tests.support.models.gemini_schemas import gemini_allows

NAMED = {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "boolean", "default": False}, {"type": "boolean"}),
        ({"type": "integer", "default": 3}, {"type": "integer", "default": 3}),
        ({"type": "string", "default": "x"}, {"type": "string", "default": "x"}),
        (
            {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "description": "x"},
            {"type": "string", "description": "x"},
        ),
        (
            {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}], "default": None},
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        ),
        # Here null is a value of its own.
        (
            {"anyOf": [{"type": "string"}, {"type": "null"}], "default": "x"},
            {"anyOf": [{"type": "string"}, {"type": "null"}], "default": "x"},
        ),
        ({**NAMED, "additionalProperties": False}, NAMED),
        (
            {"type": "object", "properties": {}, "required": [], "additionalProperties": True},
            {"type": "object", "properties": {}, "additionalProperties": True},
        ),
        ({"$ref": "#/$defs/Named"}, NAMED),
    ],
)
def test_a_lean_schema_leaves_out_what_a_model_need_not_read(schema, expected):
    whole = {"type": "object", "properties": {"default": schema}, "$defs": {"Named": NAMED}}
    assert lean_form(whole)["properties"]["default"] == expected


@pytest.mark.parametrize(
    ("properties", "definitions"),
    [
        ({"a": {"$ref": "#/$defs/N"}, "b": {"$ref": "#/$defs/N"}}, {"N": NAMED}),
        ({"a": {"$ref": "#/$defs/T"}}, {"T": {"properties": {"t": {"$ref": "#/$defs/T"}}}}),
        ({"a": {"$ref": "#/$defs/gone"}}, {"N": NAMED}),
    ],
    ids=["used twice", "within itself", "unknown"],
)
def test_other_definitions_stay_where_they_are(properties, definitions):
    whole = {"type": "object", "properties": properties, "$defs": definitions}
    assert lean_form(whole) == whole


def property_in(form, schema, **beside):
    whole = {"type": "object", "properties": {"a": schema}, "required": ["a"], **beside}
    return fit_schema(whole, form)["properties"]["a"]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": ["string", "null"]}, {"type": "string", "nullable": True}),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"type": "integer", "nullable": True}),
        (
            {"type": ["string", "integer"], "description": "x"},
            {"anyOf": [{"type": "string"}, {"type": "integer"}], "description": "x"},
        ),
        ({"enum": [1, 2, None]}, {"type": "string", "enum": ["1", "2"], "nullable": True}),
        ({"const": "x"}, {"type": "string", "enum": ["x"]}),
        ({"type": "array"}, {"type": "array", "items": {"type": "string"}}),
        ({"type": "array", "items": {}}, {"type": "array", "items": {"type": "string"}}),
        (
            {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]},
            {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}},
        ),
        ({}, {"type": "string"}),
        ({"type": "string", "properties": {}, "required": ["x"]}, {"type": "string"}),
        (
            {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b", "c"]},
            {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]},
        ),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]},
         {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        (
            {"type": "integer", "exclusiveMinimum": 0, "default": 3},
            {"type": "integer", "description": "(default: 3) (exclusiveMinimum: 0)"},
        ),
        ({"type": "string", "format": "uri"}, {"type": "string", "description": '(format: "uri")'}),
        ({"type": "object", "additionalProperties": {"type": "string"}}, {"type": "object"}),
    ],
)  # fmt: skip
def test_gemini(schema, expected):
    assert property_in("gemini", schema) == expected


def test_gemini_has_no_references():
    pair = {"type": "object", "properties": {"x": {"type": "string"}}}
    schema = {"$ref": "#/$defs/Pair", "description": "one"}
    assert property_in("gemini", schema, **{"$defs": {"Pair": pair}}) == {
        **pair,
        "description": "one",
    }
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    endless = property_in("gemini", {"$ref": "#/$defs/Node"}, **{"$defs": {"Node": node}})
    assert "$ref" not in json.dumps(endless)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"$ref": "#/$defs/X", "description": "x"}, {"$ref": "#/$defs/X"}),
        (
            {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]},
            {"type": "array", "items": {"type": "string"}},
        ),
        ({"type": "array", "items": [{"type": "string"}]},
         {"type": "array", "items": {"type": "string"}}),
        (
            {"type": "object", "anyOf": [{"required": ["a"]}, {"type": "string"}]},
            {"anyOf": [{"type": "object", "required": ["a"]}, {"type": "string"}]},
        ),
        ({"type": "string", "minLength": 1}, {"type": "string", "minLength": 1}),
    ],
)  # fmt: skip
def test_kimi(schema, expected):
    assert property_in("kimi", schema) == expected


def test_anthropic():
    tuples = {"type": "array", "items": [{"type": "string"}]}
    assert property_in("anthropic", tuples) == {
        "type": "array",
        "prefixItems": [{"type": "string"}],
    }
    options = [{"properties": {"a": {"type": "string"}}, "required": ["a"]}]
    top = {"anyOf": options, "properties": {"b": {"type": "string"}}}
    assert fit_schema(top, "anthropic") == {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
    }


def test_plain_is_unchanged():
    schema = {"type": "object", "properties": {"a": {"oneOf": [{"const": 3}]}}, "$defs": {}}
    assert fit_schema(schema, "plain") == schema


# -- always --------------------------------------------------------------------------------------

WORDS = st.text("abc", min_size=1, max_size=3)
SCALAR = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "integer", "number", "boolean", "null"])},
    optional={
        "description": WORDS,
        "default": st.none() | st.integers() | WORDS,
        "minimum": st.integers(),
        "pattern": WORDS,
        "format": st.sampled_from(["date-time", "uri", "int32"]),
        "title": WORDS,
    },
)
LEAF = st.one_of(
    SCALAR,
    st.fixed_dictionaries({"enum": st.lists(st.none() | st.integers() | WORDS, max_size=3)}),
    st.fixed_dictionaries({"const": st.integers() | WORDS | st.none()}),
    st.fixed_dictionaries(
        {"type": st.lists(st.sampled_from(["string", "integer", "null", "array", "object"]),
                          min_size=1, unique=True)}
    ),
    st.just({}),
    st.fixed_dictionaries(
        {"$ref": st.sampled_from(["#/$defs/Loop", "#/$defs/Pair", "#/$defs/None"])},
        optional={"description": WORDS},
    ),
)  # fmt: skip


def grown(inner):
    objects = st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(WORDS, inner, max_size=3)},
        optional={
            "required": st.lists(WORDS, max_size=3, unique=True),
            "additionalProperties": st.booleans() | inner,
        },
    )
    arrays = st.fixed_dictionaries(
        {"type": st.just("array")},
        optional={
            "items": inner | st.lists(inner, min_size=1, max_size=2),
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "minItems": st.integers(0, 3),
        },
    )
    options = st.lists(inner, min_size=1, max_size=3)
    words = st.sampled_from(["anyOf", "oneOf", "allOf"])
    composed = st.builds(lambda word, parts: {word: parts}, words, options)
    return objects | arrays | composed


PARTS = st.recursive(LEAF, grown, max_leaves=8)
SCHEMAS = st.builds(
    lambda properties, loop, pair: {
        "type": "object",
        "properties": properties,
        "required": list(properties)[:1],
        "$defs": {
            "Loop": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Loop"}, "x": loop}},
            "Pair": pair,
        },
    },
    st.dictionaries(WORDS, PARTS, max_size=3),
    PARTS,
    PARTS,
)


def parts_of(schema):
    """All schemas inside, the outermost too."""
    yield schema
    for word in ("properties", "$defs"):
        for part in schema.get(word, {}).values():
            yield from parts_of(part)
    for word in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for part in schema.get(word, ()):
            yield from parts_of(part)
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield from parts_of(schema[word])


@settings(max_examples=200, deadline=None)
@given(SCHEMAS, st.booleans())
def test_gemini_always_gets_what_it_takes(schema, restored):
    before = json.dumps(schema)
    result = fit_schema(schema, "gemini", restored=restored)
    assert json.dumps(schema) == before  # the tool's own schema stays
    for part in parts_of(result):
        assert set(part) <= GEMINI_KNOWN
        assert isinstance(part.get("type", "string"), str) and part.get("type") != "null"
        assert "type" in part or "anyOf" in part
        if "enum" in part:
            assert part["type"] == "string" and all(isinstance(v, str) for v in part["enum"])
        if part.get("type") == "array":
            assert isinstance(part["items"], dict)
        assert set(part.get("required", ())) <= set(part.get("properties", ()))
        assert part.get("type") == "object" or "properties" not in part


CHOICES = st.lists(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | WORDS | st.lists(WORDS, max_size=2),
    min_size=1,
    max_size=4,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(CHOICES)
def test_what_is_not_restored_may_be_each_of_its_choices(members):
    choice = {"enum": members}
    schema = {
        "type": "object",
        "properties": {
            "alone": choice,
            "one": {"anyOf": [choice, {"const": members[0]}, {"type": "null"}]},
            "many": {"type": "array", "items": choice},
            "constant": {"const": members[0]},
        },
    }
    sent = fit_schema(schema, "gemini", restored=False)
    for member in members:
        value = {"alone": member, "one": member, "many": [member], "constant": members[0]}
        assert gemini_allows(sent, value)


@settings(max_examples=200, deadline=None)
@given(SCHEMAS)
def test_kimi_always_gets_what_it_takes(schema):
    for part in parts_of(fit_schema(schema, "kimi")):
        assert "$ref" not in part or set(part) == {"$ref"}
        assert "prefixItems" not in part and not isinstance(part.get("items"), list)
        assert not ("anyOf" in part and "type" in part)


@settings(max_examples=200, deadline=None)
@given(SCHEMAS)
def test_anthropic_always_gets_what_it_takes(schema):
    result = fit_schema(schema, "anthropic")
    assert result["type"] == "object" and not {"anyOf", "oneOf", "allOf"} & set(result)
    assert all(not isinstance(part.get("items"), list) for part in parts_of(result))


@settings(max_examples=200, deadline=None)
@given(SCHEMAS)
def test_the_strict_form_is_strict_or_none(schema):
    result = strict_form(schema)
    for part in parts_of(result) if result is not None else ():
        assert "$ref" not in part or set(part) == {"$ref"}
        assert not {"oneOf", "allOf", "prefixItems", "default", "pattern"} & set(part)
        if part.get("type") == "object":
            assert part["required"] == list(part["properties"])
            assert part["additionalProperties"] is False


@given(SCHEMAS)
def test_every_form_is_json(schema):
    for form in RULES:
        assert json.loads(json.dumps(fit_schema(schema, form)))["type"] == "object"


# -- back again ----------------------------------------------------------------------------------


def test_enums_come_back_as_they_were():
    part = {"enum": [1, True, None, "x", 2.5]}
    schema = {
        "type": "object",
        "properties": {
            "a": part,
            "b": {"type": "array", "items": part},
            "c": {"anyOf": [{"const": 7}, {"type": "string"}]},
            "d": {"type": "string"},
        },
    }
    assert has_other_enums(schema)
    given = {"a": "1", "b": ["true", "x", "2.5", "?"], "c": "7", "d": "1", "e": "1"}
    assert restore_enums(schema, given) == {
        "a": 1,
        "b": [True, "x", 2.5, "?"],
        "c": 7,
        "d": "1",
        "e": "1",
    }


def test_schemas_with_string_enums_need_nothing():
    assert not has_other_enums({"properties": {"a": {"enum": ["x", None]}}})


@given(SCHEMAS)
def test_restoring_never_breaks(schema):
    assert restore_enums(resolve_references(schema), {"a": "1", "b": ["1"], "c": {"a": "1"}})


@given(st.text(), st.sampled_from(sorted(CALL_ID_FORMS)))
def test_ids_of_calls_always_fit(call_id, form):
    fitted = fit_call_id(call_id, form)
    assert CALL_ID_FORMS[form][0].fullmatch(fitted)
    assert fit_call_id(fitted, form) == fitted == fit_call_id(call_id, form)
