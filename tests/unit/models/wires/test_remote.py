"""The connections of a model's client: as many as are in use, in each event loop."""

import asyncio
import gc
import logging

import pytest

from agent_magics.models.base import ModelRequest
from agent_magics.models.faults import Fault
from agent_magics.models.provider import open_model
from agent_magics.models.recordings.scripted import SeenHistory
from agent_magics.models.retry import RetryPolicy
from agent_magics.protocol.items import UserMessage
from tests.support.models.server import ModelServer
from tests.unit.models.test_transport import CERTIFICATE, tls_of_a_server


async def ask(model):
    request = ModelRequest("m", "", SeenHistory((UserMessage("hi"),)), (), "hi", 1)
    return [event async for event in model.stream(request)]


def test_turns_share_a_connection():
    async def turns():
        model = open_model("chat", base_url=server.base_url, api_key="k")
        for _ in range(10):
            await ask(model)
        await model.close()

    with ModelServer(chat=["Hello."]) as server:
        asyncio.run(turns())
    assert server.connections == 1


def test_another_key_has_connections_of_its_own(monkeypatch):
    async def turns():
        model = open_model("chat")
        for number in range(3):
            monkeypatch.setenv("OPENAI_API_KEY", f"key-number-{number}")
            await ask(model)
        await model.close()

    with ModelServer(chat=["Hello."]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        asyncio.run(turns())
    assert server.connections == 3
    sent = [request.headers["authorization"] for request in server.requests]
    assert sent == [f"Bearer key-number-{number}" for number in range(3)]


MENDED = {
    "certificate": ({"SSL_CERT_FILE": None}, {"SSL_CERT_FILE": str(CERTIFICATE)}),
    "no proxy": ({"https_proxy": "http://127.0.0.1:9"}, {"no_proxy": "127.0.0.1"}),
    "another proxy": ({"ALL_PROXY": "http://127.0.0.1:9"}, {"ALL_PROXY": None}),
}


@pytest.mark.parametrize(("wrong", "mended"), MENDED.values(), ids=MENDED)
def test_what_is_mended_of_the_way_to_a_server_holds_for_the_next_request(
    wrong, mended, monkeypatch
):
    def put(variables):
        for name, value in variables.items():
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, value)

    put({"NO_PROXY": None, "no_proxy": None, "SSL_CERT_FILE": str(CERTIFICATE)})

    async def turns():
        put(wrong)
        model = open_model("chat", base_url=address, api_key="k", retries=RetryPolicy(tries=1))
        with pytest.raises(Fault):
            await ask(model)
        put(mended)
        await ask(model)
        await ask(model)
        await model.close()

    with ModelServer(chat=["Hello."], tls=tls_of_a_server()) as server:
        address = server.base_url.replace("http:", "https:")
        asyncio.run(turns())
    assert len(server.requests) == 2


def test_whose_account_is_charged_is_said_of_each_request(monkeypatch):
    async def turns():
        model = open_model("chat", base_url=server.base_url, api_key="k")
        for name in ("one", "one", "another"):
            monkeypatch.setenv("OPENAI_PROJECT_ID", name)
            await ask(model)
        await model.close()

    with ModelServer(chat=["Hello."]) as server:
        asyncio.run(turns())
    sent = [request.headers["openai-project"] for request in server.requests]
    assert sent == ["one", "one", "another"]
    assert server.connections == 2


@pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning"
)  # asyncio's, of a loop that is closed
def test_loops_that_are_closed_are_forgotten_in_silence(caplog):
    with ModelServer(chat=["Hello."]) as server, caplog.at_level(logging.WARNING):
        model = open_model("chat", base_url=server.base_url, api_key="k")
        for _ in range(5):
            asyncio.run(ask(model))
        assert len(model._transports) == 1
        del model
        gc.collect()  # the connections, and then what they held
        gc.collect()
    assert caplog.messages == []
