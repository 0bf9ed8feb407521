"""Encodes items and tool specs as the Responses API's JSON, and decodes its output items."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from agent_magics.models.base import ItemDone, ModelEvent, ReasoningChunk, ResponseDone, TextChunk
from agent_magics.models.bounds import NAME_LENGTH, too_large
from agent_magics.models.fields import (
    count_field,
    optional_text,
    optional_whole,
    stated_cost,
    text_field,
)
from agent_magics.models.wires.bodies import compact
from agent_magics.models.wires.reasoning import is_details
from agent_magics.models.wires.schema_forms import lean_form
from agent_magics.models.wires.sse import encode_event
from agent_magics.models.wires.transforms import fit_arguments, fit_call_id, fit_name, strict_form
from agent_magics.protocol.items import (
    AssistantMessage,
    Citation,
    Content,
    CustomToolCall,
    FunctionCall,
    InputText,
    Item,
    JsonMapping,
    JsonObject,
    LocalShellCall,
    Reasoning,
    ToolCallOutput,
    Usage,
    UserMessage,
    WebSearchCall,
    text_of,
)
from agent_magics.protocol.tools import (
    ConfiguredToolSpec,
    FreeformToolSpec,
    FunctionToolSpec,
    LocalShellSpec,
    ToolSpec,
    WebSearchSpec,
)


def encode_item(item: Item) -> bytes:
    """Encode `item` as one compact input item of a request."""
    return compact(item_json(item))


class ResponsesTranscript:
    """A conversation encoded as a request's ``input``: one element for each item.

    Args:
        sealed: whether encrypted reasoning is sent back.
    """

    def __init__(self, *, sealed: bool = True) -> None:
        self._elements = bytearray()
        self._sealed = sealed

    def add(self, item: Item) -> None:
        """Append an item; reasoning that the API would not accept is left out."""
        if isinstance(item, Reasoning) and not (self._sealed and _is_sealed(item)):
            return
        if self._elements:
            self._elements += b","
        self._elements += encode_item(_fitted(item))

    def encoded(self) -> bytearray:
        """Return all items, joined by commas."""
        return self._elements


def without_reasoning() -> ResponsesTranscript:
    """Return an empty transcript for a model without reasoning, which accepts none of another's."""
    return ResponsesTranscript(sealed=False)


def _fitted(item: Item) -> Item:
    """Return an item in the form that servers accept: a model may call what is the name of no tool,
    with arguments that are no JSON, and one such call has all later requests refused.
    """
    match item:
        case FunctionCall(call_id, name, arguments):
            call_id = fit_call_id(call_id, "responses")
            return FunctionCall(call_id, fit_name(name), fit_arguments(arguments))
        case CustomToolCall(call_id, name, text):
            return CustomToolCall(fit_call_id(call_id, "responses"), fit_name(name), text)
        case ToolCallOutput(call_id) if item.kind != "local_shell":
            return replace(item, call_id=fit_call_id(call_id, "responses"))
    return item


def _is_sealed(item: Reasoning) -> bool:
    """Return whether it holds encrypted reasoning of this API."""
    return item.encrypted is not None and not is_details(item.encrypted)


def encode_tools(tools: Sequence[ConfiguredToolSpec]) -> bytes:
    """Return the value of a request's ``tools``."""
    return compact([_tool_json(tool.spec) for tool in tools])


# -- items --------------------------------------------------------------------------------------


def item_json(item: Item) -> JsonObject:
    """Encode `item` as the API's JSON object.

    Ids of messages and calls are left out, because nothing is stored at the provider (``store:
    false``). Only reasoning keeps its id, which belongs to its encrypted content.
    """
    match item:
        case UserMessage(content, role):
            return {"type": "message", "role": role, "content": _content_json(content)}
        case AssistantMessage(text, citations=citations):
            part: JsonObject = {"type": "output_text", "text": text}
            if citations:
                part["annotations"] = [annotation_json(each) for each in citations]
            return {"type": "message", "role": "assistant", "content": [part]}
        case Reasoning():
            return _reasoning_json(item)
        case WebSearchCall(action, status, item_id):
            done = {"status": status, "action": dict(action)}
            return {"type": "web_search_call", **({"id": item_id} if item_id else {}), **done}
        case FunctionCall(call_id, name, arguments):
            call = {"call_id": call_id, "name": name, "arguments": arguments}
            return {"type": "function_call", **call}
        case CustomToolCall(call_id, name, text):
            return {"type": "custom_tool_call", "call_id": call_id, "name": name, "input": text}
        case LocalShellCall():
            return _local_shell_json(item)
        case ToolCallOutput():
            return _output_json(item)
        case _:
            assert_never(item)


