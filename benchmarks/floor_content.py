"""The floor: a minimal tool loop over the ``openai`` SDK, written by hand for comparison.

The SDK keeps authentication, retries, time-outs and error classes. Its two slow paths are bypassed:
the request is posted as bytes that are kept from turn to turn, and the response's events are cut
out of the raw bytes, of which only text deltas and finished items are parsed. There are no events,
no approvals, no record and no cancellation here: a ratio to this floor is their price.
"""

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import openai
from pydantic import TypeAdapter
from pydantic_core import from_json, to_json

HEADERS = {
    "Content-Type": "application/json",
    "Accept": "text/event-stream",
    # Asks the SDK for the response itself, not a stream of models; its own raw methods send it too.
    "X-Stainless-Raw-Response": "stream",
}
DELTA = b"event: response.output_text.delta\n"
DONE = b"event: response.output_item.done\n"
KEPT = ("type", "id", "call_id", "name", "arguments")


class Floor:
    """A conversation with `functions` as tools; `pooled` runs them on threads."""

    path, history = "/responses", "input"

    def __init__(self, base_url: str, functions: list[Callable], pooled: bool = False):
        self.client = openai.AsyncOpenAI(base_url=base_url, api_key="x", max_retries=0)
        self.pool = ThreadPoolExecutor(32) if pooled else None
        self.tools, specs = {}, []
        for function in functions:
            adapter = TypeAdapter(function)
            self.tools[function.__name__] = adapter.validator.validate_json
            specs.append(self.spec(function.__name__, adapter.json_schema()))
        head = {"model": "gpt-4o", "stream": True, "tools": specs, self.history: []}
        self.head = to_json(head).removesuffix(b"]}")

    def spec(self, name: str, schema: dict) -> dict:
        """Return a tool's specification in the wire's form."""
        return {"type": "function", "name": name, "parameters": schema, "strict": False}

    async def run(self, prompt: str) -> str:
        """Request responses and run their calls until there are none; return all text."""
        history = bytearray(to_json({"role": "user", "content": prompt}))
        texts: list[str] = []
        while True:
            calls = await self.request(self.head + history + b"]}", texts)
            if not calls:
                return "".join(texts)
            history += b"," + self.history_of(calls)
            for output in await asyncio.gather(*map(self.call, calls)):
                history += b"," + to_json(output)

    async def request(self, body: bytes, texts: list[str]) -> list[dict]:
        """Post `body`, append the text of the response to `texts`, return its calls."""
        calls, rest = [], b""
        response = await self.client.post(
            self.path, cast_to=object, content=body, options={"headers": HEADERS}, stream=True
        )
        try:
            async for chunk in response.iter_bytes():
                *events, rest = (rest + chunk).split(b"\n\n")
                for event in events:
                    self.take(event, texts, calls)
        finally:
            await response.close()
        return calls

    def take(self, event: bytes, texts: list[str], calls: list[dict]) -> None:
        """Add the text or the call of one event."""
        if event.startswith(DELTA):
            texts.append(from_json(event[len(DELTA) + 6 :])["delta"])
        elif event.startswith(DONE):
            item = from_json(event[len(DONE) + 6 :])["item"]
            if item["type"] == "function_call":
                calls.append(item)

    def history_of(self, calls: list[dict]) -> bytes:
        """Return the history's items of a response with `calls`."""
        return b",".join(to_json({key: call[key] for key in KEPT}) for call in calls)

    async def call(self, call: dict) -> dict:
        """Validate and run a call; return its output item."""
        value = await self.invoke(call["name"], call["arguments"])
        return {"type": "function_call_output", "call_id": call["call_id"], "output": value}

    async def invoke(self, name: str, arguments: str) -> str:
        """Run one tool, on a thread if `pooled`."""
        invoke = self.tools[name]
        if self.pool is None:
            value = invoke(arguments)
        else:
            value = await asyncio.get_running_loop().run_in_executor(self.pool, invoke, arguments)
        return str(await value if inspect.isawaitable(value) else value)


class ChatFloor(Floor):
    """The floor over Chat Completions, where every event must be parsed to know its kind."""

    path, history = "/chat/completions", "messages"

    def spec(self, name: str, schema: dict) -> dict:
        """Return a tool's specification in the wire's form."""
        return {"type": "function", "function": {"name": name, "parameters": schema}}

    def take(self, event: bytes, texts: list[str], calls: list[dict]) -> None:
        """Add the text or the call of one event."""
        if event == b"data: [DONE]":
            return
        for choice in from_json(event[6:])["choices"]:
            delta = choice["delta"]
            if text := delta.get("content"):
                texts.append(text)
            for part in delta.get("tool_calls", ()):
                if part["index"] == len(calls):
                    calls.append({key: part[key] for key in ("id", "type", "function")})
                else:
                    piece = part["function"]["arguments"]
                    calls[part["index"]]["function"]["arguments"] += piece

    def history_of(self, calls: list[dict]) -> bytes:
        """Return the history's items of a response with `calls`."""
        return to_json({"role": "assistant", "content": None, "tool_calls": calls})

    async def call(self, call: dict) -> dict:
        """Validate and run a call; return its output item."""
        function = call["function"]
        value = await self.invoke(function["name"], function["arguments"])
        return {"role": "tool", "tool_call_id": call["id"], "content": value}
