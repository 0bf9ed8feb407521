"""Recordings: reading, what is wrong with a line, what is skipped, and writing the same again."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.models.recordings.format import (
    ENDINGS,
    WIRES,
    Exchange,
    Header,
    RecordedAnswer,
    exchange_line,
    header_line,
    parse_recording,
    read_recording,
    turns_of,
)
from agent_magics.models.recordings.handwritten import write_reply
from agent_magics.models.recordings.text import is_whole
from agent_magics.models.wire_capture import HEADERS
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import FunctionCall

HEADER = {"format": "agent-magics-recording", "version": 1, "by": "hand", "model": "m", "note": "n"}
GOOD = {"prompt": "p", "number": 1, "sse": ""}
PATH = Path("x.agent.jsonl")


def write_lines(path, *lines):
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def test_a_recording_written_by_hand(tmp_path):
    reply = [
        {"reasoning": "Hm."},
        {"text": "Let me look."},
        {"call": "f", "arguments": {"a": 1}},
        {"call": "g", "arguments": "{}"},
        {"custom": "p", "input": "*** Begin"},
    ]
    line = {"prompt": "p", "number": 1, "reply": reply}
    path = write_lines(tmp_path / "r.jsonl", HEADER, "", line, {**line, "outputs": ["x"]})
    recording = read_recording(path)
    assert recording.header == Header("hand", "m", "n")
    assert recording.notice == ""
    first, second = recording.exchanges
    assert (first.prompt, first.number, first.outputs, first.line) == ("p", 1, None, 3)
    assert second.outputs == ("x",)
    assert '"arguments":"{\\"a\\": 1}"' in first.answer.sse
    assert first.answer.sse.count("event: response.output_item.done") == 5
    assert first.answer.sse.rstrip().rpartition("event: ")[2].startswith("response.completed")


def test_replies_are_whole_answers():
    sse = write_reply([FunctionCall("c", "f", "{}")]).decode()
    assert '"status":"completed"' in sse
    assert sse.rstrip().rpartition("event: ")[2].startswith("response.completed")


# -- what is wrong with a line ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{broken", "line 2: not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"number": ' + "1" * 5000 + "}", "not JSON"),
        ("[]", "not a JSON object"),
        ({**GOOD, "prompt": 1}, '"prompt" must be a string'),
        ({**GOOD, "number": 0}, '"number" must be 1'),
        ({**GOOD, "number": True}, '"number" must be 1'),
        ({**GOOD, "outputs": "x"}, '"outputs" must be a list'),
        ({**GOOD, "sse": None}, '"sse" must be a string'),
        ({**GOOD, "turn": 7}, '"turn" must be a string'),
        ({**GOOD, "wire": "grpc"}, '"wire" must be one of responses, chat, not "grpc"'),
        ({**GOOD, "wire": ["chat"]}, '"wire" must be one of'),
        ({**GOOD, "status": "200"}, '"status" must be an HTTP status'),
        ({**GOOD, "headers": ["retry-after"]}, '"headers" must be an object'),
        ({**GOOD, "headers": {"retry-after": 1}}, '"headers" must be an object of strings'),
        ({**GOOD, "ended": "badly"}, '"ended" must be one of error, cut'),
        ({**GOOD, "ended": {}}, '"ended" must be one of'),
        ({**GOOD, "failed": {}}, '"failed" must be a list'),
        ({**GOOD, "failed": [{"status": 500}]}, 'exactly one of "sse", "reply" and "body"'),
        ({**GOOD, "reply": []}, 'exactly one of "sse", "reply" and "body"'),
        ({"prompt": "p", "number": 1}, 'exactly one of "sse", "reply" and "body"'),
        ({"prompt": "p", "number": 1, "reply": {}}, '"reply" must be a list'),
        ({"prompt": "p", "number": 1, "reply": [{"txt": "x"}]}, 'a piece of "reply" must be'),
        ({"prompt": "p", "number": 1, "reply": [{"call": "f"}]}, 'a piece of "reply" must be'),
        ({"prompt": "p", "number": 1, "reply": [{"text": "a", "x": 1}]}, "a piece of"),
        (
            {"prompt": "p", "number": 1, "reply": [{"call": "f", "arguments": {"a": math.inf}}]},
            "Out of range float values are not JSON",
        ),
    ],
)
def test_bad_lines_are_named(tmp_path, line, words):
    path = write_lines(tmp_path / "r.jsonl", HEADER, line, GOOD)
    with pytest.raises(FatalError) as caught:
        read_recording(path)
    assert words in str(caught.value)
    assert f"{path}, line 2" in str(caught.value)
    assert len(str(caught.value)) < 500


def test_what_is_no_utf8_is_named(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(json.dumps(HEADER).encode() + b'\n{"prompt": "\xff"}\n' + b"\n")
    with pytest.raises(FatalError, match="line 2: not UTF-8"):
        read_recording(path)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("", "is empty"),
        ({"prompt": "p"}, "line 1: not a header"),
        ('{"format": "agent-mag', "line 1: not JSON.*Give a file that --record has written"),
        ({**HEADER, "version": "1"}, '"version" must be a whole number'),
        ({**HEADER, "version": True}, '"version" must be a whole number'),
        ({**HEADER, "version": 2}, "format version 2 is newer than this agent-magics can read"),
    ],
)
def test_bad_headers(tmp_path, header, words):
    path = write_lines(tmp_path / "r.jsonl", header)
    with pytest.raises(FatalError, match=words):
        read_recording(path)


@pytest.mark.parametrize("name", ["gone.jsonl", "."])
def test_no_such_file(tmp_path, name):
    with pytest.raises(FatalError, match="Cannot read the recording"):
        read_recording(tmp_path / name)


# -- what is forgiven ------------------------------------------------------------------------------


def test_what_a_newer_program_adds_is_skipped_with_one_notice(tmp_path):
    path = write_lines(
        tmp_path / "r.jsonl",
        {**HEADER, "licence": "CC0"},
        {**GOOD, "mood": "good"},
        {"kind": "comment", "text": "hello"},
        {"kind": 5},
        {**GOOD, "kind": "exchange", "mood": "bad"},
    )
    recording = read_recording(path)
    assert len(recording.exchanges) == 2
    assert recording.notice == (
        'In the recording r.jsonl, the field "licence" (first in line 1) and 3 more of that sort '
        "is unknown here and was skipped."
    )


def test_windows_line_ends_a_mark_and_no_last_line_end(tmp_path):
    path = tmp_path / "r.jsonl"
    lines = "\r\n".join([json.dumps(HEADER), "", json.dumps(GOOD), json.dumps(GOOD)])
    path.write_bytes(b"\xef\xbb\xbf" + lines.encode())
    recording = read_recording(path)
    assert (len(recording.exchanges), recording.notice) == (2, "")
    assert [exchange.line for exchange in recording.exchanges] == [3, 4]


@pytest.mark.soak
def test_a_huge_line(tmp_path):
    text = "x" * 20_000_000
    path = write_lines(tmp_path / "r.jsonl", HEADER, {**GOOD, "sse": text})
    assert read_recording(path).exchanges[0].answer.sse == text


def test_lines_are_only_ended_by_newlines():
    exchange = Exchange("a\u2028b\x85c", 1, RecordedAnswer("data: \u2028\n\n"))
    content = header_line(Header("hand")) + exchange_line(exchange)
    assert parse_recording(content, PATH).exchanges == (exchange,)


# -- written and read ------------------------------------------------------------------------------

# A byte of an answer that is no text stands as a surrogate, see `cleaning.clean_sse`.
TEXTS = st.text(max_size=30)
BYTES = st.binary(max_size=30).map(lambda data: data.decode("utf-8", "surrogateescape"))
ANSWERS = st.builds(
    RecordedAnswer,
    sse=TEXTS | BYTES,
    wire=st.sampled_from(WIRES),
    headers=st.dictionaries(st.sampled_from(HEADERS), TEXTS),
    ended=st.sampled_from(ENDINGS),
) | st.builds(
    RecordedAnswer,
    wire=st.sampled_from(WIRES),
    status=st.integers(0, 999),
    body=st.text(min_size=1, max_size=30),
    ended=st.sampled_from(ENDINGS),
)
EXCHANGES = st.lists(
    st.builds(
        Exchange,
        prompt=TEXTS,
        number=st.integers(1, 9),
        answer=ANSWERS,
        outputs=st.none() | st.lists(TEXTS, max_size=3).map(tuple),
        turn=TEXTS,
        model=TEXTS,
        request=TEXTS,
        failed=st.lists(ANSWERS, max_size=2).map(tuple),
    ),
    max_size=5,
)
HEADERS_OF_FILES = st.builds(Header, TEXTS, TEXTS, TEXTS)


@given(HEADERS_OF_FILES, EXCHANGES)
def test_what_is_written_is_read_back(header, exchanges):
    content = header_line(header) + b"".join(map(exchange_line, exchanges))
    recording = parse_recording(content, PATH)
    assert recording.header == header
    assert recording.exchanges == tuple(exchanges)
    assert recording.notice == ""
    lines = [exchange.line for exchange in recording.exchanges]
    assert lines == list(range(2, len(exchanges) + 2))


@given(EXCHANGES, st.data())
def test_any_beginning_of_a_file_reads_as_the_beginning_with_one_notice(exchanges, data):
    head = header_line(Header("hand"))
    lines = [exchange_line(exchange) for exchange in exchanges]
    content = head + b"".join(lines)
    cut = data.draw(st.integers(0, len(content)))
    if cut < len(head) - 1:
        with pytest.raises(FatalError, match=r"is empty|line 1: not"):
            parse_recording(content[:cut], PATH)
        return
    recording = parse_recording(content[:cut], PATH)
    # A line that only lacks its end is whole.
    ends = [len(head) + sum(map(len, lines[:count])) - 1 for count in range(1, len(lines) + 1)]
    whole = sum(end <= cut for end in ends)
    assert recording.exchanges == tuple(exchanges[:whole])
    breaks_off = cut > len(head) + sum(map(len, lines[:whole]))
    assert recording.notice == (
        f"In the recording x.agent.jsonl, line {whole + 2}, the last, breaks off in the middle "
        "and was left out."
        if breaks_off
        else ""
    )


PIECES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [
            header_line(Header("hand")),
            *(b"\n", b"\r\n", b"{", b"}", b'{"prompt":', b"\xef\xbb\xbf", b"[[[[", b"null\n"),
            b'{"kind": "x"}\n',
            b'{"prompt": "p", "number": 1, "sse": ""}\n',
            b'{"prompt": "p", "number": 1e999, "sse": ""}\n',
            b'{"prompt": "\\ud800", "number": 1, "reply": [{"text": "\\ud800"}]}\n',
            b'{"prompt": "p", "number": 1, "failed": [{"body": "x", "status": NaN}], "sse": ""}\n',
        ]
    ),
)


@given(st.lists(PIECES, max_size=6).map(b"".join), st.booleans())
def test_whatever_stands_in_a_file_is_read_or_refused_in_a_sentence(content, with_header):
    content = header_line(Header("hand")) * with_header + content
    try:
        recording = parse_recording(content, PATH)
    except FatalError as error:
        assert str(error).startswith("The recording x.agent.jsonl")  # noqa: PT017 - or it is read
    else:
        turns_of(recording.exchanges)
        b"".join(map(exchange_line, recording.exchanges))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
FIELDS = ("kind", "prompt", "number", "outputs", "sse", "reply", "body", "wire", "status")
MORE_FIELDS = ("headers", "ended", "failed", "turn", "model", "request", "strange")


@given(st.dictionaries(st.sampled_from((*FIELDS, *MORE_FIELDS)), JSON, max_size=8))
def test_any_json_object_is_read_or_refused_in_a_sentence(fields):
    content = header_line(Header("hand")) + json.dumps({**GOOD, **fields}).encode() + b"\n"
    try:
        parse_recording(content, PATH)
    except FatalError as error:
        assert "x.agent.jsonl, line 2: " in str(error)  # noqa: PT017 - or it is read


# -- turns -----------------------------------------------------------------------------------------


def exchange(prompt, number, turn="", ended=""):
    return Exchange(prompt, number, RecordedAnswer(ended=ended), turn=turn)


def test_turns_are_told_apart_by_their_names_or_by_number_one():
    one, two = exchange("a", 1, "t1"), exchange("a", 1, "t2")
    later = replace(one, number=2), replace(two, number=2)
    by_hand = [exchange("a", 1), exchange("b", 1), exchange(" a ", 2), exchange("a", 1)]
    turns = turns_of([one, two, *later, *by_hand])
    assert [[each.number for each in turn.exchanges] for turn in turns] == [
        [1, 2],
        [1, 2],
        [1, 2],
        [1],
        [1],
    ]
    assert turns[0].exchanges == [one, later[0]]


def test_a_turn_is_whole_when_its_last_answer_is_and_calls_nothing():
    failed, good = exchange("a", 1, "t", "error"), exchange("a", 2, "t")
    call = write_reply([FunctionCall("c", "shell", "{}")])
    calling = Exchange("a", 3, RecordedAnswer(call.decode()), turn="t")
    for last in ([failed, good], [calling, good]):
        assert is_whole(turns_of(last)[0])
    for last in ([failed], [good, calling], [calling]):
        assert not is_whole(turns_of(last)[0])
