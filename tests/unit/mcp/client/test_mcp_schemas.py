"""What is measured of schemas, and which cannot be offered."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.mcp.client.schemas import endless_reference, measure

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.text("abc", max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc"), inner, max_size=4),
    max_leaves=30,
)


@given(JSON)
def test_a_measure_is_near_the_text(value):
    measured = measure(value, 10**9)
    size = len(json.dumps(value))
    assert size / 4 <= measured <= 4 * size + 4


@given(JSON, st.integers(1, 100))
def test_what_is_over_is_none(value, most):
    measured = measure(value, 10**9)
    assert measure(value, most) == (None if measured > most else measured)


def test_too_deep():
    value = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(RecursionError):
        measure(value, 10**9)
    while value:  # else Python's own clean-up recurses
        value = value[0]


@pytest.mark.parametrize(
    ("schema", "found"),
    [
        ({"$ref": "#"}, True),
        ({"$defs": {"a": {"$ref": "#/$defs/a"}}}, True),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, True),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"type": "string"}}}, False),
        ({"properties": {"next": {"$ref": "#"}}}, False),
        ({"$defs": {"a/b": {"items": {"$ref": "#/$defs/a~1b"}}}}, False),
        ({"$defs": {"a<b>": {"$ref": "#/$defs/a%3Cb%3E"}}}, True),
        ({"$ref": "https://example.org/schema"}, False),
        ({"$ref": "#/$defs/gone"}, False),
        ({"anyOf": [{"$ref": "#/anyOf/1"}, {"$ref": "#/anyOf/0"}]}, True),
        ({"$ref": 7}, False),
        ({"$ref": f"#/anyOf/{'9' * 5000}", "anyOf": []}, False),
    ],
)
def test_references_without_end(schema, found):
    assert bool(endless_reference(schema)) is found
