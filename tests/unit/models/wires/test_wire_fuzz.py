"""Both wires against streams that are cut, repeated, shuffled and strewn with noise.

Whatever comes: no crash but a `FatalError`, and no item that the stream does not hold.
"""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magics.models.base import ItemDone, TextChunk
from agent_magics.models.providers.endpoints import Dialect
from agent_magics.models.wires.chat.model import ChatDecoder
from agent_magics.models.wires.responses.model import ResponseDecoder
from agent_magics.models.wires.sse import encode_event, reply_events
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import (
    AssistantMessage,
    Citation,
    FunctionCall,
    WebSearchCall,
)
from tests.support.models.server import DONE, chat_events, chunk, tool_call

pytestmark = pytest.mark.soak

TEXT = "Let me see: é, “quotes”, 𝄞 and\na line."
CALLS = [("f", '{"a": "é\\n"}', "call_1"), ("g", "{}", "call_2")]
PAGE = {
    "type": "url_citation",
    "url": "https://a.example/",
    "title": "A",
    "start_index": 0,
    "end_index": 3,
}
CITED = (Citation("https://a.example/", "A", 0, 3),)
SEARCH = WebSearchCall({"type": "search", "query": "a"})
ITEMS = [
    AssistantMessage(TEXT, citations=CITED),
    *(FunctionCall(call_id, name, arguments) for name, arguments, call_id in CALLS),
]


def numbered(events):
    """The API's sequence numbers and places, which its real events carry."""
    for number, event in enumerate(events):
        head, _, data = event.partition(b"\ndata: ")
        fields = {**json.loads(data), "sequence_number": number}
        yield head + b"\ndata: " + json.dumps(fields).encode() + b"\n\n"


def responses_stream():
    content = [{"type": "output_text", "text": TEXT, "annotations": [PAGE]}]
    items = [
        {"type": "web_search_call", "id": "ws", "status": "completed", "action": SEARCH.action},
        {"type": "message", "id": "m", "content": content},
    ]
    for name, arguments, call_id in CALLS:
        call = {"call_id": call_id, "name": name, "arguments": arguments}
        items.append({"type": "function_call", "id": f"fc_{call_id}", **call})
    events = list(numbered(reply_events(items)))
    return [event for event in events if b"output_item.done" not in event or b'"item"' in event]


def chat_stream():
    calls = [tool_call(name, text, call_id, n) for n, (name, text, call_id) in enumerate(CALLS)]
    first, *events = chat_events(TEXT, calls)
    return [first, CHAT_PAGE, *events]


CHAT_PAGE = chunk({"annotations": [{"type": "url_citation", "url_citation": PAGE}]})
WIRES = {
    "responses": (ResponseDecoder, responses_stream(), (TEXT, [SEARCH, *ITEMS])),
    "chat": (ChatDecoder, chat_stream(), (TEXT, ITEMS)),
}
NOISE = (
    b": a comment\n\n",
    b"event: ping\ndata: {}\n\n",
    b'event: response.unheard_of\ndata: {"sequence_number":0}\n\n',
    b"event: unheard.of\ndata: not JSON\n\n",
    b"id: 7\nretry: 10\n\n",
    b"\n\n",
    b'data: {"object":"chat.completion.chunk","choices":[]}\n\n',
    b'data: {"type":"x"}\n\n',
)


@pytest.fixture(params=WIRES)
def wire(request):
    return WIRES[request.param]


