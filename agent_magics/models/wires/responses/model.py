"""Implements the Responses API client: requests and stream."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from agent_magics.models.base import (
    Finish,
    ItemDone,
    ModelRequest,
    ReasoningChunk,
    ResponseDone,
    SearchProgress,
    TextChunk,
)
from agent_magics.models.faults import Garbled, stated_fault
from agent_magics.models.fields import optional_text
from agent_magics.models.providers.endpoints import WireName
from agent_magics.models.providers.families import family_of
from agent_magics.models.wires.answer import AnswerDecoder, parse_event
from agent_magics.models.wires.answer_schema import fitted, responses_format
from agent_magics.models.wires.bodies import FrameCache, compact
from agent_magics.models.wires.remote import RemoteModel
from agent_magics.models.wires.responses.items import (
    ResponsesTranscript,
    decode_item,
    decode_usage,
    encode_choice,
    encode_tools,
    without_reasoning,
)
from agent_magics.models.wires.sse import SseEvent
from agent_magics.protocol.items import (
    CALL_TYPES,
    AssistantMessage,
    Item,
    JsonMapping,
    JsonObject,
    Reasoning,
    Usage,
    WebSearchCall,
)

_LOG = logging.getLogger("agent_magics")


# -- reading -------------------------------------------------------------------------------------

# Reason of an incomplete answer -> how it ended; some servers leave out the reason of a length
# limit.
FINISHES: dict[str | None, Finish] = {
    None: "length",
    "max_output_tokens": "length",
    "max_tokens": "length",
    "content_filter": "content_filter",
}


class ResponseDecoder(AnswerDecoder):
    """Decodes the SSE bytes of one answer; nothing follows the end in this API."""

    NOT_A_STREAM = (
        "The server answered, but not with a stream of Responses API events; check that the "
        "address (base_url, OPENAI_BASE_URL) is that of a server with the Responses API."
    )

    def __init__(self) -> None:
        super().__init__()
        self._reasoning: list[Item] = []
        self._last_number = -1
        self._last_fields: JsonObject = {}
        self._is_numbered = True
        self._calling = ""  # the tool of the call whose arguments come
        self._given: set[object] = set()
        self._item_came = False
        self._is_document = False

    def _decode(self, received: Sequence[SseEvent]) -> None:
        for name, data in received:
            if not name:
                self._decode_unnamed(data)
                continue
            self._received_any = True
            reader = READERS.get(name)
            if reader is None:
                _ignore(name)
            elif reader is ResponseDecoder._read_arguments:
                with suppress(Garbled):  # they are only counted: the call comes again, whole
                    self._read(reader, parse_event(data))
            else:
                self._read(reader, parse_event(data))

    def _decode_unnamed(self, data: bytes) -> None:
        """Read an event without a name, which some servers put only into the data.

        A server that does not stream at all sends the response as one document.
        """
        fields = {} if data == b"[DONE]" else parse_event(data)
        kind = fields.get("type")
        if isinstance(kind, str):
            self._received_any = True
            reader = READERS.get(kind.encode())
            if reader is None:
                _ignore(kind.encode())
            else:
                self._read(reader, fields)
        elif fields.get("error"):
            raise stated_fault(fields["error"])
        elif fields.get("object") == "response" or isinstance(fields.get("output"), list):
            self._read(ResponseDecoder._read_document, fields)

    def _read(
        self, reader: "Callable[[ResponseDecoder, JsonObject], None]", fields: JsonObject
    ) -> None:
        """Read an event, unless it was read before."""
        if reader not in _READ_ANYWAY and self._is_old(fields):
            return
        try:
            reader(self, fields)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # A server may send any JSON in place of an object or a list.
            raise Garbled("not of the API's form") from error

    def _is_old(self, fields: JsonObject) -> bool:
        """Tell from its sequence number whether an event was received before, as some proxies send
        it twice; others give all events the same number.
        """
        number = fields.get("sequence_number")
        if not (isinstance(number, int) and self._is_numbered):
            return False
        if number == self._last_number and fields != self._last_fields:
            self._is_numbered = False
            return False
        is_old = number <= self._last_number
        if not is_old:
            self._last_number, self._last_fields = number, fields
        return is_old

    def _read_text(self, fields: JsonObject) -> None:
        self._events.add_text(TextChunk, optional_text(fields, "delta") or "")

    def _read_reasoning(self, fields: JsonObject) -> None:
        self._events.add_text(ReasoningChunk, optional_text(fields, "delta") or "")

    def _read_part(self, fields: JsonObject) -> None:
        """Begin a part of a summary, a paragraph of its own."""
        index = fields.get("summary_index")
        if isinstance(index, int) and index > 0:
            self._events.add_text(ReasoningChunk, "\n\n")

    def _read_arguments(self, fields: JsonObject) -> None:
        self._events.add_arguments(self._calling, optional_text(fields, "delta") or "")

    def _read_started(self, fields: JsonObject) -> None:
        """Report that a web search has started; other items are reported when complete."""
        data = fields.get("item")
        if isinstance(data, Mapping):
            self._calling = optional_text(data, "name") or ""
        if isinstance(data, Mapping) and data.get("type") == "web_search_call":
            action = data.get("action")
            action = action if isinstance(action, Mapping) else {}
            self._events.add(SearchProgress(_search_key(fields, data), "running", action))

    def _read_item(self, fields: JsonObject) -> None:
        """Emit a complete item, once.

        A call that the output limit truncated is left out. Reasoning is needed only for sending it
        back, which requires its encrypted form and the item that followed it; so it is held until
        that item.
        """
        data = fields.get("item")
        if not isinstance(data, dict) or self._is_repeated(fields, data):
            return
        self._item_came = True
        item = decode_item(data)
        if item is None:
            return
        if isinstance(item, Reasoning):
            if item.encrypted is not None:
                self._reasoning.append(item)
            return
        if isinstance(item, CALL_TYPES) and data.get("status") not in (None, "completed"):
            return
        if isinstance(item, WebSearchCall):
            key = _search_key(fields, data)
            failed = item.status == "failed"
            self._events.add(SearchProgress(key, "failed" if failed else "completed", item.action))
        if self._is_document and isinstance(item, AssistantMessage):
            self._events.add_text(TextChunk, item.text)  # which came in no delta
        self._events.add(*map(ItemDone, (*self._reasoning, item)))
        self._reasoning.clear()

    def _is_repeated(self, fields: JsonMapping, data: JsonMapping) -> bool:
        """Tell whether the same item was received before, as some proxies send it twice."""
        index = fields.get("output_index")
        key = (index, data.get("id")) if isinstance(index, int) and data.get("id") else None
        if key is None:
            return False
        repeated = key in self._given
        self._given.add(key)
        return repeated

    def _read_end(self, fields: JsonObject) -> None:
        response = fields.get("response")
        response = response if isinstance(response, dict) else {}
        if not self._item_came:  # some servers send their items only here
            for item in response.get("output") or ():
                self._read_item({"item": item})
        finish: Finish = "completed"
        if fields.get("type") == "response.incomplete" or response.get("status") == "incomplete":
            reason = (response.get("incomplete_details") or {}).get("reason")
            finish = FINISHES.get(reason, "incomplete")
        self.done = ResponseDone(decode_usage(response.get("usage"), self.tell), finish)

    def _read_document(self, response: JsonMapping) -> None:
        if response.get("status") == "failed":
            self._read_failure({"response": response})
        self._is_document = True
        for index, item in enumerate(response.get("output") or ()):
            self._read_item({"output_index": index, "item": item})
        self._read_end({"response": response})

    def _read_failure(self, fields: JsonObject) -> None:
        response = fields.get("response") or fields
        raise stated_fault(response.get("error") or response)


READERS: dict[bytes, Callable[[ResponseDecoder, JsonObject], None]] = {
    b"response.output_text.delta": ResponseDecoder._read_text,
    b"response.refusal.delta": ResponseDecoder._read_text,
    b"response.reasoning_summary_text.delta": ResponseDecoder._read_reasoning,
    b"response.reasoning_text.delta": ResponseDecoder._read_reasoning,
    b"response.reasoning_summary_part.added": ResponseDecoder._read_part,
    b"response.function_call_arguments.delta": ResponseDecoder._read_arguments,
    b"response.custom_tool_call_input.delta": ResponseDecoder._read_arguments,
    b"response.output_item.added": ResponseDecoder._read_started,
    b"response.output_item.done": ResponseDecoder._read_item,
    b"response.completed": ResponseDecoder._read_end,
    b"response.incomplete": ResponseDecoder._read_end,
    b"response.failed": ResponseDecoder._read_failure,
    b"error": ResponseDecoder._read_failure,
}


# Events whose numbers say nothing: some gateways number the ends by themselves, from 0.
_READ_ANYWAY = (
    ResponseDecoder._read_item,
    ResponseDecoder._read_end,
    ResponseDecoder._read_failure,
)


# Events to ignore: their content is repeated in other events, or not needed.
UNUSED = frozenset(
    b"response." + name
    for name in (
        *(b"created", b"queued", b"in_progress", b"metadata"),
        *(b"content_part.added", b"content_part.done"),
        *(b"output_text.done", b"output_text.annotation.added", b"refusal.done"),
        *(b"reasoning_summary_part.done", b"reasoning_summary_text.done", b"reasoning_text.done"),
        *(b"function_call_arguments.done", b"custom_tool_call_input.done"),
        *(b"web_search_call.in_progress", b"web_search_call.searching"),
        b"web_search_call.completed",
    )
)


def _ignore(kind: bytes) -> None:
    if kind not in UNUSED:
        _LOG.debug("an event of an unknown kind is ignored: %r", kind[:80])


def _search_key(fields: JsonMapping, data: JsonMapping) -> str:
    """Return the identifier of a web search: its index in the answer, else its id."""
    return str(fields.get("output_index", data.get("id", "")))


# -- sending -------------------------------------------------------------------------------------


class ResponsesWire:
    """The Responses API as `RemoteModel` uses it."""

    name: WireName = "responses"
    api = "Responses API"
    path = "/responses"

    def __init__(self) -> None:
        self._prefixes = FrameCache(lambda request, address: encode_prefix(request))

    def body(self, request: ModelRequest, address: str) -> bytes:
        """Encode the request's body."""
        request = fitted(request, address)
        has_reasoning = family_of(request.model).reasoning
        maker = ResponsesTranscript if has_reasoning else without_reasoning
        history = request.history.encoded(maker)
        return b"".join((self._prefixes.of(request, address), history, b"]}"))

    def decoder(self, request: ModelRequest, address: str) -> ResponseDecoder:
        """Return a decoder for the answer to `request`."""
        return ResponseDecoder()

    def plain_answer(self, document: JsonMapping) -> tuple[str, Usage] | None:
        """See `Wire.plain_answer`."""
        match document:
            case {
                "object": "response",
                "status": "completed",
                "output": [
                    *reasoning,
                    {
                        "type": "message",
                        "content": [{"type": "output_text", "text": str() as text, **part}],
                    },
                ],
            } if text and not (document.get("error") or "type" in document):
                is_plain = not part.get("annotations") and all(map(_is_bare_reasoning, reasoning))
                return (text, decode_usage(document.get("usage"))) if is_plain else None
        return None


