"""An HTTP proxy on the loopback interface: forwards requests, and opens tunnels (CONNECT).

async with Proxy() as proxy:
    monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.place}")
"""

import asyncio
from base64 import b64encode
from urllib.parse import urlsplit

from tests.support.models.raw_server import RawServer


class Proxy(RawServer):
    """Leads every request to the server that it names, at the loopback interface.

    Args:
        login: "name:password" that is asked for, or "".
        refusal: bytes that are answered instead, or None.

    Attributes:
        heads: what it was sent in the open: requests, or what came before a tunnel.
    """

    def __init__(self, login: str = "", refusal: bytes | None = None) -> None:
        super().__init__(self._answer)
        self._allowed = f"Basic {b64encode(login.encode()).decode()}" if login else ""
        self._refusal = refusal
        self.heads: list[str] = []

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        self.heads.append(head)
        if self._refusal is not None:
            writer.write(self._refusal)
        elif self._allowed not in head:
            writer.write(b"HTTP/1.1 407 No login\r\nContent-Length: 0\r\n\r\n")
        else:
            await self._lead_on(head, reader, writer)

    async def _lead_on(
        self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        method, target, _ = head.split(" ", 2)
        is_tunnel = method == "CONNECT"
        there = urlsplit(f"//{target}" if is_tunnel else target)
        answers, requests = await asyncio.open_connection("127.0.0.1", there.port)
        if is_tunnel:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            requests.write(head.replace(target, there.path, 1).encode("latin-1"))
        await asyncio.gather(_copy(reader, requests), _copy(answers, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
        await writer.wait_closed()
