"""A model that costs nothing: a loopback API of both wires with answers written beforehand.

It runs in a process of its own, so that the CPU time of a client is the client's alone. The address
names the scenario, ``http://127.0.0.1:PORT/s/SCENARIO/v1/{responses,chat/completions}``; the answer
is chosen by the number of tool outputs in the request, so the server keeps no conversation.
Scenarios:

- ``loopN``: N answers with one call of ``add`` each, then a text.
- ``largeN``: the same with calls of ``read_log``.
- ``deltasN``: one call of ``mark``, then a text of N deltas; ``textN`` is the text alone.
- ``parN``: one answer with N calls of ``nap``, then a text; ``aparN`` calls ``nap_async``.
- ``yes``: every answer calls ``shell`` with ``["yes"]``.
- ``pacedN``: a text of N deltas, `PACE` seconds apart, as a live model writes.

Two clients speak otherwise, which an ending of the name says: ``.bash`` (the only tool is ``bash``,
and the command is the tool's name; the last command is ``submit``), and ``.steps`` (outputs come as
user messages that begin with "Observation:", one for an answer; the end is a call of
``final_answer``).

``GET /log/SCENARIO`` prepares the scenario, and returns and clears what was asked so far: a list of
``[when the request was complete, when the answer was written, bytes of the body, outputs]``, times
in seconds.
"""

import asyncio
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache

from wires import WIRES, Content, plain, streamed, whole

PACE = 0.002
ROUNDS_OF_YES = 10
TOOLS = {"loop": "add", "large": "read_log", "par": "nap", "apar": "nap_async", "deltas": "mark"}
STREAM = re.compile(rb'"stream":\s*true')
OUTPUTS = {
    "responses": re.compile(rb'"type":\s*"function_call_output"'),
    "chat": re.compile(rb'"role":\s*"tool"'),
    "steps": re.compile(rb"Observation:\\n"),
}


@dataclass
class Scenario:
    """The scripted responses by the number of outputs, and a log of the requests.

    Attributes:
        streams: by wire and number of outputs, the chunks of the response.
        wholes: the same for requests without streaming.
        counted: the kind of output that is counted, where it is not the wire's own.
        pace: seconds between chunks.
    """

    streams: dict[tuple[str, int], list[bytes]]
    wholes: dict[tuple[str, int], bytes]
    counted: str = ""
    pace: float = 0.0
    log: list[list[float]] = field(default_factory=list)


@cache
def scenario(name: str) -> Scenario:
    """Build all responses of the scenario called `name`; ``KeyError`` if there is none."""
    kind, count, dialect = re.fullmatch(r"([a-z]+)(\d*)(?:\.(bash|steps))?", name).groups()
    answers = dict(_in_dialect(_script(kind, int(count or 0)), dialect))
    pace = PACE if kind == "paced" else 0.0
    streams, wholes = {}, {}
    for wire in WIRES:
        for outputs, scripted in answers.items():
            chunks = streamed(scripted, wire)
            streams[wire, outputs] = chunks if pace else [b"".join(chunks)]
            wholes[wire, outputs] = whole(scripted, wire)
    return Scenario(streams, wholes, "steps" if dialect == "steps" else "", pace)


def _script(kind: str, many: int) -> dict[int, Content]:
    """Return the responses by the number of outputs."""
    if kind in ("loop", "large"):
        scripted = {i: Content(i, ((TOOLS[kind], {"a": i, "b": 1}),)) for i in range(many)}
        return {**scripted, many: Content(many, pieces=("All ", "done."))}
    if kind in ("par", "apar"):
        calls = tuple((TOOLS[kind], {"i": i}) for i in range(many))
        return {0: Content(0, calls), many: Content(many, pieces=("Rested.",))}
    if kind == "deltas":
        return {0: Content(0, (("mark", {}),)), 1: Content(1, pieces=("word ",) * many)}
    if kind == "text":
        return {0: Content(0, pieces=("word ",) * many)}
    if kind == "yes":
        call = ("shell", {"command": ["yes"], "timeout_ms": 60_000})
        return {i: Content(i, (call,)) for i in range(ROUNDS_OF_YES)}
    if kind == "paced":
        pieces = tuple(f"word{i} " if i % 12 else f"word{i}\n\n" for i in range(many))
        return {0: Content(0, pieces=pieces)}
    raise KeyError(kind)


def _in_dialect(answers: dict[int, Content], dialect: str | None) -> Iterable[tuple[int, Content]]:
    """Convert the responses for a client with a dialect of its own."""
    for step, (outputs, scripted) in enumerate(answers.items()):
        if dialect == "bash":
            calls = tuple(("bash", {"command": name}) for name, _ in scripted.calls)
            yield outputs, Content(scripted.number, calls or (("bash", {"command": "submit"}),))
        elif dialect == "steps" and not scripted.calls and step:
            end = ("final_answer", {"answer": "".join(scripted.pieces)})
            yield step, Content(scripted.number, (end,))
        else:
            yield (step if dialect == "steps" else outputs), scripted


class Connection(asyncio.Protocol):
    """One client connection: reads whole requests, writes prepared bytes."""

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
            _, door, name, *rest = path.split("?")[0].split("/")
            told = scenario(name)
            if door == "log":
                self.transport.write(plain(told.log))
                told.log = []
                return
            wire = "responses" if rest[-1] == "responses" else "chat"
            outputs = len(OUTPUTS[told.counted or wire].findall(body))
            if STREAM.search(body):
                chunks = told.streams[wire, outputs]
            else:
                chunks = [told.wholes[wire, outputs]]
        except (KeyError, ValueError, AttributeError) as error:
            message = f"the script has no answer for {path}: {error}"
            failure = {"error": {"message": message, "code": "bench"}}
            self.transport.write(plain(failure, b"400 Bad Request"))
            return
        if told.pace:
            self.writing = asyncio.ensure_future(self.write_slowly(chunks, told.pace))
        else:
            self.transport.write(chunks[0])
        told.log.append([asked, time.perf_counter(), len(body), outputs])

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
