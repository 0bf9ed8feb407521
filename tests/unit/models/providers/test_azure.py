"""Azure OpenAI as its documentation describes it, and the way there through a proxy.

The address has to be one of Azure's for the client to treat it so. So HTTP_PROXY leads the client
to a server on the loopback, which gets the requests with their whole addresses, as proxies do.
"""

import asyncio
import json
from urllib.parse import parse_qs, urlsplit

import pytest

from agent_magics.models.base import ItemDone, ModelRequest, RetryWait, TextChunk
from agent_magics.models.provider import open_model
from agent_magics.models.providers import credentials
from agent_magics.models.providers.endpoints import HOSTS, forget_wires, wires_of
from agent_magics.models.recordings.scripted import SeenHistory
from agent_magics.models.retry import RetryPolicy
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import FunctionCall, UserMessage
from agent_magics.protocol.tools import ConfiguredToolSpec, FunctionToolSpec
from tests.support.models.responses_server import Reply
from tests.support.models.server import CHAT_USAGE, DONE, ModelServer, chunk, tool_call

KEY = "0123456789abcdef0123456789abcdef"
V1 = "http://contoso.openai.azure.com/openai/v1"
DEPLOYMENT = "http://contoso.openai.azure.com/openai/deployments/my-gpt?api-version=2024-10-21"
ADD = ConfiguredToolSpec(FunctionToolSpec("add", "Add.", {"type": "object", "properties": {}}))

DENIED = (
    "Access denied due to invalid subscription key or wrong API endpoint. Make sure to provide a "
    "valid key for an active subscription and use a correct regional API endpoint."
)
NO_DEPLOYMENT = (
    "The API deployment for this resource does not exist. If you created the deployment within the "
    "last 5 minutes, please wait a moment and try again."
)


def refusal(status, code, said, **more):
    document = json.dumps({"error": {"code": code, "message": said}}).encode()
    return Reply(status=status, document=document, **more)


