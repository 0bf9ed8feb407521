"""Which wire a server is asked on, found out once; addresses and keys; recordings of both wires."""

import asyncio
import json

import pytest

from agent_magics.models.base import ItemDone, ModelRequest, TextChunk
from agent_magics.models.provider import open_model
from agent_magics.models.providers.endpoints import (
    HOSTS,
    MODELS,
    PORTS,
    Dialect,
    dialect_of,
    endpoint_of,
    forget_wires,
    remember_wire,
    split_query,
    whole_address,
    wires_of,
)
from agent_magics.models.providers.keys import key_names_of, key_of
from agent_magics.models.recordings.recorder import RecordingModel
from agent_magics.models.recordings.replay import ReplayModel
from agent_magics.models.recordings.scripted import SeenHistory
from agent_magics.models.retry import RetryPolicy
from agent_magics.models.wires.chat.model import ChatModel, _with_enums
from agent_magics.models.wires.schema_forms import RULES
from agent_magics.models.wires.transforms import CALL_ID_FORMS
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import (
    CustomToolCall,
    FunctionCall,
    InputImage,
    ToolCallOutput,
    UserMessage,
)
from agent_magics.protocol.tools import ConfiguredToolSpec, FreeformToolSpec, FunctionToolSpec
from tests.support.models.responses_server import Reply
from tests.support.models.server import NOT_FOUND, ModelServer, tool_call

ONCE = RetryPolicy(tries=1)
PATCH = ConfiguredToolSpec(FreeformToolSpec("patch", "Change.", "lark", "start: x"))
LEVEL = {"type": "object", "properties": {"level": {"enum": [1, 2]}}, "required": ["level"]}
SET = ConfiguredToolSpec(FunctionToolSpec("set", "Set.", LEVEL))


