"""A model that costs nothing: a loopback Responses API with answers written before they are asked.

It runs in a process of its own, so that the CPU time of a client is the client's alone. The address
names the scenario, ``http://127.0.0.1:PORT/s/SCENARIO/v1/responses``; the answer is chosen by the
number of ``function_call_output`` items in the request, so the server keeps no conversation.
Scenarios:

- ``loopN``: N answers with one call of ``add`` each, then a text.
- ``deltasN``: one call of ``mark``, then a text of N deltas.
- ``parN``: one answer with N calls of ``nap``, then a text.
- ``yes``: every answer calls ``shell`` with ``["yes"]``.
- ``pacedN``: a text of N deltas, `PACE` seconds apart, as a live model writes.

``GET /log/SCENARIO`` prepares the scenario, and returns and clears what was asked so far: a list of
``[when the request was complete, when the answer was written, bytes of the body, outputs]``, times
in seconds.
"""

import asyncio
import json
import re
import time
from dataclasses import dataclass, field
from functools import cache

PACE = 0.002
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"x-request-id: req_bench\r\ntransfer-encoding: chunked\r\n\r\n"
)
USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 15,
}


@dataclass
class Answer:
    """One streamed response as HTTP chunks, one per event, as a live API flushes them."""

    chunks: list[bytes] = field(default_factory=list)
    output: list[dict] = field(default_factory=list)
    number: int = 0

    def event(self, kind: str, **fields) -> None:
        """Append one server-sent event."""
        data = {"type": kind, "sequence_number": len(self.chunks), **fields}
        body = f"event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()
        self.chunks.append(b"%x\r\n%s\r\n" % (len(body), body))

    def response(self, status: str, usage: dict | None = None) -> dict:
        """The response object that the first and the last event carry."""
        return {
            "id": f"resp_{self.number}",
            "object": "response",
            "created_at": 1_750_000_000,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "model": "gpt-4o",
            "output": self.output,
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "usage": usage,
            "metadata": {},
        }

    def call(self, name: str, arguments: dict) -> None:
        """Append one function call: added, its arguments in pieces of 8 characters, done."""
        index = len(self.output)
        item_id, text = f"fc_{self.number}_{index}", json.dumps(arguments)
        item = {
            "id": item_id,
            "type": "function_call",
            "status": "in_progress",
            "call_id": f"call_{self.number}_{index}",
            "name": name,
            "arguments": "",
        }
        where = {"item_id": item_id, "output_index": index}
        self.event("response.output_item.added", output_index=index, item=item)
        for start in range(0, len(text), 8):
            piece = text[start : start + 8]
            self.event("response.function_call_arguments.delta", **where, delta=piece)
        self.event("response.function_call_arguments.done", **where, arguments=text)
        item = {**item, "status": "completed", "arguments": text}
        self.event("response.output_item.done", output_index=index, item=item)
        self.output.append(item)

    def text(self, pieces: list[str]) -> None:
        """Append one message, a delta for each piece."""
        index, item_id, whole = len(self.output), f"msg_{self.number}", "".join(pieces)
        item = {"id": item_id, "type": "message", "role": "assistant", "status": "in_progress"}
        where = {"item_id": item_id, "output_index": index, "content_index": 0}
        part = {"type": "output_text", "annotations": [], "logprobs": [], "text": ""}
        self.event("response.output_item.added", output_index=index, item={**item, "content": []})
        self.event("response.content_part.added", **where, part=part)
        for piece in pieces:
            self.event("response.output_text.delta", **where, delta=piece, logprobs=[])
        self.event("response.output_text.done", **where, text=whole, logprobs=[])
        part = {**part, "text": whole}
        self.event("response.content_part.done", **where, part=part)
        item = {**item, "status": "completed", "content": [part]}
        self.event("response.output_item.done", output_index=index, item=item)
        self.output.append(item)


