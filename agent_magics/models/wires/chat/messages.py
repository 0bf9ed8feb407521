"""The Chat Completions API's JSON: our items and tool specs as messages and functions of it.

Several of our items may be one message there: an assistant's text and all the calls beside it are
one, and so are things said one after the other by the person (chat templates want roles to take
turns). So the last message stays open while the conversation grows; its parts are encoded already.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent_magics.models.answer import stated_cost
from agent_magics.models.chat_calls import is_json_object
from agent_magics.models.chat_reasoning import details_of, is_details
from agent_magics.models.endpoints import Dialect
from agent_magics.models.transforms import fit_call_id
from agent_magics.protocol.items import (
    CALL_TYPES,
    AssistantMessage,
    CallItem,
    Content,
    CustomToolCall,
    FunctionCall,
    InputImage,
    Item,
    LocalShellCall,
    Reasoning,
    ToolCallOutput,
    Usage,
    UserMessage,
    text_of,
)
from agent_magics.protocol.tools import (
    FreeformToolSpec,
    LocalShellSpec,
    ToolSpec,
)

PARAGRAPH = b"\\n\\n"  # as it stands inside a JSON string


@dataclass(frozen=True, slots=True)
class ChatForm:
    """Makes transcripts in one dialect."""

    dialect: Dialect

    def __call__(self) -> "ChatTranscript":
        """Return an empty transcript."""
        return ChatTranscript(self.dialect)


class ChatTranscript:
    """A conversation as a request's ``messages``, without the instructions."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._closed = bytearray()
        self._open: _Said | _Asked | None = None
        self._images: list[bytes] = []
        # They go with what is said next, or not at all: as text, or in the server's own form.
        self._thoughts: list[bytes] = []
        self._details: list[bytes] = []

    def add(self, item: Item) -> None:
        """Encode one more item."""
        if isinstance(item, UserMessage):
            self._thoughts.clear()
            self._details.clear()
            role = item.role if self._dialect.developer_role else "user"
            self._asked(role).add(item.content)
        elif isinstance(item, ToolCallOutput):
            self._add_output(item)
        elif isinstance(item, AssistantMessage):
            self._said().texts.append(_inside(item.text))
        elif isinstance(item, Reasoning):
            if self._dialect.reasoning_details and is_details(item.encrypted):
                self._details.append(details_of(item.encrypted or ""))
            elif self._dialect.reasoning_field:
                self._thoughts.append(_inside("\n".join(item.summary)))
        elif isinstance(item, CALL_TYPES):  # a web search of the other wire has no form here
            self._said().calls.append(compact(call_json(item, self._dialect)))

    def encoded(self) -> bytes:
        """Everything so far as messages joined by commas."""
        return b",".join(filter(None, (self._closed, *self._unclosed())))

    def _unclosed(self) -> list[bytes]:
        if self._images:
            return [_Asked(b"user", list(self._images)).encoded()]
        return [self._open.encoded()] if self._open is not None else []

    def _close(self) -> None:
        for message in self._unclosed():
            self._append(message)
        self._open, self._images = None, []

    def _append(self, message: bytes) -> None:
        if message:
            if self._closed:
                self._closed += b","
            self._closed += message

    def _said(self) -> "_Said":
        if not isinstance(self._open, _Said) or self._images:
            self._close()
            self._open = _Said(self._dialect.reasoning_field.encode())
        self._open.reasoning += self._thoughts
        self._open.details += self._details
        self._thoughts.clear()
        self._details.clear()
        return self._open

    def _asked(self, role: str) -> "_Asked":
        if isinstance(self._open, _Asked) and self._open.role == role.encode():
            return self._open
        if self._images and role == "user":
            # What the person says next goes into the message with the images.
            self._open, self._images = _Asked(b"user", self._images), []
            return self._open
        self._close()
        self._open = _Asked(role.encode(), [])
        return self._open

    def _add_output(self, item: ToolCallOutput) -> None:
        """Write the tool's message; its images wait for the last output of the row.

        A tool message takes text only (OpenAI's reference, "Tool message": content is a string or
        parts of type text). So images follow as a message of the person, and not before the last
        output, because all outputs must follow the assistant's message directly.
        """
        if self._open is not None:
            images, self._images = self._images, []
            self._close()
            self._images = images
        message = {
            "role": "tool",
            "tool_call_id": fit_call_id(item.call_id, self._dialect.call_ids),
            "content": text_of(item.output),
        }
        images = [] if isinstance(item.output, str) else item.output
        images = [part for part in images if isinstance(part, InputImage)]
        if images:
            said = f"Image of the output of {message['tool_call_id']}:"
            self._images.append(compact({"type": "text", "text": said}))
            self._images += [compact(_image_json(image)) for image in images]
        self._append(compact(message))


