"""Whole turns over the chat wire, with a real agent: calls are run, outputs go back in order."""

from typing import Any
from urllib.parse import urlsplit

import pytest

from agent_magics import Agent
from agent_magics.engine.results.run import summarise
from agent_magics.models.provider import open_model
from agent_magics.models.providers import endpoints
from agent_magics.models.providers.endpoints import Dialect, Endpoint, forget_wires
from agent_magics.models.retry import RetryPolicy
from agent_magics.protocol.items import InputImage, InputText
from agent_magics.protocol.ops import StartTurn
from tests.support.models.responses_server import Reply
from tests.support.models.server import DONE, ModelServer, chat_events, chunk, tool_call

ran = []


async def no_wait(seconds):
    """Nobody sits through the wait of a test."""


def add(a: int, b: int) -> int:
    """Add two integers.

    Args:
        a: first number.
        b: second number.
    """
    ran.append((a, b))
    return a + b


@pytest.fixture(autouse=True)
def _afresh(monkeypatch, tmp_path):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    forget_wires()
    ran.clear()


def run(server, wire="auto"):
    client = open_model(wire, base_url=server.base_url, retries=RetryPolicy(wait=no_wait))
    with Agent(client, tools=[add], approval="never") as agent:
        return agent.run_sync("go")


def test_parallel_calls_go_back_as_one_message_with_their_outputs():
    calls = [tool_call("add", {"a": 1, "b": 2}, "x"), tool_call("add", {"a": 3, "b": 4}, "y", 1)]
    with ModelServer(chat=[Reply(calls), "Three and seven."]) as server:
        result = run(server)
        sent = server.requests[-1].body["messages"]
    assert (result.status, result.text) == ("completed", "Three and seven.")
    assert sorted(ran) == [(1, 2), (3, 4)]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool", "tool"]
    assert [call["id"] for call in sent[2]["tool_calls"]] == ["x", "y"]
    assert [(m["tool_call_id"], m["content"]) for m in sent[3:]] == [("x", "3"), ("y", "7")]