@pytest.fixture(autouse=True)
def _no_provider_settings(monkeypatch):
    keys = {name for _, endpoint in HOSTS for name in endpoint.key_names}
    for name in (*keys, "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    forget_wires()


def request_of(*items, **fields):
    history = SeenHistory(items or (UserMessage("hi"),))
    defaults = {"instructions": "Be brief.", "tools": (), "prompt": "hi", "number": 1}
    return ModelRequest(fields.pop("model", "m"), history=history, **{**defaults, **fields})


def ask(client, *requests):
    async def run():
        try:
            wanted = requests or (request_of(),)
            return [[event async for event in client.stream(each)] for each in wanted]
        finally:
            await client.close()

    return asyncio.run(run())


def text_of(events):
    return "".join(event.text for event in events if isinstance(event, TextChunk))


def items_of(events):
    return [event.item for event in events if isinstance(event, ItemDone)]


# -- which wire ----------------------------------------------------------------------------------


def test_responses_where_the_server_has_it():
    with ModelServer(responses=["Hello."], chat=["never"]) as server:
        for events in ask(open_model(base_url=server.base_url), request_of(), request_of()):
            assert text_of(events) == "Hello."
        assert server.paths == ["responses", "responses"]


@pytest.mark.parametrize(
    "missing",
    [
        Reply(status=404, document=b"404 page not found", content_type="text/plain"),
        Reply(status=404, document=b'{"detail":"Not Found"}'),
        Reply(status=405, document=b'{"detail":"Method Not Allowed"}'),
        Reply(status=501, error="not implemented"),
        Reply(status=400, error="Unknown request URL: POST /v1/responses. Please check the URL."),
        Reply(status=404, error="Invalid URL (POST /v1/responses)"),
        Reply(document=b'{"error":"Unexpected endpoint or method. (POST /v1/responses)"}'),
    ],
)
def test_chat_where_it_has_not_and_the_turn_goes_on(missing):
    with ModelServer(chat=["Hello."], missing=missing) as server:
        (events,) = ask(open_model(base_url=server.base_url, retries=ONCE))
        assert text_of(events) == "Hello."
        assert server.paths == ["responses", "completions"]
        # Found once: neither this client nor another one asks again.
        client = open_model(base_url=server.base_url, retries=ONCE)
        ask(client, request_of(), request_of())
        assert server.paths == ["responses", *["completions"] * 3]


@pytest.mark.parametrize("status", [400, 401, 403, 418, 429, 500])
def test_other_errors_are_told_and_not_gone_round(status):
    replies = [Reply(status=status, error="no")]
    with ModelServer(responses=replies, chat=["never"]) as server:
        with pytest.raises(FatalError, match=str(status)):
            ask(open_model(base_url=server.base_url, retries=ONCE))
        assert server.paths == ["responses"]
        assert len(wires_of(server.base_url)) == 2


def test_an_unknown_model_is_no_missing_address():
    error = json.dumps({"error": {"message": "The model `m` does not exist."}}).encode()
    with ModelServer(responses=[Reply(status=404, document=error)], chat=["never"]) as server:
        with pytest.raises(FatalError, match="does not know the model 'm'"):
            ask(open_model(base_url=server.base_url))
        assert "completions" not in server.paths


def test_a_server_with_neither_says_so_and_nothing_is_remembered():
    with ModelServer() as server:
        with pytest.raises(FatalError, match="404"):
            ask(open_model(base_url=server.base_url))
        assert server.paths == ["responses", "completions"]
        assert len(wires_of(server.base_url)) == 2


@pytest.mark.parametrize("first", ["responses", "chat"])
def test_another_server_at_the_same_address_is_asked_on_the_wire_that_it_has(first):
    scripts = {"responses": ["New."], "chat": ["New."], first: ["Old.", NOT_FOUND]}
    with ModelServer(**scripts) as server:
        remember_wire(server.base_url, first)
        client = open_model(base_url=server.base_url, retries=ONCE)
        answers = ask(client, *[request_of()] * 3)
        assert [text_of(events) for events in answers] == ["Old.", "New.", "New."]
        assert len(server.paths) == 4 and first not in wires_of(server.base_url)


def test_where_answers_come_from_is_said_without_a_login():
    for login in ("me:hunt3r", "me:hunter", "sk-token"):
        assert open_model(base_url=f"http://{login}@h/v1?key=x1y2").source == "http://h/v1"


def test_a_fault_on_the_way_does_not_lose_the_turn():
    async def wait(seconds):
        pass

    with ModelServer(chat=[Reply("Hello there.", cut_after=2), "Hello there."]) as server:
        policy = RetryPolicy(wait=wait)
        (events,) = ask(open_model(base_url=server.base_url, retries=policy))
        assert text_of(events) == "Hello there."


def test_a_wire_that_was_asked_for_is_the_one():
    with ModelServer(responses=["R"], chat=["C"]) as server:
        assert text_of(ask(open_model("chat", base_url=server.base_url))[0]) == "C"
        assert text_of(ask(open_model("responses", base_url=server.base_url))[0]) == "R"
    with ModelServer(chat=["C"]) as server, pytest.raises(FatalError, match="Responses API"):
        ask(open_model("responses", base_url=server.base_url))
    with pytest.raises(FatalError, match="smoke signals"):
        open_model("smoke signals")


# -- what is known -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "first"),
    [
        ("https://api.openai.com/v1", "responses"),
        ("https://openrouter.ai/api/v1", "chat"),
        ("http://localhost:11434/v1", "chat"),
        ("http://127.0.0.1:1234/v1", "chat"),
        ("http://127.0.0.1:8000/v1", "responses"),
        ("https://example.org:11434/v1", "responses"),
        ("https://x.openai.azure.com/openai/v1", "responses"),
        ("https://x.openai.azure.com/openai/deployments/gpt-4o?api-version=2024-10-21", "chat"),
        ("https://generativelanguage.googleapis.com/v1beta/openai", "chat"),
        ("https://notopenrouter.ai/v1", "responses"),
    ],
)
def test_where_to_begin(address, first):
    assert wires_of(address)[0] == first


def test_the_tables_hold_together():
    for _, endpoint in HOSTS:
        assert endpoint.reason and endpoint.dialect.schema in RULES
        assert endpoint.dialect.call_ids in CALL_ID_FORMS
    assert all(endpoint.reason for endpoint in PORTS.values())
    for _, forms, reason in MODELS:
        dialect = Dialect(**forms)
        assert reason and dialect.schema in RULES and dialect.call_ids in CALL_ID_FORMS


def test_a_model_brings_its_makers_rules_to_any_server():
    assert dialect_of("https://openrouter.ai/api/v1", "google/gemini-3-pro").schema == "gemini"
    assert dialect_of("http://localhost:4000", "claude-sonnet-4").call_ids == "anthropic"
    kimi = dialect_of("https://openrouter.ai/api/v1", "moonshotai/kimi-k2-thinking")
    assert (kimi.schema, kimi.reasoning_field) == ("kimi", "reasoning_content")
    assert dialect_of("http://localhost:8000/v1", "qwen3") == Dialect()


@pytest.mark.parametrize("name", ["mistral", "ministral", "mixtral", "pixtral", "devstral"])
def test_models_of_mistral_are_known_by_their_names(name):
    dialect = dialect_of("http://localhost:8000/v1", f"mistralai/{name.title()}-8B-Instruct")
    assert dialect == dialect_of("http://localhost:8000/v1", f"{name}-large")
    assert dialect == Dialect(call_ids="mistral", answered_outputs=True)


