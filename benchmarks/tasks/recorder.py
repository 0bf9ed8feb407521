"""A model on loopback that gives prepared answers in order, and keeps what it is sent."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from wires import Content, streamed, whole


class Recorder:
    """Serves the answers of one task over both wires.

    A request without tools is none of the conversation: it asks for a title, and gets one.

    Attributes:
        answers: the answers that are left, the next one first.
        requests: the requests of the conversation, in order.
        others: the requests without tools.
    """

    def __init__(self, answers: list[Content]) -> None:
        self.answers = list(answers)
        self.requests: list[dict[str, Any]] = []
        self.others: list[dict[str, Any]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.base_url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        self._serving = threading.Thread(target=self._server.serve_forever)
        self._serving.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._serving.join()
        self._server.server_close()

    def answer(self, request: dict[str, Any]) -> Content:
        """Keep `request` and return the next answer."""
        if not request.get("tools"):
            self.others.append(request)
            return Content(0, pieces=("A title",))
        self.requests.append(request)
        return self.answers.pop(0)


def _handler(recorder: Recorder) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            wire = "responses" if self.path.endswith("/responses") else "chat"
            answer = recorder.answer(request)
            if request.get("stream"):
                self.wfile.write(b"".join(streamed(answer, wire)))
            else:
                self.wfile.write(whole(answer, wire))

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def what_is_read(request: dict[str, Any]) -> bytes:
    """Return what the model reads of a request, in the order in which providers cache it.

    Tools come first, then instructions, then the messages, as compact JSON. Settings of the request
    are not read.
    """
    names = ("tools", "instructions", "input", "messages")
    parts = [request[name] for name in names if request.get(name)]
    texts = (json.dumps(part, ensure_ascii=False, separators=(",", ":")) for part in parts)
    return "\n".join(texts).encode()


def shared(before: bytes, after: bytes) -> int:
    """Return how many bytes at the beginning of `after` are those of `before`."""
    low, high = 0, min(len(before), len(after))
    while low < high:
        middle = (low + high + 1) // 2
        if before[:middle] == after[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
