"""LiteLLM's proxy, a real one with mocked answers: both wires, calls, faults, keys and names."""

import pytest

from agent_magics import Agent, tool
from agent_magics.models.base import ContextOverflow, ResponseDone
from agent_magics.models.providers.endpoints import wires_of
from agent_magics.protocol.items import InputImage, InputText, UserMessage
from tests.support.models.one_request import ADD, PATCH, ask, failure, items_of, text_of
from tests.support.models.third_party import running

# The first test waits for the proxy, which takes 10 s to start, on a loaded machine some minutes.
pytestmark = pytest.mark.timeout(600)

KEY = "sk-proxy-0123456789"
HELLO = UserMessage("good morning")
PIXEL = InputImage(
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA"
    "WjR9awAAAABJRU5ErkJggg=="
)
SETTINGS = {
    "PROXY_KEY": KEY,
    # Nothing of it needs the network.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_TELEMETRY": "False",
}


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    home = tmp_path_factory.mktemp("litellm")
    ready = "Uvicorn running on "
    with running("litellm_proxy", ["PORT"], ready=ready, home=home, env=SETTINGS) as line:
        yield line.partition(ready)[2].split()[0] + "/v1"


def test_text_comes_with_its_usage(address, wire):
    events = ask(address, KEY, "mock-agent", HELLO, wire=wire)
    assert text_of(events).strip() == "You said good morning."
    done = events[-1]
    assert isinstance(done, ResponseDone) and done.finish == "completed"
    assert (done.usage.input_tokens, done.usage.output_tokens) == (11, 7)


def test_its_own_mock(address):
    assert text_of(ask(address, KEY, "mock-text", HELLO, wire="chat")) == "Hello from LiteLLM."


def test_the_responses_api_is_found(address):
    ask(address, KEY, "mock-agent", HELLO)
    assert wires_of(address) == ("responses",)


def test_parallel_calls_come_whole_and_apart(address, wire):
    events = ask(address, KEY, "mock-agent", HELLO, wire=wire, tools=[ADD])
    assert [(call.call_id, call.name, call.arguments) for call in items_of(events)] == [
        ("call_one", "add", '{"a": 1, "b": 2}'),
        ("call_two", "add", '{"a": 3, "b": 4}'),
    ]


def test_a_tool_loop(address, wire):
    added = []

    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        added.append((a, b))
        return a + b

    options = {"base_url": address, "api_key": KEY, "wire_api": wire, "approval": "never"}
    with Agent("mock-agent", [add], **options) as agent:
        first = agent.run_sync("What are 1 + 2 and 3 + 4?")
        second = agent.run_sync("And once more?")
    assert first.text.strip() == "The tools said 3 and 7."
    assert second.text.strip() == "The tools said 3 and 7 and 3 and 7."
    assert sorted(added) == sorted([(1, 2), (3, 4)] * 2)
    assert first.usage.input_tokens == 22


def test_a_freeform_tool_reaches_the_model(address, wire):
    events = ask(address, KEY, "mock-lister", HELLO, wire=wire, tools=[PATCH, ADD])
    assert text_of(events) == "I have patch, add."


def test_an_image_arrives(address, wire):
    events = ask(address, KEY, "mock-agent", UserMessage((InputText("Look."), PIXEL)), wire=wire)
    assert text_of(events).strip() == "I see text, image_url."


@pytest.mark.parametrize("wanted", ["responses", "chat", "auto"])
def test_an_unknown_model_is_told_with_names_like_it(address, wanted):
    said = str(failure(address, KEY, "mock-agnet", HELLO, wire=wanted))
    assert "does not know the model 'mock-agnet'" in said
    assert "mock-agent" in said.partition("It has:")[2]


def test_a_wrong_key_is_one_sentence_without_the_key(address, wire):
    said = str(failure(address, "sk-wrong-9876543210", "mock-agent", HELLO, wire=wire))
    assert "refused the API key" in said
    assert "sk-wrong-9876543210" not in said


def test_a_rate_limit_is_waited_for_and_then_told(address):
    said = str(failure(address, KEY, "mock-busy", HELLO, wire="chat"))
    assert "429" in said and "mock rate limit" in said


def test_an_error_status_with_a_stream_for_a_body_is_one_sentence(address):
    said = str(failure(address, KEY, "mock-text", HELLO, wire="responses"))
    assert "(status 500): Error processing stream start" in said


def test_a_conversation_that_is_too_long_is_its_own_error(address):
    assert isinstance(failure(address, KEY, "mock-long", HELLO, wire="chat"), ContextOverflow)


def test_a_provider_that_breaks_in_the_middle_is_asked_again_and_told(address, wire):
    said = str(failure(address, KEY, "mock-broken", HELLO, wire=wire))
    assert "the mock broke" in said
