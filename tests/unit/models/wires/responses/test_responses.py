"""The Responses client against a real HTTP server: what it sends, what it reads, how it fails."""

import asyncio
import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agent_magics
from agent_magics.models.base import (
    ItemDone,
    ModelRequest,
    ReasoningChunk,
    ResponseDone,
    SearchProgress,
    TextChunk,
)
from agent_magics.models.recordings.scripted import SeenHistory
from agent_magics.models.retry import RetryPolicy
from agent_magics.models.wires.answer import read_answer
from agent_magics.models.wires.responses.model import ResponseDecoder, ResponsesModel
from agent_magics.models.wires.sse import encode_event
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import (
    AssistantMessage,
    FunctionCall,
    Reasoning,
    ToolCallOutput,
    Usage,
    UserMessage,
    WebSearchCall,
)
from agent_magics.protocol.tools import ConfiguredToolSpec, FunctionToolSpec
from tests.support.models.responses_server import Reply, ResponsesServer, function_call, message

ONCE = RetryPolicy(tries=1)
KEY = "sk-test-0123456789abcdef"
TOOLS = (ConfiguredToolSpec(FunctionToolSpec("f", "Do.", {"type": "object", "properties": {}})),)


@pytest.fixture(autouse=True)
def _no_provider_settings(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def request_of(*items, model="gpt-5.5", **fields):
    history = SeenHistory(items or (UserMessage("hi"),))
    defaults = {"instructions": "Be brief.", "tools": (), "prompt": "hi", "number": 1}
    return ModelRequest(model=model, history=history, **{**defaults, **fields})


def ask(model, *requests):
    """Send the requests one after the other on one loop; return the events of each."""

    async def run():
        try:
            wanted = requests or (request_of(),)
            return [[event async for event in model.stream(request)] for request in wanted]
        finally:
            await model.close()

    return asyncio.run(run())


def failure(model, request=None):
    with pytest.raises(FatalError) as caught:
        ask(model, request or request_of())
    return str(caught.value)


# -- reading --------------------------------------------------------------------------------------

# As the provider streams it, with events nobody uses and fields nobody reads.
GOLDEN = b"""event: response.created
data: {"type":"response.created","response":{"id":"resp_1","status":"in_progress"}}

event: response.output_item.added
data: {"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning"}}

event: response.reasoning_summary_text.delta
data: {"type":"response.reasoning_summary_text.delta","delta":"**Looking**","obfuscation":"x"}

event: response.output_item.done
data: {"type":"response.output_item.done","item":{"id":"rs_1","type":"reasoning",\
"encrypted_content":"enc","summary":[{"type":"summary_text","text":"**Looking**"}]}}

event: response.output_text.delta
data: {"type":"response.output_text.delta","delta":"Let me \\u00e9","logprobs":[]}

event: response.output_text.delta
data: {"type":"response.output_text.delta","delta":"\\n\\"look\\"."}

event: response.output_item.done
data: {"type":"response.output_item.done","item":{"id":"msg_1","type":"message","status":\
"completed","content":[{"type":"output_text","text":"Let me \\u00e9\\n\\"look\\"."}]}}

event: response.function_call_arguments.delta
data: {"not even JSON, and never parsed

event: response.output_item.done
data: {"type":"response.output_item.done","item":{"id":"fc_1","type":"function_call",\
"status":"completed","arguments":"{\\"a\\":1}","call_id":"call_9","name":"f"}}

event: response.output_item.done
data: {"type":"response.output_item.done","item":{"id":"x_1","type":"image_generation_call"}}

event: response.completed
data: {"type":"response.completed","response":{"status":"completed","usage":{"input_tokens":7,\
"input_tokens_details":{"cached_tokens":3},"output_tokens":5,\
"output_tokens_details":{"reasoning_tokens":2}}}}

"""
SAID = 'Let me é\n"look".'
GOLDEN_ITEMS = [
    ReasoningChunk("**Looking**"),
    TextChunk(SAID),
    ItemDone(Reasoning(("**Looking**",), "enc", "rs_1")),
    ItemDone(AssistantMessage(SAID, "msg_1")),
    ItemDone(FunctionCall("call_9", "f", '{"a":1}', "fc_1")),
]
GOLDEN_DONE = ResponseDone(Usage(7, 5, 3, 2), "completed")


def play(*chunks):
    async def source():
        for chunk in chunks:
            yield chunk

    async def run():
        return [event async for event in read_answer(source(), ResponseDecoder())]

    return asyncio.run(run())


def test_golden_events():
    assert play(GOLDEN) == [*GOLDEN_ITEMS, GOLDEN_DONE]


@settings(max_examples=50)
@given(st.lists(st.integers(0, len(GOLDEN)), max_size=20), st.sampled_from([b"\n", b"\r\n"]))
def test_golden_events_split_anywhere(cuts, line_end):
    stream = GOLDEN.replace(b"\n", line_end)
    edges = [0, *sorted(cuts), len(stream)]
    decoder = ResponseDecoder()
    events = []
    for start, end in itertools.pairwise(edges):
        events += decoder.feed(stream[start:end])
    texts = [event.text for event in events if isinstance(event, TextChunk)]
    assert "".join(texts) == SAID
    items = [event for event in events if isinstance(event, ItemDone)]
    assert items == GOLDEN_ITEMS[2:]
    assert decoder.done == GOLDEN_DONE


def test_all_deltas_of_one_read_are_one_chunk():
    word = encode_event("response.output_text.delta", {"delta": "word "})
    end = encode_event("response.completed", {"response": {}})
    assert play(word * 1010, end)[0] == TextChunk("word " * 1010)


def test_servers_that_do_not_name_their_events():
    nameless = b"\n".join(line for line in GOLDEN.split(b"\n") if not line.startswith(b"event:"))
    nameless = nameless.replace(b'data: {"not even JSON, and never parsed\n\n', b"")
    assert play(nameless + b"data: [DONE]\n\n") == [*GOLDEN_ITEMS, GOLDEN_DONE]


def test_half_a_surrogate_pair_is_a_question_mark():
    delta = b'event: response.output_text.delta\ndata: {"delta":"a\\ud83d!"}\n\n'
    end = encode_event("response.completed", {"response": {}})
    assert play(delta + end)[0] == TextChunk("a?!")


def test_reasoning_that_cannot_be_sent_back_is_only_shown():
    bare = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    alone = {**bare, "encrypted_content": "enc", "id": "rs"}
    items = [encode_event("response.output_item.done", {"item": item}) for item in (bare, alone)]
    end = encode_event("response.completed", {"response": {}})
    assert play(*items, end) == [ResponseDone()]


SEARCH = {"type": "search", "query": "cats"}


def search_item(**fields):
    return {"id": "ws_1", "type": "web_search_call", "status": "completed", **fields}


def test_a_web_search_is_told_as_it_runs_and_kept_with_its_reasoning():
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "enc"}
    begun = {"id": "ws_1", "type": "web_search_call", "status": "in_progress"}
    events = play(
        encode_event("response.output_item.done", {"output_index": 0, "item": thought}),
        encode_event("response.output_item.added", {"output_index": 1, "item": begun}),
        encode_event("response.web_search_call.searching", {"output_index": 1, "item_id": "ws_1"}),
        encode_event(
            "response.output_item.done", {"output_index": 1, "item": search_item(action=SEARCH)}
        ),
        encode_event("response.completed", {"response": {}}),
    )
    assert events == [
        SearchProgress("1", "running"),
        SearchProgress("1", "completed", SEARCH),
        ItemDone(Reasoning((), "enc", "rs_1")),
        ItemDone(WebSearchCall(SEARCH, "completed", "ws_1")),
        ResponseDone(),
    ]


