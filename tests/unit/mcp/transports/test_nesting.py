"""A tool whose schema is nested too deeply is left out; the rest of the list is read."""

import asyncio
import json

import httpx2
import mcp_types as types
import pytest
from mcp.shared.message import SessionMessage
from mcp_types.version import LATEST_HANDSHAKE_VERSION

from agent_magics.exec.servers import LogRing
from agent_magics.mcp.client.message_filter import MessageFilter
from agent_magics.mcp.client.schemas import why_left_out
from agent_magics.mcp.transports.asked import MOST_UNANSWERED, Unanswered
from agent_magics.mcp.transports.bodies import limit_body
from agent_magics.mcp.transports.incoming import Incoming
from agent_magics.mcp.transports.nesting import MOST_PARTS, shallow_listing, why_refused

PLAIN = '{"type": "object"}'
DEPTHS = (20, 60, 70, 149, 200, 201, 5_000, 20_000)


def listing(schema: str, key: str = "tools") -> bytes:
    """Return the answer with a tool of this schema between two others."""
    tools = [f'{{"name": "t{n}", "inputSchema": {each}}}' for n, each in enumerate((schema, PLAIN))]
    return f'{{"jsonrpc": "2.0", "id": 1, "result": {{"{key}": [{", ".join(tools)}]}}}}'.encode()


def nested(
    depth: int, opening: str = '{"type": "object", "properties": {"a[{\\"": ', closing: str = "}}"
) -> str:
    """Return a schema of that depth, with brackets in its names."""
    return opening * (depth // 2) + PLAIN + closing * (depth // 2)


def by_pipe(line: bytes) -> dict:
    """Return the result that is read from a program's line."""

    async def read() -> dict:
        incoming = Incoming(LogRing(str), {1}, lambda: None)
        incoming.data_received(line + b"\n")
        return (await incoming.receive()).message.result

    return asyncio.run(read())


def by_http(body: bytes, kind: str = "application/json", size: int = 1_000) -> bytes:
    """Return what is read of an answer that arrives in pieces."""

    class Pieces(httpx2.AsyncByteStream):
        async def __aiter__(self):
            for begin in range(0, len(body), size):
                yield body[begin : begin + size]

    async def read() -> bytes:
        response = httpx2.Response(200, headers={"content-type": kind}, stream=Pieces())
        await limit_body(response)
        return await response.aread()

    return asyncio.run(read())


def by_answer(body: bytes) -> dict:
    """Return the result of an answer that is one JSON text."""
    return json.loads(by_http(body))["result"]


def by_events(body: bytes, line_end: bytes = b"\n") -> dict:
    """Return the result of an event stream's one event."""
    sent = b': "[{' + line_end + b"data: " + body + line_end * 2
    read = by_http(sent, "Text/event-stream; charset=utf-16").splitlines()
    assert len(read) == 3
    return json.loads(read[1].removeprefix(b"data: "))["result"]


@pytest.mark.parametrize("read", [by_pipe, by_answer, by_events])
@pytest.mark.parametrize("depth", DEPTHS)
def test_only_the_tool_that_is_too_deep_is_left_out(depth, read):
    deep, plain = read(listing(nested(depth)))["tools"]
    assert plain == {"name": "t1", "inputSchema": {"type": "object"}}
    why, _ = why_left_out("t0", [deep["inputSchema"]], 1_000_000)
    assert why == ("" if depth <= 60 else "its schema is nested more than 64 deep")


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_event_streams_with_any_line_end(line_end):
    assert len(by_events(listing(nested(300)), line_end)["tools"]) == 2


@pytest.mark.parametrize(
    "message",
    [
        listing(nested(300), key="content"),  # a result is not changed
        listing('"' + "[" * 300 + '"'),
        listing("[" * 300),
        listing("]" * 300),
        listing('"' + "[" * 300),
        b"[" * 300 + b"]" * 300,
        b"[" * 100_000,
        b'"\\' * 100_000 + b"[" * 151,
    ],
)
def test_anything_else_is_left_as_it_is(message):
    assert shallow_listing(message) == message
    assert by_http(message) == message


@pytest.mark.parametrize("read", [by_pipe, by_answer, by_events])
@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"a \ud83d", "a \ufffd"),
        (r"a \uDE00", "a \ufffd"),
        (r"\ud83d\ud83d\ude00\ude00", "\ufffd\U0001f600\ufffd"),
        (r"\\ud83d \\\ud83d\n", "\\ud83d \\\ufffd\n"),
        (r"\ud83d\\ude00", "\ufffd\\ude00"),
        (r"\\ud83d\ud800\udc00 \ud7ff", "\\ud83d\U00010000 \ud7ff"),
    ],
)
def test_half_a_character_is_replaced(read, written, meant):
    message = b'{"jsonrpc": "2.0", "id": 1, "result": {"x": "%s"}}' % written.encode()
    assert read(message) == {"x": meant}


@pytest.mark.parametrize("size", [1, 3, 1_000])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_the_data_of_an_event_is_read_as_one(end, size):
    sent = [
        "id: 1",
        "data: [1,",
        "event: message",
        "data:2]",
        "",
        "data",
        "",
        "",
        "data: 3",
        ": no",
    ]
    read = by_http(end.join([*sent, "", "data: 4"]).encode(), "text/event-stream", size)
    assert read == b"id: 1\nevent: message\ndata: [1, 2]\n\n\n\n: no\ndata: 3\n\n"