def read(decoder, pieces):
    """Feed the pieces; return the shown text and the items, ids of the provider left out."""
    events = []
    for piece in pieces:
        if decoder.done is None:
            events += decoder.feed(piece)
    if decoder.done is None:
        events += decoder.close()
    text = "".join(event.text for event in events if isinstance(event, TextChunk))
    return text, [replace(event.item, id=None) for event in events if isinstance(event, ItemDone)]


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_split_at_every_byte(wire, line_end):
    make, events, expected = wire
    stream = b"".join(events).replace(b"\n", line_end)
    for cut in range(len(stream)):
        assert read(make(), [stream[:cut], stream[cut:]]) == expected
    assert read(make(), [stream[n : n + 1] for n in range(len(stream))]) == expected


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_noise_between_events_changes_nothing(data):
    for make, events, expected in WIRES.values():
        noisy = []
        for event in events:
            noisy += data.draw(st.lists(st.sampled_from(NOISE), max_size=2))
            noisy.append(event)
        assert read(make(), noisy) == expected


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_repeated_events_make_no_second_item(data):
    """On Responses any event may come twice; on chat those that can be told from new ones."""
    make, events, expected = WIRES["responses"]
    twice = [event for event in events for _ in range(data.draw(st.integers(1, 2)))]
    assert read(make(), twice) == expected
    make, _, expected = WIRES["chat"]
    whole = [tool_call(name, text, call_id, n) for n, (name, text, call_id) in enumerate(CALLS)]
    calls = [chunk({"tool_calls": [call]}) for call in whole]
    stream = [
        *(chunk({"role": "assistant", "content": ""}) for _ in range(2)),
        *(CHAT_PAGE for _ in range(2)),
        chunk({"content": TEXT}),
        *(event for event in calls for _ in range(data.draw(st.integers(1, 3)))),
        *(chunk({}, "tool_calls") for _ in range(2)),
        DONE,
        DONE,
    ]
    assert read(make(), stream) == expected


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_reordered_events_make_no_wrong_item(random):
    """Items are those of the stream, in whatever order they came; text may be out of order."""
    make, events, expected = WIRES["responses"]
    shuffled = events[:-1]
    random.shuffle(shuffled)
    items = read(make(), [*shuffled, events[-1]])[1]
    assert sorted(items, key=repr) == sorted(expected[1], key=repr)
    # On chat the pieces of one call have no numbers; whole calls may come in any order.
    make, _, expected = WIRES["chat"]
    calls = [tool_call(name, text, call_id, n) for n, (name, text, call_id) in enumerate(CALLS)]
    middle = [
        chunk({"content": TEXT}),
        CHAT_PAGE,
        *(chunk({"tool_calls": [call]}) for call in calls),
    ]
    random.shuffle(middle)
    items = read(make(), [*middle, chunk({}, "stop"), DONE])[1]
    assert sorted(items, key=repr) == sorted(expected[1], key=repr)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_stream_cut_or_garbled_anywhere_never_crashes(data):
    for make, events, _ in WIRES.values():
        stream = bytearray(b"".join(events))
        for _ in range(data.draw(st.integers(0, 4))):
            stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
        stream = bytes(stream[: data.draw(st.integers(0, len(stream)))])
        decoder = make()
        try:
            read(decoder, [stream])
        except FatalError:
            continue
        if decoder.done is None:
            assert str(decoder.unfinished())


def test_a_stream_cut_anywhere_gives_no_half_call(wire):
    make, events, _ = wire
    stream = b"".join(events)
    whole = ITEMS[1:]
    for cut in range(len(stream)):
        _, items = read(make(), [stream[:cut]])
        assert all(item in whole for item in items if isinstance(item, FunctionCall))


FIELDS = (
    *("choices", "delta", "message", "content", "tool_calls", "function", "name", "arguments"),
    *("index", "id", "usage", "finish_reason", "error", "code", "reasoning", "refusal", "type"),
    *("item", "response", "output", "text", "output_index", "sequence_number", "action", "status"),
    *("annotations", "url_citation", "url", "title", "start_index", "reasoning_details"),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(FIELDS),
            inner,
            max_size=5,
        )
    ),
    max_leaves=15,
)
CHUNKS = st.fixed_dictionaries(
    {"choices": st.lists(st.fixed_dictionaries({"delta": JSON}), max_size=2)}
)


@settings(max_examples=200, deadline=None)
@given(st.lists(CHUNKS | JSON, max_size=5))
def test_any_json_in_chat_events_never_crashes(values):
    decoder = ChatDecoder(dialect=Dialect(reasoning_details=True))
    try:
        read(decoder, [b"data: " + json.dumps(value).encode() + b"\n\n" for value in values])
    except FatalError:
        return


NAMES = (
    "response.output_text.delta",
    "response.output_item.added",
    "response.output_item.done",
    "response.completed",
    "response.incomplete",
    "response.failed",
    "error",
    "",
)
SHAPES = st.dictionaries(
    st.sampled_from(
        ["type", "delta", "item", "response", "error", "output_index", "sequence_number"]
    ),
    JSON,
) | st.fixed_dictionaries(
    {
        "item": st.fixed_dictionaries(
            {
                "type": st.sampled_from(
                    ["message", "reasoning", "function_call", "local_shell_call", "web_search_call"]
                )
            },
            optional=dict.fromkeys(
                ("content", "summary", "action", "arguments", "id", "status"), JSON
            ),
        )
    }
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(NAMES), SHAPES), max_size=4))
def test_any_json_in_responses_events_never_crashes(events):
    decoder = ResponseDecoder()
    try:
        read(decoder, [encode_event(name, {**fields}) for name, fields in events])
    except FatalError:
        return