@pytest.mark.soak
def test_calls_without_ids_are_told_apart():
    bare = {"function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
    twice = Reply([{**bare, "index": 0}, {**bare, "index": 1}])
    with ModelServer(chat=[twice, "Done."]) as server:
        result = run(server)
        sent = server.requests[-1].body["messages"]
    assert result.status == "completed" and len(ran) == 2
    ids = [call["id"] for call in sent[2]["tool_calls"]]
    assert len(set(ids)) == 2 and [message["tool_call_id"] for message in sent[3:]] == ids


@pytest.mark.parametrize(
    ("finish", "says"),
    [("length", "cut off at the output token limit"), ("content_filter", "content filter ended")],
)
def test_a_call_of_an_answer_that_was_cut_short_is_never_run(finish, says):
    calls = [tool_call("add", {"a": 1, "b": 2}, "x"), tool_call("add", '{"a": 3, "b"', "y", 1)]
    cut = Reply(events=chat_events(calls=calls, finish=finish))
    with ModelServer(chat=[cut, "I was cut off."]) as server:
        result = run(server)
        sent = server.requests[-1].body["messages"]
    assert result.status == "completed" and ran == []
    assert [call["id"] for call in sent[2]["tool_calls"]] == ["x"]
    assert says in sent[3]["content"]


def test_a_call_of_a_stream_that_broke_is_run_once():
    call = Reply([tool_call("add", {"a": 1, "b": 2}, "x")])
    broken = Reply([tool_call("add", {"a": 1, "b": 2}, "x")], cut_after=4)
    with ModelServer(chat=[broken, call, "Done."]) as server:
        result = run(server)
    assert result.status == "completed" and ran == [(1, 2)]
    assert [type(event).__name__ for event in result.events].count("ModelRetry") == 1


# -- what has to go back unchanged -----------------------------------------------------------------


def sent_back(deltas, model=None, know=lambda server: None):
    """Have an answer made of `deltas`, run its call, and return the message that goes back."""
    events = [*map(chunk, deltas), chunk({}, "tool_calls"), DONE]
    with ModelServer(chat=[Reply(events=events), "Done."]) as server:
        know(server)
        client = open_model("chat", base_url=server.base_url)
        with Agent(client, tools=[add], approval="never") as agent:
            result = agent.run_sync("go") if model is None else run_as(agent, model)
        sent = server.requests[-1].body["messages"]
    assert result.status == "completed", result.error
    assert len(ran) >= 1
    return sent[2]


def run_as(agent, model):
    events = agent.foreground().wait_blocking(
        StartTurn(turn_id="t", content="go"), agent.turn_config(model=model)
    )
    return summarise(events)


CALL = tool_call("add", {"a": 1, "b": 2}, "x")


def test_gemini_s_signatures_of_thoughts_go_back_with_their_calls():
    signature = {"google": {"thought_signature": "c2lnbmVk"}}
    begin = {**CALL, "function": {"name": "add", "arguments": ""}, "extra_content": signature}
    rest = {"index": 0, "function": {"arguments": CALL["function"]["arguments"]}}
    second = tool_call(
        "add", {"a": 3, "b": 4}, "y", 1
    )  # of parallel calls only the first is signed
    message = sent_back([{"tool_calls": [piece]} for piece in (begin, rest, second)])
    assert [call.get("extra_content") for call in message["tool_calls"]] == [signature, None]


def test_reasoning_goes_back_in_its_field_to_models_that_want_it():
    deltas = [{"reasoning_content": "Two "}, {"reasoning_content": "numbers."}]
    deltas.append({"tool_calls": [CALL]})
    assert sent_back(deltas, "deepseek-chat")["reasoning_content"] == "Two numbers."
    assert "reasoning_content" not in sent_back(deltas, "qwen3")


def test_openrouter_s_reasoning_goes_back_as_it_came(monkeypatch):
    here = Endpoint("chat", "as OpenRouter", dialect=Dialect(reasoning_details=True))

    def know(server):
        monkeypatch.setitem(endpoints.PORTS, urlsplit(server.base_url).port, here)

    thought = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0}
    secret = {"type": "reasoning.encrypted", "data": "AAAA", "id": "r1", "index": 1}
    deltas = [
        {"reasoning": "Two ", "reasoning_details": [{**thought, "text": "Two "}]},
        {"reasoning": "numbers.", "reasoning_details": [{**thought, "text": "numbers."}]},
        {"reasoning_details": [{**thought, "signature": "c2ln"}, secret]},
        {"tool_calls": [CALL]},
    ]
    for model in (None, "deepseek/deepseek-v4"):
        message = sent_back(deltas, model, know)
        whole = {**thought, "text": "Two numbers.", "signature": "c2ln"}
        assert message["reasoning_details"] == [whole, secret]
        assert not {"reasoning", "reasoning_content"} & message.keys()


def test_what_may_be_set_for_a_run_is_sent():
    with ModelServer(chat=["Hi."]) as server:
        client = open_model("chat", base_url=server.base_url)
        with Agent(client, tools=[add], features={"service_tier": "flex"}) as agent:
            agent.run_sync("go")
        (request,) = server.requests
    assert request.body["service_tier"] == "flex"
    assert "tool_choice" not in request.body  # "auto" is what everybody does anyway


def test_images_go_in_and_a_tool_s_image_comes_after_its_output():
    image = InputImage("data:image/png;base64,AA==")

    def look() -> Any:
        """Look."""
        return (InputText("a dot"), image)

    with ModelServer(chat=[Reply([tool_call("look", {})]), "A dot."]) as server:
        client = open_model("chat", base_url=server.base_url)
        with Agent(client, tools=[look], approval="never") as agent:
            result = agent.run_sync((InputText("What is this?"), image))
        sent = server.requests[-1].body["messages"]
    assert result.text == "A dot."
    url = {"type": "image_url", "image_url": {"url": image.image_url}}
    assert sent[1]["content"] == [{"type": "text", "text": "What is this?"}, url]
    assert sent[3]["role"] == "tool" and isinstance(sent[3]["content"], str)
    assert sent[4]["content"][-1] == url