def answer(number: int, calls: list[tuple[str, dict]] = (), pieces: list[str] = ()) -> list[bytes]:
    """The chunks of a whole response, head and end of the HTTP message included."""
    made = Answer(number=number)
    made.event("response.created", response=made.response("in_progress"))
    made.event("response.in_progress", response=made.response("in_progress"))
    for name, arguments in calls:
        made.call(name, arguments)
    if pieces:
        made.text(list(pieces))
    made.event("response.completed", response=made.response("completed", USAGE))
    return [HEAD, *made.chunks, b"0\r\n\r\n"]


@dataclass
class Scenario:
    """What is said after how many outputs, and what was asked."""

    answers: dict[int, list[bytes]]
    pace: float = 0.0
    log: list[list[float]] = field(default_factory=list)


@cache
def scenario(name: str) -> Scenario:
    """Write all answers of the scenario called `name`; ``KeyError`` if there is none."""
    kind, count = re.fullmatch(r"([a-z]+)(\d*)", name).groups()
    many = int(count or 0)
    if kind == "loop":
        turns = {i: answer(i, [("add", {"a": i, "b": 1})]) for i in range(many)}
        return Scenario(_joined({**turns, many: answer(many, pieces=["All ", "done."])}))
    if kind == "deltas":
        turns = {0: answer(0, [("mark", {})]), 1: answer(1, pieces=["word "] * many)}
        return Scenario(_joined(turns))
    if kind == "par":
        calls = [("nap", {"i": i}) for i in range(many)]
        return Scenario(_joined({0: answer(0, calls), many: answer(1, pieces=["Rested."])}))
    if kind == "yes":
        call = ("shell", {"command": ["yes"], "timeout_ms": 60_000})
        return Scenario(_joined({i: answer(i, [call]) for i in range(10)}))
    if kind == "paced":
        pieces = [f"word{i} " if i % 12 else f"word{i}\n\n" for i in range(many)]
        return Scenario({0: answer(0, pieces=pieces)}, pace=PACE)
    raise KeyError(name)


def _joined(answers: dict[int, list[bytes]]) -> dict[int, list[bytes]]:
    return {count: [b"".join(chunks)] for count, chunks in answers.items()}


class Connection(asyncio.Protocol):
    """One client: whole requests in, prepared bytes out."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.writing: asyncio.Task | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        while (end := self.received.find(b"\r\n\r\n")) >= 0:
            head = bytes(self.received[:end])
            found = re.search(rb"content-length:\s*(\d+)", head, re.IGNORECASE)
            size = end + 4 + (int(found[1]) if found else 0)
            if len(self.received) < size:
                return
            body = bytes(self.received[end + 4 : size])
            del self.received[:size]
            self.handle(head.split(b" ", 2)[1].decode("ascii"), body)

    def handle(self, path: str, body: bytes) -> None:
        """Answer one request."""
        asked = time.perf_counter()
        try:
            _, door, name, *_ = path.split("/")
            told = scenario(name)
            if door == "log":
                self.reply(b"200 OK", told.log)
                told.log = []
                return
            outputs = body.count(b'"function_call_output"')
            chunks = told.answers[outputs]
        except (KeyError, ValueError, AttributeError) as error:
            message = f"the script has no answer for {path}: {error}"
            self.reply(b"400 Bad Request", {"error": {"message": message, "code": "bench"}})
            return
        if told.pace:
            self.writing = asyncio.ensure_future(self.write_slowly(chunks, told.pace))
        else:
            self.transport.write(chunks[0])
        told.log.append([asked, time.perf_counter(), len(body), outputs])

    def reply(self, status: bytes, value: object) -> None:
        """Write one JSON answer."""
        body = json.dumps(value).encode()
        head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self.transport.write(head % (status, len(body)) + body)

    async def write_slowly(self, chunks: list[bytes], pace: float) -> None:
        """Write chunk by chunk, as a live model does."""
        for chunk in chunks:
            self.transport.write(chunk)
            await asyncio.sleep(pace)


async def serve() -> None:
    """Listen on a free port of loopback, print the port, serve until killed."""
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve())
