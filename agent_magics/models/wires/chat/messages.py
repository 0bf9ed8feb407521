"""Encodes items as Chat Completions messages and functions, and decodes calls and usage.

Several of our items may form one message: an assistant's text and all calls beside it, and
consecutive messages of the person (chat templates require alternating roles). So the last message
stays open while the conversation grows; its parts are already encoded.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agent_magics.models.base import Encoded
from agent_magics.models.fields import count_field, stated_cost
from agent_magics.models.providers.endpoints import Dialect
from agent_magics.models.wires.bodies import compact, json_text
from agent_magics.models.wires.chat.calls import is_json_object
from agent_magics.models.wires.reasoning import details_for
from agent_magics.models.wires.transforms import fit_arguments, fit_call_id, fit_name
from agent_magics.protocol.items import (
    CALL_TYPES,
    AssistantMessage,
    CallItem,
    Content,
    ContentPart,
    CustomToolCall,
    FunctionCall,
    InputImage,
    InputText,
    Item,
    JsonMapping,
    JsonObject,
    LocalShellCall,
    Reasoning,
    ToolCallOutput,
    Usage,
    UserMessage,
    text_of,
)
from agent_magics.protocol.tools import FreeformToolSpec, LocalShellSpec, ToolSpec

PARAGRAPH = b"\\n\\n"  # as escaped inside a JSON string

# The answer to an output after which the model did not come to speak (`Dialect.answered_outputs`).
NOTHING_SAID = compact({"role": "assistant", "content": "…"})


@dataclass(frozen=True, slots=True)
class ChatForm:
    """Creates transcripts in one dialect of Chat Completions."""

    dialect: Dialect

    def __call__(self) -> "ChatTranscript":
        """Return an empty transcript."""
        return ChatTranscript(self.dialect)


class ChatTranscript:
    """A conversation encoded as a request's ``messages``, without the instructions."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._closed = bytearray()
        self._open: _AssistantDraft | _UserDraft | None = None
        self._images: list[bytes] = []
        self._ends_with_output = False  # what is closed
        # Reasoning for the next assistant message, as text or as structured blocks of the server.
        self._reasoning: list[bytes] = []
        self._details: list[bytes] = []

    def add(self, item: Item) -> None:
        """Append an item."""
        if isinstance(item, UserMessage):
            self._reasoning.clear()
            self._details.clear()
            role = item.role if self._dialect.developer_role else "user"
            self._user_draft(role).add(item.content)
        elif isinstance(item, ToolCallOutput):
            self._add_output(item)
        elif isinstance(item, AssistantMessage):
            self._assistant_draft().texts.append(_inside(item.text))
        elif isinstance(item, Reasoning):
            details = details_for(self._dialect.vendor, item.encrypted)
            if self._dialect.reasoning_details and details:
                self._details.append(details)
            elif self._dialect.reasoning_field:
                self._reasoning.append(_inside("\n".join(item.summary)))
        elif isinstance(item, CALL_TYPES):  # a web search of the Responses API cannot be expressed
            self._assistant_draft().calls.append(compact(call_json(item, self._dialect)))

    def encoded(self) -> Encoded:
        """Return all messages, joined by commas."""
        unclosed = self._unclosed()
        return b",".join(filter(None, (self._closed, *unclosed))) if unclosed else self._closed

    def _unclosed(self) -> list[bytes]:
        draft = _UserDraft(b"user", list(self._images)) if self._images else self._open
        if draft is None:
            return []
        is_unanswered = self._ends_with_output and isinstance(draft, _UserDraft)
        between = [NOTHING_SAID] if is_unanswered and self._dialect.answered_outputs else []
        return [*between, draft.encoded()]

    def _close(self) -> None:
        for message in self._unclosed():
            self._append(message)
            self._ends_with_output = False
        self._open, self._images = None, []

    def _append(self, message: bytes) -> None:
        if message:
            if self._closed:
                self._closed += b","
            self._closed += message

    def _assistant_draft(self) -> "_AssistantDraft":
        if not isinstance(self._open, _AssistantDraft) or self._images:
            self._close()
            self._open = _AssistantDraft(self._dialect.reasoning_field.encode())
        self._open.reasoning += self._reasoning
        self._open.details += self._details
        self._reasoning.clear()
        self._details.clear()
        return self._open

    def _user_draft(self, role: str) -> "_UserDraft":
        if isinstance(self._open, _UserDraft) and self._open.role == role.encode():
            return self._open
        if self._images and role == "user":
            # The next user message is merged into the one with the images.
            self._open, self._images = _UserDraft(b"user", self._images), []
            return self._open
        self._close()
        self._open = _UserDraft(role.encode(), [])
        return self._open

    def _add_output(self, item: ToolCallOutput) -> None:
        """Append a tool's message; its images follow after the last consecutive tool output.

        A tool message takes text only (OpenAI's reference, "Tool message": content is a string or
        parts of type text). So images follow in a user message, and not before the last
        output, because all outputs must directly follow the assistant's message.
        """
        if self._open is not None:
            waiting, self._images = self._images, []
            self._close()
            self._images = waiting
        message = {
            "role": "tool",
            "tool_call_id": fit_call_id(item.call_id, self._dialect.call_ids),
            "content": text_of(item.output),
        }
        parts = () if isinstance(item.output, str) else item.output
        images = [part for part in parts if isinstance(part, InputImage)]
        if images:
            caption = f"Image of the output of {message['tool_call_id']}:"
            self._images.append(compact({"type": "text", "text": caption}))
            self._images += [compact(_image_json(image)) for image in images]
        self._append(compact(message))
        self._ends_with_output = True