def _is_bare_reasoning(item: object) -> bool:
    return isinstance(item, dict) and item.get("type") == "reasoning" and not item.get("summary")


class ResponsesModel(RemoteModel):
    """Client of OpenAI, or of any server with its Responses API; see `RemoteModel` for the
    arguments.
    """

    WIRES = (ResponsesWire,)


def encode_prefix(request: ModelRequest) -> bytes:
    """Return a request's body up to the beginning of its history."""
    fields: JsonObject = {"model": request.model}
    if request.instructions:
        fields["instructions"] = request.instructions
    fields["store"] = False
    fields["stream"] = request.stream
    if family_of(request.model).reasoning:
        fields["include"] = ["reasoning.encrypted_content"]
        if request.reasoning_summary:
            fields["reasoning"] = {"summary": request.reasoning_summary}
    if request.service_tier:
        fields["service_tier"] = request.service_tier
    if request.conversation:
        fields["prompt_cache_key"] = request.conversation
    if request.tools:
        fields["tool_choice"] = encode_choice(request.tool_choice, request.tools)
        fields["parallel_tool_calls"] = request.parallel_tool_calls
    if request.output_schema is not None:
        fields["text"] = responses_format(request.output_schema)
    head = compact(fields)[:-1]
    tools = b',"tools":' + encode_tools(request.tools) if request.tools else b""
    return head + tools + b',"input":['
