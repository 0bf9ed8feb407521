"""The conversation: append-only, encoded once, and valid when its calls are closed."""

from agent_magics.engine.context.history import INTERRUPTED, History
from agent_magics.protocol.items import (
    AssistantMessage,
    CustomToolCall,
    FunctionCall,
    LocalShellCall,
    ToolCallOutput,
    UserMessage,
)


class Maker:
    """Makes transcripts that write an item as its type's name; remembers what was encoded."""

    def __init__(self) -> None:
        self.seen = []

    def __call__(self):
        return NamesTranscript(self.seen)


class NamesTranscript:
    def __init__(self, seen) -> None:
        self._seen, self._names = seen, []

    def add(self, item) -> None:
        self._seen.append(item)
        self._names.append(type(item).__name__.encode())

    def encoded(self) -> bytes:
        return b",".join(self._names)


def test_an_item_is_encoded_once_ever():
    history, maker = History([UserMessage("a")]), Maker()
    assert history.encoded(maker) == b"UserMessage"
    history.append(AssistantMessage("b"))
    assert history.encoded(maker) == b"UserMessage,AssistantMessage"
    assert history.encoded(maker) == b"UserMessage,AssistantMessage"
    assert maker.seen == list(history.items)


def test_two_wires_take_turns_on_one_history_and_neither_starts_afresh():
    history, first, second = History([UserMessage("a")]), Maker(), Maker()
    history.encoded(first)
    history.append(UserMessage("b"))
    assert history.encoded(second) == b"UserMessage,UserMessage"
    assert history.encoded(first) == b"UserMessage,UserMessage"
    assert first.seen == second.seen == list(history.items)


def test_a_turn_that_is_taken_back_is_not_encoded_and_comes_back_as_it_was():
    history, maker, kept = History([UserMessage("a")]), Maker(), []
    history.keep = kept.append
    history.begin_turn("one")
    history.append(UserMessage("b"))
    history.shorten([UserMessage("base")], 2)
    history.begin_turn("two")
    history.append(AssistantMessage("c"))
    both = history.encoded(maker), list(history.items), list(history.sent), history.turns
    history.take_back("one")
    assert history.encoded(maker) == b"UserMessage"
    assert (history.turns, list(history.sent)) == ((), [UserMessage("a")])
    assert history.restore()
    assert not history.restore()
    assert (history.encoded(maker), list(history.items), list(history.sent), history.turns) == both
    assert [type(entry).__name__ for entry in kept][-2:] == ["TurnsTakenBack", "TurnsRestored"]


def test_what_was_taken_back_is_forgotten_when_more_is_said():
    history = History()
    history.begin_turn("one")
    history.append(UserMessage("a"))
    history.take_back("one")
    history.append(UserMessage("b"))
    assert not history.restore()
    assert list(history.items) == [UserMessage("b")]


def test_open_calls_are_closed_in_their_own_form_and_order():
    calls = [
        FunctionCall("f", "a", "{}"),
        CustomToolCall("c", "b", ""),
        LocalShellCall("s", ("ls",)),
        FunctionCall("done", "a", "{}"),
    ]
    history = History([*calls, ToolCallOutput("done", "ok")])
    history.close_open_calls()
    assert list(history.items[5:]) == [
        ToolCallOutput("f", INTERRUPTED, "function"),
        ToolCallOutput("c", INTERRUPTED, "custom"),
        ToolCallOutput("s", INTERRUPTED, "local_shell"),
    ]
    history.close_open_calls()
    assert len(history.items) == 8


def test_the_reason_is_what_the_model_reads():
    history = History([FunctionCall("f", "a", "{}")])
    history.close_open_calls("cut off")
    assert history.items[-1] == ToolCallOutput("f", "cut off")


def test_an_id_that_a_server_uses_again_is_a_call_of_its_own():
    history = History([FunctionCall("f", "a", "{}"), ToolCallOutput("f", "ok")])
    history.append(FunctionCall("f", "a", "{}"))
    history.close_open_calls()
    assert history.items[-1] == ToolCallOutput("f", INTERRUPTED)
