"""The floor: the least that a tool loop over the ``openai`` SDK can cost, written by hand.

The SDK keeps authentication, retries, time-outs and error classes. Gone round are its two slow
paths: the request is posted as bytes that are kept from turn to turn, and the answer's events are
cut out of the raw bytes, of which only text deltas and finished items are parsed. There are no
events, no approvals, no record and no cancellation here: a ratio to this floor is their price.
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

    def __init__(self, base_url: str, functions: list[Callable], pooled: bool = False):
        self.client = openai.AsyncOpenAI(base_url=base_url, api_key="x", max_retries=0)
        self.pool = ThreadPoolExecutor(32) if pooled else None
        self.tools, specs = {}, []
        for function in functions:
            adapter = TypeAdapter(function)
            self.tools[function.__name__] = adapter.validator.validate_json
            schema = adapter.json_schema()
            specs.append(
                {
                    "type": "function",
                    "name": function.__name__,
                    "parameters": schema,
                    "strict": False,
                }
            )
        self.head = b'{"model":"gpt-4o","stream":true,"tools":' + to_json(specs) + b',"input":['
        self.deltas = 0

    async def run(self, prompt: str) -> str:
        """Go round until an answer has no calls; return all text."""
        history = bytearray(to_json({"role": "user", "content": prompt}))
        texts: list[str] = []
        while True:
            calls = await self.request(self.head + history + b"]}", texts)
            if not calls:
                return "".join(texts)
            for call in calls:
                history += b"," + to_json({key: call[key] for key in KEPT})
            for output in await asyncio.gather(*map(self.call, calls)):
                history += b"," + to_json(output)

    async def request(self, body: bytes, texts: list[str]) -> list[dict]:
        """Post `body`, append the text of the answer to `texts`, return its calls."""
        calls, rest = [], b""
        response = await self.client.post(
            "/responses", cast_to=object, content=body, options={"headers": HEADERS}, stream=True
        )
        try:
            async for chunk in response.iter_bytes():
                *events, rest = (rest + chunk).split(b"\n\n")
                for event in events:
                    if event.startswith(DELTA):
                        self.deltas += 1
                        texts.append(from_json(event[len(DELTA) + 6 :])["delta"])
                    elif event.startswith(DONE):
                        item = from_json(event[len(DONE) + 6 :])["item"]
                        if item["type"] == "function_call":
                            calls.append(item)
        finally:
            await response.close()
        return calls

    async def call(self, call: dict) -> dict:
        """Validate, run, write down."""
        invoke = self.tools[call["name"]]
        if self.pool is None:
            value = invoke(call["arguments"])
        else:
            loop = asyncio.get_running_loop()
            value = await loop.run_in_executor(self.pool, invoke, call["arguments"])
        if inspect.isawaitable(value):
            value = await value
        return {"type": "function_call_output", "call_id": call["call_id"], "output": str(value)}
