"""Implements the Chat Completions client: requests and stream."""

import json
from collections.abc import Mapping, Sequence

from agent_magics.models.base import (
    Finish,
    ItemDone,
    ModelEvent,
    ModelRequest,
    ReasoningChunk,
    ResponseDone,
    TextChunk,
)
from agent_magics.models.faults import cut_short, stated_fault
from agent_magics.models.providers.endpoints import Dialect, WireName, dialect_of
from agent_magics.models.wires.answer import AnswerDecoder, parse_event
from agent_magics.models.wires.answer_schema import chat_format, fitted
from agent_magics.models.wires.bodies import FrameCache, compact
from agent_magics.models.wires.chat.calls import CallAssembler, CallDraft
from agent_magics.models.wires.chat.messages import ChatForm, decode_call, decode_usage
from agent_magics.models.wires.chat.tools import encode_choice, encode_tools
from agent_magics.models.wires.reasoning import ReasoningDetails
from agent_magics.models.wires.remote import RemoteModel
from agent_magics.models.wires.responses.items import decode_citation
from agent_magics.models.wires.schema_forms import (
    has_other_enums,
    resolve_references,
    restore_enums,
)
from agent_magics.models.wires.sse import SseEvent
from agent_magics.protocol.items import (
    AssistantMessage,
    Citation,
    Item,
    JsonMapping,
    JsonObject,
    Reasoning,
    Usage,
)
from agent_magics.protocol.tools import ConfiguredToolSpec, FunctionToolSpec, ToolSpec

NO_SEARCH = (
    "features={'web_search': True} does nothing here: the server answers on Chat Completions, "
    "which has no web search of its own."
)

# Finish reason -> how the answer ended. Any other reason is an ordinary end ("stop", "tool_calls",
# "function_call", "eos", "end_turn"); calls are run in each case, since some servers send "stop"
# with calls (Ollama, older llama.cpp).
FINISHES: dict[str, Finish] = {
    "length": "length",
    "max_tokens": "length",  # Gemini and Anthropic, through some proxies
    "model_length": "length",  # Mistral: the context is full
    "content_filter": "content_filter",
    "safety": "content_filter",  # Gemini
}
# Finish reasons that mean that the server gave up before the end.
BROKEN_OFF = {
    "error": "the provider reports an error",  # OpenRouter
    "abort": "the server aborted the request",  # vLLM
    "insufficient_system_resource": "the provider is overloaded",  # DeepSeek
}
# Fields of a message that is not only text, and reasoning.
UNPLAIN = ("refusal", "annotations", "tool_calls", "function_call", "reasoning_details")


# -- reading -------------------------------------------------------------------------------------


