"""Builds a model's responses as bytes, for both wires, streamed or whole, before they are needed.

Their shape and size follow the live API: one HTTP chunk for each server-sent event, the whole
response object in the first and the last event, arguments in pieces of 8 characters.
"""

import json
from dataclasses import dataclass, field

WIRES = ("responses", "chat")
PIECE = 8  # characters of arguments in one event
NOISE = "Zk3aQp9x"  # what the live API pads each delta with
CREATED = 1_750_000_000
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"x-request-id: req_bench\r\ntransfer-encoding: chunked\r\n\r\n"
)
PLAIN = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
END = b"0\r\n\r\n"
USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 15,
}
CHAT_USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


@dataclass(frozen=True)
class Content:
    """The content of one response of the model.

    Attributes:
        number: the number of the response in the scenario; part of the ids.
        calls: name and arguments of each tool call; text in place of arguments is a freeform call.
        pieces: the text, a delta for each piece.
    """

    number: int
    calls: tuple[tuple[str, dict | str], ...] = ()
    pieces: tuple[str, ...] = ()


def streamed(content: Content, wire: str) -> list[bytes]:
    """Return the HTTP chunks of a response as server-sent events, with head and end."""
    written = (_Responses if wire == "responses" else _Chat)(content.number)
    written.write(content)
    return [HEAD, *written.chunks, END]


def whole(content: Content, wire: str) -> bytes:
    """Return the response to a request without ``stream``."""
    if wire == "responses":
        written = _Responses(content.number)
        written.write(content)
        return plain(written.response("completed", USAGE))
    message = {"role": "assistant", "content": "".join(content.pieces) or None, "refusal": None}
    calls = [_chat_call(content.number, i, *call) for i, call in enumerate(content.calls)]
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(content)}
    return plain({**_chat_base(content.number), "choices": [choice], "usage": CHAT_USAGE})


def plain(value: object, status: bytes = b"200 OK") -> bytes:
    """Return an HTTP response with `value` as JSON."""
    body = _compact(value)
    return PLAIN % (status, len(body)) + body


def _compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _chunk(event: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(event), event)


# -- the Responses API -----------------------------------------------------------------------------


