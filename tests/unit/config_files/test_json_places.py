"""Every key of a JSON text is found on its line."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magics.config_files.json_places import JsonPlaces, parse_json
from agent_magics.protocol.errors import FatalError

keys = st.text(max_size=8)
trees = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3)),
    max_leaves=12,
)


def paths_of(tree, path=()):
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield (*path, key), value
            yield from paths_of(value, (*path, key))


@settings(deadline=None)  # the machine may be busy
@given(tree=st.dictionaries(keys, trees, max_size=4), indent=st.integers(0, 3), ascii=st.booleans())
def test_every_key_stands_on_the_line_that_is_told(tree, indent, ascii):
    text = json.dumps(tree, indent=indent, ensure_ascii=ascii)
    lines = text.split("\n")
    places = JsonPlaces(text)
    assert places.twice == ()
    for path, _ in paths_of(tree):
        line = lines[places.line_of(*path) - 1]
        assert line.strip().startswith(json.dumps(path[-1], ensure_ascii=ascii) + ":")


@settings(deadline=None)  # the machine may be busy
@given(tree=trees)
def test_any_json_can_be_walked(tree):
    text = json.dumps(tree)
    assert JsonPlaces(text).line_of("not", "there") == 1
    assert parse_json(text, Path("/p")) == tree


def test_a_key_that_stands_twice_is_told():
    text = '{"a": {"x": 1},\n "b": {"x": 1},\n "a": {}}'
    places = JsonPlaces(text)
    assert (places.twice, places.line_of("a")) == (("a",), 3)


def test_what_is_not_json_is_told_with_its_line():
    with pytest.raises(FatalError, match=r"/p, line 2: this is not JSON: "):
        parse_json('{"a": 1,\n b}', Path("/p"))
    with pytest.raises(FatalError, match=r"/p, line 1: .*nested too deeply"):
        parse_json("[" * 100_000, Path("/p"))
