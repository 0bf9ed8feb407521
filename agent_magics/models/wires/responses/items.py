"""The Responses API's JSON: our items and tool specs into it, its output items back out of it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, assert_never

from agent_magics.models.answer import stated_cost
from agent_magics.models.base import (
    ItemDone,
    ModelEvent,
    ReasoningChunk,
    ResponseDone,
    TextChunk,
)
from agent_magics.models.chat_reasoning import is_details
from agent_magics.models.sse import encode_event
from agent_magics.models.transforms import strict_form
from agent_magics.protocol.items import (
    AssistantMessage,
    Citation,
    Content,
    CustomToolCall,
    FunctionCall,
    InputText,
    Item,
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
    """Return `item` as one compact input item of a request."""
    return _compact(item_json(item))


class ResponsesTranscript:
    """A conversation as a request's ``input``: one element for each item."""

    def __init__(self) -> None:
        self._elements = bytearray()

    def add(self, item: Item) -> None:
        """Encode one more item; reasoning that the API could not take back is left out."""
        if isinstance(item, Reasoning) and (item.encrypted is None or is_details(item.encrypted)):
            return
        if self._elements:
            self._elements += b","
        self._elements += encode_item(item)

    def encoded(self) -> bytes:
        """Everything so far, joined by commas."""
        return bytes(self._elements)


def encode_tools(tools: Sequence[ConfiguredToolSpec]) -> bytes:
    """Return the value of a request's ``tools``."""
    return _compact([_tool_json(tool.spec) for tool in tools])


def _compact(value: Any) -> bytes:
    # "replace": half a surrogate pair, which a program's output may hold, has no UTF-8 form.
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


# -- items --------------------------------------------------------------------------------------


def item_json(item: Item) -> dict[str, Any]:
    """Return `item` as the API's JSON object.

    Ids of messages and calls are left out: nothing is stored at the provider (``store: false``).
    Only reasoning keeps its id, which belongs to its encrypted content.
    """
    match item:
        case UserMessage(content, role):
            return {"type": "message", "role": role, "content": _content_json(content)}
        case AssistantMessage(text, citations=citations):
            content: dict[str, Any] = {"type": "output_text", "text": text}
            if citations:
                content["annotations"] = [annotation_json(each) for each in citations]
            return {"type": "message", "role": "assistant", "content": [content]}
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


def _content_json(content: Content) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    return [
        {"type": "input_text", "text": part.text}
        if isinstance(part, InputText)
        else {"type": "input_image", "image_url": part.image_url, "detail": part.detail}
        for part in content
    ]


def _reasoning_json(item: Reasoning) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": text} for text in item.summary]
    result: dict[str, Any] = {"type": "reasoning", "summary": summary}
    if item.id is not None:
        result["id"] = item.id
    if item.encrypted is not None:
        result["encrypted_content"] = item.encrypted
    return result


def _local_shell_json(item: LocalShellCall) -> dict[str, Any]:
    action: dict[str, Any] = {"type": "exec", "command": list(item.command), "env": {}}
    if item.workdir is not None:
        action["working_directory"] = item.workdir
    if item.timeout_ms is not None:
        action["timeout_ms"] = item.timeout_ms
    call_id = item.call_id or ""
    ids = {"id": item.id or call_id, "call_id": call_id}
    return {"type": "local_shell_call", **ids, "status": "completed", "action": action}


def _output_json(item: ToolCallOutput) -> dict[str, Any]:
    if item.kind == "local_shell":
        # The API's reference asks for the id, its guide for the call id: the same, sent as both.
        ids = {"id": item.call_id, "call_id": item.call_id}
        return {"type": "local_shell_call_output", **ids, "output": text_of(item.output)}
    kind = "custom_tool_call_output" if item.kind == "custom" else "function_call_output"
    return {"type": kind, "call_id": item.call_id, "output": _content_json(item.output)}


def decode_item(data: Mapping[str, Any]) -> Item | None:
    """Return the item that the API's output item `data` is, or None for a kind we do not use."""
    match data.get("type"):
        case "message":
            text, citations = _decode_parts(data.get("content") or ())
            return AssistantMessage(text, data.get("id"), citations)
        case "reasoning":
            summary = tuple(part.get("text", "") for part in data.get("summary") or ())
            return Reasoning(summary, data.get("encrypted_content"), data.get("id"))
        case "function_call":
            name, arguments = str(data.get("name", "")), str(data.get("arguments") or "")
            return FunctionCall(str(data.get("call_id", "")), name, arguments, data.get("id"))
        case "custom_tool_call":
            name, text = str(data.get("name", "")), str(data.get("input") or "")
            return CustomToolCall(str(data.get("call_id", "")), name, text, data.get("id"))
        case "local_shell_call":
            return _decode_local_shell(data)
        case "web_search_call":
            action, status = data.get("action"), data.get("status")
            action = action if isinstance(action, Mapping) else {}
            ended = "failed" if status == "failed" else "completed"
            return WebSearchCall(action, ended, data.get("id"))
    return None