class ChatDecoder(AnswerDecoder):
    """Decodes the bytes of one answer; the usage may follow its end.

    Args:
        tools: the offered tools, to tell freeform tools from functions.
        dialect: the server's variant of the API.
    """

    NOT_A_STREAM = (
        "The server answered, but not with a stream of Chat Completions; check that the address "
        "(base_url, OPENAI_BASE_URL) is that of a server with that API."
    )

    def __init__(
        self, tools: Sequence[ConfiguredToolSpec] = (), dialect: Dialect | None = None
    ) -> None:
        super().__init__()
        self._specs: dict[str, ToolSpec] = {tool.spec.name: tool.spec for tool in tools}
        self._dialect = dialect or Dialect()
        self._calls = CallAssembler(self._specs, self._events.add_arguments)
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._details = ReasoningDetails()
        self._citations: dict[Citation, None] = {}  # an ordered set
        self._warned = False
        self._usage = Usage()
        self._finish: Finish = "completed"

    def _warn_once(self, message: str) -> None:
        """Add only the first of such notices, since every chunk may carry the usage."""
        if not self._warned:
            self.tell(message)
        self._warned = True

    def close(self) -> list[ModelEvent]:
        """Return the events left at the end of the bytes; after a finish reason the answer is
        complete.
        """
        events = super().close()
        if self.finished:
            self._end()
        return [*events, *self._events.take()]

    def _decode(self, received: Sequence[SseEvent]) -> None:
        for name, data in received:
            if self.done is not None:
                break
            if data.strip() == b"[DONE]":
                self._end()
            elif name in (b"", b"message", b"error", b"data") or data.startswith(b"{"):
                self._read_chunk(name, data)

    def _read_chunk(self, name: bytes, data: bytes) -> None:
        chunk = parse_event(data)
        error = chunk.get("error")
        if not error and (chunk.get("object") == "error" or name == b"error"):
            error = chunk  # vLLM's form, and an event named "error"
        if error:
            raise stated_fault(error)
        usage = chunk.get("usage")
        if usage:  # usually in the last chunk, which has no choices; on some servers in all
            self._usage = decode_usage(usage, self._warn_once)
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and not choice.get("index"):
                self._read_choice(choice)

    def _read_choice(self, choice: JsonMapping) -> None:
        # A server that does not stream sends a message instead of deltas.
        delta = choice.get("delta") or choice.get("message")
        if isinstance(delta, dict):
            self._received_any = True
            self._read_delta(delta)
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self._read_finish(reason.lower(), choice)

    def _read_delta(self, delta: JsonMapping) -> None:
        # vLLM, llama.cpp and DeepSeek use the first name, newer vLLM, Ollama and OpenRouter the
        # second; some proxies send both.
        self._add_reasoning(delta.get("reasoning_content") or delta.get("reasoning"))
        if self._dialect.reasoning_details and delta.get("reasoning_details"):
            self._details.add(delta["reasoning_details"])
        content = delta.get("content")
        if isinstance(content, str):
            self._add_text(content)
        elif isinstance(content, list):
            self._read_parts(content)
        self._add_text(delta.get("refusal"))
        if delta.get("annotations"):
            self._read_annotations(delta["annotations"])
        if delta.get("tool_calls"):
            self._calls.add(delta["tool_calls"])
        elif delta.get("function_call"):  # the older form, which small servers still send
            self._calls.add([{"index": 0, "function": delta["function_call"]}])

    def _read_parts(self, parts: Sequence[object]) -> None:
        """Read content in parts, which Mistral's reasoning models send, with thinking among
        them.
        """
        for part in parts:
            if isinstance(part, str):
                self._add_text(part)
            elif isinstance(part, Mapping) and part.get("type") == "thinking":
                thoughts = part.get("thinking")
                for thought in thoughts if isinstance(thoughts, list) else [thoughts]:
                    text = thought.get("text") if isinstance(thought, Mapping) else thought
                    self._add_reasoning(text)
            elif isinstance(part, Mapping):
                self._add_text(part.get("text") or part.get("refusal"))

    def _read_annotations(self, annotations: object) -> None:
        """Read citations of web pages by OpenAI's search models and OpenRouter's web plugin."""
        for each in annotations if isinstance(annotations, list) else ():
            cited = each.get("url_citation") if isinstance(each, Mapping) else None
            citation = decode_citation(cited)
            if citation is not None:
                self._citations[citation] = None

    def _add_text(self, text: object) -> None:
        if isinstance(text, str) and text:
            self._text.append(text)
            self._events.add_text(TextChunk, text)

    def _add_reasoning(self, text: object) -> None:
        if isinstance(text, str) and text:
            self._reasoning.append(text)
            self._events.add_text(ReasoningChunk, text)

    def _read_finish(self, reason: str, choice: JsonMapping) -> None:
        self._received_any = True
        if reason in BROKEN_OFF:
            error = choice.get("error")
            if error:
                raise stated_fault(error)
            raise cut_short(BROKEN_OFF[reason])
        self.finished = True
        if self._finish == "completed":  # a truncation is not overwritten by later reasons
            self._finish = FINISHES.get(reason, "completed")

    def _end(self) -> None:
        """Emit the items; calls are known to be complete only when the answer is."""
        if self.done is not None or not (self.finished or self._received_any):
            return
        items: list[Item] = []
        text = "".join(self._text)
        if text:
            items.append(AssistantMessage(text, citations=tuple(self._citations)))
        # In a truncated answer, arguments that are not a complete object may be half a call.
        cut = self._finish != "completed"
        items += [self._call(draft) for draft in self._calls.drafts if draft.is_whole() or not cut]
        details = self._details.kept(self._dialect.vendor)
        if items and (details or (self._reasoning and self._dialect.reasoning_field)):
            items.insert(0, Reasoning(("".join(self._reasoning),), details))
        self._events.add(*map(ItemDone, items))
        self.done = ResponseDone(self._usage, self._finish)

    def _call(self, draft: CallDraft) -> Item:
        spec = self._specs.get(draft.name)
        arguments = draft.arguments
        if self._dialect.schema == "gemini" and isinstance(spec, FunctionToolSpec):
            arguments = _with_enums(spec, arguments)
        return decode_call(draft.id, draft.name, arguments, spec, draft.extra)


