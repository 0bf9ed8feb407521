"""The connections of a model's client: as many as are in use, in each event loop."""

import asyncio
import gc
import logging

import pytest

from agent_magics.models.base import ModelRequest
from agent_magics.models.provider import open_model
from agent_magics.models.recordings.scripted import SeenHistory
from agent_magics.protocol.items import UserMessage
from tests.support.models.server import ModelServer


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
