"""Whatever a model server sends is bounded, of its type, and read in linear time, on both wires."""

import asyncio
import copy
import gzip
import json
import math
import time
import typing
from dataclasses import fields, is_dataclass
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magics.models.base import ModelRequest, Notice, ResponseDone
from agent_magics.models.bounds import (
    ANSWER_BYTES,
    EVENT_BYTES,
    MEGABYTE,
    MOST_PARTS,
    NAME_LENGTH,
    TEXT_LENGTH,
)
from agent_magics.models.faults import Fault, retry_after
from agent_magics.models.provider import open_model
from agent_magics.models.providers.endpoints import Dialect
from agent_magics.models.recordings.scripted import SeenHistory
from agent_magics.models.retry import RetryPolicy, Shown
from agent_magics.models.wires.chat.model import ChatDecoder
from agent_magics.models.wires.responses.model import ResponseDecoder
from agent_magics.models.wires.sse import encode_event, reply_events
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import Usage, UserMessage
from tests.support.models.responses_server import Reply
from tests.support.models.server import DONE, ModelServer, chat_events, chunk, tool_call

pytestmark = pytest.mark.soak


def chat_decoder():
    return ChatDecoder(dialect=Dialect(reasoning_details=True))


DECODERS = {"responses": ResponseDecoder, "chat": chat_decoder}


def read(decoder, pieces):
    """Feed the pieces; return all model events, the end included."""
    events = []
    for piece in pieces:
        if decoder.done is None:
            events += decoder.feed(piece)
    events += decoder.close()
    return [*events, *([decoder.done] if decoder.done else [])]


# -- sizes ----------------------------------------------------------------------------------------

