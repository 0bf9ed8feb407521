"""Serves MCP over HTTP on the loopback interface: connections, sessions, token, shutdown."""

import asyncio
import hmac
import logging
import secrets
import socket
from collections.abc import Sequence
from concurrent.futures import TimeoutError as NotInTime
from contextlib import suppress
from typing import Any

import h11
import uvicorn
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER as _SESSION
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from agent_magics.composition.agent import ComposedAgent
from agent_magics.engine.front_end import ServeHost
from agent_magics.protocol.errors import FatalError, clause
from agent_magics.serve.place import CallPlace
from agent_magics.serve.protocol import MOST_CLIENTS, ToolServer
from agent_magics.text.brief import number_of

HOST = "127.0.0.1"
PATH = "/mcp"
# Bytes of a request; the longest arguments that a tool takes are those of a patch.
LARGEST_BODY = 4 * 1024 * 1024
# Connections at once; each holds one of the kernel's descriptors, of which there are often 1,024.
MOST_CONNECTIONS = 2 * MOST_CLIENTS
# Connections that the system keeps until they are accepted, and those accepted in one round of the
# loop. Too many fill all descriptors, and push out some whose request has not been read yet.
_LONGEST_QUEUE, _MOST_AT_ONCE = 1024, 8
# Bytes read of a connection in one round. Who has no token is hung up on in the next one, and small
# parts of a body take a processor a second for each megabyte.
_READ_AT_ONCE = 4096
_REQUEST_LIMIT = 10.0  # seconds in which a request has to come whole, headers and body
_STOP_LIMIT = 5.0
# Otherwise what clients do wrong would appear in the person's cells, as the library's errors.
logging.getLogger("mcp").addHandler(logging.NullHandler())


class _ClientConnection(H11Protocol):
    """One of a limited number of connections, closed where a request does not arrive in time.

    Any process on this machine can connect, also without the token, and all come from the same
    address. Where there are too many, the connection that has waited longest without a request is
    closed, which may be the new one where all others are being answered.
    """

    _limit: asyncio.TimerHandle | None = None
    _waits_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Accept a connection and close another one where there are too many."""
        super().connection_made(transport)
        transport.max_size = _READ_AT_ONCE  # type: ignore[attr-defined] # asyncio reads 256 KiB
        self._waits_since = self.loop.time()
        if len(self.connections) > MOST_CONNECTIONS:
            # Two rounds of the loop later, when what came with it has been read: a request that is
            # there already is answered, however many connect behind it.
            self.loop.call_soon(self.loop.call_soon, self._make_room)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Read more of a request."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Start waiting for the next request."""
        self._waits_since = self.loop.time()
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timer of the request."""
        if self._limit is not None:
            self._limit.cancel()
        super().connection_lost(exc)

    @property
    def is_answering(self) -> bool:
        """Whether a whole request is being answered; one without the token is answered at once."""
        is_open = self.cycle is not None and not self.cycle.response_complete
        return is_open and self.conn.their_state is not h11.SEND_BODY

    def hang_up(self) -> None:
        """Close the connection at once; the client may connect again."""
        self.connections.discard(self)
        self.transport.abort()

    def _make_room(self) -> None:
        """Close the connection that waits longest, where there still are too many."""
        if len(self.connections) > MOST_CONNECTIONS:
            ours = [each for each in self.connections if isinstance(each, _ClientConnection)]
            waiting = [each for each in ours if not each.is_answering]
            min(waiting, key=lambda each: each._waits_since, default=self).hang_up()

    def _watch(self) -> None:
        """Start the timer while a request is incomplete, and cancel it once it is complete."""
        is_whole = self.conn.their_state not in (h11.IDLE, h11.SEND_BODY)
        if is_whole and self._limit is not None:
            self._limit.cancel()
            self._limit = None
        elif not is_whole and self._limit is None:
            self._limit = self.loop.call_later(_REQUEST_LIMIT, self.hang_up)


class _WebServer(uvicorn.Server):
    """Accepts few connections at a time, of a long queue."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections; asyncio takes one number for both and sets the queue's."""
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(_LONGEST_QUEUE)


class Sessions:
    """ASGI middleware that limits the number of MCP sessions and ends the one idle longest.

    Clients may leave without ending their session. A session is idle where no request of it is
    under way; a connected client keeps one request open, on which it gets notifications. The client
    of an ended session gets status 404, as the protocol requires, and begins another.

    Args:
        app: answers the requests.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._under_way: dict[str, int] = {}  # requests by session, the one used last at the end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        session = Headers(scope=scope).get(_SESSION, "")
        if not session and len(self._under_way) >= MOST_CLIENTS:
            await self._make_room(scope)

        async def watch(message: Message) -> None:
            nonlocal session
            if message["type"] == "http.response.start":
                session = self._note_session(session, scope["method"], message)
            await send(message)

        self._count(session, 1)
        try:
            await self._app(scope, receive, watch)
        finally:
            self._count(session, -1)

    def _note_session(self, session: str, method: str, start: Message) -> str:
        """Look at an answer's beginning: which session it opens or ends."""
        opened = Headers(raw=start["headers"]).get(_SESSION, "")
        if not session and opened and start["status"] < 400:
            self._under_way[opened] = 1
            return opened
        if start["status"] == 404 or (method == "DELETE" and start["status"] < 400):
            self._under_way.pop(session, None)
        return session

    def _count(self, session: str, step: int) -> None:
        known = self._under_way.pop(session, None)
        if known is not None:
            self._under_way[session] = known + step

    async def _make_room(self, scope: Scope) -> None:
        """End the session that was idle longest by sending the app its DELETE request."""
        idle = next((name for name, count in self._under_way.items() if count <= 0), None)
        if idle is None:
            return
        del self._under_way[idle]
        headers = [(_SESSION.encode(), idle.encode()), (b"host", f"{HOST}".encode())]

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(_: Message) -> None:
            """Discard the response."""

        await self._app({**scope, "method": "DELETE", "headers": headers}, receive, send)