def _with_enums(spec: FunctionToolSpec, arguments: str) -> str:
    """Convert enum strings back to the numbers of the original schema; see
    `schema_forms.gemini_enum`.
    """
    if not has_other_enums(spec.parameters):
        return arguments
    try:
        given = json.loads(arguments)
        return json.dumps(restore_enums(resolve_references(spec.parameters), given))
    except (ValueError, RecursionError):  # the check of the arguments says what is wrong
        return arguments


# -- sending -------------------------------------------------------------------------------------


class ChatWire:
    """The Chat Completions API as `RemoteModel` uses it."""

    name: WireName = "chat"
    api = "Chat Completions API"
    path = "/chat/completions"

    def __init__(self) -> None:
        self._frames = FrameCache(_frame)

    def body(self, request: ModelRequest, address: str) -> bytes:
        """Encode the request's body."""
        head, tail, form = self._frames.of(fitted(request, address), address)
        history = request.history.encoded(form)
        joint = b"," if history and not head.endswith(b"[") else b""
        return b"".join((head, joint, history, tail))

    def decoder(self, request: ModelRequest, address: str) -> ChatDecoder:
        """Return a decoder for the answer to `request`."""
        decoder = ChatDecoder(request.tools, dialect_of(address, request.model))
        if request.number == 1 and any(tool.spec.kind == "web_search" for tool in request.tools):
            decoder.tell(NO_SEARCH)
        return decoder

    def plain_answer(self, document: JsonMapping) -> tuple[str, Usage] | None:
        """See `Wire.plain_answer`."""
        match document:
            case {
                "object": "chat.completion",
                "choices": [
                    {
                        "message": {"content": str() as text, **message},
                        "finish_reason": "stop",
                    } as choice
                ],
            } if not (document.get("error") or choice.get("index") or choice.get("delta")):
                is_plain = not any(map(message.get, UNPLAIN))
                return (text, decode_usage(document.get("usage"))) if is_plain else None
        return None


def _frame(request: ModelRequest, address: str) -> tuple[bytes, bytes, ChatForm]:
    dialect = dialect_of(address, request.model)
    return (*encode_frame(request, dialect), ChatForm(dialect))


def encode_frame(request: ModelRequest, dialect: Dialect) -> tuple[bytes, bytes]:
    """Return a request's body before and after its history."""
    fields: JsonObject = {"model": request.model, "stream": request.stream}
    if request.stream and dialect.usage_option:
        fields["stream_options"] = {"include_usage": True}
    if dialect.cache_key and request.conversation:
        fields["prompt_cache_key"] = request.conversation
    tools = encode_tools(request.tools, dialect)
    if tools and not request.parallel_tool_calls:
        fields["parallel_tool_calls"] = False  # true is the default
    if tools and request.tool_choice != "auto":  # "auto" is the default
        fields["tool_choice"] = encode_choice(request.tool_choice, request.tools, dialect)
    if request.service_tier:
        fields["service_tier"] = request.service_tier
    if request.output_schema is not None:
        fields["response_format"] = chat_format(request.output_schema, dialect)
    messages: list[dict[str, str]] = []
    if request.instructions:
        # Accepted by every server; OpenAI treats it as "developer" for models with that role.
        messages = [{"role": "system", "content": request.instructions}]
    head = compact(fields)[:-1]
    if tools:
        head += b',"tools":' + tools
    return head + b',"messages":' + compact(messages)[:-1], b"]}"


class ChatModel(RemoteModel):
    """Client of any server with Chat Completions; see `RemoteModel` for the arguments."""

    WIRES = (ChatWire,)