MB = b"x" * MEGABYTE
MANY = 40
TOO_LONG = {
    "a line without an end": [b"data: ", *[MB] * MANY],
    "a comment without an end": [b": ", *[MB] * MANY],
    "an event without an end": [b"data: " + MB + b"\n"] * MANY,
    "empty lines of data": [b"data:\n" * (MEGABYTE // 6)] * MANY,
    "a document without an end": [b'{"a": "', *[MB] * MANY],
    "a document of white space": [b"{", *[b" " * MEGABYTE] * MANY],
}


@pytest.mark.parametrize("wire", DECODERS)
@pytest.mark.parametrize("case", TOO_LONG)
def test_nothing_is_kept_that_is_longer_than_an_event(wire, case):
    sent = iter(TOO_LONG[case])
    with pytest.raises(Fault, match=r"refused: .* of more than 16 MB") as caught:
        read(DECODERS[wire](), sent)
    unread = sum(map(len, sent))
    assert unread >= (MANY - 2) * MEGABYTE - EVENT_BYTES
    assert not caught.value.passing  # it would be the same again


def item(number, **fields):
    return encode_event("response.output_item.done", {"output_index": number, "item": fields})


def call_item(number, name="f", call_id="c", arguments="{}"):
    names = {"call_id": call_id, "name": name, "arguments": arguments}
    return item(number, type="function_call", **names)


def chat_call(number, name="f", call_id="", arguments="{}"):
    return chunk({"tool_calls": [tool_call(name, arguments, call_id or f"c{number}", number)]})


HALF = "y" * (MEGABYTE // 2)
TOO_MUCH = {
    "text": (
        encode_event("response.output_text.delta", {"delta": HALF}),
        chunk({"content": HALF}),
    ),
    "reasoning": (
        encode_event("response.reasoning_text.delta", {"delta": HALF}),
        chunk({"reasoning": HALF}),
    ),
    "a call's name": (
        call_item(0, name="n" * NAME_LENGTH),
        chat_call(0, name="n" * NAME_LENGTH),
    ),
    "a call's id": (
        call_item(0, call_id="n" * NAME_LENGTH),
        chat_call(0, call_id="n" * NAME_LENGTH),
    ),
}


@pytest.mark.parametrize("wire", DECODERS)
@pytest.mark.parametrize("case", TOO_MUCH)
def test_what_an_answer_holds_is_bounded(wire, case):
    piece = TOO_MUCH[case][wire == "chat"]
    with pytest.raises(Fault, match="answer was refused"):
        read(DECODERS[wire](), [piece] * (2 * TEXT_LENGTH // MEGABYTE + 1))


@pytest.mark.parametrize(("wire", "call"), [("responses", call_item), ("chat", chat_call)])
def test_the_number_of_calls_is_bounded(wire, call):
    with pytest.raises(Fault, match=f"a number of .*calls of more than {MOST_PARTS:,}"):
        read(DECODERS[wire](), map(call, range(MOST_PARTS + 1)))


def test_the_arguments_of_a_chat_call_are_bounded():
    pieces = [chunk({"tool_calls": [{"index": 0, "function": {"arguments": HALF}}]})] * 17
    with pytest.raises(Fault, match="a call's arguments of more than 8 MB"):
        read(chat_decoder(), pieces)


def ask(server, wire):
    """Return the events of one request, or its fault."""

    async def run():
        request = ModelRequest("m", "", SeenHistory((UserMessage("hi"),)), (), "hi", 1)
        policy = RetryPolicy(tries=1)
        model = open_model(wire, base_url=server.base_url, api_key="k", retries=policy)
        try:
            return [event async for event in model.stream(request)]
        finally:
            await model.close()

    return asyncio.run(run())


BOMBS = {
    "a line": lambda: b"data: " + bytes(64 * MEGABYTE),
    "many lines": lambda: b": keep alive\n" * (ANSWER_BYTES // 13),
}


@cache  # each takes a second: once, and not in each worker that only collects the tests
def packed(bomb, times=1):
    return gzip.compress(packed(bomb, times - 1)) if times else BOMBS[bomb]()


@pytest.mark.parametrize("wire", DECODERS)
@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.parametrize("status", [200, 400, 503])
def test_a_small_answer_that_unpacks_to_a_large_one(wire, bomb, status):
    headers = [("content-encoding", "gzip")]
    reply = Reply(status=status, document=packed(bomb), headers=headers, content_type="text/plain")
    with ModelServer([reply], [reply]) as server, pytest.raises(Fault) as caught:
        ask(server, wire)
    assert ("refused" if status == 200 else str(status)) in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("wire", DECODERS)
@pytest.mark.parametrize("encoding", ["gzip, gzip", "deflate,gzip", "br", "zstd", "GZIP, identity"])
@pytest.mark.parametrize("status", [200, 400])
def test_what_unpacks_without_a_bound_is_not_unpacked(wire, encoding, status):
    headers = [("content-encoding", encoding)]
    bomb = packed("a line", times=2)
    reply = Reply(status=status, document=bomb, headers=headers, content_type="text/plain")
    with ModelServer([reply], [reply]) as server, pytest.raises(Fault) as caught:
        ask(server, wire)
    assert (f"it is compressed with {encoding.lower()!r}" if status == 200 else "400") in str(
        caught.value
    )


# -- types ----------------------------------------------------------------------------------------

HOSTILE = (
    *(None, True, False, -1, 0, 3, 10**30, 10**400, 1.5, -2.5, 1e308, math.nan, math.inf),
    *("", "ten", "\ud800", "\x00\x1b[2J", "x" * 5000, "9" * 5000, [], [[]], [None], ["a", 1], {}),
    *({"a": 1}, {"message": {"message": {"error": []}}}, [{"type": "text"}], [{"text": 1}]),
)
NESTED = json.loads("[" * 150 + "]" * 150)
ANY = st.sampled_from([*HOSTILE, NESTED])


def responses_events():
    page = {"type": "url_citation", "url": "https://a/", "title": "t", "start_index": 0}
    part = {"type": "output_text", "text": "Hello.", "annotations": [{**page, "end_index": 2}]}
    action = {"type": "search", "query": "q", "queries": ["q"], "sources": [{"url": "https://b/"}]}
    command = {"command": ["ls"], "working_directory": "/", "timeout_ms": 5, "env": {}}
    names = {"call_id": "c", "id": "i", "status": "completed"}
    items = [
        {"type": "reasoning", "id": "r", "summary": [{"text": "s"}], "encrypted_content": "e"},
        {"type": "message", "id": "m", "content": [part, {"type": "refusal", "refusal": "no"}]},
        {"type": "function_call", **names, "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", **names, "name": "f", "input": "x"},
        {"type": "local_shell_call", **names, "action": command},
        {"type": "web_search_call", "id": "w", "status": "completed", "action": action},
    ]
    usage = {
        "input_tokens": 1,
        "output_tokens": 2,
        "input_tokens_details": {"cached_tokens": 1},
        "output_tokens_details": {"reasoning_tokens": 1},
        "cost": 0.5,
    }
    failure = {"code": "server_error", "type": "x", "message": "no"}
    return [
        *(as_fields(event) for event in reply_events(items, usage=usage)),
        {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "x"}}},
        {"type": "response.failed", "response": {"error": failure}},
        {"type": "error", **failure, "sequence_number": 1},
        {"object": "response", "status": "completed", "output": items, "usage": usage},
    ]


def as_fields(event):
    return json.loads(event.partition(b"data: ")[2])


def chat_chunks():
    usage = {
        "prompt_tokens": 1,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 1},
        "prompt_cache_hit_tokens": 1,
        "completion_tokens_details": {"reasoning_tokens": 1},
        "cost": 0.5,
    }
    page = {"url": "https://a/", "title": "t", "start_index": 0, "end_index": 2}
    details = [{"type": "reasoning.text", "index": 0, "text": "t", "signature": "s"}]
    more = [
        {"content": [{"type": "thinking", "thinking": [{"text": "t"}]}, {"text": "b"}]},
        {"reasoning": "r", "reasoning_content": "c", "reasoning_details": details},
        {"refusal": "no", "annotations": [{"type": "url_citation", "url_citation": page}]},
        {"function_call": {"name": "f", "arguments": {"a": 1}}},
        {"tool_calls": [{**tool_call("f", "{}"), "extra_content": {"g": 1}}]},
    ]
    events = [*map(chunk, more), *chat_events("Hi", [tool_call("f", "{}")], usage=usage)[:-1]]
    return [*map(as_fields, events), {"error": {"message": "m", "code": 500, "type": "t"}}]


TEMPLATES = {"responses": responses_events(), "chat": chat_chunks()}


def places(value, at=()):
    """The path of each value inside a JSON value."""
    yield at
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*at, key))


def put(value, at, hostile):
    """A copy with another value at a path."""
    if not at:
        return hostile
    changed = whole = copy.deepcopy(value)
    for key in at[:-1]:
        changed = changed[key]
    changed[at[-1]] = hostile
    return whole


def sent(events):
    """The events as a server sends them."""
    return [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]


def misfits(value, kind):
    """Whether a value is not of its declared type; of dataclasses, whether a field is not."""
    if is_dataclass(value):
        hints = typing.get_type_hints(type(value))
        return any(misfits(getattr(value, each.name), hints[each.name]) for each in fields(value))
    kinds = {str: (str,), int: (int,), str | None: (str, type(None)), int | None: (int, type(None))}
    allowed = kinds.get(kind)
    return allowed is not None and (isinstance(value, bool) or not isinstance(value, allowed))


def check(wire, events):
    """Read the events: model events of their types, or one sentence."""
    try:
        came = read(DECODERS[wire](), sent(events))
    except FatalError as fault:
        assert 20 < len(str(fault)) < 1200  # noqa: PT017 - there need not be one
        return
    for event in came:
        assert not misfits(event, None), event
        if hasattr(event, "item"):
            assert not misfits(event.item, None), event
        if isinstance(event, ResponseDone):
            counts = [getattr(event.usage, each.name) for each in fields(Usage)[:4]]
            assert all(0 <= count <= 10**10 for count in counts), event
            assert event.usage.reported_cost is None or math.isfinite(event.usage.reported_cost)


PLACES = [
    (w, n, at) for w, all_ in TEMPLATES.items() for n, e in enumerate(all_) for at in places(e)
]


@pytest.mark.soak
@pytest.mark.parametrize("wire", TEMPLATES)
def test_each_field_with_each_hostile_value(wire):
    events = TEMPLATES[wire]
    for number, event in enumerate(events):
        for at in places(event):
            for hostile in (*HOSTILE, NESTED):
                changed = put(event, at, hostile)
                check(wire, [*events[:number][-1:], changed, *TEMPLATES[wire][-2:-1]])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PLACES), ANY), min_size=1, max_size=4))