class _AssistantDraft:
    """An assistant message under construction."""

    def __init__(self, reasoning_field: bytes) -> None:
        self.texts: list[bytes] = []
        self.reasoning: list[bytes] = []
        self.details: list[bytes] = []
        self.calls: list[bytes] = []
        self._reasoning_field = reasoning_field

    def encoded(self) -> bytes:
        """Return the complete message."""
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


class _UserDraft:
    """A user message under construction: text alone, or parts with images."""

    def __init__(self, role: bytes, parts: list[bytes]) -> None:
        self.role = role
        self._texts: list[bytes] = []
        self._parts = parts

    def add(self, content: Content) -> None:
        """Append content."""
        parts = (InputText(content),) if isinstance(content, str) else content
        if any(isinstance(part, InputImage) for part in parts):
            self._parts = [_text_part(text) for text in self._texts] + self._parts
            self._parts += map(_part, parts)
            self._texts = []
        elif self._parts:
            self._parts.append(_text_part(_inside(text_of(content))))
        else:
            self._texts.append(_inside(text_of(content)))

    def encoded(self) -> bytes:
        """Return the complete message."""
        if self._parts:
            content = b"[%s]" % b",".join(self._parts)
        else:
            content = b'"%s"' % PARAGRAPH.join(self._texts)
        return b'{"role":"%s","content":%s}' % (self.role, content)


def _part(part: ContentPart) -> bytes:
    if isinstance(part, InputImage):
        return compact(_image_json(part))
    return _text_part(_inside(part.text))


def _text_part(text: bytes) -> bytes:
    return b'{"type":"text","text":"%s"}' % text


def _image_json(image: InputImage) -> JsonObject:
    url: JsonObject = {"url": image.image_url}
    if image.detail != "auto":
        # "original" exists only in the Responses API.
        url["detail"] = "high" if image.detail == "original" else image.detail
    return {"type": "image_url", "image_url": url}


def call_json(item: CallItem, dialect: Dialect) -> JsonObject:
    """Encode a call as the API's JSON object, a malformed one in a well-formed shape."""
    call_id = fit_call_id(item.call_id or "", dialect.call_ids)
    if isinstance(item, CustomToolCall):
        if dialect.custom_tools:
            custom = {"name": fit_name(item.name), "input": item.input}
            return {"id": call_id, "type": "custom", "custom": custom}
        arguments = json_text({"input": item.input})
    elif isinstance(item, LocalShellCall):
        arguments = json_text(_local_shell_arguments(item))
    else:
        arguments = fit_arguments(item.arguments)
    name = "local_shell" if isinstance(item, LocalShellCall) else fit_name(item.name)
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {**call, **_extra_of(item)}