def test_events_of_an_unknown_kind_are_ignored_with_a_line_for_debugging(caplog):
    caplog.set_level("DEBUG", "agent_magics")
    stream = (
        encode_event("response.brand_new", {"delta": "?"}),
        b'data: {"type": "response.newer"}\n\n',
        encode_event("response.content_part.added", {"part": {}}),
        encode_event("response.completed", {"response": {}}),
    )
    assert play(*stream) == [ResponseDone()]
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "response.brand_new" in said[0] and "response.newer" in said[1]


def incomplete_answer(reason, status):
    call = {**function_call("f", '{"a"'), "status": status}
    done = encode_event("response.output_item.done", {"item": call})
    details = {"incomplete_details": {"reason": reason}}
    return done, encode_event("response.incomplete", {"response": details})


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("max_output_tokens", "length"),
        ("content_filter", "content_filter"),
        ("something_new", "incomplete"),
        (None, "length"),
    ],
)
def test_answers_that_were_cut_short_by_the_provider(reason, finish):
    assert play(*incomplete_answer(reason, "incomplete")) == [ResponseDone(finish=finish)]
    call, done = play(*incomplete_answer(reason, "completed"))
    assert call.item.call_id == "call_1"
    assert done.finish == finish


def delta_of(text, number):
    return encode_event("response.output_text.delta", {"delta": text, "sequence_number": number})


