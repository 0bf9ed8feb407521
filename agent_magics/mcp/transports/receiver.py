"""Receives the redirect of a browser after a login, on a loopback address."""

import asyncio
import html
from contextlib import suppress
from typing import Self
from urllib.parse import parse_qs, urlsplit

from agent_magics.listening import start_listening, stop_listening
from agent_magics.protocol.errors import FatalError, clause

_LONGEST_REQUEST = 16 * 1024  # bytes of a request's first line
_PATIENCE = 10.0  # seconds for receiving a request
_PAGE = (
    "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\n"
    "Content-Security-Policy: default-src 'none'\r\nConnection: close\r\n\r\n"
    "<!doctype html><title>agent-magics</title><p>{text}</p>"
)


class RedirectReceiver:
    """Listens on a free loopback port while it is open; accepts an answer with each expected state.

    The address is numeric as RFC 8252, section 7.3, demands: a name could resolve to another host.

    Args:
        port: where to listen; 0 is any free one.

    Attributes:
        address: the redirect address for the browser.
    """

    def __init__(self, port: int = 0) -> None:
        self._port = port

    async def __aenter__(self) -> Self:
        """Start listening.

        Raises:
            FatalError: another program listens on this port.
        """
        self.expect("")
        try:
            made = asyncio.start_server(
                self._serve, "127.0.0.1", self._port, limit=_LONGEST_REQUEST, start_serving=False
            )
            self._server = await start_listening(made)
        except OSError as error:
            raise FatalError(
                f"The login cannot return to port {self._port} of 127.0.0.1: {clause(error)}."
            ) from None
        port = self._server.sockets[0].getsockname()[1]
        self.address = f"http://127.0.0.1:{port}/callback"
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening."""
        await stop_listening(self._server)
        if self._answer.done() and not self._answer.cancelled():
            self._answer.exception()  # mark the exception as retrieved

    def expect(self, state: str) -> None:
        """Accept only an answer with this state, and one of them."""
        self._state = state
        self._answer: asyncio.Future[tuple[str, str, str | None]] = (
            asyncio.get_running_loop().create_future()
        )

    async def wait(self) -> tuple[str, str, str | None]:
        """Wait for the redirect; return (code, state, issuer).

        Raises:
            FatalError: the login was refused.
        """
        return await self._answer

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                line = await reader.readline()
                status, text = self._take(line.decode("latin-1").split())
                page = _PAGE.format(status=status, text=html.escape(text))
                writer.write(page.encode())
                await writer.drain()
        except (OSError, ValueError, TimeoutError):
            pass  # not a browser's request
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _take(self, words: list[str]) -> tuple[str, str]:
        if len(words) != 3 or words[0] != "GET":
            return "405 Method Not Allowed", "Only a browser's answer is taken here."
        parts = urlsplit(words[1])
        if parts.path != "/callback":
            return "404 Not Found", "There is nothing here."
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if not self._state or query.get("state") != self._state or self._answer.done():
            return "400 Bad Request", "This answer was not expected."
        if "code" not in query:
            reason = query.get("error_description") or query.get("error") or "no reason was given"
            self._answer.set_exception(FatalError(f"The login was refused: {reason[:200]}."))
            return "200 OK", "The login was refused. You can close this page."
        self._answer.set_result((query["code"], query["state"], query.get("iss")))
        return "200 OK", "You are logged in. You can close this page."