def _content_json(content: Content) -> str | list[JsonObject]:
    if isinstance(content, str):
        return content
    return [
        {"type": "input_text", "text": part.text}
        if isinstance(part, InputText)
        else {"type": "input_image", "image_url": part.image_url, "detail": part.detail}
        for part in content
    ]


def _reasoning_json(item: Reasoning) -> JsonObject:
    summary = [{"type": "summary_text", "text": text} for text in item.summary]
    result: JsonObject = {"type": "reasoning", "summary": summary}
    if item.id is not None:
        result["id"] = item.id
    if item.encrypted is not None:
        result["encrypted_content"] = item.encrypted
    return result


def _local_shell_json(item: LocalShellCall) -> JsonObject:
    action: JsonObject = {"type": "exec", "command": list(item.command), "env": {}}
    if item.workdir is not None:
        action["working_directory"] = item.workdir
    if item.timeout_ms is not None:
        action["timeout_ms"] = item.timeout_ms
    call_id = item.call_id or ""
    ids = {"id": item.id or call_id, "call_id": call_id}
    return {"type": "local_shell_call", **ids, "status": "completed", "action": action}


def _output_json(item: ToolCallOutput) -> JsonObject:
    if item.kind == "local_shell":
        # The API's reference requires the id, its guide the call id: both are sent.
        ids = {"id": item.call_id, "call_id": item.call_id}
        return {"type": "local_shell_call_output", **ids, "output": text_of(item.output)}
    kind = "custom_tool_call_output" if item.kind == "custom" else "function_call_output"
    return {"type": kind, "call_id": item.call_id, "output": _content_json(item.output)}


def decode_item(data: JsonMapping) -> Item | None:
    """Decode the API's output item `data`, or return None for an unused kind."""
    match data.get("type"):
        case "message":
            text, citations = _decode_parts(data.get("content") or ())
            return AssistantMessage(text, optional_text(data, "id"), citations)
        case "reasoning":
            summary = tuple(text_field(part, "text") for part in data.get("summary") or ())
            encrypted = optional_text(data, "encrypted_content")
            return Reasoning(summary, encrypted, optional_text(data, "id"))
        case "function_call":
            return FunctionCall(*_call_texts(data, "arguments"), optional_text(data, "id"))
        case "custom_tool_call":
            return CustomToolCall(*_call_texts(data, "input"), optional_text(data, "id"))
        case "local_shell_call":
            return _decode_local_shell(data)
        case "web_search_call":
            action, status = data.get("action"), data.get("status")
            action = action if isinstance(action, Mapping) else {}
            ended = "failed" if status == "failed" else "completed"
            return WebSearchCall(action, ended, optional_text(data, "id"))
    return None


def _call_texts(data: JsonMapping, given: str) -> tuple[str, str, str]:
    """Return a call's id, the name of its tool, and the text at `given`."""
    call_id, name = text_field(data, "call_id"), text_field(data, "name")
    if len(call_id) + len(name) > NAME_LENGTH:
        raise too_large("a call's name", NAME_LENGTH)
    return call_id, name, text_field(data, given)


def _decode_parts(parts: Iterable[JsonMapping]) -> tuple[str, tuple[Citation, ...]]:
    """Return a message's text, including refusals, and its citations."""
    texts: list[str] = []
    citations, length = [], 0
    for part in parts:
        for annotation in part.get("annotations") or ():
            citation = decode_citation(annotation, length)
            if citation is not None:
                citations.append(citation)
        texts.append(text_field(part, "text") or text_field(part, "refusal"))
        length += len(texts[-1])
    return "".join(texts), tuple(citations)


def decode_citation(data: object, offset: int = 0) -> Citation | None:
    """Decode an annotation of a text as a citation, or return None.

    Args:
        data: the API's annotation.
        offset: where in the message the annotated text begins, in characters.
    """
    if not isinstance(data, Mapping):
        return None
    citation = Citation(
        optional_text(data, "url") or "",
        optional_text(data, "title") or optional_text(data, "filename") or "",
        _place(data, "start_index" if "start_index" in data else "index", offset),
        _place(data, "end_index", offset),
        optional_text(data, "file_id") or "",
    )
    return citation if citation.url or citation.file_id else None


def _place(data: JsonMapping, name: str, offset: int) -> int | None:
    index = optional_whole(data, name)
    return None if index is None else index + offset


