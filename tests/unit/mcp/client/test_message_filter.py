"""Whatever stands in a listing of tools, those that are well formed are kept."""

import asyncio

import anyio
import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.message import SessionMessage
from mcp_types.methods import validate_server_result

from agent_magics.exec.servers import LogRing
from agent_magics.mcp.client.message_filter import MessageFilter
from agent_magics.mcp.transports.asked import Unanswered
from agent_magics.mcp.transports.http import _Watched

GOOD = {"name": "good", "inputSchema": {"type": "object", "properties": {}}}
VERSION = "2025-11-25"

leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
keys = ("name", "inputSchema", "outputSchema", "description", "annotations", "title", "_meta")
odd_tools = values | st.fixed_dictionaries({}, optional=dict.fromkeys(keys, values))


def answer(result):
    return SessionMessage(types.JSONRPCResponse(jsonrpc="2.0", id=1, result=result))


def sifted(result, version=VERSION):
    message_filter, message = MessageFilter(), answer(result)
    with message_filter.listing(version) as left_out:
        message_filter(message)
    return message.message.result, left_out


@given(st.lists(odd_tools, max_size=5), st.lists(odd_tools, max_size=5))
def test_what_is_well_formed_is_kept_and_the_rest_passes(before, after):
    result, wrong = sifted({"tools": [*before, GOOD, *after]})
    assert GOOD in result["tools"]
    assert len(result["tools"]) + len(wrong) <= len(before) + len(after) + 1
    validate_server_result("tools/list", VERSION, result)
    types.ListToolsResult.model_validate(result, by_name=False)


def test_a_tool_is_measured_without_its_icons():
    icon = {"src": f"data:image/png;base64,{'A' * 300_000}"}
    result, wrong = sifted({"tools": [{**GOOD, "icons": [icon]}]})
    assert len(result["tools"]) == 1 and not wrong
    assert sifted({"tools": [{**GOOD, "description": "A" * 300_000}]})[1]


def test_what_has_no_name_is_known_by_its_number_in_the_servers_list():
    large = {**GOOD, "description": "A" * 300_000}
    message_filter = MessageFilter(lambda name: name != "unwanted")
    with message_filter.listing(VERSION) as left_out:
        for tools in ([{**GOOD, "name": "unwanted"}, large, {}, GOOD, []], [{}]):
            message_filter(answer({"tools": tools}))
    assert list(left_out) == ["good", *(f"number {n} in its list" for n in (3, 5, 6))]


@pytest.mark.parametrize(
    ("result", "version"),
    [
        ({"tools": [{"name": "bare"}], "nextCursor": 7}, VERSION),  # not only a tool is wrong
        ({"tools": "none"}, VERSION),
        ({"content": []}, VERSION),
        ({"tools": [{"name": "bare"}]}, "1999-01-01"),
        ({"tools": [{"name": "bare"}]}, None),
    ],
)
def test_what_it_cannot_mend_is_left_as_it_is(result, version):
    assert sifted(dict(result), version) == (result, {})


def test_it_looks_only_while_a_listing_is_awaited():
    message_filter, message = MessageFilter(), answer({"tools": [{"name": "bare"}]})
    message_filter(message)
    assert message.message.result["tools"] == [{"name": "bare"}]


@pytest.mark.parametrize("take", [_Watched.receive, _Watched.__anext__])
def test_messages_over_http_pass_it(take):
    async def read():
        sending, reading = anyio.create_memory_object_stream(1)
        async with (
            sending,
            _Watched(reading, lambda: None, message_filter, Unanswered(LogRing(str))) as watched,
        ):
            await sending.send(answer({"tools": [{"name": "bare"}, GOOD]}))
            return await take(watched)

    message_filter = MessageFilter()
    with message_filter.listing(VERSION) as left_out:
        assert asyncio.run(read()).message.result["tools"] == [GOOD]
    assert list(left_out) == ["bare"]