END = encode_event("response.completed", {"response": {"status": "completed"}})


def said_in(*events):
    return "".join(e.text for e in play(*events, END) if isinstance(e, TextChunk))


def test_an_event_that_comes_twice_is_read_once():
    assert said_in(delta_of("a", 3), delta_of("a", 3), delta_of("b", 4), delta_of("a", 3)) == "ab"


def test_numbers_that_are_all_the_same_say_nothing():
    assert said_in(*(delta_of(text, 0) for text in "abcc")) == "abcc"


@pytest.mark.parametrize("kind", ["response.failed", "error"])
def test_a_failure_is_told_whatever_its_number(kind):
    error = {"code": "insufficient_quota", "message": "Nothing is left."}
    fields = {"response": {"error": error}} if kind == "response.failed" else {"error": error}
    failed = encode_event(kind, {**fields, "sequence_number": 0})
    with pytest.raises(FatalError, match="Nothing is left"):
        play(delta_of("a", 5), failed)


def test_parts_of_a_summary_are_paragraphs():
    def part(number, text):
        place = {"summary_index": number}
        return encode_event("response.reasoning_summary_part.added", place) + encode_event(
            "response.reasoning_summary_text.delta", {**place, "delta": text}
        )

    events = play(part(0, "I look."), part(1, "I read."), END)
    shown = "".join(each.text for each in events if isinstance(each, ReasoningChunk))
    assert shown == "I look.\n\nI read."


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (
            encode_event("response.failed", {"response": {"error": {"message": "too busy"}}}),
            "failed at the provider: too busy",
        ),
        (encode_event("error", {"message": "overloaded"}), "failed at the provider: overloaded"),
        (encode_event("error", {"error": {"code": "E7"}}), "failed at the provider: E7"),
        (b"event: error\ndata: {broken\n\n", "not JSON"),
        (encode_event("response.created", {"response": {}}), "cut off in the middle"),
        (b"<html>hello</html>", "not with a stream"),
        (b"", "not with a stream"),
    ],
)
def test_answers_that_fail(event, words):
    with pytest.raises(FatalError, match=words):
        play(event)


# -- sending --------------------------------------------------------------------------------------


