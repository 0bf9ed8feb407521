"""Defines the items of a conversation, the same for every provider.

An item is one entry of the history: a message of the person or the model, a tool call, its output.
The clients in ``models`` translate items to and from a provider's wire format.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
# A JSON object as a server, a file or a model gives it. `Any`, since each use checks what it reads;
# with `Json` it would also have to cast it, which checks nothing.
JsonObject: TypeAlias = dict[str, Any]
JsonMapping: TypeAlias = Mapping[str, Any]  # one that is only read
_INDEX = re.compile(r"[0-9]{1,9}")  # of a list; Python refuses to read much longer numbers


def json_or(text: str | bytes, otherwise: Any) -> Any:
    """Return the value of JSON text; `otherwise` where it is none, or nested too deeply."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return otherwise


def json_object(text: str | bytes) -> JsonObject | None:
    """Return the object that a JSON text is; None where it is none."""
    found = json_or(text, None)
    return found if isinstance(found, dict) else None


def at_pointer(value: object, pointer: str) -> object:
    """Return the part of a JSON value that a reference in it names ("#/$defs/A"); None for none."""
    if not pointer.startswith("#"):
        return None
    # A fragment is decoded before it is read: RFC 6901, section 6.
    for part in filter(None, unquote(pointer[1:]).split("/")):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping) and key in value:
            value = value[key]
        elif isinstance(value, list) and _INDEX.fullmatch(key) and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value


@dataclass(frozen=True, slots=True)
class InputText:
    """A piece of text in a message or in a tool's output.

    Attributes:
        text: the text.
    """

    text: str


@dataclass(frozen=True, slots=True)
class InputImage:
    """An image in a message or in a tool's output.

    Attributes:
        image_url: its address, or a ``data:`` URL that holds it.
        detail: how finely the model looks: "low" is 512 pixels.
    """

    image_url: str
    detail: Literal["auto", "low", "high", "original"] = "auto"


ContentPart: TypeAlias = InputText | InputImage
Content: TypeAlias = str | tuple[ContentPart, ...]


@dataclass(frozen=True, slots=True)
class UserMessage:
    """A message to the model, from the person or from the program around the agent."""

    content: Content
    role: Literal["user", "developer"] = "user"


@dataclass(frozen=True, slots=True)
class Citation:
    """A source of a part of an answer: a web page, or a file at the provider.

    Attributes:
        url: URL of the page as the provider sent it; check it before making a link of it.
        title: title of the page, or name of the file.
        start: offset in the text where that part begins, in characters; None where unknown.
        end: offset in the text where that part ends, in characters; None where unknown.
        file_id: the provider's identifier of the file, or "" for a page.
    """

    url: str = ""
    title: str = ""
    start: int | None = None
    end: int | None = None
    file_id: str = ""


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """A message of the model to the person."""

    text: str
    id: str | None = None
    citations: tuple[Citation, ...] = ()


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The model's reasoning: a readable `summary`, and `encrypted` text to send back unchanged."""

    summary: tuple[str, ...] = ()
    encrypted: str | None = None
    id: str | None = None


@dataclass(frozen=True, slots=True)
class WebSearchCall:
    """A step of the provider's built-in web search, which ran there and is sent back unchanged.

    Attributes:
        action: the step: its "type" ("search", "open_page", "find_in_page"), with "query",
            "queries", "url" or "pattern".
        status: "completed" or "failed".
    """

    action: Mapping[str, Json] = field(default_factory=dict)
    status: str = "completed"
    id: str | None = None


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call of a function tool; `arguments` is the JSON text exactly as the model wrote it."""

    call_id: str
    name: str
    arguments: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class CustomToolCall:
    """A call of a freeform tool; `input` is the text exactly as the model wrote it."""

    call_id: str
    name: str
    input: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class LocalShellCall:
    """A call of the Responses API's built-in shell; one without a `call_id` is answered by an
    error.
    """

    call_id: str | None
    command: tuple[str, ...]
    workdir: str | None = None
    timeout_ms: int | None = None
    id: str | None = None


OutputKind: TypeAlias = Literal["function", "custom", "local_shell"]


@dataclass(frozen=True, slots=True)
class ToolCallOutput:
    """The output of a tool call, by `call_id`; every call in a valid history has one."""

    call_id: str
    output: Content
    kind: OutputKind = "function"


def output_kind_of(item: object) -> OutputKind:
    """Return in which form the output of a call goes back."""
    if isinstance(item, CustomToolCall):
        return "custom"
    return "local_shell" if isinstance(item, LocalShellCall) else "function"


CallItem: TypeAlias = FunctionCall | CustomToolCall | LocalShellCall
Item: TypeAlias = (
    UserMessage | AssistantMessage | Reasoning | WebSearchCall | CallItem | ToolCallOutput
)

CALL_TYPES = (FunctionCall, CustomToolCall, LocalShellCall)
MODEL_ITEMS = (AssistantMessage, Reasoning, WebSearchCall, *CALL_TYPES)
"""The classes of items that a model sends."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Numbers of tokens of one request, or sums over several.

    Attributes:
        input_tokens: tokens sent, with the cached ones.
        output_tokens: tokens received, with those of reasoning.
        cached_tokens: input tokens that the provider read from its cache.
        reasoning_tokens: output tokens that the model spent on reasoning.
        reported_cost: USD as the server reports it; None where it reports none.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    reported_cost: float | None = None

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            _sum_of(self.reported_cost, other.reported_cost),
        )


def _sum_of(one: float | None, other: float | None) -> float | None:
    return one if other is None else other if one is None else one + other


def map_text(content: Content, change: Callable[[str], str]) -> Content:
    """Return `content` with each of its texts changed."""
    if isinstance(content, str):
        return change(content)
    return tuple(
        InputText(change(part.text)) if isinstance(part, InputText) else part for part in content
    )


def parts_of(content: Content) -> tuple[ContentPart, ...]:
    """Return `content` as parts; a text is one."""
    return (InputText(content),) if isinstance(content, str) else content


def join_parts(parts: Sequence[ContentPart], separator: str) -> Content:
    """Join parts into one text where all of them are text; else return them as they are."""
    texts = [part.text for part in parts if isinstance(part, InputText)]
    return separator.join(texts) if len(texts) == len(parts) else tuple(parts)


def text_of(content: Content) -> str:
    """Return the text of `content`, with "[image]" for an image."""
    if isinstance(content, str):
        return content
    return "\n".join(part.text if isinstance(part, InputText) else "[image]" for part in content)
