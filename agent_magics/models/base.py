"""The door to a model, as the engine sees it: one request in, a stream of model events out."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from agent_magics.models.tape import Tape
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import Item, Json, Usage
from agent_magics.protocol.tools import ConfiguredToolSpec

Finish: TypeAlias = Literal["completed", "length", "content_filter", "incomplete"]
"""How an answer ended; "incomplete" is short of its end for a reason that we have no word for."""


class Transcript(Protocol):
    """A conversation as one wire writes it, growing item by item.

    It may keep the last message open (on the chat wire several items are one message), but what it
    was given is encoded once.
    """

    def add(self, item: Item) -> None:
        """Encode one more item."""
        ...

    def encoded(self) -> bytes:
        """Everything so far as the elements of a JSON array, joined by commas."""
        ...


TranscriptMaker: TypeAlias = Callable[[], Transcript]
"""Makes an empty transcript; equal makers make transcripts of the same form."""


class RequestHistory(Protocol):
    """The conversation as a request carries it."""

    @property
    def items(self) -> Sequence[Item]:
        """All items of the conversation, oldest first."""
        ...

    @property
    def sent(self) -> Sequence[Item]:
        """Those that the request carries: of a long conversation a shorter form."""
        ...

    def encoded(self, maker: TranscriptMaker) -> bytes:
        """What is sent as the transcript of `maker` writes them; each is encoded once, ever.

        This is what keeps the cost of a turn flat: a request posts bytes that are already there.
        """
        ...


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request.

    Attributes:
        prompt: the person's words that began the turn; with `number` it finds a recorded exchange.
        number: 1 for the turn's first request, 2 for the next, and so on.
        conversation: stable id of the conversation (the provider's prompt cache key).
        tool_choice: "auto", "none", "required", or the name of the function that must be called.
        service_tier: the provider's class of service ("flex", "priority"), "" for its default.
        reasoning_summary: "auto", "concise" or "detailed"; "" asks for no summary.
        output_schema: JSON schema (of an object) of the answer; sent where the server can hold
            the model to it, and the instructions have it in any case.
        tape: takes down what the provider says, for a recording; None where nobody wants it.
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
    tape: Tape | None = None


@dataclass(frozen=True, slots=True)
class TextChunk:
    """More of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningChunk:
    """More of the reasoning summary."""

    text: str


@dataclass(frozen=True, slots=True)
class ItemDone:
    """A whole item; calls are only acted on from here, never from pieces."""

    item: Item


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """The provider's own web search goes on; what it did is told when it has ended.

    Attributes:
        call_id: which search, unique in this answer.
        action: what was done, as in `WebSearchCall`; {} until that is known.
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
    """Something the person should know about this answer (a recording that drifted, say)."""

    message: str


@dataclass(frozen=True, slots=True)
class ResponseDone:
    """The response has ended; unless `finish` is "completed", its calls may be incomplete."""

    usage: Usage = Usage()
    finish: Finish = "completed"


ModelEvent: TypeAlias = (
    TextChunk | ReasoningChunk | ItemDone | SearchProgress | RetryWait | Notice | ResponseDone
)


class ContextOverflow(FatalError):
    """The conversation is longer than the model can read; a shorter one may go through."""


class Model(Protocol):
    """What every door offers.

    `source` tells people in a few words where the answers come from ("OpenAI", "recording x").
    """

    source: str

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Send `request` and yield what comes, `ResponseDone` last.

        Raises:
            FatalError: no key, wrong key, unknown model, no answer: one sentence for the person.
        """
        ...

    async def close(self) -> None:
        """Give back connections; the door may be used again afterwards."""
        ...