class AccessGate:
    """ASGI middleware that admits requests with this server's own host name and its token.

    A page on the web can make a browser send requests here, under a host name that resolves to this
    machine (DNS rebinding); the headers Host and Origin reveal that.

    Args:
        app: answers the admitted requests.
        port: the TCP port of this server.
        token: the bearer token that a request must have.
    """

    def __init__(self, app: ASGIApp, port: int, token: str) -> None:
        self._app = app
        self._hosts = {f"{HOST}:{port}", f"localhost:{port}"}
        self._origins = {f"http://{host}" for host in self._hosts}
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; answer 421, 403, 401 or 404 where it is not admitted."""
        if scope["type"] != "http":
            return  # a WebSocket: uvicorn refuses it
        refusal = self._refusal(Headers(scope=scope), scope["path"])
        if refusal is not None:
            # Otherwise a client that sends request after request and reads no answer would keep its
            # connection, since all of them are being answered.
            refusal.headers["Connection"] = "close"
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, headers: Headers, path: str) -> Response | None:
        if headers.getlist("host") not in [[host] for host in self._hosts]:
            return Response("Invalid Host header", 421)
        if not self._origins.issuperset(headers.getlist("origin")):
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
        url: the address that clients connect to.
        token: clients send it as ``Authorization: Bearer ...``; it never stands in our own outputs.
    """

    def __init__(self, place: CallPlace, server: ToolServer, listener: socket.socket) -> None:
        self._place = place
        self._server = server
        self._listener = listener
        port = listener.getsockname()[1]
        self.url = f"http://{HOST}:{port}{PATH}"
        self.token = secrets.token_urlsafe(32)
        self._manager = StreamableHTTPSessionManager(
            server.server,
            max_request_body_size=LARGEST_BODY,
            max_sessions=MOST_CLIENTS + MOST_CONNECTIONS,  # also while they open
        )
        # uvicorn must neither write to the person's outputs nor configure their logging.
        config = uvicorn.Config(
            AccessGate(Sessions(self._manager.handle_request), port, self.token),
            http=_ClientConnection,
            lifespan="off",
            ws="none",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,
            backlog=_MOST_AT_ONCE,
        )
        self._web = _WebServer(config)
        self._end = asyncio.Event()
        self._engine = place.agent.session.engine
        self._running = self._engine.spawn(self._run())
        place.agent.session.registrations.watch(self._on_change)
        place.serve_host.begin(server.refresh)

    @property
    def running(self) -> bool:
        """Whether the server is running."""
        return not self._running.done()

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the served tools."""
        return self._server.listing.names

    def client_config(self) -> dict[str, Any]:
        """Return the entry for an MCP client's configuration file (``mcpServers``).

        It holds the token.
        """
        headers = {"Authorization": f"Bearer {self.token}"}
        return {"mcpServers": {"notebook": {"type": "http", "url": self.url, "headers": headers}}}

    def refresh(self) -> None:
        """List the tools again and notify the clients where the list has changed."""
        self._server.refresh()

    def _on_change(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._place.soon(self._server.refresh)

    def stop(self) -> None:
        """Stop the server: cancel calls under way and free the address.

        A second call does nothing.
        """
        self._place.agent.session.registrations.unwatch(self._on_change)
        self._place.serve_host.end()
        with suppress(FatalError):  # a forked process: the server does not run here
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
        tools = number_of(len(self.tools), "tool")
        state = f"at {self.url}" if self.running else "stopped"
        return f"<Serving {tools} {state}; .token and .client_config() are for clients>"


def serve(
    agent: ComposedAgent,
    port: int = 0,
    tools: Sequence[str] | None = None,
    serve_host: ServeHost | None = None,
) -> Serving:
    """Serve an agent's tools over HTTP on this machine; see `Agent.serve`.

    Args:
        agent: the agent whose tools are served.
        port: the TCP port; 0 means any free one.
        tools: names of tools and sets; None means all of the agent's own.
        serve_host: the front end's part; None in a plain program.

    Returns:
        The running server, with its address and token.

    Raises:
        FatalError: the port is taken, or a tool is missing.
    """
    place = CallPlace(agent, serve_host)
    try:
        wanted = None if tools is None else tuple(tools)
        return Serving(place, ToolServer(place, wanted), _listen(port))
    except BaseException:
        place.close()
        raise


def _listen(port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise FatalError(f"port={port} is no port: use a number up to 65535; 0 takes a free one.")
    try:
        # Listens at once, so that a client that is quicker than our loop is not refused.
        listener = socket.create_server((HOST, port), backlog=_LONGEST_QUEUE)
    except OSError as error:
        raise FatalError(
            f"Port {port} of {HOST} cannot be used ({clause(error)}); port=0 takes a free one."
        ) from None
    # For connections too, which inherit it: asyncio sets it only where the socket names its
    # protocol. Without it the body of an answer waits 40 ms for the client to acknowledge its head.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
