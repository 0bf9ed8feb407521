"""How a server stands, as it is told to who waits for it."""

import asyncio

import pytest

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