class _Said:
    """The assistant's message that is being put together."""

    def __init__(self, reasoning_field: bytes) -> None:
        self.texts: list[bytes] = []
        self.reasoning: list[bytes] = []
        self.details: list[bytes] = []
        self.calls: list[bytes] = []
        self._reasoning_field = reasoning_field

    def encoded(self) -> bytes:
        """The whole message."""
        text = PARAGRAPH.join(self.texts)
        parts = [b'{"role":"assistant","content":', b'"%s"' % text if text else b"null"]
        if not text and not self.calls:
            parts[1] = b'""'
        if self.reasoning:
            reasoning = PARAGRAPH.join(self.reasoning)
            parts.append(b',"%s":"%s"' % (self._reasoning_field, reasoning))
        if self.details:
            parts.append(b',"reasoning_details":[%s]' % b",".join(self.details))
        if self.calls:
            parts.append(b',"tool_calls":[%s]' % b",".join(self.calls))
        return b"".join((*parts, b"}"))


class _Asked:
    """The person's message that is being put together: text alone, or parts with images."""

    def __init__(self, role: bytes, parts: list[bytes]) -> None:
        self.role = role
        self._texts: list[bytes] = []
        self._parts = parts

    def add(self, content: Content) -> None:
        """Add what was said."""
        if isinstance(content, str):
            content_text, images = content, ()
        else:
            images = [part for part in content if isinstance(part, InputImage)]
            content_text = "" if images else text_of(content)
        if not images and not self._parts:
            self._texts.append(_inside(content_text))
            return
        self._parts = [_text_part(text) for text in self._texts] + self._parts
        self._texts = []
        if not images:
            self._parts.append(_text_part(_inside(content_text)))
            return
        for part in content:
            if isinstance(part, InputImage):
                self._parts.append(compact(_image_json(part)))
            else:
                self._parts.append(_text_part(_inside(part.text)))

    def encoded(self) -> bytes:
        """The whole message."""
        if self._parts:
            content = b"[%s]" % b",".join(self._parts)
        else:
            content = b'"%s"' % PARAGRAPH.join(self._texts)
        return b'{"role":"%s","content":%s}' % (self.role, content)


def _text_part(text: bytes) -> bytes:
    return b'{"type":"text","text":"%s"}' % text


def _image_json(image: InputImage) -> dict[str, Any]:
    url: dict[str, Any] = {"url": image.image_url}
    if image.detail != "auto":
        # "original" is the Responses API's alone.
        url["detail"] = "high" if image.detail == "original" else image.detail
    return {"type": "image_url", "image_url": url}


def call_json(item: CallItem, dialect: Dialect) -> dict[str, Any]:
    """Return a call as the API's JSON object.

    Servers read the arguments of earlier calls (vLLM's and Ollama's templates as JSON, OpenAI's
    names by a pattern) and refuse the whole conversation for one that is broken. So what the model
    wrote wrongly, and was told about, goes back in a form that can be read.
    """
    call_id = fit_call_id(item.call_id or "", dialect.call_ids)
    if isinstance(item, CustomToolCall):
        if dialect.custom_tools:
            custom = {"name": _fit_name(item.name), "input": item.input}
            return {"id": call_id, "type": "custom", "custom": custom}
        arguments = json_text({"input": item.input})
    elif isinstance(item, LocalShellCall):
        arguments = json_text(_local_shell_arguments(item))
    else:
        arguments = item.arguments if item.arguments.strip() else "{}"
        if not is_json_object(arguments):
            arguments = json_text({"invalid_json": arguments})
    name = "local_shell" if isinstance(item, LocalShellCall) else _fit_name(item.name)
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {**call, **_extra_of(item)}