@dataclass
class _Responses:
    """One streamed response of the Responses API, event by event."""

    number: int
    chunks: list[bytes] = field(default_factory=list)
    output: list[dict] = field(default_factory=list)

    def write(self, content: Content) -> None:
        self.event("response.created", response=self.response("in_progress"))
        self.event("response.in_progress", response=self.response("in_progress"))
        for name, arguments in content.calls:
            if isinstance(arguments, str):
                self.freeform(name, arguments)
            else:
                self.call(name, arguments)
        if content.pieces:
            self.text(content.pieces)
        self.event("response.completed", response=self.response("completed", USAGE))

    def event(self, kind: str, **fields) -> None:
        data = _compact({"type": kind, "sequence_number": len(self.chunks), **fields})
        self.chunks.append(_chunk(b"event: %s\ndata: %s\n\n" % (kind.encode(), data)))

    def response(self, status: str, usage: dict | None = None) -> dict:
        """Return the response object that the first two events and the last one carry."""
        return {
            "id": f"resp_{self.number}",
            "object": "response",
            "created_at": CREATED,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "max_output_tokens": None,
            "max_tool_calls": None,
            "model": "gpt-4o",
            "output": self.output,
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "prompt_cache_key": None,
            "reasoning": {"effort": None, "summary": None},
            "safety_identifier": None,
            "service_tier": "default",
            "store": False,
            "temperature": 1.0,
            "text": {"format": {"type": "text"}, "verbosity": "medium"},
            "tool_choice": "auto",
            "tools": [],
            "top_logprobs": 0,
            "top_p": 1.0,
            "truncation": "disabled",
            "usage": usage,
            "user": None,
            "metadata": {},
        }

    def call(self, name: str, arguments: dict) -> None:
        """Add one function call: added, its arguments in pieces, done."""
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
        kind = "response.function_call_arguments"
        self.event("response.output_item.added", output_index=index, item=item)
        for start in range(0, len(text), PIECE):
            piece = text[start : start + PIECE]
            self.event(f"{kind}.delta", **where, delta=piece, obfuscation=NOISE)
        self.event(f"{kind}.done", **where, arguments=text, name=name)
        item = {**item, "status": "completed", "arguments": text}
        self.event("response.output_item.done", output_index=index, item=item)
        self.output.append(item)

    def freeform(self, name: str, text: str) -> None:
        """Add one call of a freeform tool: added, and done."""
        index = len(self.output)
        ids = {"id": f"ctc_{self.number}_{index}", "call_id": f"call_{self.number}_{index}"}
        item = {"type": "custom_tool_call", **ids, "name": name, "input": text}
        for kind, so_far in (("added", ""), ("done", text)):
            said = {**item, "input": so_far}
            self.event(f"response.output_item.{kind}", output_index=index, item=said)
        self.output.append(item)

    def text(self, pieces: tuple[str, ...]) -> None:
        """Add one message, a delta for each piece."""
        index, item_id, whole_text = len(self.output), f"msg_{self.number}", "".join(pieces)
        item = {"id": item_id, "type": "message", "role": "assistant", "status": "in_progress"}
        where = {"item_id": item_id, "output_index": index, "content_index": 0}
        part = {"type": "output_text", "annotations": [], "logprobs": [], "text": ""}
        kind = "response.output_text"
        self.event("response.output_item.added", output_index=index, item={**item, "content": []})
        self.event("response.content_part.added", **where, part=part)
        for piece in pieces:
            self.event(f"{kind}.delta", **where, delta=piece, logprobs=[], obfuscation=NOISE)
        self.event(f"{kind}.done", **where, text=whole_text, logprobs=[])
        part = {**part, "text": whole_text}
        self.event("response.content_part.done", **where, part=part)
        item = {**item, "status": "completed", "content": [part]}
        self.event("response.output_item.done", output_index=index, item=item)
        self.output.append(item)


# -- Chat Completions ------------------------------------------------------------------------------


@dataclass
class _Chat:
    """One streamed Chat Completions response, chunk by chunk."""

    number: int
    chunks: list[bytes] = field(default_factory=list)

    def write(self, content: Content) -> None:
        opening = {"role": "assistant", "content": None if content.calls else "", "refusal": None}
        self.event([self.choice(opening)])
        for piece in content.pieces:
            self.event([self.choice({"content": piece})])
        for index, (name, arguments) in enumerate(content.calls):
            self.call(index, name, arguments)
        self.event([self.choice({}, _finish(content))])
        self.event([], CHAT_USAGE)
        self.chunks.append(_chunk(b"data: [DONE]\n\n"))

    def event(self, choices: list[dict], usage: dict | None = None) -> None:
        base = _chat_base(self.number, "chat.completion.chunk")
        data = _compact({**base, "choices": choices, "usage": usage, "obfuscation": NOISE})
        self.chunks.append(_chunk(b"data: %s\n\n" % data))

    def choice(self, delta: dict, finish: str | None = None) -> dict:
        return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}

    def call(self, index: int, name: str, arguments: dict) -> None:
        """Add one tool call: its id and name, then its arguments in pieces."""
        made = _chat_call(self.number, index, name, arguments)
        text = made["function"].pop("arguments")
        made["function"]["arguments"] = ""
        self.event([self.choice({"tool_calls": [{"index": index, **made}]})])
        for start in range(0, len(text), PIECE):
            piece = {"arguments": text[start : start + PIECE]}
            self.event([self.choice({"tool_calls": [{"index": index, "function": piece}]})])


def _chat_base(number: int, kind: str = "chat.completion") -> dict:
    return {
        "id": f"chatcmpl-{number}",
        "object": kind,
        "created": CREATED,
        "model": "gpt-4o",
        "service_tier": "default",
        "system_fingerprint": "fp_bench",
    }


def _chat_call(number: int, index: int, name: str, arguments: dict) -> dict:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"call_{number}_{index}", "type": "function", "function": function}


def _finish(content: Content) -> str:
    return "tool_calls" if content.calls else "stop"
