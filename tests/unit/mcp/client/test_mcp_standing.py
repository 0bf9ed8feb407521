"""How a server stands, as it is told to who waits for it."""

import asyncio
from types import SimpleNamespace

import pytest

from agent_magics.mcp.client import status as status_module
from agent_magics.mcp.client.status import Standing
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.mcp import McpServerConfig, McpStatus


def test_a_wait_that_is_over_says_how_long_it_was():
    config = McpServerConfig("slow", "x", startup_timeout_sec=0.05)
    standing = Standing(config, str, lambda state: None)
    assert standing.announce()
    with pytest.raises(RespondToModel, match=r"'slow' did not start within 0\.05 s \(startup"):
        asyncio.run(standing.ready())
    assert standing.status is McpStatus.STARTING, "it may still come"


def test_a_server_that_is_down_is_tried_after_growing_pauses_and_told_once(monkeypatch):
    clock, told = SimpleNamespace(now=1_000.0), []
    monkeypatch.setattr(status_module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    config = McpServerConfig("far", url="http://localhost/mcp")
    standing = Standing(config, str, lambda state: told.append((state.status, state.message)))

    def fail(why="is down."):
        standing.begin()
        standing.become(McpStatus.FAILED, why)
        began = clock.now
        while not standing.announce():
            assert standing.status is McpStatus.FAILED
            clock.now += 1
        return clock.now - began

    assert [fail() for _ in range(9)] == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    starting, down = (McpStatus.STARTING, standing.state.message), "The MCP server 'far' is down."
    assert told == [starting, (McpStatus.FAILED, down)]
    fail("is away.")
    assert told[2:] == [(McpStatus.FAILED, "The MCP server 'far' is away.")]
    for begin_anew in (lambda: standing.become(McpStatus.READY), standing.forget_failures):
        begin_anew()
        told.clear()
        assert [fail(), fail()] == [5, 10]
        assert told == [starting, (McpStatus.FAILED, down)]


def test_who_waits_is_told_of_every_failure():
    standing = Standing(McpServerConfig("far", url="http://localhost/mcp"), str, list)

    async def fail_twice():
        for _ in range(2):
            standing.begin()
            waiting = asyncio.create_task(standing.ready())
            await asyncio.sleep(0)
            standing.become(McpStatus.FAILED, "is down.")
            with pytest.raises(RespondToModel, match="is down"):
                await asyncio.wait_for(waiting, 60)

    asyncio.run(fail_twice())
