"""Connects to a server over HTTP: the SDK's two transports, with limits, tokens and headers."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import httpx2
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from agent_magics.exec.servers import LogRing
from agent_magics.mcp.environment import McpEnvironment
from agent_magics.mcp.server_secrets import Redactor
from agent_magics.mcp.transports.addresses import LoginAddresses
from agent_magics.mcp.transports.asked import Unanswered
from agent_magics.mcp.transports.bodies import (
    MOST_OF_ONE,
    PLAIN,
    limit_body,
    lost_answer,
    name_status,
)
from agent_magics.mcp.transports.logs import keep_keys_out
from agent_magics.mcp.transports.oauth import Tokens
from agent_magics.mcp.transports.renewal import lacking_scope
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.mcp import McpServerConfig
from agent_magics.text.typed import as_typed

_CONNECT = 15.0  # seconds for connecting, or for sending a request
# time limits of the request that ends a session
_FAREWELL = {"connect": 2.0, "read": 2.0, "write": 2.0, "pool": 2.0}
_UNAUTHORIZED = 401


class HttpTransport:
    """A connection over HTTP with the SDK's interface: two streams of messages.

    Attributes:
        unauthorized: whether it ended because the server requires a (new) login; where requests
            are answered one by one, their errors say it.
        ending: how it ended, in a few words; "" where unknown.
    """

    def __init__(
        self,
        config: McpServerConfig,
        around: McpEnvironment,
        redact: Redactor,
        log: LogRing,
        on_over: Callable[[], None],
        sift: Callable[[Any], None],
    ) -> None:
        self._config = config
        self._log = log
        self._sift = sift
        self._around = around
        self._redact = redact
        self._on_over = on_over
        self._stack = AsyncExitStack()
        self._tokens: Tokens | None = None
        self._auth: httpx2.Auth | None = None
        self._headers = dict(config.headers)
        self._failed: int | None = None
        self.unauthorized = False  # set with SSE only

    @property
    def status(self) -> str:
        """The HTTP status of the last answer to a message, if it was an error."""
        return "" if self._failed is None else f"HTTP status {self._failed}"

    @property
    def ending(self) -> str:
        """How it ended, in a few words."""
        return self.status

    async def _prepare(self) -> None:
        """Determine the tokens to send.

        Raises:
            RespondToModel: the environment variable that should hold one is not set.
        """
        config = self._config
        if variable := config.bearer_token_env_var:
            token = self._around.environment.get(variable)
            if not token:
                raise RespondToModel(
                    f"the variable {variable} (bearer_token_env_var) is not set in the kernel"
                )
            self._headers["Authorization"] = f"Bearer {token}"
        else:
            tokens = Tokens(config, self._around.environment, self._redact)
            if await tokens.load():
                self._tokens, self._auth = tokens, tokens.silent_auth()

    async def __aenter__(self) -> Any:
        """Open the connection; raises as `_prepare`, and what the SDK raises."""
        await self._prepare()
        try:
            streams = await self._stack.enter_async_context(await self._connect())
        except BaseException:
            await self._stack.aclose()
            raise
        reading, writing = streams
        unanswered = Unanswered(self._log)
        watched = _Watched(reading, self._on_over, self._sift, unanswered)
        return watched, _Answering(writing, unanswered)

    async def __aexit__(self, *error: Any) -> bool | None:
        """Close the connection."""
        return await self._stack.__aexit__(*error)

    async def _connect(self) -> AbstractAsyncContextManager[Any]:
        keep_keys_out()
        address = self._config.url or ""  # always set for this transport
        if self._config.transport == "sse":
            return sse_client(
                address,
                headers=self._headers,
                timeout=_CONNECT,
                httpx_client_factory=self._make_client,
            )
        client = await self._stack.enter_async_context(self._make_client())
        return streamable_http_client(address, http_client=client, max_sse_event_size=MOST_OF_ONE)

    def _make_client(self, *_: Any, **__: Any) -> httpx2.AsyncClient:
        # No read time-out: the time limit of each call applies.
        return _Client(
            self._look_at,
            headers={**PLAIN, **self._headers},
            auth=self._auth,
            timeout=httpx2.Timeout(_CONNECT, read=None),
            event_hooks={
                "request": [LoginAddresses(self._config).check_request, _hurry_farewell],
                "response": [limit_body],
            },
        )

    async def _look_at(self, response: httpx2.Response) -> None:
        status = response.status_code
        # The stream of messages beside the answers, and the end of a session, may fail alone.
        if response.request.method == "POST" or self._config.transport == "sse":
            self._failed = status if status >= 400 else None
        if status >= 400 and self._config.transport == "sse":  # after one the SDK sends no more
            self.unauthorized = status == _UNAUTHORIZED
            self._on_over()
        reason = ""
        if scope := lacking_scope(response):
            reason = f"it needs the scope {scope!r}"
            if self._tokens is not None:
                await self._tokens.want(scope)
                name = as_typed(self._config.name)
                reason += f"; the person can give it by %agent mcp login {name}"
        name_status(response, reason)


class _Client(httpx2.AsyncClient):
    """A client that reports the server's answer to each request, wherever a redirect led.

    What a login sends for a request may go to the same origin, and is not reported.
    """

    def __init__(
        self, report: Callable[[httpx2.Response], Awaitable[None]], **options: Any
    ) -> None:
        super().__init__(**options)
        self._report = report

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request, report its answer, and return it; one that was lost has a stand-in."""
        try:
            response = await super().send(request, **options)
        except (httpx2.RequestError, httpx2.StreamError) as error:
            if request.method != "POST":
                raise
            return lost_answer(request, error)
        try:
            await self._report(response)
        except BaseException:
            await response.aclose()
            raise
        return response


class _Watched(ObjectReceiveStream[Any]):
    """Wraps the stream of messages from a server: filters messages, and reports its end to the
    owner.
    """

    def __init__(
        self,
        stream: Any,
        on_over: Callable[[], None],
        sift: Callable[[Any], None],
        unanswered: Unanswered,
    ) -> None:
        self._stream = stream
        self._unanswered = unanswered
        self._on_over = on_over
        self._sift = sift

    @property
    def last_context(self) -> Any:
        """The context in which the last message was sent, which the SDK reads."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        """Return the next message."""
        while True:
            try:
                message = await self._stream.receive()
            except Exception:
                self._on_over()
                raise
            if self._unanswered.admits(getattr(message, "message", message)):
                self._sift(message)
                return message

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()


class _Answering(ObjectSendStream[Any]):
    """Wraps the stream of messages to a server: notes which of its requests are answered."""

    def __init__(self, stream: Any, unanswered: Unanswered) -> None:
        self._stream = stream
        self._unanswered = unanswered

    async def send(self, item: Any) -> None:
        """Send a message."""
        self._unanswered.answered(item.message)
        await self._stream.send(item)

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()


async def _hurry_farewell(request: httpx2.Request) -> None:
    """Shorten the time limits of the DELETE request that ends a session."""
    if request.method == "DELETE":
        request.extensions = {**request.extensions, "timeout": _FAREWELL}
