"""A Responses API server on the loopback for tests: real HTTP, scripted answers, misbehaviour.

    with ResponsesServer(["Hello."]) as server:
        model = ResponsesModel(base_url=server.base_url)

It runs in a thread of its own with its own loop, so it may serve a client on any loop or thread.
"""

import asyncio
import json
import ssl
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_magics.models.wires.sse import reply_events

USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 15,
}

# The content type of a TLS record that begins a connection (RFC 8446, section 5.1).
TLS_HANDSHAKE = b"\x16"


def message(text: str) -> dict[str, Any]:
    """Return an output item with a message of the model."""
    content = [{"type": "output_text", "annotations": [], "text": text}]
    return {
        "id": "msg_1",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": content,
    }


def function_call(name: str, arguments: Any, call_id: str = "call_1") -> dict[str, Any]:
    """Return an output item with a call of a function tool."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    call = {"call_id": call_id, "name": name, "arguments": text}
    return {"id": f"fc_{call_id}", "type": "function_call", "status": "completed", **call}


@dataclass(frozen=True)
class Reply:
    """One response, and its misbehaviour.

    Attributes:
        items: output items, or a text for one message.
        events: SSE events to send instead of those of `items`.
        status: the HTTP status; anything but 200 sends `error` as the API does.
        headers: more headers, such as ("retry-after-ms", "1").
        cut_after: events after which the connection is dropped, or None.
        pause_after: events after which the server waits until `release` is set, or None.
        line_end: the line ending.
        document: bytes of a response (or an error's body) without streaming.
        content_type: the type of `document`.
        drop: whether the connection is closed without a response.
    """

    items: Sequence[dict[str, Any]] | str = ()
    events: Sequence[bytes] | None = None
    status: int = 200
    error: str = ""
    headers: Sequence[tuple[str, str]] = ()
    cut_after: int | None = None
    pause_after: int | None = None
    release: threading.Event = field(default_factory=threading.Event)
    incomplete: str | None = None
    line_end: bytes = b"\n"
    document: bytes | None = None
    content_type: str = "application/json"
    drop: bool = False

    def sse(self) -> list[bytes]:
        """Return the events to send."""
        if self.events is not None:
            return list(self.events)
        items = [message(self.items)] if isinstance(self.items, str) else self.items
        events = reply_events(items, usage=USAGE, incomplete=self.incomplete)
        return [event.replace(b"\n", self.line_end) for event in events]


@dataclass(frozen=True)
class Request:
    """One received request."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


Script = Sequence[Reply | str] | Callable[[dict[str, Any]], Reply | str]


class ResponsesServer:
    """Answers request n with reply n (the last one repeatedly), or with ``script(body)``.

    Attributes:
        requests: the received requests, in order.
        connections: the number of opened connections.
        dropped: set when a client disconnected during a response.
    """

    def __init__(
        self, script: Script, *, api_key: str | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self._script = script
        self._api_key = api_key
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="responses server", daemon=True)
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._port = 0
        self.requests: list[Request] = []
        self.connections = 0
        self.dropped = threading.Event()

    @property
    def base_url(self) -> str:
        """The address for OPENAI_BASE_URL."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}/v1"

    def __enter__(self) -> "ResponsesServer":
        self._thread.start()
        assert self._ready.wait(10), "the server did not start"
        return self

    def __exit__(self, *exception: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._tls)
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                first = await reader.readexactly(1)
                if first == TLS_HANDSHAKE:  # as web servers without TLS do
                    writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
                    return
                request = await _read_request(first, reader)
                self.requests.append(request)
                await self._answer(request, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # The client has closed the connection, or we have.
        finally:
            writer.close()

    def _reply(self, request: Request) -> Reply:
        if self._api_key and request.headers.get("authorization") != f"Bearer {self._api_key}":
            wrong = request.headers.get("authorization", "").removeprefix("Bearer ")
            return Reply(status=401, error=f"Incorrect API key provided: {wrong}.")
        if callable(self._script):
            reply = self._script(request.body)
        else:
            reply = self._script[min(len(self.requests), len(self._script)) - 1]
        return Reply(reply) if isinstance(reply, str) else reply

    async def _answer(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        reply = self._reply(request)
        if reply.drop:
            raise ConnectionResetError
        document = reply.document
        if document is None and reply.status != 200:
            error = {"message": reply.error, "type": "t", "code": None}
            document = json.dumps({"error": error}).encode()
        if document is not None:
            length = f"content-length: {len(document)}"
            writer.write(_head(reply, reply.content_type, length) + document)
            await writer.drain()
            return
        writer.write(_head(reply, "text/event-stream", "transfer-encoding: chunked"))
        for count, event in enumerate(self._events(request, reply)):
            if count == reply.cut_after:
                raise ConnectionResetError
            if count == reply.pause_after:
                await self._pause(reply, reader)
            writer.write(b"%x\r\n%s\r\n" % (len(event), event))
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    def _events(self, request: Request, reply: Reply) -> list[bytes]:
        """Return the events of a response; a subclass may support other wires."""
        return reply.sse()

    async def _pause(self, reply: Reply, reader: asyncio.StreamReader) -> None:
        """Wait for `release`; a client that disconnects meanwhile ends the response."""
        released = asyncio.ensure_future(asyncio.to_thread(reply.release.wait, 60))
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({released, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            reply.release.set()  # so that the thread ends, also where the server does
        await released
        if gone.done():
            self.dropped.set()
            raise ConnectionResetError
        gone.cancel()
        await asyncio.wait({gone})


async def _read_request(first_bytes: bytes, reader: asyncio.StreamReader) -> Request:
    head = (first_bytes + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(first.split(" ")[1], headers, json.loads(body or b"{}"))


def _head(reply: Reply, content_type: str, length: str) -> bytes:
    more = "".join(f"{name}: {value}\r\n" for name, value in reply.headers)
    return (
        f"HTTP/1.1 {reply.status} Scripted\r\ncontent-type: {content_type}\r\n{length}\r\n"
        f"{more}\r\n"
    ).encode()
