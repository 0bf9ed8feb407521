"""The official SDK's client, as programs use it, before a server of ours over HTTP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, Implementation, TextContent

ERAS = ("legacy", "auto")  # the handshake of 2025; the protocol of 2026
INFO = Implementation(name="tester", version="2.12")


@asynccontextmanager
async def connected(url: str, token: str, mode: str = "auto", **options: Any) -> AsyncIterator[Any]:
    """A client that has said hello, with the token."""
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http,
        Client(
            streamable_http_client(url, http_client=http), mode=mode, client_info=INFO, **options
        ) as client,
    ):
        yield client


def text_of(result: CallToolResult) -> str:
    """All text of a result."""
    return "\n".join(part.text for part in result.content if isinstance(part, TextContent))
