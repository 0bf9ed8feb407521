"""Decides which addresses a login may lead to: an MCP server names them, and it may mislead.

Law: a login asks hosts that stand in the server's configuration, and else only ``https`` at public
addresses. So no server makes the kernel send a request into a network that is closed to it. A name
that later leads elsewhere does no harm, since nothing there has a certificate of that name.
"""

import asyncio
import ipaddress
import socket

import httpx2

from agent_magics.protocol.mcp import McpServerConfig

_NAT64 = ipaddress.ip_network("64:ff9b::/96")  # RFC 6052: the last four bytes are an IPv4 address


class LoginAddresses:
    """The addresses to which the requests of one server, and of its login, may go."""

    def __init__(self, config: McpServerConfig) -> None:
        self._configured = {
            (url.scheme, url.host)
            for url in map(httpx2.URL, filter(None, (config.url, config.oauth_issuer)))
        }

    async def check_request(self, request: httpx2.Request) -> None:
        """Refuse a request that may not be sent; for the event hooks of a client.

        Raises:
            RequestError: its address is not allowed.
        """
        await self.check(request.url)

    async def check(self, url: httpx2.URL) -> None:
        """Check an address, before it is requested or shown as a page to open.

        Raises:
            RequestError: it is not allowed.
        """
        if (url.scheme, url.host) in self._configured:
            return
        if url.scheme != "https" or not await _is_public(url.host):
            raise httpx2.RequestError(
                f"the server names {url.scheme}://{url.netloc.decode('ascii', 'replace')} for its "
                "login, which is neither its own host nor https at a public address; if it is "
                "right, set oauth_issuer"
            )


async def _is_public(host: str) -> bool:
    """Tell whether all addresses of a host are public."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return bool(found) and all(_is_public_address(str(place[0])) for *_, place in found)


def _is_public_address(text: str) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    inner: ipaddress.IPv4Address | None = None
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if inner is not None:
        return _is_public_address(str(inner))
    return address.is_global and not address.is_multicast and not address.is_reserved