def _local_shell_arguments(item: LocalShellCall) -> dict[str, Any]:
    given = {"command": list(item.command), "workdir": item.workdir, "timeout_ms": item.timeout_ms}
    return {name: value for name, value in given.items() if value is not None}


def _fit_name(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "unknown"


EXTRA_MARK = "extra_content:"


def _extra_of(item: CallItem) -> dict[str, Any]:
    """What the server wants to have back with a call, which waits in the item's own id.

    Gemini 3 signs each call with its thoughts and refuses one that comes back without.
    """
    if item.id and item.id.startswith(EXTRA_MARK):
        return {"extra_content": json.loads(item.id.removeprefix(EXTRA_MARK))}
    return {}


# -- the answer's items --------------------------------------------------------------------------


def decode_call(
    call_id: str, name: str, arguments: str, spec: ToolSpec | None, extra: Any = None
) -> CallItem:
    """Return the item that a whole call is.

    Args:
        call_id: its id; "" where the server gave none.
        name: the function's name.
        arguments: the arguments as the model wrote them.
        spec: the tool of that name as it was offered, or None.
        extra: what the server wants to have back with the call.
    """
    kept = None if extra is None else EXTRA_MARK + json_text(extra)
    if isinstance(spec, FreeformToolSpec):
        return CustomToolCall(call_id, name, _freeform_input(arguments), kept)
    if isinstance(spec, LocalShellSpec) and is_json_object(arguments):
        return _decode_local_shell(call_id, json.loads(arguments), kept)
    return FunctionCall(call_id, name, arguments if arguments.strip() else "{}", kept)


def _freeform_input(arguments: str) -> str:
    """The one text of a freeform call; a model that wrote it bare is understood, too."""
    if is_json_object(arguments):
        fields = json.loads(arguments)
        text = fields.get("input")
        if isinstance(text, str):
            return text
    return arguments


def _decode_local_shell(
    call_id: str, fields: Mapping[str, Any], kept: str | None
) -> LocalShellCall:
    command, timeout = fields.get("command"), fields.get("timeout_ms")
    words = ["bash", "-c", command] if isinstance(command, str) else command
    words = words if isinstance(words, list) else []
    workdir = fields.get("workdir")
    return LocalShellCall(
        call_id or None,
        tuple(map(str, words)),
        workdir if isinstance(workdir, str) else None,
        timeout if isinstance(timeout, int) and not isinstance(timeout, bool) else None,
        kept,
    )


def decode_usage(data: Any) -> Usage:
    """Return the API's usage object; what a server leaves out counts as 0."""
    data = data if isinstance(data, Mapping) else {}
    read, written = data.get("prompt_tokens_details"), data.get("completion_tokens_details")
    # DeepSeek counts what its cache had in a field of its own.
    cached = _count(read, "cached_tokens") or _count(data, "prompt_cache_hit_tokens")
    return Usage(
        _count(data, "prompt_tokens"),
        _count(data, "completion_tokens"),
        cached,
        _count(written, "reasoning_tokens"),
        stated_cost(data),
    )


def _count(data: Any, name: str) -> int:
    value = data.get(name) if isinstance(data, Mapping) else None
    return int(value) if isinstance(value, int | float) and value == value else 0


# -- text ----------------------------------------------------------------------------------------


def json_text(value: Any) -> str:
    """Return `value` as JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def compact(value: Any) -> bytes:
    """Return `value` as JSON without spaces, in UTF-8."""
    # "replace": half a surrogate pair, which a program's output may hold, has no UTF-8 form.
    return json_text(value).encode("utf-8", "replace")


def _inside(text: str) -> bytes:
    """Return `text` as it stands inside a JSON string, without the quotes."""
    return compact(text)[1:-1]
