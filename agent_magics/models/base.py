"""Defines the interface of a model client: one request in, a stream of model events out."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from agent_magics.models.wire_capture import WireCapture
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import Item, Json, Usage
from agent_magics.protocol.tools import ConfiguredToolSpec

Finish: TypeAlias = Literal["completed", "length", "content_filter", "incomplete"]
"""How an answer ended; "incomplete" means that it was truncated for an unlisted reason."""


Encoded: TypeAlias = bytes | bytearray
"""Encoded items; the next item may be added in place, so a request copies them at once."""


class Transcript(Protocol):
    """A conversation encoded in the format of one wire API, extended item by item.

    Several items may form one message (in Chat Completions), so the last message may stay open.
    Each item is encoded only once.
    """

    def add(self, item: Item) -> None:
        """Append an item."""

    def encoded(self) -> Encoded:
        """Return all items as elements of a JSON array, joined by commas."""


TranscriptMaker: TypeAlias = Callable[[], Transcript]
"""Creates an empty transcript; equal makers create transcripts of the same format."""


class RequestHistory(Protocol):
    """The conversation that a request carries."""

    @property
    def items(self) -> Sequence[Item]:
        """All items of the conversation, oldest first."""

    @property
    def sent(self) -> Sequence[Item]:
        """The items that the request carries; a shortened form of a long conversation."""

    def encoded(self, maker: TranscriptMaker) -> Encoded:
        """Return the sent items, encoded by the transcript of `maker`; each is encoded only once,
        ever.

        So the cost of a request does not grow with the conversation: its bytes exist already.
        """


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request to a model.

    Attributes:
        model: the model's name at the provider.
        instructions: the system prompt.
        history: the conversation.
        tools: the tools offered.
        prompt: the person's message that began the turn; with `number` it identifies a recorded
            exchange.
        number: 1 for the turn's first request, 2 for the next, and so on.
        conversation: stable id of the conversation (the provider's prompt cache key).
        parallel_tool_calls: whether the model may call several tools in one answer.
        tool_choice: "auto", "none", "required", or the name of the function that must be called.
        service_tier: the provider's class of service ("flex", "priority"), "" for its default.
        reasoning_summary: "auto", "concise" or "detailed"; "" asks for no summary.
        output_schema: JSON schema (of an object) of the answer; sent where the server can enforce
            it. The instructions contain it in any case.
        capture: records the provider's bytes, or None.
        stream: whether the answer is sent in events while it is made, or whole at its end.
        turn: id of the turn, "" where it is not known: then number 1 begins one. A request that is
            made again, since the conversation was too long, has the number of the first.
    """

    model: str
    instructions: str
    history: RequestHistory
    tools: tuple[ConfiguredToolSpec, ...]
    prompt: str
    number: int
    conversation: str = ""
    parallel_tool_calls: bool = True
    tool_choice: str = "auto"
    service_tier: str = ""
    reasoning_summary: str = ""
    output_schema: Mapping[str, Json] | None = None
    capture: WireCapture | None = None
    stream: bool = True
    turn: str = ""


@dataclass(frozen=True, slots=True)
class TextChunk:
    """A fragment of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningChunk:
    """A fragment of the reasoning summary."""

    text: str


@dataclass(frozen=True, slots=True)
class CallChunk:
    """More of a call's arguments, only to be counted while they come.

    Attributes:
        name: the tool; "" where the server has not said it yet.
    """

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class ItemDone:
    """A complete item; calls are acted on only from here, never from fragments."""

    item: Item


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """Progress of the provider's built-in web search; its final action is reported when it has
    ended.

    Attributes:
        call_id: identifies the search within this answer.
        action: the search's action, as in `WebSearchCall`; {} until it is known.
    """

    call_id: str
    status: Literal["running", "completed", "failed"]
    action: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RetryWait:
    """Request number `attempt` of `tries` failed; the next one follows after `delay` seconds."""

    reason: str
    attempt: int
    delay: float
    tries: int = 0


@dataclass(frozen=True, slots=True)
class Notice:
    """A message for the person about this answer, such as a difference from its recording."""

    message: str


@dataclass(frozen=True, slots=True)
class ResponseDone:
    """The response has ended; unless `finish` is "completed", its calls may be incomplete."""

    usage: Usage = Usage()
    finish: Finish = "completed"


ModelEvent: TypeAlias = (
    TextChunk
    | ReasoningChunk
    | CallChunk
    | ItemDone
    | SearchProgress
    | RetryWait
    | Notice
    | ResponseDone
)


class ContextOverflow(FatalError):
    """The conversation is longer than the model can read; a shorter one may go through."""


class ToolsWanted(FatalError):
    """The conversation has calls, and the server takes these only with tools that may be called."""


class Model(Protocol):
    """The interface of every model client.

    A client of recorded answers also has ``recorded_output(call_id)``: the output that a call of
    its last answer had then, or None.
    """

    @property
    def source(self) -> str:
        """Where the answers come from, in a few words for people ("OpenAI", "recording x")."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Send `request` and yield the events of the answer, `ResponseDone` last.

        Raises:
            FatalError: no key, wrong key, unknown model, no answer: one sentence for the person.
        """

    async def close(self) -> None:
        """Close connections; the client may be used again afterwards."""
