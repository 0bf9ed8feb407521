"""What a conversation is made of, the same for every provider.

An item is one entry of the history: what a person said, what the model said or asked for, what a
tool answered. The doors in ``models`` translate items to and from a provider's wire.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


@dataclass(frozen=True, slots=True)
class InputText:
    """A piece of text in a message or in a tool's output."""

    text: str


@dataclass(frozen=True, slots=True)
class InputImage:
    """An image in a message or in a tool's output; `image_url` may be a ``data:`` address."""

    image_url: str
    detail: Literal["auto", "low", "high", "original"] = "auto"


ContentPart: TypeAlias = InputText | InputImage
Content: TypeAlias = str | tuple[ContentPart, ...]


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What the person (or the program around the agent) says to the model."""

    content: Content
    role: Literal["user", "developer"] = "user"


@dataclass(frozen=True, slots=True)
class Citation:
    """A source that a part of an answer goes back to: a page, or a file at the provider.

    Attributes:
        url: of the page; whatever the provider sent, so look at it before you make a link of it.
        title: of the page, or the file's name.
        start: where in the text that part begins, in characters; None where that is not said.
        end: and where it ends.
        file_id: of the file, "" for a page.
    """

    url: str = ""
    title: str = ""
    start: int | None = None
    end: int | None = None
    file_id: str = ""


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """What the model says to the person."""

    text: str
    id: str | None = None
    citations: tuple[Citation, ...] = ()


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The model's reasoning as far as it is shown; `encrypted` is opaque and sent back."""

    summary: tuple[str, ...] = ()
    encrypted: str | None = None
    id: str | None = None


@dataclass(frozen=True, slots=True)
class WebSearchCall:
    """A step of the provider's own web search, which has run there and is sent back as it came.

    Attributes:
        action: what was done: its "type" ("search", "open_page", "find_in_page"), with "query",
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
    """The Responses API's native shell call; one without a `call_id` is answered as an error."""

    call_id: str | None
    command: tuple[str, ...]
    workdir: str | None = None
    timeout_ms: int | None = None
    id: str | None = None


OutputKind: TypeAlias = Literal["function", "custom", "local_shell"]


@dataclass(frozen=True, slots=True)
class ToolCallOutput:
    """What a call gave back, under the call's own id; every call in a valid history has one."""

    call_id: str
    output: Content
    kind: OutputKind = "function"


CallItem: TypeAlias = FunctionCall | CustomToolCall | LocalShellCall
Item: TypeAlias = (
    UserMessage | AssistantMessage | Reasoning | WebSearchCall | CallItem | ToolCallOutput
)

CALL_TYPES = (FunctionCall, CustomToolCall, LocalShellCall)
MODEL_ITEMS = (AssistantMessage, Reasoning, WebSearchCall, *CALL_TYPES)
"""What comes from the model."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request, or the sum over several.

    Attributes:
        cached_tokens: those of the input that the provider's cache had.
        reasoning_tokens: those of the output that were thought, not said.
        reported_cost: USD, as the server itself reckons; None where it says nothing.
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


def text_of(content: Content) -> str:
    """Return the text of `content`; an image is named, not shown."""
    if isinstance(content, str):
        return content
    return "\n".join(part.text if isinstance(part, InputText) else "[image]" for part in content)
