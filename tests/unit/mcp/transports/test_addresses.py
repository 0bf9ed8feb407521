"""Which addresses the login of an MCP server may lead to."""

import asyncio

import httpx2
import pytest

from agent_magics.mcp.transports.addresses import LoginAddresses
from agent_magics.protocol.mcp import McpServerConfig

CLOSED = [
    *("http://127.0.0.1:8888/api", "https://127.0.0.1", "https://localhost", "https://[::1]:8888"),
    *("https://169.254.169.254/latest", "https://[fe80::1]", "https://10.0.0.1"),
    *("https://192.168.1.1", "https://172.16.0.1", "https://100.64.0.1", "https://0.0.0.0"),
    *("https://224.0.0.1", "https://255.255.255.255", "https://[::]", "https://[fc00::1]"),
    *("https://[::ffff:127.0.0.1]", "https://[64:ff9b::7f00:1]", "https://[2002:7f00:1::]"),
    *(
        "https://[2001:0:7f00:1::80ff:fffe]",
        "https://2130706433",
        "https://0x7f.1",
        "https://127.1",
    ),
    *("http://8.8.8.8", "http://login.example.com", "https://nobody.invalid", "ftp://8.8.8.8"),
    *("file:///etc/passwd", "javascript:alert(1)", "//8.8.8.8/x", "", "https://" + "a" * 300),
    *("https://mcp.example.com.evil.invalid", "http://mcp.example.com:80@127.0.0.1"),
    "http://mcp.example.com",  # its tokens would go over the net in plain text
]
OPEN = [
    *("https://mcp.example.com/mcp", "https://mcp.example.com:8443/token"),
    *("http://10.1.2.3:8080/realms/ours", "http://10.1.2.3/token"),
    *("https://8.8.8.8/token", "https://[2001:4860:4860::8888]/token"),
]


def check(address: str) -> None:
    server = McpServerConfig(
        "small",
        url="https://mcp.example.com/mcp",
        transport="http",
        oauth_issuer="http://10.1.2.3:8080/realms/ours",
    )
    asyncio.run(LoginAddresses(server).check(httpx2.URL(address)))


@pytest.mark.parametrize("address", CLOSED)
def test_what_is_neither_configured_nor_public_is_refused(address):
    with pytest.raises(httpx2.RequestError, match="set oauth_issuer"):
        check(address)


@pytest.mark.parametrize("address", OPEN)
def test_what_is_configured_or_public_is_allowed(address):
    check(address)
