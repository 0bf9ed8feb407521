"""llama.cpp's server with a tiny random model: calls by its grammar, both wires, its own errors."""

import json
import subprocess

import pytest

from agent_magics import Agent, tool
from agent_magics.models.base import ContextOverflow, ResponseDone, TextChunk
from agent_magics.models.providers.endpoints import wires_of
from agent_magics.protocol.items import (
    CustomToolCall,
    InputImage,
    InputText,
    ToolCallOutput,
    UserMessage,
)
from tests.support.models.one_request import ADD, NUMBERS, PATCH, ask, failure, items_of, text_of
from tests.support.models.third_party import SERVERS, python_of, running

# The first test waits for the server, on a loaded machine for longer than a test may take.
pytestmark = pytest.mark.timeout(300)

KEY = "key-of-the-llama"
MODEL = "tiny-random"
HELLO = UserMessage("good morning")


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    home = tmp_path_factory.mktemp("llama")
    model = str(home / "tiny.gguf")
    make = str(SERVERS / "llama_server" / "make_model.py")
    subprocess.run([str(python_of("llama_server")), make, model], check=True, timeout=120)
    ready = "listening on http"
    with running("llama_server", [model, KEY], ready=ready, home=home, env={}) as line:
        yield "http" + line.partition(ready)[2] + "/v1"


def test_text_comes_in_pieces_and_with_its_usage(address, wire):
    events = ask(address, KEY, MODEL, HELLO, wire=wire)
    pieces = [event.text for event in events if isinstance(event, TextChunk)]
    (message,) = items_of(events)
    assert pieces and "".join(pieces) == message.text
    done = events[-1]
    assert isinstance(done, ResponseDone) and done.finish == "completed"
    assert done.usage.input_tokens > 10 and done.usage.output_tokens > 1


def test_the_wire_that_is_whole_is_found(address):
    ask(address, KEY, MODEL, HELLO)
    assert wires_of(address) == ("chat",)


def test_calls_are_those_of_the_schema(address, wire):
    events = ask(address, KEY, MODEL, HELLO, wire=wire, tools=[ADD])
    calls = items_of(events)
    assert calls and {call.name for call in calls} == {"add"}
    assert len({call.call_id for call in calls}) == len(calls)
    for call in calls:
        arguments = json.loads(call.arguments)
        assert arguments["a"] in (1, 2, 3) and arguments["b"] in (2, 4)


def test_a_call_can_be_required(address, wire):
    events = ask(address, KEY, MODEL, HELLO, wire=wire, tools=[ADD], tool_choice="required")
    assert items_of(events)


def test_an_answer_follows_its_schema(address):
    events = ask(address, KEY, MODEL, HELLO, output_schema=NUMBERS)
    answer = json.loads(text_of(events))
    assert answer["a"] in (1, 2, 3) and answer["b"] in (2, 4)


def test_a_tool_loop(address, wire):
    added = []

    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        added.append(a + b)
        return a + b

    options = {"base_url": address, "api_key": KEY, "wire_api": wire, "approval": "never"}
    with Agent(MODEL, [add], **options) as agent:
        result = agent.run_sync("What is 1 + 2?")
    assert result.status == "completed" and result.text
    assert added
    assert result.usage.output_tokens > 10


def test_a_freeform_tool_is_called_as_a_function(address):
    (call, *_) = items_of(ask(address, KEY, MODEL, HELLO, tools=[PATCH]))
    assert (type(call), call.name) == (CustomToolCall, "patch")
    history = (HELLO, call, ToolCallOutput(call.call_id, "done", "custom"))
    assert text_of(ask(address, KEY, MODEL, *history, tools=[PATCH]))


def test_a_wrong_key_is_one_sentence_without_the_key(address, wire):
    said = str(failure(address, "wrong-9876543210", MODEL, HELLO, wire=wire))
    assert "refused the API key" in said and "wrong-9876543210" not in said


def test_a_conversation_that_is_too_long_is_its_own_error(address, wire):
    long = UserMessage("far too long " * 1000)
    assert isinstance(failure(address, KEY, MODEL, long, wire=wire), ContextOverflow)


def test_an_image_that_the_model_cannot_see_is_told_at_once(address, wire):
    image = InputImage("data:image/png;base64,iVBORw0KGgo=")
    waits = []
    look = UserMessage((InputText("Look."), image))
    said = str(failure(address, KEY, MODEL, look, wire=wire, waits=waits))
    assert "image input is not supported" in said and not waits


def test_any_name_is_its_one_model(address, wire):
    assert text_of(ask(address, KEY, "no-such-model", HELLO, wire=wire))
