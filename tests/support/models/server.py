"""Serves both wires on the loopback interface, each with its own script; others are missing.

    with ModelServer(chat=["Hello."]) as server:
        model = open_model("auto", base_url=server.base_url)

The forms of misbehaviour are those of `responses_server.Reply`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.models.responses_server import Reply, Request, ResponsesServer, Script

CHAT_USAGE = {
    "prompt_tokens": 10,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens": 5,
    "completion_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 15,
}
DONE = b"data: [DONE]\n\n"
NOT_FOUND = Reply(status=404, document=b"404 page not found", content_type="text/plain")


def chunk(delta: Mapping[str, Any], finish: str | None = None, **more: Any) -> bytes:
    """Return one event of a chat stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    fields = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice], **more}
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def tool_call(name: str, arguments: Any, call_id: str = "call_1", index: int = 0) -> dict:
    """Return a whole call, as one delta may hold it."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    function = {"name": name, "arguments": text}
    return {"index": index, "id": call_id, "type": "function", "function": function}


def chat_events(
    text: str = "",
    calls: Sequence[Mapping[str, Any]] = (),
    *,
    finish: str | None = None,
    usage: Mapping[str, Any] | None = CHAT_USAGE,
) -> list[bytes]:
    """Return a whole chat response as the API streams it, text in words."""
    events = [chunk({"role": "assistant", "content": ""})]
    events += [chunk({"content": word}) for word in text.split(" ") for word in (word, " ")][:-1]
    for call in calls:
        function = call["function"]
        begin = {**call, "function": {**function, "arguments": ""}}
        events.append(chunk({"tool_calls": [begin]}))
        for piece in _pieces(function["arguments"]):
            rest = {"index": call["index"], "function": {"arguments": piece}}
            events.append(chunk({"tool_calls": [rest]}))
    events.append(chunk({}, finish or ("tool_calls" if calls else "stop")))
    if usage is not None:
        fields = {"object": "chat.completion.chunk", "choices": [], "usage": usage}
        events.append(b"data: " + json.dumps(fields).encode() + b"\n\n")
    return [*events, DONE]


def _pieces(text: str) -> list[str]:
    return [text[start : start + 4] for start in range(0, len(text), 4)]


def _name_of(request: Request) -> str:
    """Return the last part of the address."""
    return request.path.partition("?")[0].rpartition("/")[2]


class ModelServer(ResponsesServer):
    """Answers each wire from its own script; see `ResponsesServer` for a script.

    Args:
        responses: the script of ``/responses``; None: the address is missing.
        chat: that of ``/chat/completions``; a text is a chat response there.
        models: the script of ``/models``.
        missing: the response of a missing address.
    """

    def __init__(
        self,
        responses: Script | None = None,
        chat: Script | None = None,
        models: Script | None = None,
        *,
        missing: Reply = NOT_FOUND,
        **options: Any,
    ) -> None:
        super().__init__((), **options)
        self._scripts = {"responses": responses, "completions": chat, "models": models}
        self._missing = missing
        self._asked = dict.fromkeys(self._scripts, 0)

    @property
    def paths(self) -> list[str]:
        """The last parts of the requested addresses, in order."""
        return [_name_of(request) for request in self.requests]

    def _reply(self, request: Request) -> Reply:
        name = _name_of(request)
        script = self._scripts.get(name)
        if script is None:
            return self._missing
        self._script = script
        if not callable(script):
            # The base class goes by the number of all requests; here each wire has its own.
            self._script = [script[min(self._asked[name], len(script) - 1)]]
            self._asked[name] += 1
        return super()._reply(request)

    def _events(self, request: Request, reply: Reply) -> list[bytes]:
        if reply.events is None and _name_of(request) == "completions":
            text = reply.items if isinstance(reply.items, str) else ""
            calls = () if isinstance(reply.items, str) else reply.items
            return chat_events(text, calls)
        return super()._events(request, reply)
