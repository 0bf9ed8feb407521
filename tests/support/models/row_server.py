"""A model server in a process of its own that answers many short requests, and misbehaves on order.

    with RowServer(faults={"500": 0.2, "silence": 0.2}) as server:
        client = RowClient(base_url=server.base_url)
    server.log()

It speaks both wires without streaming. An answer fits the schema of its request; a text answer
repeats the last message.
"""

import asyncio
import json
import math
import random
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from aiohttp import web

from tests.support.models.forked import ForkedServer

WIRES = {"responses": "/v1/responses", "chat": "/v1/chat/completions"}
USAGE = {"input_tokens": 20, "output_tokens": 10, "total_tokens": 30}
CHAT_USAGE = {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30}


@dataclass(frozen=True)
class Settings:
    """How the server behaves.

    Attributes:
        faults: kind of fault -> share of the requests: a status ("429"), "silence", "garbage" (not
            JSON), "half" (JSON cut off), "cut" (the connection is closed), "schema" (an answer that
            does not fit the schema).
        wires: the wires that it has.
        delay: seconds before each answer.
        rate: requests a minute that it allows; 0 is any number.
        minute: seconds of that minute.
        burst: requests that it allows at once; 0 is a minute's.
        states: whether the headers state that limit.
        asks: whether refusals say when to come again.
        refuses_schema: whether a request with a schema is refused.
        key: the only key that is accepted; "" is any.
        seed: of the choice of faults.
        at_once: requests that it answers side by side, and others are refused at once (status
            429); 0 is any number.
        holds: answers so many requests, and the others when `RowServer.answer_more` lets it; 0
            answers all.
        port: where it listens; 0 is any free port.
    """

    faults: Mapping[str, float] | None = None
    wires: tuple[str, ...] = ("responses", "chat")
    delay: float = 0.0
    rate: float = 0.0
    minute: float = 60.0
    burst: float = 0.0
    states: bool = False
    asks: bool = True
    refuses_schema: bool = False
    key: str = ""
    seed: int = 1
    at_once: int = 0
    holds: int = 0
    port: int = 0


class RowServer:
    """The server as tests use it; the arguments are those of `Settings`."""

    def __init__(self, **settings: Any) -> None:
        self._program = partial(Program, Settings(**settings))

    def __enter__(self) -> Self:
        self._process = ForkedServer(serve, self._program)
        self.port = self._process.port
        self.base_url = f"http://127.0.0.1:{self.port}/v1"
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()

    def log(self) -> list[dict[str, Any]]:
        """Return all requests: how many were under way when it came, itself included; the last
        message, the outcome ("answered" or the fault), the tokens counted, the body.
        """
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/log") as reply:
            return json.load(reply)

    def prompts(self) -> Counter[str]:
        """Return how many requests came with each last message."""
        return Counter(entry["last"] for entry in self.log())

    def answer_more(self, count: int = 1_000_000) -> None:
        """Let it answer so many more requests than `holds`."""
        url = f"http://127.0.0.1:{self.port}/more?count={count}"
        urllib.request.urlopen(urllib.request.Request(url, method="POST")).close()


# -- the program ------------------------------------------------------------------------------


class Bucket:
    """The requests that the server allows: `rate` a minute, `burst` at once."""

    def __init__(self, settings: Settings) -> None:
        self.a_second = settings.rate / settings.minute
        self.most = settings.burst or settings.rate
        self.level = self.most
        self.at = time.monotonic()

    def wait(self) -> float:
        """Take one; return 0, or the seconds until there is one."""
        now = time.monotonic()
        self.level = min(self.level + (now - self.at) * self.a_second, self.most)
        self.at = now
        if self.level >= 1:
            self.level -= 1
            return 0.0
        return (1 - self.level) / self.a_second


