"""A record that a kill or a power loss has left is read up to the damage, by whole lines."""

import json
import tracemalloc
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.protocol.codec import to_json
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.events import (
    ToolCallCompleted,
    TurnAborted,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
)
from agent_magics.protocol.items import FunctionCall, ToolCallOutput, UserMessage
from agent_magics.protocol.records import ItemAdded, RecordBegun, TurnOpened
from agent_magics.records.reading import Record, read_lines

RECORDS = Path(__file__).parents[2] / "support/corpora/records"
[PATH] = (RECORDS / "version2").glob("*.jsonl")
DATA = PATH.read_bytes()
WHOLE = read_lines(BytesIO(DATA), PATH.stem)


def read(data: bytes) -> Record:
    return read_lines(BytesIO(data), PATH.stem)


@pytest.mark.soak
def test_cut_at_any_byte_it_is_what_its_whole_lines_say():
    before = read(b"")
    for size in range(1, len(DATA) + 1):
        if DATA[size - 1] == 10:
            before = read(DATA[:size])
            assert before.size == size
        elif size % 7 == 0:  # within a line, all bytes are alike but for the time that they take
            assert read(DATA[:size]) == before
    assert before == WHOLE


def test_the_numbers_go_on_wherever_it_was_cut():
    numbers = [json.loads(line).get("seq", 0) for line in DATA.splitlines()]
    ends = [at + 1 for at, byte in enumerate(DATA) if byte == 10]
    for count, end in enumerate(ends, 1):
        assert read(DATA[:end]).last == max(numbers[:count])


@given(st.integers(0, len(DATA) - 1), st.integers(1, 9_000))
def test_where_a_power_loss_left_zeros_nothing_after_them_is_used(at, count):
    """Blocks that never reached the disk read as zeros: ext4, XFS."""
    data = DATA[:at] + bytes(len(DATA[at : at + count])) + DATA[at + count :]
    record = read(data)
    assert record.done == WHOLE.done[: len(record.done)]
    assert record.size <= at
    assert record.is_damaged == (b"\n" in data[at:])


@given(st.integers(0, len(DATA) - 1), st.binary(min_size=1, max_size=200))
def test_whatever_bytes_stand_in_it_it_is_read_or_refused_in_a_sentence(at, what):
    with suppress(FatalError):
        assert read(DATA[:at] + what + DATA[at + len(what) :]).size <= len(DATA)


@pytest.mark.parametrize("lines", [b"", b"\n", b"{", b"null\n", b"[]\n", b'{"type":1}\n', b"\0\n"])
def test_what_is_no_record_is_an_empty_one(lines):
    record = read(lines)
    assert (record.done, record.last) == ([], 0)


def test_what_is_not_used_is_not_held():
    shown = b'{"type":"ToolCallCompleted","seq":1,"output":"%s"}\n' % (b"x" * 200_000)
    turn = b'{"type":"TurnStarted","seq":2}\n{"type":"TurnOpened","turn_id":"t"}\n'
    data = BytesIO(DATA + (turn + shown) * 200 + turn)
    tracemalloc.start()
    record = read_lines(data, PATH.stem)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(record.done) == len(WHOLE.done) + 201
    assert most < 8 << 20  # of 40 MB


def lines_of(*nouns) -> bytes:
    return b"".join(
        json.dumps(to_json(noun), separators=(",", ":")).encode() + b"\n" for noun in nouns
    )


HEAD = {"agent": "a", "turn_id": "t", "seq": 1, "at": 0.0}
BEGUN = RecordBegun(conversation="c", agent="a")
STARTED = TurnStarted(prompt="Go.", **HEAD)
OPENED = (TurnOpened(turn_id="t"), ItemAdded(item=UserMessage("Go.")))


@pytest.mark.parametrize(
    ("later", "prompt"),
    [
        ((), "Go."),  # the kernel was killed
        (OPENED[:1], "Go."),
        (OPENED, ""),
        ((TurnFailed(error="No server.", **HEAD),), ""),  # told, and not to be done unasked
        ((TurnAborted(reason="Stop.", **HEAD),), ""),
        ((TurnCompleted(text="", **{**HEAD, "turn_id": "call"}),), "Go."),  # a single call's
    ],
)
def test_a_prompt_is_taken_up_only_where_its_turn_has_not_ended(later, prompt):
    assert read(lines_of(BEGUN, STARTED, *later)).prompt == prompt


@given(st.lists(st.sampled_from("ab"), max_size=5), st.integers(0, 5))
def test_an_output_answers_the_call_that_it_was_for_whatever_ids_a_server_gives(ids, count):
    """Law: of the outputs of an id the first ones are of those calls that have theirs."""
    nouns = [BEGUN, STARTED, *OPENED]
    for number, call_id in enumerate(ids):
        nouns.append(ItemAdded(item=FunctionCall(call_id, "look", "{}")))
        output = f"output {number}"
        nouns.append(ToolCallCompleted(call_id=call_id, name="look", output=output, **HEAD))
        if number < count:
            nouns.append(ItemAdded(item=ToolCallOutput(call_id, output)))
    left = {call_id: f"output {number}" for number, call_id in enumerate(ids) if number >= count}
    assert read(lines_of(*nouns)).outputs == left
