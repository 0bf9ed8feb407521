"""SSE bytes split anywhere, in every form the standard allows."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.models.wires.sse import SseDecoder, encode_event, reply_events

PLAIN = b'event: a\ndata: {"x":1}\n\nevent: b\ndata: two\n\n'


def decode(*chunks):
    decoder = SseDecoder()
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    return events + decoder.close()


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (PLAIN, [(b"a", b'{"x":1}'), (b"b", b"two")]),
        (b"event:a\ndata:1\n\n", [(b"a", b"1")]),
        (b"data: 1\nevent: late\n\n", [(b"late", b"1")]),
        (b"event: a\ndata: 1\ndata: 2\n\n", [(b"a", b"1\n2")]),
        (b"data: 1\ndata\ndata:  3\n\n", [(b"", b"1\n\n 3")]),
        (b": hello\n\nevent: a\n: inside\ndata: 1\n\n", [(b"a", b"1")]),
        (b"event: a\nid: 7\nretry: 5\ndata: 1\n\n", [(b"a", b"1")]),
        (b"event: no data\n\ndata: 1\n\n", [(b"", b"1")]),
        (b"\n\n\n\ndata: 1\n\n\n\n\ndata: 2\n\n", [(b"", b"1"), (b"", b"2")]),
        (b"\xef\xbb\xbfevent: a\ndata: 1\n\n", [(b"a", b"1")]),
        (b"\xef\xbb\xbf\n\nevent: a\ndata: 1\n\n", [(b"a", b"1")]),
        (b"event: a\ndata: the end", [(b"a", b"the end")]),
        (b"event: a\ndata: x\r", [(b"a", b"x")]),
        (b"", []),
        (b"\xef\xbb", []),
        ("data: \u2028é\x0b\n\n".encode(), [(b"", "\u2028é\x0b".encode())]),
    ],
)
def test_forms_of_events(stream, events):
    assert decode(stream) == events


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_split_at_every_byte(line_end):
    stream = b"\xef\xbb\xbf" + (b": c\n" + PLAIN + b"data: 1\ndata: 2\n\n").replace(b"\n", line_end)
    expected = [(b"a", b'{"x":1}'), (b"b", b"two"), (b"", b"1\n2")]
    assert decode(*(stream[i : i + 1] for i in range(len(stream)))) == expected
    for cut in range(len(stream) + 1):
        assert decode(stream[:cut], stream[cut:]) == expected


FIELD = st.text(st.characters(exclude_characters="\r\n", exclude_categories=("Cs",)), max_size=8)


@given(
    st.lists(st.tuples(FIELD, st.lists(FIELD, min_size=1, max_size=3)), max_size=5),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.lists(st.integers(0, 200), max_size=8),
)
def test_any_events_split_anywhere(events, line_end, cuts):
    lines = []
    for name, data in events:
        lines += [f"event: {name}", *(f"data: {line}" for line in data), ""]
    stream = b"".join(line.encode() + line_end for line in lines)
    edges = sorted({0, len(stream), *(min(cut, len(stream)) for cut in cuts)})
    chunks = [stream[a:b] for a, b in itertools.pairwise(edges)]
    expected = [(name.encode(), "\n".join(data).encode()) for name, data in events]
    assert decode(*chunks) == expected


@given(st.text())
def test_a_written_reply_is_read_back(text):
    item = {"type": "message", "content": [{"type": "output_text", "text": text}]}
    events = decode(b"".join(reply_events([item])))
    deltas = [json.loads(data)["delta"] for name, data in events if name.endswith(b".delta")]
    assert "".join(deltas) == text
    done = [json.loads(data)["item"] for name, data in events if name.endswith(b"item.done")]
    assert done == [item]
    assert events[-1][0] == b"response.completed"


def test_events_name_themselves_twice():
    expected = 'event: a.b\ndata: {"type":"a.b","x":"é"}\n\n'
    assert encode_event("a.b", {"x": "é"}) == expected.encode()
