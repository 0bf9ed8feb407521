"""Defines one row's question, its answer, and the interface of whatever asks it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from agent_magics.protocol.items import Item, Json, Usage

# With this a map cancels a question some time after its end; it is the kind of the answer, too.
GIVEN_UP = "not waited for"


@dataclass(frozen=True, slots=True)
class Terms:
    """What all questions of one map share; one object for all, so that it can be encoded once.

    Attributes:
        model: the model's name at the provider.
        instructions: the system prompt; "" for none.
        schema: JSON schema (of an object) of the answers; None is plain text. The instructions
            contain it in any case, for servers that do not enforce it.
        service_tier: the provider's class of service ("flex", "priority"), "" for its default.
        reasoning_summary: "auto", "concise" or "detailed"; "" asks for no summary.
        name: a digest of these, by which the provider may keep what all requests begin with.
    """

    model: str
    instructions: str = ""
    schema: Mapping[str, Json] | None = None
    service_tier: str = ""
    reasoning_summary: str = ""
    name: str = ""


class RowPlace(NamedTuple):
    """Where a row is that a worker has read: its partition, and its number in that, from 0."""

    part: int
    row: int


@dataclass(frozen=True, slots=True)
class RowQuestion:
    """What one row asks: one request to the model.

    Attributes:
        key: hexadecimal digest of all that decides the answer; equal questions have equal keys.
        items: the messages, oldest first: the filled prompt, and after an answer that did not fit
            the schema that answer and what was wrong with it.
        terms: what all questions of the map share.
        place: where the row is, of which only its worker has the filled prompt; `items` then hold
            what follows that. None for all others.
    """

    key: str
    items: tuple[Item, ...]
    terms: Terms
    place: RowPlace | None = None

    @property
    def schema(self) -> Mapping[str, Json] | None:
        """JSON schema of the answer; None is plain text."""
        return self.terms.schema


@dataclass(frozen=True, slots=True)
class RowAnswer:
    """The outcome of one question after all retries.

    Attributes:
        text: the model's answer; "" where there is none.
        usage: tokens of all requests that the server counted for it.
        cost: USD, as the server reports it or by the list prices; None where that is not known.
        error: one sentence where there is no answer, else None.
        kind: a few words that errors of one sort share ("status 429", "timed out"); "" without one.
    """

    text: str = ""
    usage: Usage = Usage()
    cost: float | None = None
    error: str | None = None
    kind: str = ""

    @property
    def tokens(self) -> int:
        """Tokens of input and output."""
        return self.usage.input_tokens + self.usage.output_tokens

    @property
    def spent(self) -> float | None:
        """USD that it took, None where that is not known: an error without tokens took none."""
        if self.error is not None and not self.tokens:
            return self.cost or 0.0
        return self.cost


@dataclass(frozen=True, slots=True)
class Pace:
    """The present speed of an asker, and what limits it.

    Attributes:
        in_flight: the number of requests that the server has not answered yet.
        allowed: the most that are sent side by side.
        limit: what limits it, for people: "their rate", "your limit", "our CPU"; "" for nothing.
        workers: how many other processes ask; 0 where this one does.
    """

    in_flight: int
    allowed: int
    limit: str = ""
    workers: int = 0


class NotSent(Exception):
    """A question was not sent before the asker was stopped; nothing was paid for it."""


class Asker(Protocol):
    """Sends questions to a server; many calls of `ask` may wait side by side on one loop.

    It retries what may succeed later, and keeps to the server's limits: a call waits for its turn.
    """

    async def ask(self, question: RowQuestion) -> RowAnswer:
        """Return the answer to a question; an error of this one row is in `RowAnswer.error`.

        Raises:
            FatalError: no question can be answered (no key, a wrong one, no such model).
            NotSent: the asker was stopped before.
            CancelledError: it was cancelled; where that was with `GIVEN_UP`, what it knows to be
                spent is returned instead, as an answer of that kind.
        """
        ...

    def stop(self) -> None:
        """Send nothing from now on; what was sent is waited for."""
        ...

    def pace(self) -> Pace:
        """Return the present speed; called a few times a second."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...