def test_azure(monkeypatch):
    assert whole_address("https://x.openai.azure.com/") == "https://x.openai.azure.com/openai/v1"
    assert endpoint_of("https://x.openai.azure.com").dialect.custom_tools
    old = "https://x.openai.azure.com/openai/deployments/d/?api-version=2024-10-21"
    assert split_query(old) == (
        "https://x.openai.azure.com/openai/deployments/d",
        {"api-version": "2024-10-21"},
    )
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "azure-key")
    monkeypatch.setenv("OPENAI_API_KEY", "openai-key")
    assert key_of("https://x.openai.azure.com/openai/v1") == "azure-key"
    assert key_of("https://api.openai.com/v1") == "openai-key"


def test_azures_old_address_keeps_its_query_and_gets_its_key_header():
    with ModelServer(chat=["Hello."]) as server:
        address = server.base_url.replace("/v1", "/openai/deployments/d?api-version=2024-10-21")
        (events,) = ask(open_model(base_url=address, api_key="azure-key"))
        (request,) = server.requests
    assert text_of(events) == "Hello."
    assert request.path == "/openai/deployments/d/chat/completions?api-version=2024-10-21"
    assert request.headers["api-key"] == "azure-key"


def test_the_key_that_is_missing_is_named():
    with pytest.raises(FatalError, match="OPENROUTER_API_KEY"):
        ask(open_model(base_url="https://openrouter.ai/api/v1"))
    assert key_names_of("https://api.openai.com/v1") == ("OPENAI_API_KEY",)
    assert key_names_of("http://example.org") == ()


# -- a whole turn on the chat wire ---------------------------------------------------------------


def test_a_chat_request_as_a_server_gets_it():
    calls = [tool_call("patch", {"input": "*** x"}, "a"), tool_call("set", {"level": 1}, "b", 1)]
    with ModelServer(chat=[Reply(calls)]) as server:
        model = ChatModel(base_url=server.base_url)
        image = InputImage("data:image/png;base64,AA==")
        history = (UserMessage("hi"), FunctionCall("a", "f", "{}"), ToolCallOutput("a", (image,)))
        request = request_of(*history, tools=(PATCH, SET), parallel_tool_calls=False)
        (events,) = ask(model, request)
        (seen,) = server.requests
    assert items_of(events) == [
        CustomToolCall("a", "patch", "*** x"),
        FunctionCall("b", "set", '{"level": 1}'),
    ]
    assert seen.path == "/v1/chat/completions"
    body = seen.body
    assert (body["model"], body["stream"], body["parallel_tool_calls"]) == ("m", True, False)
    assert body["stream_options"] == {"include_usage": True}
    assert [tool["function"]["name"] for tool in body["tools"]] == ["patch", "set"]
    assert [message["role"] for message in body["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "user",
    ]
    assert not {"prompt_cache_key", "store", "include"} & set(body)


def test_a_request_without_instructions_and_one_without_history():
    with ModelServer(chat=["x"]) as server:
        ask(ChatModel(base_url=server.base_url), request_of(instructions=""))
        assert server.requests[0].body["messages"] == [{"role": "user", "content": "hi"}]


def test_numbers_that_gemini_writes_as_text_are_numbers_again():
    with ModelServer(chat=[Reply([tool_call("set", {"level": "2"})])]) as server:
        request = request_of(tools=(SET,), model="google/gemini-3-pro")
        (events,) = ask(ChatModel(base_url=server.base_url), request)
        sent = server.requests[0].body["tools"][0]["function"]["parameters"]
    assert sent["properties"]["level"] == {"type": "string", "enum": ["1", "2"]}
    (call,) = items_of(events)
    assert json.loads(call.arguments) == {"level": 2}


def test_arguments_for_gemini_that_are_nested_too_deep_stay_as_they_are():
    deep = '{"level": "2", "x": ' + "[" * 20_000 + "]" * 20_000 + "}"
    assert _with_enums(SET.spec, deep) == deep


@pytest.mark.parametrize("wire", ["responses", "chat"])
def test_what_either_wire_says_can_be_recorded_and_played(wire, tmp_path):
    path = tmp_path / "session.jsonl"
    with ModelServer(**{wire: ["Hello there."]}) as server:
        live = open_model("auto", base_url=server.base_url)
        (events,) = ask(RecordingModel(live, path, cwd=tmp_path))
    (played,) = ask(ReplayModel(path, cwd=tmp_path))
    assert text_of(played) == text_of(events) == "Hello there."
    assert played[-1] == events[-1]
