"""The provider's own web search: offered where it is asked for, shown as it runs, sent back."""

from typing import Any

import pytest

from agent_magics import Agent
from agent_magics.models.providers.endpoints import forget_wires
from agent_magics.models.wires.sse import encode_event, reply_events
from agent_magics.protocol.events import (
    ItemCompleted,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallPending,
    Warned,
)
from agent_magics.protocol.items import AssistantMessage, Citation, WebSearchCall
from agent_magics.render.mime import to_bundle
from agent_magics.render.view import TurnView
from tests.support.models.responses_server import Reply, message
from tests.support.models.server import ModelServer, chunk
from tests.support.turns import kinds, of_kind

ACTION = {"type": "search", "query": "cats", "queries": ["cats"]}
SEARCH = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": ACTION}
OPENED = {**SEARCH, "id": "ws_2", "action": {"type": "open_page", "url": "https://cats.example/"}}
PAGE = {
    "type": "url_citation",
    "url": "https://cats.example/",
    "title": "Cats",
    "start_index": 0,
    "end_index": 4,
}
ON = {"web_search": True}


@pytest.fixture(autouse=True)
def _afresh(monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    forget_wires()


def cited(text: str) -> dict[str, Any]:
    item = message(text)
    item["content"][0]["annotations"] = [PAGE]
    return item


def agent_at(server: ModelServer, **options: Any) -> Agent:
    return Agent(tools=[], base_url=server.base_url, **{"features": ON, **options})


def test_a_search_is_offered_shown_and_sent_back_with_what_was_cited():
    with (
        ModelServer(responses=[Reply([SEARCH, OPENED, cited("Cats purr.")]), "Yes."]) as server,
        agent_at(server) as agent,
    ):
        result = agent.run_sync("Why?")
        agent.run_sync("Really?")
        first, second = [request.body for request in server.requests]
    assert result.status == "completed", result.error
    assert first["tools"] == [{"type": "web_search"}]
    assert [call.name for call in result.calls] == ["web_search", "web_search"]
    assert [event.details for event in of_kind(result, ToolCallCompleted)] == [
        {"action": ACTION},
        {"action": OPENED["action"]},
    ]
    assert [event.item for event in of_kind(result, ItemCompleted)] == [
        WebSearchCall(ACTION, "completed", "ws_1"),
        WebSearchCall(OPENED["action"], "completed", "ws_2"),
        AssistantMessage("Cats purr.", "msg_1", (Citation("https://cats.example/", "Cats", 0, 4),)),
    ]
    assert kinds(result).index("ToolCallCompleted") < kinds(result).index("TextDelta")
    said = {"type": "output_text", "text": "Cats purr.", "annotations": [PAGE]}
    assert second["input"][1:4] == [
        SEARCH,
        OPENED,
        {"type": "message", "role": "assistant", "content": [said]},
    ]


def test_what_is_drawn_of_it():
    script = [Reply([SEARCH, cited("Cats purr.")])]
    with ModelServer(responses=script) as server, agent_at(server) as agent:
        events = agent.run_sync("Why?").events
    view, titles = TurnView(), []
    for event in events:
        calls = [block.item for block in view.apply(event) if block.kind == "tool"]
        titles += [(item["status"], item["title"]) for item in calls]
    assert titles[0] == ("running", "searching the web")
    assert titles[-1] == ("completed", 'searched "cats"')
    [answer] = [block for block in view.blocks if block.kind == "text"]
    assert answer.item["sources"] == [{"title": "Cats", "url": "https://cats.example/"}]
    bundle = to_bundle(answer)
    assert bundle["text/markdown"].endswith("Sources:\n\n- [Cats](https://cats.example/)")
    assert bundle["text/plain"].endswith("Sources:\n- Cats: https://cats.example/")


def test_it_is_not_offered_unless_it_is_asked_for():
    with ModelServer(responses=["Hi."]) as server:
        for features in (None, {}, {"web_search": False}):
            with agent_at(server, features=features) as agent:
                assert agent.run_sync("Go").status == "completed"
        assert not any("tools" in request.body for request in server.requests)
        with agent_at(server, features={**ON, "external_web_access": False}) as agent:
            agent.run_sync("Go")
        offered = {"type": "web_search", "external_web_access": False}
        assert server.requests[-1].body["tools"] == [offered]


def test_a_search_that_fails_is_told_and_the_turn_goes_on():
    script = [Reply([{**SEARCH, "status": "failed"}, message("No luck.")])]
    with ModelServer(responses=script) as server, agent_at(server) as agent:
        result = agent.run_sync("Why?")
    assert result.text == "No luck."
    [end] = of_kind(result, ToolCallFailed)
    assert "search failed" in end.output


def test_a_search_of_an_answer_that_broke_ends_and_is_in_the_history_once():
    whole = Reply([SEARCH, cited("Cats purr.")])
    begun = encode_event(
        "response.output_item.added",
        {"output_index": 1, "item": {"id": "ws_9", "type": "web_search_call"}},
    )
    # One search whole, another begun, and then the connection is gone.
    broken = Reply(events=[*reply_events([SEARCH])[:3], begun, b""], cut_after=4)
    broken.release.set()
    with ModelServer(responses=[broken, whole]) as server, agent_at(server) as agent:
        result = agent.run_sync("Why?")
        items = [type(item).__name__ for item in agent.session.conversation.history.items]
    assert kinds(result).count("ModelRetry") == 1, kinds(result)
    assert items == ["UserMessage", "WebSearchCall", "AssistantMessage"]
    begun_calls = [event.call_id for event in of_kind(result, ToolCallPending)]
    ended = [*of_kind(result, ToolCallCompleted), *of_kind(result, ToolCallFailed)]
    assert len(set(begun_calls)) == 3
    assert sorted(begun_calls) == sorted(event.call_id for event in ended)


def test_a_server_with_chat_completions_alone_is_told_about_once():
    with ModelServer(chat=["Hi."]) as server, agent_at(server) as agent:
        result = agent.run_sync("Go")
        assert "tools" not in server.requests[-1].body
    assert result.text == "Hi."
    [warning] = of_kind(result, Warned)
    assert "web_search" in warning.message and "Chat Completions" in warning.message


def test_what_chat_completions_cite_is_kept_too():
    cites = {"type": "url_citation", "url_citation": {k: PAGE[k] for k in PAGE if k != "type"}}
    events = [
        chunk({"content": "Cats purr."}),
        chunk({"annotations": [cites, cites, "x"]}),
        chunk({}, "stop"),
    ]
    script = [Reply(events=events)]
    with ModelServer(chat=script) as server, agent_at(server, features=None) as agent:
        result = agent.run_sync("Go")
    [event] = of_kind(result, ItemCompleted)
    assert event.item.citations == (Citation("https://cats.example/", "Cats", 0, 4),)
