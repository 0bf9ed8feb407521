"""The server over HTTP, on this machine alone: who may talk to it, its address, its end."""

import asyncio
import hmac
import secrets
import socket
from collections.abc import Sequence
from concurrent.futures import TimeoutError as NotInTime
from contextlib import suppress
from typing import Any

import uvicorn
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from agent_magics.protocol.errors import FatalError
from agent_magics.serve.place import Agent, Desk, Place
from agent_magics.serve.protocol import MOST_CLIENTS, ToolServer

HOST = "127.0.0.1"
PATH = "/mcp"
# Bytes of a request; the longest arguments that a tool takes are those of a patch.
LARGEST_BODY = 4 * 1024 * 1024
# Connections at once; each holds one of the kernel's descriptors, of which there are often 1,024.
MOST_CONNECTIONS = 2 * MOST_CLIENTS
_HELLO_LIMIT = 15.0  # seconds in which a connection has to bring a request
_STOP_LIMIT = 5.0


class _Connection(H11Protocol):
    """One of not too many connections, closed where nothing is asked on it.

    Whoever is on this machine can connect, also without the token.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take it, or hang up."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self.loop.call_later(_HELLO_LIMIT, self._look)

    def _look(self) -> None:
        if self.cycle is None:  # no request has come
            self.transport.abort()


class Gate:
    """Lets through requests for this server by its own name, that hold its token.

    A page on the web can make a browser send requests here, under a name of its own that leads to
    this machine; the names in Host and Origin give it away (DNS rebinding).

    Args:
        manager: answers what passes.
        port: where we listen.
        token: what a request must hold.
    """

    def __init__(self, manager: StreamableHTTPSessionManager, port: int, token: str) -> None:
        self._manager = manager
        self._hosts = {f"{HOST}:{port}", f"localhost:{port}"}
        self._origins = {f"http://{host}" for host in self._hosts}
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return  # a WebSocket: uvicorn refuses it
        refusal = self._refusal(Headers(scope=scope), scope["path"])
        if refusal is not None:
            await refusal(scope, receive, send)
        else:
            await self._manager.handle_request(scope, receive, send)

    def _refusal(self, headers: Headers, path: str) -> Response | None:
        origin = headers.get("origin")
        if headers.getlist("host") not in [[host] for host in self._hosts]:
            return Response("Invalid Host header", 421)
        if origin is not None and origin not in self._origins:
            return Response("Invalid Origin header", 403)
        scheme, _, given = headers.get("authorization", "").partition(" ")
        is_right = hmac.compare_digest(given.strip().encode(), self._token)
        if scheme.lower() != "bearer" or not is_right:
            challenge = 'Bearer realm="agent-magics"' + (', error="invalid_token"' if given else "")
            return Response("A valid token is needed", 401, {"WWW-Authenticate": challenge})
        return None if path == PATH else Response("Not found", 404)


class Serving:
    """Tools being served over HTTP; `stop` ends it, as does the end of a ``with`` block.

    Attributes:
        url: where clients connect to.
        token: what they send as ``Authorization: Bearer ...``; never in our own outputs.
    """

    def __init__(self, place: Place, server: ToolServer, listener: socket.socket) -> None:
        self._place = place
        self._server = server
        self._listener = listener
        port = listener.getsockname()[1]
        self.url = f"http://{HOST}:{port}{PATH}"
        self.token = secrets.token_urlsafe(32)
        self._manager = StreamableHTTPSessionManager(
            server.server, max_request_body_size=LARGEST_BODY, max_sessions=MOST_CLIENTS
        )
        # Nothing of uvicorn's is written to the person's outputs: it has no say in their logging.
        config = uvicorn.Config(
            Gate(self._manager, port, self.token),
            http=_Connection,
            lifespan="off",
            ws="none",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        self._web = uvicorn.Server(config)
        self._end = asyncio.Event()
        self._engine = place.agent.session.engine
        self._running = self._engine.spawn(self._run())
        place.agent.session.shelf.watch(self._on_change)
        place.desk.begin(server.refresh)

    @property
    def running(self) -> bool:
        """Whether it answers."""
        return not self._running.done()

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the served tools."""
        return self._server.listing.names

    def client_config(self) -> dict[str, Any]:
        """Return what a client's configuration file wants to hold. It has the token in it."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return {"mcpServers": {"notebook": {"type": "http", "url": self.url, "headers": headers}}}

    def refresh(self) -> None:
        """Look at the tools again, and tell the clients where they have changed."""
        self._server.refresh()

    def _on_change(self) -> None:
        with suppress(RuntimeError):  # the place has ended
            self._place.soon(self._server.refresh)

    def stop(self) -> None:
        """End it: calls under way are stopped, the address is free again. Does nothing twice."""
        self._place.agent.session.shelf.unwatch(self._on_change)
        self._place.desk.end()
        with suppress(FatalError):  # a fork: nothing of it runs here
            self._engine.post(self._end.set)
            if not self._engine.is_current():
                with suppress(NotInTime):
                    self._running.result(_STOP_LIMIT)
        self._place.close()

    async def _run(self) -> None:
        web = asyncio.create_task(self._web.serve(sockets=[self._listener]))
        web.add_done_callback(lambda _: self._end.set())
        try:
            async with self._manager.run():
                await self._end.wait()
                self._server.close()
        finally:
            self._web.should_exit = True
            await web

    def __enter__(self) -> "Serving":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        count = len(self.tools)
        tools = f"{count} tool{'' if count == 1 else 's'}"
        state = f"at {self.url}" if self.running else "stopped"
        return f"<Serving {tools} {state}; .token and .client_config() are for clients>"


def serve(
    agent: Agent, port: int = 0, tools: Sequence[str] | None = None, desk: Desk | None = None
) -> Serving:
    """Serve an agent's tools over HTTP on this machine; see `Agent.serve`.

    Raises:
        FatalError: the port is taken, or a tool is not there.
    """
    place = Place(agent, desk)
    try:
        wanted = None if tools is None else tuple(tools)
        return Serving(place, ToolServer(place, wanted), _listen(port))
    except BaseException:
        place.close()
        raise


def _listen(port: int) -> socket.socket:
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:
        raise FatalError(f"port={port!r} is no port: use a number up to 65535; 0 takes a free one.")
    try:
        # Listens at once, so that a client that is quicker than our loop is not refused.
        return socket.create_server((HOST, port), backlog=MOST_CLIENTS)
    except OSError as error:
        raise FatalError(
            f"Port {port} of {HOST} cannot be used ({error.strerror}); port=0 takes a free one."
        ) from None