def test_several_hostile_values_at_once(changes):
    wire = changes[0][0][0]
    events = copy.deepcopy(TEMPLATES[wire])
    for (other, number, at), hostile in changes:
        if other == wire and at in set(places(events[number])):
            events[number] = put(events[number], at, hostile)
    check(wire, events)


@pytest.mark.parametrize("value", ["ten", -1, True, [], {}, 10**30, math.inf, math.nan])
@pytest.mark.parametrize("wire", DECODERS)
def test_a_count_that_is_none_is_told_once_and_counts_as_none(wire, value):
    if wire == "chat":
        events = [chunk({"content": "a"}, usage={"prompt_tokens": value})] * 3
        events += [chunk({}, "stop", usage={"prompt_tokens": value}), DONE]
    else:
        events = reply_events([], usage={"input_tokens": value})
    came = read(DECODERS[wire](), events)
    (notice,) = [event for event in came if isinstance(event, Notice)]
    assert "which is no count" in notice.message
    assert came[-1].usage.input_tokens == 0


DEEP = b'{"a":' * 100_000


@pytest.mark.parametrize("wire", DECODERS)
@pytest.mark.parametrize("data", [DEEP, b"[" * 100_000, DEEP + b"1" + b"}" * 100_000])
def test_depth_is_bounded(wire, data):
    with pytest.raises(FatalError, match="event that is not JSON"):
        DECODERS[wire]().feed(b"data: " + data + b"\n\n")


# -- headers --------------------------------------------------------------------------------------

