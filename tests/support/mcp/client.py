"""Connects the official SDK's client, as programs use it, to a server of ours over HTTP."""

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
async def connected(
    url: str, token: str, mode: str = "auto", name: str = INFO.name, **options: Any
) -> AsyncIterator[Any]:
    """Yield an initialized client with the token."""
    info = Implementation(name=name, version=INFO.version)
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http,
        Client(
            streamable_http_client(url, http_client=http), mode=mode, client_info=info, **options
        ) as client,
    ):
        yield client


def text_of(result: CallToolResult) -> str:
    """All text of a result."""
    return "\n".join(part.text for part in result.content if isinstance(part, TextContent))
