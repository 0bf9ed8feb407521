"""Functions made from schemas: signatures, types, defaults and docstrings that people read."""

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.dispatch.foreign_schemas.sanitizer import sanitize_parameters
from agent_magics.dispatch.foreign_schemas.signature import bound_arguments, function_of, type_of

SCHEMA = {
    "type": "object",
    "properties": {
        "limit": {"type": "integer", "default": 10},
        "q": {"type": "string", "description": "words\nto find"},
        "state": {"enum": ["open", "closed"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "owner": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "node": {"$ref": "#/$defs/Node"},
        "per-page": {"type": "integer"},
        "class": {"type": "string"},
    },
    "required": ["q"],
    "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}},
}


def made(schema, **options):
    return function_of("find", "Find.", sanitize_parameters(schema), dict, **options)


def test_the_signature_says_what_the_schema_says():
    function = made(SCHEMA, defaults={"limit": 10}, returns=list[str])
    assert str(inspect.signature(function)) == (
        "(q: str, limit: int = 10, state: Literal['open', 'closed'] = None, "
        "tags: list[str] = None, owner: str | None = None, node: dict = None, **more) -> list[str]"
    )
    assert function.__name__ == "find"
    assert "    q: words to find" in function.__doc__
    assert "    per-page" in function.__doc__


def test_only_what_was_given_is_handed_on_in_the_author_s_names():
    function = made(SCHEMA)
    assert function("a") == {"q": "a"}
    assert function(q="a", tags=["b"], **{"per-page": 5}) == {
        "q": "a",
        "tags": ["b"],
        "per-page": 5,
    }
    with pytest.raises(TypeError, match="'q'"):
        function()


def test_free_keys_are_taken_where_the_schema_has_them_and_else_not():
    assert made({})(anything=1) == {"anything": 1}
    closed = made({"properties": {"a": {"type": "string"}}, "additionalProperties": False})
    with pytest.raises(TypeError, match="unexpected"):
        closed(b=1)


def test_a_parameter_named_like_the_rest_keeps_its_name():
    function = made({"properties": {"more": {"type": "string"}, "a-b": {"type": "string"}}})
    assert function("x", **{"a-b": "y"}) == {"more": "x", "a-b": "y"}


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "number"}, float),
        ({"type": "boolean"}, bool),
        ({"type": "null"}, None),
        (
            {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
            list[list[int]],
        ),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, int | str),
        ({"anyOf": [{"type": "null"}]}, inspect.Signature.empty),
    ],
)
def test_types(schema, kind):
    if kind is inspect.Signature.empty:
        assert "Any" in str(type_of(schema, {}))
    else:
        assert type_of(schema, {}) == kind


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "properties", "items", "anyOf", "enum", "required", "a", "class"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(JSON)
def test_whatever_a_server_sends_there_is_a_function(schema):
    function = made(schema if isinstance(schema, dict) else {})
    signature = inspect.signature(function)
    required = [p for p in signature.parameters.values() if p.default is p.empty]
    given_names = {p.name: 1 for p in required if p.kind is not p.VAR_KEYWORD}
    assert bound_arguments(signature, (), given_names) == given_names
