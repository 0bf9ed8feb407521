"""Names of MCP tools: what every provider takes, each once, and none that another tool has."""

import re

from hypothesis import given
from hypothesis import strategies as st

from agent_magics.tools.mcp.names import LONGEST_NAME, may_belong_to, qualified_names

ALLOWED = re.compile(r"[a-zA-Z0-9_-]+")
PAIRS = st.lists(st.tuples(st.text(max_size=40), st.text(max_size=90)), max_size=12, unique=True)


def test_a_plain_name_is_put_together():
    assert qualified_names([("git", "log")]) == {("git", "log"): "mcp__git__log"}


def test_what_no_provider_takes_becomes_an_underscore():
    assert qualified_names([("my.hub", "é list")])["my.hub", "é list"] == "mcp__my_hub____list"


def test_two_that_would_be_one_both_get_a_hash_and_others_none():
    names = qualified_names([("s", "a.b"), ("s", "a_b"), ("s", "c")])
    assert names["s", "c"] == "mcp__s__c"
    hashed = {names["s", "a.b"], names["s", "a_b"]}
    assert len(hashed) == 2
    assert all(re.fullmatch(r"mcp__s__a_b_[0-9a-f]{8}", name) for name in hashed)
    assert qualified_names([("s", "a_b"), ("s", "a.b")]) == {
        pair: names[pair] for pair in (("s", "a_b"), ("s", "a.b"))
    }, "the order they come in does not matter"


def test_servers_and_tools_that_read_alike_are_told_apart():
    names = qualified_names([("a__b", "c"), ("a", "b__c")])
    assert len(set(names.values())) == 2


def test_a_long_name_is_cut_and_keeps_its_hash_whatever_else_there_is():
    long = ("server", "x" * 100)
    name = qualified_names([long])[long]
    assert len(name) == LONGEST_NAME
    assert qualified_names([("a", "b"), long])[long] == name
    assert qualified_names([("server", "x" * 101)])["server", "x" * 101] != name


def test_a_name_that_another_tool_has_is_never_taken():
    names = qualified_names([("git", "log")], taken=["mcp__git__log"])
    assert names["git", "log"].startswith("mcp__git__log_")


def test_a_tool_cannot_be_named_like_the_hash_of_another():
    taken = qualified_names([("s", "a.b"), ("s", "a_b")])["s", "a.b"]
    pretender = ("s", taken.removeprefix("mcp__s__"))
    names = qualified_names([("s", "a.b"), ("s", "a_b"), pretender])
    assert names["s", "a.b"] == taken
    assert names[pretender] != taken


@given(PAIRS)
def test_all_names_are_good_and_different(pairs):
    names = qualified_names(pairs)
    assert set(names) == set(pairs)
    assert len(set(names.values())) == len(pairs)
    for (server, _), name in names.items():
        assert ALLOWED.fullmatch(name) and len(name) <= LONGEST_NAME
        assert may_belong_to(name, server)