def _decode_parts(parts: Iterable[Mapping[str, Any]]) -> tuple[str, tuple[Citation, ...]]:
    """A message's text, a refusal being what the model says, too; and what it cites."""
    text, citations = "", []
    for part in parts:
        for annotation in part.get("annotations") or ():
            citation = decode_citation(annotation, len(text))
            if citation is not None:
                citations.append(citation)
        text += part.get("text") or part.get("refusal") or ""
    return text, tuple(citations)


def decode_citation(data: Any, offset: int = 0) -> Citation | None:
    """Return what an annotation of a text cites, or None.

    Args:
        data: the API's annotation.
        offset: where in the message the annotated text begins.
    """
    if not isinstance(data, Mapping):
        return None
    title = data.get("title") or data.get("filename")
    url, file_id = data.get("url"), data.get("file_id")
    citation = Citation(
        url if isinstance(url, str) else "",
        title if isinstance(title, str) else "",
        _place(data.get("start_index", data.get("index")), offset),
        _place(data.get("end_index"), offset),
        file_id if isinstance(file_id, str) else "",
    )
    return citation if citation.url or citation.file_id else None


def _place(index: Any, offset: int) -> int | None:
    return index + offset if isinstance(index, int) and not isinstance(index, bool) else None


def annotation_json(citation: Citation) -> dict[str, Any]:
    """Return the API's annotation for `citation`; a file is only referred to."""
    if citation.file_id:
        about = {"file_id": citation.file_id, "filename": citation.title}
        return {"type": "file_citation", **about, "index": citation.start or 0}
    start, end = citation.start or 0, citation.end or 0
    about = {"url": citation.url, "title": citation.title}
    return {"type": "url_citation", **about, "start_index": start, "end_index": end}


def _decode_local_shell(data: Mapping[str, Any]) -> LocalShellCall:
    action = data.get("action") or {}
    return LocalShellCall(
        data.get("call_id") or None,
        tuple(str(word) for word in action.get("command") or ()),
        action.get("working_directory"),
        action.get("timeout_ms"),
        data.get("id") or None,
    )


def decode_usage(data: Mapping[str, Any] | None) -> Usage:
    """Return the API's usage object; what a server leaves out counts as 0."""
    data = data or {}
    read, written = data.get("input_tokens_details") or {}, data.get("output_tokens_details") or {}
    return Usage(
        data.get("input_tokens") or 0,
        data.get("output_tokens") or 0,
        read.get("cached_tokens") or 0,
        written.get("reasoning_tokens") or 0,
        stated_cost(data),
    )


def encode_answer(event: ModelEvent) -> bytes:
    """Return a model event as the SSE bytes that a Responses stream says it with.

    So an answer can be recorded in one form, whichever wire it came on. What is no part of an
    answer (the wait before a retry, a notice) has no bytes.
    """
    match event:
        case TextChunk(text):
            return encode_event("response.output_text.delta", {"delta": text})
        case ReasoningChunk(text):
            return encode_event("response.reasoning_summary_text.delta", {"delta": text})
        case ItemDone(item):
            whole = {"id": item.id, **item_json(item), "status": "completed"}
            return encode_event("response.output_item.done", {"item": whole})
        case ResponseDone(usage, finish):
            return _encode_end(usage, finish)
    return b""


def _encode_end(usage: Usage, finish: str) -> bytes:
    status = "completed" if finish == "completed" else "incomplete"
    response: dict[str, Any] = {"status": status, "usage": _usage_json(usage)}
    if status == "incomplete":
        reason = "max_output_tokens" if finish == "length" else finish
        response["incomplete_details"] = {"reason": reason}
    return encode_event(f"response.{status}", {"response": response})


def _usage_json(usage: Usage) -> dict[str, Any]:
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
    """Return the value of ``tool_choice``: a word for all tools, or the one that must be called."""
    named = next((tool.spec for tool in tools if tool.spec.name == choice), None)
    if named is None:
        return choice
    kinds = {"function": "function", "freeform": "custom"}
    if named.kind not in kinds:  # the provider's own tools have no names
        return {"type": named.kind}
    return {"type": kinds[named.kind], "name": named.name}


def _tool_json(spec: ToolSpec) -> dict[str, Any]:
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


def _function_json(spec: FunctionToolSpec) -> dict[str, Any]:
    strict = strict_form(spec.parameters) if spec.strict else None
    return {
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.parameters if strict is None else strict,
        "strict": strict is not None,
    }


def _custom_json(spec: FreeformToolSpec) -> dict[str, Any]:
    tool: dict[str, Any] = {
        "type": "custom",
        "name": spec.name,
        "description": spec.description,
    }
    if spec.definition:
        grammar = {"syntax": spec.syntax, "definition": spec.definition}
        tool["format"] = {"type": "grammar", **grammar}
    return tool
