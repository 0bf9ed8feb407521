"""Recordings: reading, what is wrong with a line, writing, and what must not be in a file."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.models.recording import (
    PLACEHOLDERS,
    Exchange,
    Header,
    append_exchange,
    canonical_sse,
    hide_paths,
    normalise_text,
    personal_paths,
    read_recording,
    show_paths,
    start_recording,
    write_reply,
)
from agent_magics.models.sse import encode_event, reply_events
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import FunctionCall

HEADER = {"format": "agent-magics-recording", "version": 1, "by": "hand", "model": "m", "note": "n"}


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
    first, second = recording.exchanges
    assert (first.prompt, first.number, first.outputs) == ("p", 1, None)
    assert second.outputs == ("x",)
    assert '"arguments":"{\\"a\\": 1}"' in first.sse
    assert first.sse.count("event: response.output_item.done") == 5
    assert first.sse.rstrip().rpartition("event: ")[2].startswith("response.completed")


def test_lines_are_only_ended_by_newlines(tmp_path):
    exchange = Exchange("a\u2028b\x85c", 1, None, "data: \u2028\n\n")
    path = tmp_path / "r.jsonl"
    start_recording(path, Header("hand"))
    append_exchange(path, exchange)
    assert read_recording(path).exchanges == (exchange,)


GOOD = {"prompt": "p", "number": 1, "sse": ""}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{broken", "line 2: not JSON"),
        ("[]", "not a JSON object"),
        ({**GOOD, "extra": 1}, "unknown field 'extra'"),
        ({**GOOD, "prompt": 1}, '"prompt" must be a string'),
        ({**GOOD, "number": 0}, '"number" must be 1'),
        ({**GOOD, "number": True}, '"number" must be 1'),
        ({**GOOD, "outputs": "x"}, '"outputs" must be a list'),
        ({**GOOD, "sse": None}, '"sse" must be a string'),
        ({**GOOD, "reply": []}, 'exactly one of "sse" and "reply"'),
        ({"prompt": "p", "number": 1}, 'exactly one of "sse" and "reply"'),
        ({"prompt": "p", "number": 1, "reply": {}}, '"reply" must be a list'),
        ({"prompt": "p", "number": 1, "reply": [{"txt": "x"}]}, 'a piece of "reply" must be'),
        ({"prompt": "p", "number": 1, "reply": [{"call": "f"}]}, 'a piece of "reply" must be'),
        ({"prompt": "p", "number": 1, "reply": [{"text": "a", "x": 1}]}, "a piece of"),
    ],
)
def test_bad_lines_are_named(tmp_path, line, words):
    path = write_lines(tmp_path / "r.jsonl", HEADER, line)
    with pytest.raises(FatalError) as caught:
        read_recording(path)
    assert words in str(caught.value)
    assert f"{path}, line 2" in str(caught.value)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("", "is empty"),
        ({"prompt": "p"}, "line 1: not a header"),
        ({**HEADER, "version": 2}, "format version 2 is unknown"),
    ],
)
def test_bad_headers(tmp_path, header, words):
    path = write_lines(tmp_path / "r.jsonl", header)
    with pytest.raises(FatalError, match=words):
        read_recording(path)


def test_no_such_file(tmp_path):
    with pytest.raises(FatalError, match=r"Cannot read the recording .*gone\.jsonl"):
        read_recording(tmp_path / "gone.jsonl")


def test_a_file_that_is_something_else_is_not_written_to(tmp_path):
    path = write_lines(tmp_path / "notes.txt", "my notes")
    with pytest.raises(FatalError, match="not JSON"):
        start_recording(path, Header("hand"))
    assert path.read_text(encoding="utf-8") == "my notes\n"


# -- what must not stand in a file ---------------------------------------------------------------

PATHS = (("/home/ann/work", "cwd"), ("/home/ann", "home"), ("/tmp", "tmp"))
PLACES = {name: path for path, name in PATHS}


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("/home/ann/work/a.py", "{cwd}/a.py"),
        ("in /home/ann.", "in {home}."),
        ('{"p":"/home/ann/work"}', '{"p":"{cwd}"}'),
        ("/home/anna /home/ann-2 /home/ann.bak", "/home/anna /home/ann-2 /home/ann.bak"),
        ("/home/x/tmp/y", "/home/x/tmp/y"),
        ("/tmp/tmp", "{tmp}/tmp"),
        ("/tmp/tmp/tmp", "{tmp}/tmp/tmp"),
        ("f'{cwd}/a'", "f'{literal:cwd}/a'"),
        ("{literal:home}", "{literal:literal:home}"),
        ("{other} {{cwd}}", "{other} {{literal:cwd}}"),
        ("{/tmp}", "{{tmp}}"),
    ],
)
def test_paths_are_hidden_and_come_back(text, hidden):
    assert hide_paths(text, PATHS) == hidden
    assert show_paths(hidden, PLACES) == text


BITS = st.lists(
    st.sampled_from(
        [*(path for path, _ in PATHS), *PLACEHOLDERS, "{", "}", "literal:", "/", "x", " ", "{cwd}"]
    ),
    max_size=10,
).map("".join)


@given(BITS)
def test_hiding_is_exactly_undone(text):
    assert show_paths(hide_paths(text, PATHS), PLACES) == text


def test_unknown_places_stay_as_they_are():
    assert show_paths("{home} {cwd}", {"cwd": "/w"}) == "{home} /w"


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("Wall time: 0.123 seconds", "Wall time: {duration}"),
        ("3 passed in 0.02s", "3 passed in {duration}"),
        ("1.5e-3 ms, 12 µs", "{duration}, {duration}"),
        ("at 2026-11-21T21:44:01.5Z!", "at {time}!"),
        ("2026-11-21 21:44:01,123 INFO", "{time} INFO"),
        ("<obj at 0x7f3a12bc>", "<obj at {address}>"),
        ("id 123e4567-e89b-12d3-a456-426614174000", "id {uuid}"),
        ("pid 4242, PID=7", "pid {pid}, PID={pid}"),
        ("/tmp/tmpab12cd/x", "{tmp}/{name}/x"),
        ("/home/ann/work/x", "{cwd}/x"),
        (
            "-rw-r--r--  1 ann staff  82 Nov 21 21:46 a.py\n"
            "drwxr-xr-x. 3 ann staff 4096 Jan  2  2025 d",
            "-rw-r--r-- {owner} 82 {time} a.py\ndrwxr-xr-x {owner} 4096 {time} d",
        ),
        ("2 files, 3 items, 17", "2 files, 3 items, 17"),
        ("  x\n", "x"),
    ],
)
def test_what_differs_from_run_to_run(text, normal):
    assert normalise_text(text, PATHS) == normal
    assert normalise_text(normal, PATHS) == normal


VOLATILE_BITS = st.lists(
    st.sampled_from(
        (
            *("/tmp", "/home/ann", "/", "tmp", "tmpx", "{tmp}", "0x", "abcdef1", "12", "s", "pid"),
            *("2026-11-21T10:00", ":", "Z", "5 ms", "-", "e", ".", "}", "seconds", "\n", " "),
        )
    ),
    max_size=12,
).map("".join)


@given(VOLATILE_BITS)
def test_normalising_twice_changes_nothing(text):
    once = normalise_text(text, PATHS)
    assert normalise_text(once, PATHS) == once


def test_this_machine_is_hidden(tmp_path, monkeypatch):
    home = tmp_path / "hôme"
    work = home / "work"
    work.mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(work)
    monkeypatch.setenv("HOME", str(home))
    paths = personal_paths(link)
    assert hide_paths(f"{link}/a {work}/a {home}/b", paths) == "{cwd}/a {cwd}/a {home}/b"
    escaped = json.dumps({"p": f"{work}/a"})
    assert hide_paths(escaped, paths) == '{"p": "{cwd}/a"}'


def test_a_recorded_answer_holds_nothing_personal():
    text = "See /home/ann/work/a.py here."
    message = {
        "id": "msg_77",
        "type": "message",
        "content": [{"type": "output_text", "text": text}],
    }
    secret = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "opaque"}
    call = {
        "type": "local_shell_call",
        "call_id": "c",
        "action": {"command": ["ls", "/home/ann"]},
    }
    split = [
        encode_event("response.output_text.delta", {"delta": part}) for part in ("/home/a", "nn/x")
    ]
    usage = {"input_tokens": 3}
    events = reply_events([secret, message, call], usage=usage, incomplete="max_output_tokens")
    sse = canonical_sse(b"".join([*split, *events]), PATHS)
    assert "ann" not in sse.replace("channel", "")
    assert "opaque" not in sse
    assert "msg_77" not in sse
    assert "{cwd}/a.py" in sse
    assert '"usage":{"input_tokens":3}' in sse
    assert "event: response.incomplete" in sse
    assert canonical_sse(sse.encode(), ()).count("item.done") == sse.count("item.done")


def test_replies_are_whole_answers():
    sse = write_reply([FunctionCall("c", "f", "{}")]).decode()
    assert '"status":"completed"' in sse
    assert canonical_sse(sse.encode(), ()) == sse