WAITS = (
    *("inf", "-inf", "nan", "1e999", "1_000", "9" * 400, "ten", "", " ", "0x10", "1,5", "٣", "+5"),
    *("Mon, 01 Jan 0001 00:00:00 -0000", "Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 99 Foo 1 1:1:1 X"),
    *("-5", "5", "1.5", "99999999999", "Sun, 06 Nov 1994 08:49:37 GMT"),
)


@given(st.sampled_from(["retry-after", "retry-after-ms"]), st.sampled_from(WAITS) | st.text())
def test_a_wait_is_a_finite_number_or_none(name, value):
    asked = retry_after({name: value})
    assert asked is None or 0 <= asked < 1e13


@pytest.mark.parametrize("wire", DECODERS)
@pytest.mark.parametrize(
    "header",
    [
        *(("retry-after", value) for value in ("inf", "nan", "1e999", "99999999999", "x" * 5000)),
        *(("retry-after-ms", value) for value in ("inf", "-1", "99999999999")),
        ("x-should-retry", "maybe"),
        ("location", "http://[::1"),
        ("content-encoding", "gzip"),
        ("content-encoding", "gzip, gzip, gzip, gzip, gzip, gzip, gzip"),
        ("content-encoding", "nonsense"),
    ],
)
@pytest.mark.parametrize("status", [301, 400, 429, 503, 599])
def test_hostile_headers_of_an_error(wire, header, status):
    reply = Reply(status=status, error="because", headers=[header])
    with ModelServer([reply], [reply]) as server, pytest.raises(Fault) as caught:
        ask(server, wire)
    assert str(status) in str(caught.value)


@pytest.mark.parametrize("charset", ["zlib", "hex", "rot13", "idna", "utf-7", "nonsense", "bz2"])
def test_an_error_is_read_as_utf_8_whatever_it_says_it_is(charset):
    kind = f"application/json; charset={charset}"
    body = json.dumps({"error": {"message": "so it is"}}).encode()
    reply = Reply(status=403, document=body, content_type=kind)
    with ModelServer([reply]) as server, pytest.raises(Fault, match="so it is"):
        ask(server, "responses")


@pytest.mark.parametrize(
    "body", [DEEP, b'{"data":' * 2000, b'{"data": [{"id": 1}, 2, {"id": "' + b"m" * 5000 + b'"}]}']
)
def test_a_hostile_list_of_models(body):
    missing = Reply(status=404, error="The model 'm' does not exist")
    server = ModelServer([missing], models=[Reply(document=body)])
    with server, pytest.raises(Fault) as caught:
        ask(server, "responses")
    assert len(str(caught.value)) < 2500


# -- time -----------------------------------------------------------------------------------------


def many_deltas(count):
    return lambda: read(ResponseDecoder(), [TOO_MUCH["text"][0][:-500] + b'"}\n\n'] * count)


def shown(count):
    """A text of many pieces that is cut off and comes again."""

    def run():
        seen = Shown()
        for _ in range(2):
            seen.begin()
            for _ in range(count):
                seen._receive_text("word ")

    return run


def pieces_of_a_call(piece):
    """A call whose pieces each look like its end."""
    function = {"name": "f", "arguments": piece}
    event = chunk({"tool_calls": [{"index": 0, "function": function}]})
    return lambda count: (
        lambda: read(chat_decoder(), [chat_call(0, arguments="{"), *[event] * count])
    )


def a_name_again(count):
    function = {"name": "f", "arguments": ""}
    event = chunk({"tool_calls": [{"index": 0, "id": "c", "function": function}]})
    return lambda: read(chat_decoder(), [event] * count)


def details(count):
    block = {"type": "reasoning.text", "index": 0, "text": "word" * 50}
    return lambda: read(chat_decoder(), [chunk({"reasoning_details": [block]})] * count)


def citations(count):
    def page(number):
        return {"type": "url_citation", "url_citation": {"url": f"https://a/{number}"}}

    event = chunk({"annotations": [page(number) for number in range(count)]})
    return lambda: read(chat_decoder(), [event])


GROWING = {
    "shown again": (shown, 20_000),
    "a call of closing braces": (pieces_of_a_call("}" * 50), 2_000),
    "a call of open braces": (pieces_of_a_call('{"a}' * 20), 2_000),
    "a call's name again and again": (a_name_again, 4_000),
    "reasoning in blocks": (details, 5_000),
    "citations": (citations, 2_000),
}


@pytest.mark.soak
@pytest.mark.parametrize("case", GROWING)
def test_four_times_as_much_takes_about_four_times_as_long(case):
    make, count = GROWING[case]

    def seconds(many):
        run = make(many)
        taken = []
        for _ in range(3):
            start = time.thread_time()
            run()
            taken.append(time.thread_time() - start)
        return min(taken)

    assert seconds(4 * count) < 10 * seconds(count) + 0.01