@pytest.mark.parametrize(
    ("line", "stays"),
    [
        *(
            (f"retry:{value}", False)
            for value in ("0", " 0", " 99", "-5", " 1" + "0" * 400, "", "x")
        ),
        *((f"retry:{value}", True) for value in ("100", " 500", " 9999999")),
        ("retried: 0", True),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) else "",
)
def test_no_server_makes_requests_follow_without_a_rest(line, stays):
    assert (
        by_http(f"{line}\n\n".encode(), "text/event-stream")
        == (f"{line}\n\n" if stays else "\n").encode()
    )


def test_the_limits_of_an_event_hold_for_all_its_lines(monkeypatch):
    monkeypatch.setattr("agent_magics.mcp.transports.nesting.MOST_PARTS", 100)
    monkeypatch.setattr("agent_magics.mcp.transports.bodies.MOST_OF_ONE", 2_000)
    part = b"data: 1,2,3,4,5,6,7,8,9,10\n"
    assert by_http((part + b"\n") * 20, "text/event-stream").count(b"data") == 20
    with pytest.raises(httpx2.StreamError, match="more than 100 parts"):
        by_http(part * 20 + b"\n", "text/event-stream")
    with pytest.raises(httpx2.StreamError, match="an event of the event stream has more than 2,0"):
        by_http(part * 100, "text/event-stream")


def test_a_line_of_an_event_stream_is_bounded(monkeypatch):
    monkeypatch.setattr("agent_magics.mcp.transports.bodies.MOST_OF_ONE", 2_000)
    with pytest.raises(httpx2.StreamError, match="more than 2,000 bytes"):
        by_http(b"data: " + b"x" * 4_000, "text/event-stream")


def test_the_filter_keeps_it_for_the_reason():
    result = by_pipe(listing(nested(400)))
    message_filter = MessageFilter()
    with message_filter.listing(LATEST_HANDSHAKE_VERSION) as left_out:
        message_filter._sift(result)
    assert [each["name"] for each in result["tools"]] == ["t1"]
    assert left_out == {"t0": "its schema is nested more than 64 deep"}


MANY = MOST_PARTS + 10
LONG = {
    "numbers": b"1," * MANY,
    "objects": b'{"":[]},' * MANY,
    "words": b'"\\"a,",' * MANY,
    "brackets": b"[" * MANY,
    "an unclosed word before": b"1," * MANY + b'"',
}


@pytest.mark.soak
@pytest.mark.parametrize("parts", LONG.values(), ids=LONG)
def test_an_answer_of_too_many_parts_is_refused_before_it_is_parsed(parts):
    message = b'{"jsonrpc": "2.0", "id": 1, "result": {"a": [%s 1]}}' % parts
    assert why_refused(message) == "the answer has more than 500,000 parts"
    with pytest.raises(httpx2.StreamError, match="more than 500,000 parts"):
        by_http(message)
    with pytest.raises(httpx2.StreamError, match="more than 500,000 parts"):
        by_http(b"data: " + message + b"\n\n", "text/event-stream")

    async def read():
        incoming = Incoming(LogRing(str), {1}, lambda: None)
        incoming.data_received(message + b"\n")
        return (await incoming.receive()).message.error.message

    assert asyncio.run(read()) == "the answer has more than 500,000 parts"


@pytest.mark.parametrize("text", [b"x,y[{" * MANY, b'\\",[' * MANY, b"\\\\" * MANY])
def test_long_texts_are_one_part(text):
    assert why_refused(b'{"result": "%s"}' % text) == ""


def requests(numbers):
    lines = ({"jsonrpc": "2.0", "id": number, "method": "ping"} for number in numbers)
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def test_a_server_that_asks_without_end_is_heard_up_to_a_limit():
    async def heard():
        unanswered = Unanswered(LogRing(str))
        incoming = Incoming(LogRing(str), set(), lambda: None, unanswered)
        incoming.data_received(requests([*range(MOST_UNANSWERED + 50), 7, "7"]))
        first = [(await incoming.receive()).message.id for _ in range(MOST_UNANSWERED)]
        unanswered.answered(types.JSONRPCResponse(jsonrpc="2.0", id=7, result={}))
        error = types.ErrorData(code=1, message="no")
        unanswered.answered(types.JSONRPCError(jsonrpc="2.0", id=8, error=error))
        incoming.data_received(requests([7, 7, "a", "b"]))
        incoming.connection_lost(None)
        return first, [each.message.id async for each in incoming]

    first, then = asyncio.run(heard())
    assert (first, then) == ([*range(MOST_UNANSWERED)], [7, "a"])


def test_of_a_result_some_parts_are_read():
    part = {"type": "text", "text": "a"}
    message = types.JSONRPCResponse(jsonrpc="2.0", id=1, result={"content": [part] * 5_000})
    MessageFilter()(SessionMessage(message))
    assert len(message.result["content"]) == 2_001
    assert message.result["content"][-1]["text"] == "[3,000 more parts are left out]"
