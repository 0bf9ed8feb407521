"""What an answer becomes on its way into a file: the same for a client, and nothing personal."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.models.base import ItemDone, TextChunk
from agent_magics.models.recordings.cleaning import OPAQUE, clean_sse, sse_bytes
from agent_magics.models.recordings.redaction import Hider
from agent_magics.models.wires.chat.model import ChatDecoder
from agent_magics.models.wires.responses.model import ResponseDecoder
from agent_magics.models.wires.sse import encode_event, reply_events
from agent_magics.protocol.errors import FatalError
from tests.support.models.server import chat_events, chunk, tool_call

PATHS = (("/home/ann/project", "cwd"), ("/home/ann", "home"))
KEY = "key-of-ann-0815"
DECODERS = {"responses": ResponseDecoder, "chat": ChatDecoder}


def hider():
    return Hider(PATHS, [KEY])


def clean(*events):
    return clean_sse(b"".join(events), hider())


def decoded(wire, data):
    decoder = DECODERS[wire]()
    events = decoder.feed(data) + decoder.close()
    text = "".join(event.text for event in events if isinstance(event, TextChunk))
    return text, [event.item for event in events if isinstance(event, ItemDone)], decoder.done


def message(text):
    content = [{"type": "output_text", "text": text}]
    return {"id": "msg_77", "type": "message", "content": content}


def responses_events(text):
    """An answer whose text comes letter by letter."""
    place = {"item_id": "msg_77", "output_index": 0, "content_index": 0}
    deltas = [encode_event("response.output_text.delta", {**place, "delta": one}) for one in text]
    end = {"status": "completed", "id": "resp_1", "instructions": "Be /home/ann", "usage": None}
    return [
        encode_event("response.created", {"response": {"id": "resp_1", "tools": ["secret"]}}),
        *deltas,
        encode_event("response.output_item.done", {"output_index": 0, "item": message(text)}),
        encode_event("response.completed", {"response": end}),
    ]


TEXT = f"See /home/ann/project/a.py with {KEY}, not {{cwd}}."
CLEAN = "See {cwd}/a.py with [API key], not {literal:cwd}."


def test_what_a_responses_stream_cuts_in_pieces_is_found():
    sse = clean(*responses_events(TEXT))
    text, (item,), done = decoded("responses", sse_bytes(sse))
    assert text == item.text == CLEAN
    assert done is not None
    for personal in ("ann", KEY, "msg_77", "resp_1", "secret", "instructions"):
        assert personal not in sse
    assert sse.count("response.output_text.delta") == 2 * len(TEXT)  # every event is still there


def test_what_a_chat_stream_cuts_in_pieces_is_found():
    arguments = json.dumps({"path": "/home/ann/project/a.py", "key": KEY})
    events = [chunk({"content": letter}) for letter in TEXT]
    events += [chunk({"reasoning_content": letter}) for letter in TEXT]
    events += chat_events(calls=[tool_call("f", arguments, "call_of_ann")])
    sse = clean(*events)
    text, items, done = decoded("chat", sse_bytes(sse))
    assert text == CLEAN
    assert json.loads(items[-1].arguments) == {"path": "{cwd}/a.py", "key": "[API key]"}
    assert items[-1].call_id == "call_of_ann"
    assert done is not None
    assert KEY not in sse
    assert "home" not in sse
    assert "chatcmpl-1" not in sse


def test_calls_that_are_streamed_side_by_side_stay_apart():
    pieces = [('{"a":"/ho', 0), ('{"b":"x', 1), ("me/ann", 0), ('y"}', 1), ('"}', 0)]
    events = [chunk({"tool_calls": [tool_call("f", "", f"c{n}", n)]}) for n in (0, 1)]
    events += [
        chunk({"tool_calls": [{"index": n, "function": {"arguments": text}}]}) for text, n in pieces
    ]
    sse = clean(*events, chunk({}, "tool_calls"), b"data: [DONE]\n\n")
    _, items, _ = decoded("chat", sse_bytes(sse))
    assert [item.arguments for item in items] == ['{"a":"{home}"}', '{"b":"xy"}']


GIVEN_NAMES = st.sampled_from(
    (
        *sorted(OPAQUE),
        *("id", "item_id", "type", "role", "choices", "delta", "index", "response", "output"),
    )
)
GIVEN = st.dictionaries(
    GIVEN_NAMES | st.just("/home/ann"),
    st.recursive(
        st.integers() | st.sampled_from(["a", "/home/ann/x", "x", KEY]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(GIVEN_NAMES, inner, max_size=4),
        max_leaves=8,
    ),
    max_size=5,
)


def chat_call(**call):
    return [chunk({"tool_calls": [{"index": 0, "id": "c", **call}]}), chunk({}, "tool_calls")]


def older_call(given):
    return [chunk({"function_call": {"name": "f", "arguments": given}}, "function_call")]


def whole_call(given):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": given}}
    choice = {"index": 0, "message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}
    return [json.dumps({"object": "chat.completion", "choices": [choice]}).encode()]


def shell_call(given):
    action = {"type": "exec", "command": ["ls"], "env": given}
    item = {"id": "l", "type": "local_shell_call", "call_id": "c", "status": "completed"}
    return reply_events([{**item, "action": action}])


@pytest.mark.parametrize(
    ("wire", "events"),
    [
        ("chat", lambda given: chat_call(function={"name": "f", "arguments": given})),
        ("chat", lambda given: chat_call(custom={"name": "f", "input": given})),
        ("chat", older_call),
        ("chat", whole_call),
        ("responses", shell_call),
    ],
)
@given(given=GIVEN)
def test_a_tool_gets_what_the_model_gave_whatever_the_names_in_it(wire, events, given):
    data = b"".join(events(given))
    cleaned = clean(data)
    assert "/home/ann" not in cleaned and KEY not in cleaned
    _, (before,), _ = decoded(wire, data)
    _, (after,), _ = decoded(wire, sse_bytes(cleaned))
    if wire == "chat":
        assert after.arguments == hider()(before.arguments)
    else:
        assert after.command == tuple(map(hider(), before.command))


def test_what_is_opaque_is_left_out():
    item = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "opaque1"}
    delta = {"delta": "x", "obfuscation": "opaque2", "logprobs": ["opaque3"]}
    sse = clean(encode_event("response.output_text.delta", delta), *reply_events([item]))
    assert "opaque" not in sse
    assert '"id":"item_1"' in sse


def test_events_of_unknown_kinds_stay():
    event = encode_event("response.telepathy.delta", {"delta": {"thought": "/home/ann"}, "n": 1})
    assert clean(event, b": a comment\n\n") == (
        'event: response.telepathy.delta\ndata: {"type":"response.telepathy.delta",'
        '"delta":{"thought":"{home}"},"n":1}\n\n'
    )


def test_deltas_that_came_twice_do_not_part_a_path():
    letters = list("/home/ann!")
    events = [
        encode_event("response.output_text.delta", {"delta": letter, "sequence_number": number})
        for number, letter in enumerate(letters)
        for _ in "12"
    ]
    assert decoded("responses", sse_bytes(clean(*events)))[0] == "{home}!"


def test_an_answer_that_is_a_document():
    document = {"object": "response", "id": "resp_1", "instructions": "x", "status": "completed"}
    output = [message("In /home/ann.")]
    sse = clean(json.dumps({**document, "output": output}).encode())
    text, _, done = decoded("responses", sse_bytes(sse))
    assert text == "In {home}."
    assert done is not None
    assert "instructions" not in sse
    assert "resp_1" not in sse


def test_half_an_event_at_the_end_is_left_out():
    whole = encode_event("response.output_text.delta", {"delta": "Hello"})
    assert clean(whole, whole[:-20]) == whole.decode()
    assert clean(whole, whole.rstrip()) == whole.decode() * 2


def test_bytes_that_are_no_text_stay_as_they_are():
    garbage = b"event: x\ndata: \xff\xfe{ /home/ann\n\n"
    text = clean(garbage)
    assert sse_bytes(text) == b"event: x\ndata: \xff\xfe{ {home}\n\n"
    assert sse_bytes(json.loads(json.dumps(text))) == sse_bytes(text)
    assert clean(b'{"half a document \xff /home/ann') == '{"half a document \udcff {home}'
    assert sse_bytes("by hand \ud83d") == b"by hand ?"


LINES = st.sampled_from(
    [
        *(b"\n", b"\r\n", b"data: ", b"event: response.output_text.delta\n", b"data: {", b"}"),
        *(b'"delta":', b'"a"', b"[1]", b"null", b"\xff", b'{"choices":[{"delta":', b"/home/ann"),
        *(b'{"type":"response.completed","response":{"output":[', b"data: [DONE]\n\n"),
        *(b'"tool_calls":[{"index":', b'{"id":5}', b'"item":{"id":"a","type":"message"}', b"]"),
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("/home/ann"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ("delta", "choices", "id", "item_id", "index", "type", "response", "function")
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
EVENTS = st.lists(
    JSON.map(lambda value: b"data: " + json.dumps(value).encode() + b"\n\n") | LINES, max_size=8
)


@given(EVENTS)
def test_whatever_came_is_cleaned_and_read_alike(pieces):
    data = b"".join(pieces)
    text = clean(data)
    text.encode("utf-8", "backslashreplace")
    for wire in DECODERS:
        assert outcome(wire, sse_bytes(text)) == outcome(wire, data)


def outcome(wire, data):
    """What a client makes of an answer: the kinds of its items, and how it ends."""
    try:
        _, items, done = decoded(wire, data)
    except FatalError as error:
        return type(error)
    return [type(item) for item in items], done is not None


# Hypothesis also draws constants of the package, such as "/tmp" and "{tmp}", which are replaced.
IMPERSONAL = st.text(st.characters(exclude_characters="/{"))


@pytest.mark.parametrize("wire", list(DECODERS))
@given(text=IMPERSONAL, cuts=st.lists(st.integers(0, 60), max_size=8))
def test_an_answer_without_anything_personal_reads_the_same(wire, text, cuts):
    places = zip([0, *sorted(cuts)], [*sorted(cuts), None], strict=True)
    pieces = [text[first:last] for first, last in places]
    if wire == "chat":
        events = [chunk({"content": piece}) for piece in pieces]
        data = b"".join([*events, chunk({}, "stop"), b"data: [DONE]\n\n"])
    else:
        data = b"".join(responses_events(text))
    before, after = decoded(wire, data), decoded(wire, sse_bytes(clean(data)))
    assert after[0] == before[0]
    assert after[2] == before[2]
