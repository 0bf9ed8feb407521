"""The `.mcp.json` of other clients is read as they read it."""

import json
import string
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magics.mcp.config.json_file import read_mcp_json
from agent_magics.mcp.config.table import KEYS
from agent_magics.protocol.errors import FatalError

HERE = Path("/w/.mcp.json")
literal = st.text(
    st.characters(exclude_characters="$", exclude_categories=["Cs", "Cc"]), max_size=8
)
variable = st.sampled_from(["SET", "EMPTY", "UNSET"])
plain_default = st.text(string.ascii_letters + string.digits + ":/-. ", max_size=8)
ENVIRONMENT = {"SET": "value ${UNSET}", "EMPTY": ""}


def read(servers, environment=ENVIRONMENT):
    text = servers if isinstance(servers, str) else json.dumps({"mcpServers": servers}, indent=1)
    return read_mcp_json(text, HERE, environment)


def error_in(servers):
    with pytest.raises(FatalError) as caught:
        read(servers)
    return str(caught.value)


def test_the_three_ways_to_reach_a_server():
    servers, left_out = read(
        {
            "a": {"command": "npx", "args": ["-y", "x"], "env": {"K": "v"}, "timeout": 2500},
            "b": {
                "type": "http",
                "url": "https://a.b/c",
                "headers": {"H": "v"},
                "oauth": {"clientId": "ours", "callbackPort": 8080, "other": 1},
            },
            "c": {"type": "sse", "url": "https://a.b/c", "disabled": True},
            "d": {"type": "streamable-http", "url": "https://a.b/c"},
            "e": {"type": "stdio", "command": "x", "alwaysAllow": ["t"], "cwd": "sub"},
        }
    )
    assert left_out == []
    assert [(s.name, s.transport, s.enabled) for s in servers] == [
        ("a", "stdio", True),
        ("b", "http", True),
        ("c", "sse", False),
        ("d", "http", True),
        ("e", "stdio", True),
    ]
    assert (servers[0].args, servers[0].env) == (("-y", "x"), {"K": "v"})
    assert (servers[0].tool_timeout_sec, servers[4].cwd) == (2.5, Path("/w/sub"))
    assert (servers[1].oauth_client_id, servers[1].oauth_callback_port) == ("ours", 8080)
    assert servers[0].source == "/w/.mcp.json, line 3"


parts = st.lists(
    st.one_of(
        literal.map(lambda text: (text, text)),
        st.tuples(st.sampled_from(["SET"]), st.just(None)).map(
            lambda pair: ("${SET}", ENVIRONMENT["SET"])
        ),
        st.tuples(variable, plain_default).map(
            lambda pair: (f"${{{pair[0]}:-{pair[1]}}}", ENVIRONMENT.get(pair[0]) or pair[1])
        ),
        st.just(("$SET", "$SET")),
        st.just(("${}", "${}")),
    ),
    max_size=5,
)


@settings(deadline=None)  # the machine may be busy
@given(parts=parts)
def test_variables_stand_for_their_values_once_and_in_every_field(parts):
    written = "".join(part[0] for part in parts)
    expected = "".join(part[1] for part in parts)
    headers = {"H": written} if expected.isascii() and expected.isprintable() else {}
    servers, left_out = read(
        {
            "a": {"command": f"c{written}", "args": [written], "env": {"E": written}},
            "b": {"url": "https://${HOST:-h}/x", "headers": headers},
        }
    )
    assert left_out == []
    assert servers[0].command == f"c{expected}"
    assert (servers[0].args, servers[0].env) == ((expected,), {"E": expected})
    assert servers[1].url == "https://h/x"
    assert servers[1].headers == ({"H": expected} if headers else {})


def test_a_server_whose_variable_is_not_set_is_left_out_by_name():
    servers, left_out = read({"a": {"command": "x", "args": ["${UNSET}"]}, "b": {"command": "y"}})
    assert [server.name for server in servers] == ["b"]
    assert left_out == [
        "MCP server 'a' is left out: /w/.mcp.json, line 3 needs the environment variable UNSET, "
        "which is not set."
    ]


def test_headers_that_a_program_makes_are_not_guessed():
    servers, [warning] = read({"a": {"url": "https://a.b", "headersHelper": "get-token"}})
    assert servers == []
    assert "headersHelper" in warning
    assert "get-token" not in warning


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"mcpServers": {"a": {\n "comand": "x"}}}', "line 2: 'comand' is not a key"),
        ('{"mcpServers": {\n"a": {"type": "ws", "url": "ws://a"}}}', "line 2: type 'ws' is not"),
        ('{"mcpServers": {\n"a": 5}}', "line 2: MCP server 'a' must be a table"),
        ('{"mcpServers": []}', "line 1: this file holds"),
        ("[]", "line 1: this file holds"),
        ('{"servers": {}}', "line 1: 'servers' is not known; there is: mcpServers"),
        ('{"mcpServers": {"a": {"command": "x"},\n"a": {}}}', "line 2: 'a' stands here a second"),
        ('{"mcpServers": {\n"a": {"url": "https://x",\n "bearer_token": "s"}}}', "line 3: a token"),
        ('{"mcpServers": {', "line 1: this is not JSON"),
    ],
)
def test_a_mistake_says_file_and_line(text, words):
    assert error_in(text).startswith(f"/w/.mcp.json, {words}")


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
entries = st.dictionaries(
    st.sampled_from(["type", "command", "args", "env", "url", "headers", "timeout", "disabled"]),
    st.one_of(json_values, st.sampled_from(["http", "stdio", "https://a.b", "x"])),
    max_size=5,
)


@settings(deadline=None)  # the machine may be busy
@given(servers=st.dictionaries(st.text(max_size=6), st.one_of(entries, json_values), max_size=3))
def test_whatever_stands_there_is_read_or_one_sentence(servers):
    said = ""
    try:
        read(servers)
    except FatalError as error:
        said = str(error)
    assert not said or said.startswith("/w/.mcp.json, line ")


HUGE = (10**400, -(10**400), 1e300, "x" * 100_000, ["x" * 100_000], {"x" * 100_000: "x"})


@pytest.mark.soak
@pytest.mark.parametrize("key", [*KEYS, "type", "disabled", "oauth", "timeout", "unknown"])
def test_huge_values_are_refused_in_a_short_sentence(key):
    for base in ({"command": "x"}, {"url": "https://a.b"}):
        said = list[str]()
        for value in HUGE:
            with suppress(FatalError):
                read({"a": {**base, key: value}})
                continue
            said.append(error_in(json.dumps({"mcpServers": {"a": {**base, key: value}}})))
        assert all(each.startswith("/w/.mcp.json, line ") and len(each) < 2_000 for each in said)