class AzureServer(ModelServer):
    """Wants its key in `api-key`, a deployment's name as model, and a version for old addresses."""

    deployments = ("my-gpt",)

    def _reply(self, request):
        if request.headers.get("api-key") != KEY:
            return refusal(401, "401", DENIED)
        parts = urlsplit(request.path)
        old = "/openai/deployments/" in parts.path
        if old and "api-version" not in parse_qs(parts.query):
            return refusal(404, "404", "Resource not found")
        wanted = parts.path.split("/")[3] if old else request.body.get("model", "")
        if request.body and wanted not in self.deployments:
            return refusal(404, "DeploymentNotFound", NO_DEPLOYMENT)
        return super()._reply(request)


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch, tmp_path):
    keys = {name for _, endpoint in HOSTS for name in endpoint.key_names}
    proxies = ("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
    names = (*keys, "OPENAI_API_KEY", "OPENAI_BASE_URL", *proxies, *map(str.lower, proxies))
    for name in names:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    monkeypatch.setattr(credentials, "_cache", {})
    forget_wires()


@pytest.fixture
def azure(monkeypatch):
    """A function that starts a server to which all requests are led."""
    started = []

    def start(**scripts):
        server = AzureServer(**scripts)
        server.__enter__()
        started.append(server)
        monkeypatch.setenv("HTTP_PROXY", server.base_url.removesuffix("/v1"))
        return server

    yield start
    for server in started:
        server.__exit__()


def ask(address, *, model="my-gpt", wire="auto", tools=()):
    async def wait(seconds):
        pass

    async def run():
        policy = RetryPolicy(tries=2, wait=wait, chance=lambda: 0.0)
        client = open_model(wire, base_url=address, retries=policy)
        request = ModelRequest(model, "", SeenHistory((UserMessage("hi"),)), tools, "hi", 1)
        try:
            return [event async for event in client.stream(request)]
        finally:
            await client.close()

    return asyncio.run(run())


def text_of(events):
    return "".join(event.text for event in events if isinstance(event, TextChunk))


def failure(address, **options):
    with pytest.raises(FatalError) as caught:
        ask(address, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("address", "query"),
    [
        (V1, ""),
        (f"{V1}/", ""),
        ("http://contoso.openai.azure.com", ""),
        (f"{V1}?api-version=preview", "api-version=preview"),
    ],
)
def test_the_v1_address_in_all_forms(azure, address, query):
    server = azure(responses=["Hello."])
    assert text_of(ask(address)) == "Hello."
    (request,) = server.requests
    parts = urlsplit(request.path)
    assert (parts.path, parts.query) == ("/openai/v1/responses", query)
    assert parts.hostname == "contoso.openai.azure.com"
    assert request.headers["api-key"] == KEY
    assert request.body["model"] == "my-gpt"


def test_a_resource_without_the_responses_api_is_asked_on_chat(azure):
    server = azure(chat=["Hello."])
    assert text_of(ask(V1)) == "Hello."
    assert server.paths == ["responses", "completions"]
    assert wires_of(V1) == ("chat",)


def test_the_address_of_a_deployment(azure):
    server = azure(chat=["Hello."])
    assert text_of(ask(DEPLOYMENT)) == "Hello."
    path = urlsplit(server.requests[0].path)
    assert path.path == "/openai/deployments/my-gpt/chat/completions"
    assert path.query == "api-version=2024-10-21"


def test_chunks_about_filters_without_choices(azure):
    filtered = {"object": "chat.completion.chunk", "choices": [], "prompt_filter_results": []}
    events = [
        b"data: " + json.dumps(filtered).encode() + b"\n\n",
        chunk({"role": "assistant", "content": ""}),
        chunk({"tool_calls": [tool_call("add", {"a": 1})]}),
        chunk({}, "tool_calls", usage=CHAT_USAGE),
        DONE,
    ]
    azure(chat=[Reply(events=events)])
    (done,) = [each for each in ask(V1, wire="chat", tools=(ADD,)) if isinstance(each, ItemDone)]
    assert done.item == FunctionCall("call_1", "add", '{"a": 1}')


def test_a_wrong_key_is_one_sentence(azure, monkeypatch):
    azure(responses=["never"])
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "f" * 32)
    said = failure(V1)
    assert "refused the API key (401): set a valid AZURE_OPENAI_API_KEY, which goes before" in said
    assert "f" * 32 not in said


def test_openais_own_key_does_not_go_to_azure(azure, monkeypatch):
    server = azure(responses=["never"])
    monkeypatch.delenv("AZURE_OPENAI_API_KEY")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")
    assert "set AZURE_OPENAI_API_KEY" in failure(V1)
    assert not server.requests


@pytest.mark.parametrize("wire", ["auto", "chat"])
def test_a_deployment_that_is_not_there_is_told(azure, wire):
    server = azure(responses=["never"], chat=["never"])
    said = failure(V1, model="gpt-5.5", wire=wire)
    assert "does not know the model 'gpt-5.5'" in said and "API deployment" in said
    assert len([path for path in server.paths if path != "models"]) == 1


def test_a_quota_is_waited_for_as_long_as_it_says(azure):
    busy = refusal(429, "429", "Rate limit is exceeded.", headers=[("retry-after-ms", "1500")])
    azure(responses=[busy, "At last."])
    events = ask(V1)
    (retry,) = [event for event in events if isinstance(event, RetryWait)]
    assert retry.delay == 1.5 and text_of(events) == "At last."


# -- proxies --------------------------------------------------------------------------------------


def test_a_proxy_that_is_not_there_is_told(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://me:secret@127.0.0.1:9")
    said = failure(V1)
    assert said.startswith(f"Cannot connect to {V1} through the proxy 127.0.0.1:9")
    assert "secret" not in said


def test_hosts_that_no_proxy_names_are_asked_directly(azure, monkeypatch):
    with ModelServer(chat=["Direct."]) as direct:
        proxy = azure(chat=["never"])
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert text_of(ask(direct.base_url, wire="chat")) == "Direct."
        assert not proxy.requests
