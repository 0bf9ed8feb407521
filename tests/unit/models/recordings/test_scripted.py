"""The scripted model: every form of an answer, what it keeps, and its end."""

import asyncio
import math
from collections import UserDict
from types import MappingProxyType

import pytest

from agent_magics.models.base import ItemDone, ModelRequest, ResponseDone, TextChunk
from agent_magics.models.recordings.scripted import Call, ScriptedModel, SeenHistory
from agent_magics.models.wires.responses.items import ResponsesTranscript
from agent_magics.models.wires.sse import reply_events
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import (
    AssistantMessage,
    CustomToolCall,
    FunctionCall,
    LocalShellCall,
    UserMessage,
)


class GrowingHistory:
    def __init__(self):
        self.items = [UserMessage("hi")]

    @property
    def sent(self):
        return self.items

    def encoded(self, maker):
        return SeenHistory(tuple(self.items)).encoded(maker)


def request_of(history=None, number=1):
    return ModelRequest(
        model="m",
        instructions="",
        history=history or GrowingHistory(),
        tools=(),
        prompt="hi",
        number=number,
    )


def ask(model, request=None):
    async def run():
        return [event async for event in model.stream(request or request_of())]

    return asyncio.run(run())


def items_of(events):
    return [event.item for event in events if isinstance(event, ItemDone)]


def test_a_text_is_a_whole_answer():
    text = "Hello,  world.\n"
    assert ask(ScriptedModel([text])) == [
        TextChunk(text),
        ItemDone(AssistantMessage(text)),
        ResponseDone(),
    ]


def test_calls_are_numbered_over_the_whole_script():
    model = ScriptedModel(
        [
            Call("f", {"a": "é"}),
            ["Both.", Call("g"), Call("h", '{"raw": 1}', "mine")],
            Call("f", "not JSON"),
        ]
    )
    assert items_of(ask(model)) == [FunctionCall("call_1", "f", '{"a": "é"}')]
    assert items_of(ask(model)) == [
        AssistantMessage("Both."),
        FunctionCall("call_2", "g", "{}"),
        FunctionCall("mine", "h", '{"raw": 1}'),
    ]
    assert items_of(ask(model)) == [FunctionCall("call_3", "f", "not JSON")]


def no_json_objects():
    ring = {}
    ring["ring"] = ring
    deep = []
    for _ in range(100_000):
        deep = [deep]
    nested = [{"a": object()}, {"a": {1}}, {"a": b""}, {"deep": deep}]
    floats = [{"a": [math.nan]}, {"a": math.inf}, {"a": -math.inf}, {math.nan: 1}]
    return [None, 5, [1, 2], (), {1}, b"{}", object(), {(1, 2): 3}, ring, *nested, *floats]


def test_a_call_whose_arguments_are_no_json_is_refused_when_it_is_made():
    for arguments in no_json_objects():
        with pytest.raises(FatalError, match=r"^Call\('f'\): the arguments are no JSON object"):
            Call("f", arguments)


@pytest.mark.parametrize("arguments", [{"a": 1}, MappingProxyType({"a": 1}), UserDict(a=1)])
def test_any_mapping_is_an_object(arguments):
    assert items_of(ask(ScriptedModel([Call("f", arguments)])))[0].arguments == '{"a": 1}'


def test_items_are_given_as_they_are():
    pieces = [CustomToolCall("c1", "apply_patch", "*** Begin"), LocalShellCall(None, ("ls",))]
    assert items_of(ask(ScriptedModel([pieces]))) == pieces


def test_an_answer_may_depend_on_the_request():
    model = ScriptedModel([lambda request: f"You said {request.history.items[-1].content}."])
    assert ask(model)[0] == TextChunk("You said hi.")


def test_bytes_are_the_stream_itself():
    stream = b"".join(reply_events([], incomplete="max_output_tokens"))
    assert ask(ScriptedModel([stream])) == [ResponseDone(finish="length")]


def test_requests_are_kept_with_the_history_of_their_moment():
    history = GrowingHistory()
    model = ScriptedModel(["a", "b"])
    ask(model, request_of(history))
    history.items.append(AssistantMessage("a"))
    ask(model, request_of(history, 2))
    assert [len(request.history.items) for request in model.requests] == [1, 2]
    assert [request.number for request in model.requests] == [1, 2]
    assert model.requests[1].history == SeenHistory(tuple(history.items))
    sent = model.requests[1].history.encoded(ResponsesTranscript)
    assert sent == history.encoded(ResponsesTranscript)
    assert b'"a"' in sent


def test_a_script_that_runs_out_says_so():
    model = ScriptedModel(["only one"])
    ask(model)
    with pytest.raises(FatalError, match="The script has 1 answer, and this is request 2"):
        ask(model)