def test_a_request_and_its_answer_over_http():
    reply = Reply([message("Hello there."), function_call("f", {"a": 1})], line_end=b"\r\n")
    with ResponsesServer([reply], api_key=KEY) as server:
        model = ResponsesModel(api_key=KEY, base_url=server.base_url)
        request = request_of(
            UserMessage("hi"), ToolCallOutput("c", "é"), tools=TOOLS, conversation="s1"
        )
        (events,) = ask(model, request)
        (seen,) = server.requests
    texts = [event.text for event in events if isinstance(event, TextChunk)]
    assert "".join(texts) == "Hello there."
    assert events[-1] == ResponseDone(Usage(10, 5, 4, 2))
    assert [event.item for event in events if isinstance(event, ItemDone)] == [
        AssistantMessage("Hello there.", "msg_1"),
        FunctionCall("call_1", "f", '{"a": 1}', "fc_call_1"),
    ]
    assert seen.path == "/v1/responses"
    assert seen.headers["accept"] == "text/event-stream"
    assert seen.body == {
        "model": "gpt-5.5",
        "instructions": "Be brief.",
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "s1",
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "tools": [
            {
                "type": "function",
                "name": "f",
                "description": "Do.",
                "parameters": {"type": "object", "properties": {}},
                "strict": False,
            }
        ],
        "input": [
            {"type": "message", "role": "user", "content": "hi"},
            {"type": "function_call_output", "call_id": "c", "output": "é"},
        ],
    }


def test_requests_share_a_connection_and_follow_changes():
    with ResponsesServer(["one"]) as server:
        model = ResponsesModel(base_url=server.base_url)
        other = (*TOOLS, ConfiguredToolSpec(FunctionToolSpec("g", "", {"type": "object"})))
        ask(
            model,
            request_of(tools=TOOLS),
            request_of(tools=other, model="local/qwen"),
            request_of(tools=(), instructions=""),
        )
        bodies = [request.body for request in server.requests]
        connections = server.connections
    assert connections == 1
    assert [len(body.get("tools", ())) for body in bodies] == [1, 2, 0]
    assert bodies[1]["model"] == "local/qwen"
    assert "include" not in bodies[1]
    assert "instructions" not in bodies[2]


def test_every_loop_has_its_own_client():
    with ResponsesServer(["one"]) as server:
        model = ResponsesModel(base_url=server.base_url)
        assert [ask(model)[0][0], ask(model)[0][0]] == [TextChunk("one")] * 2
        assert server.connections == 2


def test_a_key_set_later_is_used(monkeypatch):
    with ResponsesServer(["one"], api_key=KEY) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        model = ResponsesModel()
        assert model.source == server.base_url

        async def run():
            with pytest.raises(FatalError, match="refused the API key"):
                [event async for event in model.stream(request_of())]
            monkeypatch.setenv("OPENAI_API_KEY", KEY)
            events = [event async for event in model.stream(request_of())]
            await model.close()
            return events

        assert asyncio.run(run())[0] == TextChunk("one")
        assert model.secrets() == (KEY,)


def test_what_may_be_set_for_a_request_is_sent_and_nothing_else_is():
    settings = {"tool_choice": "f", "service_tier": "flex", "reasoning_summary": "auto"}
    with ResponsesServer(["Ok."]) as server:
        ask(
            ResponsesModel(base_url=server.base_url),
            request_of(tools=TOOLS, **settings),
            request_of(tools=TOOLS, tool_choice="none", parallel_tool_calls=False),
            request_of(model="gpt-4.1", reasoning_summary="auto"),
        )
        first, second, third = [request.body for request in server.requests]
    assert first["tool_choice"] == {"type": "function", "name": "f"}
    assert (first["service_tier"], first["reasoning"]) == ("flex", {"summary": "auto"})
    assert (second["tool_choice"], second["parallel_tool_calls"]) == ("none", False)
    assert not {"service_tier", "reasoning"} & second.keys()
    assert not {"include", "reasoning", "tool_choice"} & third.keys()


# -- errors ---------------------------------------------------------------------------------------


def test_no_key_names_the_three_ways_out():
    said = failure(ResponsesModel())
    assert "OPENAI_API_KEY" in said
    assert "OPENAI_BASE_URL" in said
    assert "recording" in said
    assert "OPENAI_API_KEY" in failure(ResponsesModel(base_url="http://192.0.2.1/v1"))


