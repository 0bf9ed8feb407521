"""Pieces of tool calls as the API and as small servers send them, each put together rightly."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.models.wires.chat.calls import CallAssembler, is_json_object

NAMES = ("f", "get_weather")


def piece(index=None, call_id=None, name=None, arguments=None):
    """One element of a delta's ``tool_calls``; what is None is left out."""
    fields = {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}
    fields["function"] = {key: each for key, each in fields["function"].items() if each is not None}
    return {key: each for key, each in fields.items() if each is not None}


def assemble(*chunks, names=NAMES):
    calls = CallAssembler(names)
    for chunk in chunks:
        calls.add(chunk)
    return [(draft.id, draft.name, draft.arguments) for draft in calls.drafts]


CASES = {
    "the API's own form, two calls side by side": (
        [
            [piece(0, "a", "f", "")],
            [piece(0, arguments='{"x"')],
            [piece(1, "b", "f", "")],
            [piece(0, arguments=":1}"), piece(1, arguments="{}")],
        ],
        [("a", "f", '{"x":1}'), ("b", "f", "{}")],
    ),
    "whole calls without index or id": (
        [[piece(name="f", arguments='{"a":1}')], [piece(name="f", arguments='{"a":1}')]],
        [("", "f", '{"a":1}'), ("", "f", '{"a":1}')],
    ),
    "whole calls, several in a chunk, twice": (
        [
            [piece(name="f", arguments="{}"), piece(name="get_weather", arguments='{"a":1}')],
            [piece(name="f", arguments='{"b":2}'), piece(name="f", arguments='{"c":3}')],
        ],
        [
            ("", "f", "{}"),
            ("", "get_weather", '{"a":1}'),
            ("", "f", '{"b":2}'),
            ("", "f", '{"c":3}'),
        ],
    ),
    "id and name in every piece": (
        [[piece(0, "a", "f", "")], [piece(0, "a", "f", '{"x"')], [piece(0, "a", "f", ":1}")]],
        [("a", "f", '{"x":1}')],
    ),
    "index 0 for all, ids differ, whole": (
        [[piece(0, "a", "f", '{"x":1}')], [piece(0, "b", "f", '{"x":1}')]],
        [("a", "f", '{"x":1}'), ("b", "f", '{"x":1}')],
    ),
    "index 0 for all, ids differ, in pieces": (
        [
            [piece(0, "a", "f", "")],
            [piece(0, "a", arguments="{}")],
            [piece(0, "b", "f", "")],
            [piece(0, "b", arguments='{"x":2}')],
        ],
        [("a", "f", "{}"), ("b", "f", '{"x":2}')],
    ),
    "index 0 for all, no ids, whole": (
        [[piece(0, name="f", arguments="{}")], [piece(0, name="f", arguments="{}")]],
        [("", "f", "{}"), ("", "f", "{}")],
    ),
    "a name in two pieces": (
        [[piece(0, "a", "get_")], [piece(0, name="weather")], [piece(0, arguments="{}")]],
        [("a", "get_weather", "{}")],
    ),
    "a name in two pieces, without index": (
        [[piece(None, "a", "get_")], [piece(name="weather")], [piece(arguments="{}")]],
        [("a", "get_weather", "{}")],
    ),
    "a new id for every piece": (
        [[piece(0, "a", "f", "")], [piece(0, "b", arguments='{"x"')], [piece(0, "c", None, ":1}")]],
        [("a", "f", '{"x":1}')],
    ),
    "ids instead of an index, side by side": (
        [
            [piece(None, "a", "f", "{")],
            [piece(None, "b", "f", "{")],
            [piece(None, "a", arguments='"x":1}')],
            [piece(None, "b", arguments='"x":2}')],
        ],
        [("a", "f", '{"x":1}'), ("b", "f", '{"x":2}')],
    ),
    "no arguments at all": (
        [[piece(None, "a", "f", "")], [piece(None, "b", "f")]],
        [("a", "f", ""), ("b", "f", "")],
    ),
    "one id for all, at several places": (
        [[piece(0, "f", "f", "{}")], [piece(1, "f", "f", '{"a":2}')]],
        [("f", "f", "{}"), ("f", "f", '{"a":2}')],
    ),
    "a whole call that is sent twice": (
        [[piece(0, "a", "f", '{"x":1}')], [piece(0, "a", "f", '{"x":1}')]],
        [("a", "f", '{"x":1}')],
    ),
    "an id that comes late": (
        [[piece(0, name="f", arguments="")], [piece(0, "z", arguments="{}")]],
        [("z", "f", "{}")],
    ),
    "arguments as an object, a call without its list": (
        [{"id": "a", "function": {"name": "f", "arguments": {"x": 1}}}],
        [("a", "f", '{"x": 1}')],
    ),
    "what is no call": ([None, "x", [None, 3, {"function": "f"}]], []),
}


@pytest.mark.parametrize(("chunks", "expected"), CASES.values(), ids=CASES)
def test_calls_as_servers_send_them(chunks, expected):
    assert assemble(*chunks) == expected


CALLS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.dictionaries(st.text(), st.text(), max_size=3)),
    min_size=1,
    max_size=4,
)


@given(CALLS, st.data())
def test_arguments_cut_anywhere_and_interleaved_come_out_whole(calls, data):
    """Each call's pieces in order, but those of different calls in any order."""
    queues = []
    for index, (name, fields) in enumerate(calls):
        text = json.dumps(fields)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
        edges = [0, *cuts, len(text)]
        rest = [piece(index, arguments=text[a:b]) for a, b in itertools.pairwise(edges)]
        queues.append([piece(index, f"id{index}", name, ""), *rest])
    chunks = []
    while any(queues):
        queue = data.draw(st.sampled_from([queue for queue in queues if queue]))
        chunks.append([queue.pop(0)])
    got = sorted(assemble(*chunks))
    assert got == sorted((f"id{i}", name, json.dumps(f)) for i, (name, f) in enumerate(calls))


@given(CALLS, st.booleans(), st.booleans())
def test_whole_calls_come_out_with_or_without_index_and_ids(calls, with_index, with_ids):
    chunks = [
        [piece(0 if with_index else None, f"id{i}" if with_ids else None, name, json.dumps(fields))]
        for i, (name, fields) in enumerate(calls)
    ]
    got = [(name, arguments) for _, name, arguments in assemble(*chunks)]
    assert got == [(name, json.dumps(fields)) for name, fields in calls]


WILD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["index", "id", "function", "name", "arguments", "custom", "input"]),
            inner,
        )
    ),
    max_leaves=12,
)


@given(st.lists(WILD, max_size=5))
def test_nothing_that_is_json_breaks_it(chunks):
    for _, name, arguments in assemble(*chunks):
        assert isinstance(name, str) and isinstance(arguments, str)


def test_what_is_a_whole_object():
    assert [is_json_object(text) for text in ('{"a":1} ', "{}", "[]", '{"a":', '"}"', "")] == [
        True, True, False, False, False, False,
    ]  # fmt: skip
