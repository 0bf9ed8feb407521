"""Adds the token to each request for a server of ours, since the conformance suite sends none.

    with TokenProxy(serving) as address: ...

Nothing else is changed but the port in Host and Origin, which the server looks at.
"""

import asyncio
import re
import threading
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

_HEAD_LIMIT = 64 * 1024


class TokenProxy:
    """Listens on a free port of the loopback while it is open."""

    def __init__(self, serving: Any) -> None:
        self._port = urlsplit(serving.url).port
        self._path = urlsplit(serving.url).path
        self._token = serving.token
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="token proxy")

    def __enter__(self) -> str:
        """Start to listen; return the address."""
        self._thread.start()
        start = asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_HEAD_LIMIT)
        self._server = asyncio.run_coroutine_threadsafe(start, self._loop).result(10)
        self._own = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{self._own}{self._path}"

    def __exit__(self, *_: object) -> None:
        """Stop listening."""

        async def end() -> None:
            self._server.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there: asyncio.StreamWriter | None = None
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = await reader.readuntil(b"\r\n\r\n")
            back, there = await asyncio.open_connection("127.0.0.1", self._port)
            there.write(self._with_token(head))
            await asyncio.gather(_copy(reader, there), _copy(back, writer))
        for each in (writer, there):
            if each is not None:
                each.close()

    def _with_token(self, head: bytes) -> bytes:
        first, _, rest = head.partition(b"\r\n")
        rest = re.sub(rb"(?im)^connection:.*\r\n", b"", rest)
        rest = rest.replace(b":%d\r\n" % self._own, b":%d\r\n" % self._port)
        token = b"Authorization: Bearer " + self._token.encode()
        return b"\r\n".join((first, token, b"Connection: close", rest))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    with suppress(OSError):
        writer.write_eof()