def test_a_wrong_key_is_never_printed():
    with ResponsesServer(["never"], api_key="sk-another") as server:
        said = failure(ResponsesModel(api_key=KEY, base_url=server.base_url))
    assert "refused the API key (401)" in said
    assert KEY not in said


@pytest.mark.parametrize("status", [400, 403, 404, 418, 429, 503])
def test_error_statuses(status):
    error = f"It says no to {KEY}.\n" + "x" * 1000
    reply = Reply(status=status, error=error, headers=[("retry-after-ms", "1")])
    with ResponsesServer([reply]) as server:
        model = ResponsesModel(api_key=KEY, base_url=server.base_url, retries=RetryPolicy(tries=2))
        said = failure(model)
        tries = len(server.requests)
    assert str(status) in said
    assert "It says no to [API key]." in said
    assert KEY not in said
    assert "\n" not in said
    assert len(said) < 800
    assert tries == (2 if status in (429, 503) else 1)


def test_a_busy_provider_is_asked_again():
    busy = Reply(status=503, error="busy", headers=[("retry-after-ms", "1")])
    with ResponsesServer([busy, Reply("at last")]) as server:
        (events,) = ask(ResponsesModel(base_url=server.base_url))
    assert "".join(e.text for e in events if isinstance(e, TextChunk)) == "at last"


def test_nobody_listens():
    with ResponsesServer(["x"]) as server:
        address = server.base_url
    said = failure(ResponsesModel(base_url=address, retries=ONCE))
    assert f"Cannot connect to {address}" in said


def test_no_answer_in_time():
    reply = Reply("late", pause_after=0)
    with ResponsesServer([reply]) as server:
        said = failure(ResponsesModel(base_url=server.base_url, timeout=0.2, retries=ONCE))
    assert server.base_url in said


def test_a_connection_that_breaks_in_the_middle():
    with ResponsesServer([Reply("some words of an answer", cut_after=4)]) as server:
        said = failure(ResponsesModel(base_url=server.base_url, retries=ONCE))
    assert "cut off in the middle" in said
    assert server.base_url in said


def test_an_answer_that_is_no_event_stream():
    with ResponsesServer([Reply(events=[b'{"id": 1}'])]) as server:
        assert "not with a stream" in failure(ResponsesModel(base_url=server.base_url))


def test_cancelling_closes_the_connection():
    reply = Reply("first and more", pause_after=3)
    with ResponsesServer([reply]) as server:
        model = ResponsesModel(base_url=server.base_url)

        async def run():
            first = asyncio.Event()

            async def read():
                async for _ in model.stream(request_of()):
                    first.set()

            task = asyncio.create_task(read())
            await first.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await model.close()

        asyncio.run(run())
        assert server.dropped.wait(20)


@pytest.mark.soak
def test_nothing_heavy_is_imported_before_the_first_request():
    program = """
import sys
from agent_magics.models import base, transport
from agent_magics.models.recordings import format, replay, scripted
from agent_magics.models.wires.responses import items, model as responses
from agent_magics.rows.remote import client
heavy = {"aiohttp", "pydantic", "pydantic_core", "httpx2", "IPython", "mcp"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
model = responses.ResponsesModel(api_key="x")
assert not heavy & set(sys.modules), heavy & set(sys.modules)
transport.load_aiohttp()
assert "aiohttp" in sys.modules
"""
    root = Path(agent_magics.__file__).parents[1]
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, cwd=root, capture_output=True, encoding="utf-8")
    assert result.returncode == 0, result.stderr


def test_the_body_is_json_for_any_text():
    odd = '\ud800 \u2028 \x00 "\\'
    with ResponsesServer(["ok"]) as server:
        ask(ResponsesModel(base_url=server.base_url), request_of(UserMessage(odd)))
        sent = server.requests[0].body["input"][0]["content"]
    assert sent == '? \u2028 \x00 "\\'
    assert json.dumps(sent)