class Program:
    """Answers the requests."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.bucket = Bucket(settings)
        self.chance = random.Random(settings.seed)
        self.entries: list[dict[str, Any]] = []
        self.under_way = 0
        self.left = settings.holds or math.inf
        self.has_more = asyncio.Event()

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Add what else a server of this kind answers."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request on one of the wires, as ordered."""
        self.under_way += 1
        try:
            return await self.answer_one(request, await request.json())
        finally:
            self.under_way -= 1

    async def answer_one(self, request: web.Request, body: Any) -> web.StreamResponse:
        """Answer a request with this body."""
        entry = {"now": self.under_way, "last": last_message(body), "tokens": 0, "body": body}
        self.entries.append(entry)
        entry["outcome"] = outcome = self.outcome(request, body)
        if 0 < self.settings.at_once < self.under_way:
            entry["outcome"] = "429"
            return self.refusal(429)
        while self.left < 1:
            await self.has_more.wait()
        self.left -= 1
        if self.settings.delay:
            await asyncio.sleep(self.settings.delay)
        if outcome == "silence":
            await asyncio.sleep(3600)
        if outcome == "cut":
            request.transport.close()
        if outcome == "garbage":
            return web.Response(text="<html>\ufffd} no JSON", content_type="text/html")
        if outcome.isdigit():
            return self.refusal(int(outcome))
        answer = answer_of(body, fits=outcome != "schema")
        if outcome == "half":
            return web.Response(body=json.dumps(answer).encode()[:-40])
        entry["tokens"] = 30
        return web.json_response(answer, headers=self.headers())

    def outcome(self, request: web.Request, body: Mapping[str, Any]) -> str:
        """Return "answered" or the fault that this request gets."""
        if request.path not in (WIRES[wire] for wire in self.settings.wires):
            return "404"
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.settings.key and given != self.settings.key:
            return "401"
        if self.settings.refuses_schema and schema_of(body) is not None:
            return "400"
        if self.settings.rate:
            self.retry_after = self.bucket.wait()
            if self.retry_after:
                return "429"
        drawn = self.chance.random()
        for fault, share in (self.settings.faults or {}).items():
            if drawn < share:
                return fault
            drawn -= share
        return "answered"

    def refusal(self, status: int) -> web.Response:
        """Return an answer with an error status, with the headers of a limit."""
        said = "response_format is unavailable" if status == 400 else f"fault {status}"
        headers = self.headers() if status == 429 else {}
        if status == 429 and self.settings.asks:
            wait = self.retry_after if self.settings.rate else 0.05
            headers["retry-after-ms"] = str(max(1, round(wait * 1000)))
        return web.json_response({"error": {"message": said}}, status=status, headers=headers)

    def headers(self) -> dict[str, str]:
        """Return the headers that state the limit."""
        if not self.settings.states:
            return {}
        missing = (self.bucket.most - self.bucket.level) / self.bucket.a_second
        return {
            "x-ratelimit-limit-requests": f"{self.settings.rate:g}",
            "x-ratelimit-remaining-requests": str(int(self.bucket.level)),
            "x-ratelimit-reset-requests": f"{missing:.3f}s",
        }

    async def answer_more(self, request: web.Request) -> web.Response:
        """Answer more of the requests that wait."""
        self.left += int(request.query["count"])
        self.has_more.set()
        self.has_more.clear()
        return web.Response()

    async def log(self, request: web.Request) -> web.Response:
        """Return what came so far."""
        return web.json_response(self.entries)


def last_message(body: Mapping[str, Any]) -> str:
    """Return the text of the last message of a request."""
    messages = body.get("input") or body.get("messages")
    content = messages if isinstance(messages, str) else messages[-1]["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def schema_of(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the schema that a request wants its answer to have."""
    if "response_format" in body:
        return body["response_format"]["json_schema"]["schema"]
    return body["text"]["format"]["schema"] if "text" in body else None


def fitting(schema: Mapping[str, Any], text: str, whole: Mapping[str, Any]) -> Any:
    """Return a value that fits a schema, made of `text`."""
    if "$ref" in schema:
        return fitting(whole["$defs"][schema["$ref"].rpartition("/")[2]], text, whole)
    if "anyOf" in schema:
        return fitting(schema["anyOf"][0], text, whole)
    if "enum" in schema:
        return schema["enum"][len(text) % len(schema["enum"])]
    match schema.get("type"):
        case "object":
            parts = schema.get("properties", {})
            return {name: fitting(part, text, whole) for name, part in parts.items()}
        case "array":
            return [fitting(schema["items"], text, whole)]
        case "integer" | "number":
            return len(text)
        case "boolean":
            return True
    return text[-40:]


def answer_of(body: Mapping[str, Any], *, fits: bool = True) -> dict[str, Any]:
    """Return the answer to a request, on its wire."""
    schema, text = schema_of(body), last_message(body)
    if schema is not None:
        text = json.dumps(fitting(schema, text, schema)) if fits else '{"unexpected": 1}'
    if "messages" in body:
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return {"object": "chat.completion", "choices": [choice], "usage": CHAT_USAGE}
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "content": [part]}
    return {"object": "response", "status": "completed", "output": [item], "usage": USAGE}


async def serve(make_program: Callable[[], Program], tell: Callable[[int], None]) -> None:
    """Serve on a port of loopback, which is told, until killed."""
    program = make_program()
    app = web.Application(client_max_size=256 << 20)
    app.router.add_get("/log", program.log)
    app.router.add_post("/more", program.answer_more)
    program.add_routes(app.router)
    app.router.add_post("/{path:.*}", program.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    port = program.settings.port
    # Past its queue the system resets connections: a map opens hundreds at once.
    site = web.TCPSite(runner, "127.0.0.1", port, reuse_port=bool(port), backlog=4096)
    await site.start()
    tell(site._server.sockets[0].getsockname()[1])
    await asyncio.Event().wait()
