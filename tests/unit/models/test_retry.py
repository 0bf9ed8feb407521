"""When a request is made again, after which wait, and what of the repeated answer is shown."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.models.base import (
    ItemDone,
    Notice,
    ReasoningChunk,
    ResponseDone,
    RetryWait,
    TextChunk,
)
from agent_magics.models.faults import Fault
from agent_magics.models.retry import CAME_OUT_DIFFERENTLY, RetryPolicy, stream_with_retries
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import AssistantMessage, FunctionCall, Reasoning

CUT = Fault("cut", passing=True, reason="cut")
CALL = ItemDone(FunctionCall("a", "f", "{}"))
OTHER_CALL = ItemDone(FunctionCall("b", "f", "{}"))
END = ResponseDone()


def said(text):
    return ItemDone(AssistantMessage(text))


def play(*answers, tries=6):
    """Play one list of events (or an error at the end) per request; return events and waits."""
    waits, rest = [], list(answers)

    async def wait(seconds):
        waits.append(seconds)

    async def ask():
        for event in rest.pop(0):
            if isinstance(event, Exception):
                raise event
            yield event

    async def run():
        policy = RetryPolicy(tries=tries, wait=wait, chance=lambda: 0.0)
        return [event async for event in stream_with_retries(ask, policy)]

    events = asyncio.run(run())
    assert len([event for event in events if isinstance(event, RetryWait)]) == len(waits)
    return [event for event in events if not isinstance(event, RetryWait)], waits


# -- when -----------------------------------------------------------------------------------------


def test_delays_double_and_end_at_the_longest():
    policy = RetryPolicy(tries=9, chance=lambda: 0.0)
    assert [policy.delay(n, CUT) for n in range(1, 10)] == [0.5, 1, 2, 4, 8, 16, 30, 30, None]
    assert RetryPolicy(chance=lambda: 1.0).delay(1, CUT) == 0.375


def test_the_server_is_never_asked_earlier_than_it_wants():
    fault = Fault("busy", passing=True, retry_after=20.0)
    assert RetryPolicy(chance=lambda: 0.0).delay(1, fault) == 20.0
    assert 20.0 < RetryPolicy(chance=lambda: 1.0).delay(1, fault) <= 22.0


@pytest.mark.parametrize("asked", [0.0, 0.001, 0.9])
def test_a_server_that_asks_for_no_wait_gets_the_growing_one(asked):
    fault, policy = Fault("busy", passing=True, retry_after=asked), RetryPolicy(chance=lambda: 0.0)
    expected = [0.5, 1, 2, 4, 8] if asked == 0 else [asked] * 5
    assert [policy.delay(n, fault) for n in range(1, 7)] == [*expected, None]


def test_a_wait_that_nobody_sits_through_is_told():
    fault = Fault("It is busy.", passing=True, retry_after=1800.0)
    with pytest.raises(FatalError, match=r"It is busy\. It asks to wait about 30 minutes"):
        play([fault])


def test_what_does_not_pass_is_not_tried_again():
    with pytest.raises(FatalError, match="no"):
        play([Fault("no")], [END])
    with pytest.raises(FatalError, match="other"):
        play([FatalError("other")], [END])


def test_tries_end_for_the_policy_and_for_the_fault():
    with pytest.raises(FatalError, match="cut"):
        play(*[[CUT]] * 3, [END], tries=3)
    few = Fault("few", passing=True, tries=2)
    with pytest.raises(FatalError, match="few"):
        play([few], [few], [END])
    assert play(*[[CUT]] * 3, [END])[0] == [END]


# -- what is shown --------------------------------------------------------------------------------


def test_text_is_shown_once():
    events, waits = play(
        [TextChunk("Hello, "), CUT],
        [TextChunk("Hel"), TextChunk("lo, wor"), CUT],
        [TextChunk("Hello, world"), TextChunk("!"), said("Hello, world!"), END],
    )
    texts = [TextChunk("Hello, "), TextChunk("wor"), TextChunk("ld"), TextChunk("!")]
    assert events == [*texts, said("Hello, world!"), END]
    assert waits == [0.5, 1.0]


def test_another_text_is_told_and_comes_as_a_whole():
    events, _ = play(
        [TextChunk("Hello"), CUT], [TextChunk("Help"), TextChunk("!"), said("Help!"), END]
    )
    assert events == [
        TextChunk("Hello"),
        said("Hello"),
        Notice(CAME_OUT_DIFFERENTLY),
        TextChunk("Help"),
        TextChunk("!"),
        said("Help!"),
        END,
    ]


def test_a_shorter_text_is_another_one():
    events, _ = play([TextChunk("Hello"), CUT], [TextChunk("Hell"), said("Hell"), END])
    assert events[1:] == [
        said("Hello"),
        Notice(CAME_OUT_DIFFERENTLY),
        TextChunk("Hell"),
        said("Hell"),
        END,
    ]


def test_a_text_that_does_not_come_again_stays_and_is_told():
    events, _ = play([TextChunk("Hello"), CUT], [CALL, END])
    assert events == [
        TextChunk("Hello"),
        said("Hello"),
        Notice(CAME_OUT_DIFFERENTLY),
        CALL,
        END,
    ]


def test_whole_messages_are_given_on_once():
    first = [TextChunk("One."), said("One.")]
    again = [*first, TextChunk("Two."), said("Two."), END]
    assert play([*first, TextChunk("Tw"), CUT], again)[0] == [
        *first,
        TextChunk("Tw"),
        TextChunk("o."),
        said("Two."),
        END,
    ]
    assert play([*first, CUT], again)[0] == again


def test_calls_of_an_answer_that_was_cut_off_are_not_run():
    thought = ItemDone(Reasoning((), "enc", "r"))
    cut = [TextChunk("Look."), said("Look."), thought, CALL, CUT]
    again = [TextChunk("Look."), said("Look."), thought, OTHER_CALL, END]
    events, _ = play(cut, again)
    assert events == [TextChunk("Look."), said("Look."), thought, OTHER_CALL, END]


def test_reasoning_is_shown_once():
    events, _ = play(
        [ReasoningChunk("hm"), CUT],
        [ReasoningChunk("ha"), TextChunk("A"), ReasoningChunk("so"), said("A"), END],
    )
    assert events == [ReasoningChunk("hm"), TextChunk("A"), ReasoningChunk("so"), said("A"), END]


ANSWER = st.lists(st.text("ab ", min_size=1, max_size=6), min_size=1, max_size=3)


def chunks_of(data, text):
    events = []
    while text:
        size = data.draw(st.integers(1, len(text)))
        events.append(TextChunk(text[:size]))
        text = text[size:]
    return events


@given(ANSWER, st.lists(st.integers(0, 20), max_size=3), st.data())
def test_the_same_answer_cut_anywhere_reads_as_if_it_had_not_been_cut(messages, cuts, data):
    def answer():
        pieces = [[*chunks_of(data, text), said(text)] for text in messages]
        return [event for piece in pieces for event in piece] + [CALL, END]

    whole = answer()
    events, _ = play(*([*answer()[:-1][:cut], CUT] for cut in cuts), whole)
    texts = "".join(event.text for event in events if isinstance(event, TextChunk))
    assert texts == "".join(messages)
    assert [event for event in events if not isinstance(event, TextChunk)] == [
        *map(said, messages),
        CALL,
        END,
    ]


@given(ANSWER, ANSWER, st.integers(0, 8), st.data())
def test_the_last_answer_always_stands_whole(first, second, cut, data):
    def answer(messages):
        pieces = [[*chunks_of(data, text), said(text)] for text in messages]
        return [event for piece in pieces for event in piece]

    events, _ = play([*answer(first)[:cut], CUT], [*answer(second), END])
    items = [event.item.text for event in events if isinstance(event, ItemDone)]
    assert is_within(second, items)
    told = Notice(CAME_OUT_DIFFERENTLY) in events
    assert told or items == second
    assert events[-1] == END


def is_within(part, whole):
    """Whether `whole` has all of `part`, in that order."""
    rest = iter(whole)
    return all(element in rest for element in part)
