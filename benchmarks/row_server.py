"""A model server far away: answers each request after 200 ms, on either wire, without streaming.

Run as a program it prints its port; its argument, if there is one, is another delay in seconds.
``GET /times`` returns the seconds (monotonic) at which each thousandth request came.
"""

import asyncio
import json
import sys
import time
from typing import ClassVar

from wires import CHAT_USAGE, USAGE

DELAY = 0.2
EACH = 1000
TEXT = json.dumps({"topic": "delivery", "angry": True, "reason": "The parcel came late. " * 3})
PART = {"type": "output_text", "text": TEXT, "annotations": []}
MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "content": [PART]}
CHOICE = {"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}
ANSWERS = {
    "responses": {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-4o-mini",
        "status": "completed",
        "output": [MESSAGE],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": USAGE,
    },
    "chat": {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-4o-mini",
        "choices": [CHOICE],
        "usage": CHAT_USAGE,
    },
}


def document(value: object) -> bytes:
    """Return an HTTP response with `value` as JSON."""
    body = json.dumps(value, separators=(",", ":")).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


WHOLE = {wire: document(answer) for wire, answer in ANSWERS.items()}


class Connection(asyncio.Protocol):
    """One connection; requests on it come one after the other."""

    times: ClassVar[list[float]] = []
    count = 0
    delay = DELAY

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self.received = transport, b""

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, found, body = self.received.partition(b"\r\n\r\n")
        if not found:
            return
        lower = head.lower()
        at = lower.find(b"content-length:")
        length = int(lower[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(body) >= length:
            self.received = b""
            self.answer(head)

    def answer(self, head: bytes) -> None:
        if head.startswith(b"GET /times"):
            self.transport.write(document(Connection.times))
            return
        if Connection.count % EACH == 0:
            Connection.times.append(time.monotonic())
        Connection.count += 1
        wire = "chat" if b"/chat/" in head[:100] else "responses"
        asyncio.get_running_loop().call_later(Connection.delay, self.write, WHOLE[wire])

    def write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)


async def serve() -> None:
    """Listen on a free port of loopback, print the port, serve until killed."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    Connection.delay = float(sys.argv[1]) if len(sys.argv) > 1 else DELAY
    asyncio.run(serve())