def _local_shell_arguments(item: LocalShellCall) -> JsonObject:
    given = {"command": list(item.command), "workdir": item.workdir, "timeout_ms": item.timeout_ms}
    return {name: value for name, value in given.items() if value is not None}


EXTRA_MARK = "extra_content:"


def _extra_of(item: CallItem) -> JsonObject:
    """Return the opaque data to send back with a call, which is stored in the item's id.

    Gemini 3 signs each call with its reasoning and refuses one without the signature.
    """
    if item.id and item.id.startswith(EXTRA_MARK):
        # A number that is too large for Python is "Infinity" by now, which is no JSON.
        kept = json.loads(item.id.removeprefix(EXTRA_MARK), parse_constant=lambda _: None)
        return {"extra_content": kept}
    return {}


# -- the answer's items --------------------------------------------------------------------------


def decode_call(
    call_id: str, name: str, arguments: str, spec: ToolSpec | None, extra: object = None
) -> CallItem:
    """Return the item for a complete call.

    Args:
        call_id: its id; "" where the server gave none.
        name: the function's name.
        arguments: the arguments as the model wrote them.
        spec: the offered tool of that name, or None.
        extra: opaque data to send back with the call.
    """
    kept = None if extra is None else EXTRA_MARK + json_text(extra)
    if isinstance(spec, FreeformToolSpec):
        return CustomToolCall(call_id, name, _freeform_input(arguments), kept)
    if isinstance(spec, LocalShellSpec) and is_json_object(arguments):
        return _decode_local_shell(call_id, json.loads(arguments), kept)
    return FunctionCall(call_id, name, arguments if arguments.strip() else "{}", kept)


def _freeform_input(arguments: str) -> str:
    """Return the text of a freeform call, from JSON or written directly by the model."""
    if is_json_object(arguments):
        fields = json.loads(arguments)
        text = fields.get("input")
        if isinstance(text, str):
            return text
    return arguments


def _decode_local_shell(call_id: str, fields: JsonMapping, kept: str | None) -> LocalShellCall:
    command, timeout = fields.get("command"), fields.get("timeout_ms")
    argv = ["bash", "-c", command] if isinstance(command, str) else command
    argv = argv if isinstance(argv, list) else []
    workdir = fields.get("workdir")
    return LocalShellCall(
        call_id or None,
        tuple(map(str, argv)),
        workdir if isinstance(workdir, str) else None,
        timeout if isinstance(timeout, int) and not isinstance(timeout, bool) else None,
        kept,
    )


_COUNTS = ("prompt", "completion", "total")
_CACHED = ("prompt_cache_hit_tokens", "cached_tokens")


def decode_usage(data: object, warn: Callable[[str], None] = lambda message: None) -> Usage:
    """Decode the API's usage object; missing counts are 0.

    Args:
        data: the usage object; anything else counts as empty.
        warn: called with a sentence about an invalid count.
    """
    data = data if isinstance(data, Mapping) else {}
    read, written = data.get("prompt_tokens_details"), data.get("completion_tokens_details")
    asked, answered, total = (count_field(data, f"{name}_tokens", warn) for name in _COUNTS)
    # DeepSeek and Moonshot report cached tokens in fields of their own.
    cached = max(
        count_field(read, "cached_tokens", warn),
        *(count_field(data, name, warn) for name in _CACHED),
    )
    # Gemini and xAI count thoughts, which are paid as the answer is, in the total alone; where more
    # is cached than was asked, that stands in the total alone as well.
    unasked = cached if cached > asked else 0
    apart = max(total - asked - answered - unasked, 0) if asked else 0
    return Usage(
        asked,
        answered + apart,
        cached,
        max(count_field(written, "reasoning_tokens", warn), apart),
        stated_cost(data),
    )


# -- text ----------------------------------------------------------------------------------------


def _inside(text: str) -> bytes:
    """Return `text` as it is escaped inside a JSON string, without the quotes."""
    return compact(text)[1:-1]