def annotation_json(citation: Citation) -> JsonObject:
    """Encode `citation` as the API's annotation."""
    if citation.file_id:
        about = {"file_id": citation.file_id, "filename": citation.title}
        return {"type": "file_citation", **about, "index": citation.start or 0}
    start, end = citation.start or 0, citation.end or 0
    about = {"url": citation.url, "title": citation.title}
    return {"type": "url_citation", **about, "start_index": start, "end_index": end}


def _decode_local_shell(data: JsonMapping) -> LocalShellCall:
    action = data.get("action") or {}
    env = action.get("env")
    # Variables become words of the command, so that they are shown and judged like any command
    # line.
    variables = [f"{name}={value}" for name, value in env.items()] if isinstance(env, dict) else ()
    return LocalShellCall(
        text_field(data, "call_id") or None,
        (
            *(("env", "--", *variables) if variables else ()),
            *(str(word) for word in action.get("command") or ()),
        ),
        text_field(action, "working_directory") or None,
        optional_whole(action, "timeout_ms"),
        optional_text(data, "id") or None,
    )


def decode_usage(data: object, warn: Callable[[str], None] = lambda message: None) -> Usage:
    """Decode the API's usage object; missing counts are 0.

    Args:
        data: the usage object; anything else counts as empty.
        warn: called with a sentence about an invalid count.
    """
    data = data if isinstance(data, dict) else {}
    read, written = data.get("input_tokens_details"), data.get("output_tokens_details")
    return Usage(
        count_field(data, "input_tokens", warn),
        count_field(data, "output_tokens", warn),
        count_field(read, "cached_tokens", warn),
        count_field(written, "reasoning_tokens", warn),
        stated_cost(data),
    )


def encode_answer(event: ModelEvent) -> bytes:
    """Encode a model event as the SSE bytes of a Responses stream.

    So an answer can be recorded in one format, whichever wire API it used. Events that are no part
    of an answer (the wait before a retry, a notice) give b"".
    """
    match event:
        case TextChunk(text):
            return encode_event("response.output_text.delta", {"delta": text})
        case ReasoningChunk(text):
            return encode_event("response.reasoning_summary_text.delta", {"delta": text})
        case ItemDone(item):
            whole = {"id": getattr(item, "id", None), **item_json(item), "status": "completed"}
            return encode_event("response.output_item.done", {"item": whole})
        case ResponseDone(usage, finish):
            return _encode_end(usage, finish)
    return b""


def _encode_end(usage: Usage, finish: str) -> bytes:
    status = "completed" if finish == "completed" else "incomplete"
    response: JsonObject = {"status": status, "usage": _usage_json(usage)}
    if status == "incomplete":
        reason = "max_output_tokens" if finish == "length" else finish
        response["incomplete_details"] = {"reason": reason}
    return encode_event(f"response.{status}", {"response": response})


def _usage_json(usage: Usage) -> JsonObject:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
        **({} if usage.reported_cost is None else {"cost": usage.reported_cost}),
    }


# -- tools --------------------------------------------------------------------------------------


def encode_choice(choice: str, tools: Sequence[ConfiguredToolSpec]) -> str | dict[str, str]:
    """Return the value of ``tool_choice``: a mode for all tools, or the one that must be called."""
    named = next((tool.spec for tool in tools if tool.spec.name == choice), None)
    if named is None:
        return choice
    kinds = {"function": "function", "freeform": "custom"}
    if named.kind not in kinds:  # the provider's built-in tools have no names
        return {"type": named.kind}
    return {"type": kinds[named.kind], "name": named.name}


def _tool_json(spec: ToolSpec) -> JsonObject:
    if isinstance(spec, FunctionToolSpec):
        return _function_json(spec)
    if isinstance(spec, FreeformToolSpec):
        return _custom_json(spec)
    if isinstance(spec, LocalShellSpec):
        return {"type": "local_shell"}
    if isinstance(spec, WebSearchSpec):
        access = spec.external_web_access
        wanted = {} if access is None else {"external_web_access": access}
        return {"type": "web_search", **wanted}
    assert_never(spec)


def _function_json(spec: FunctionToolSpec) -> JsonObject:
    strict = strict_form(spec.parameters) if spec.strict else None
    return {
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "parameters": lean_form(spec.parameters) if strict is None else strict,
        "strict": strict is not None,
    }


def _custom_json(spec: FreeformToolSpec) -> JsonObject:
    tool: JsonObject = {"type": "custom", "name": spec.name, "description": spec.description}
    if spec.definition:
        grammar = {"syntax": spec.syntax, "definition": spec.definition}
        tool["format"] = {"type": "grammar", **grammar}
    return tool
