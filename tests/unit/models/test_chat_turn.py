"""Whole turns over the chat wire, with a real agent: calls are run, outputs go back in order."""

import pytest
from model_server import ModelServer, chat_events, tool_call
from responses_server import Reply

from agent_magics import Agent
from agent_magics.models.endpoints import forget_wires
from agent_magics.models.provider import open_model
from agent_magics.models.retry import RetryPolicy

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
    door = open_model(wire, base_url=server.base_url, retries=RetryPolicy(wait=no_wait))
    with Agent(door, tools=[add], approval="never") as agent:
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


def test_calls_without_ids_are_told_apart():
    bare = {"function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
    twice = Reply([{**bare, "index": 0}, {**bare, "index": 1}])
    with ModelServer(chat=[twice, "Done."]) as server:
        result = run(server)
        sent = server.requests[-1].body["messages"]
    assert result.status == "completed" and len(ran) == 2
    ids = [call["id"] for call in sent[2]["tool_calls"]]
    assert len(set(ids)) == 2 and [message["tool_call_id"] for message in sent[3:]] == ids


def test_a_call_of_an_answer_cut_by_length_is_never_run():
    calls = [tool_call("add", {"a": 1, "b": 2}, "x"), tool_call("add", '{"a": 3, "b"', "y", 1)]
    cut = Reply(events=chat_events(calls=calls, finish="length"))
    with ModelServer(chat=[cut, "I was cut off."]) as server:
        result = run(server)
        sent = server.requests[-1].body["messages"]
    assert result.status == "completed" and ran == []
    assert [call["id"] for call in sent[2]["tool_calls"]] == ["x"]
    assert "cut off at the output token limit" in sent[3]["content"]


def test_a_call_of_a_stream_that_broke_is_run_once():
    call = Reply([tool_call("add", {"a": 1, "b": 2}, "x")])
    broken = Reply([tool_call("add", {"a": 1, "b": 2}, "x")], cut_after=4)
    with ModelServer(chat=[broken, call, "Done."]) as server:
        result = run(server)
    assert result.status == "completed" and ran == [(1, 2)]
    assert [type(event).__name__ for event in result.events].count("ModelRetry") == 1
