"""Makes the request of one question, and reads the answer to it from a response's body."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from agent_magics.engine.cost import cost_of
from agent_magics.models.base import (
    Encoded,
    Finish,
    ItemDone,
    ModelEvent,
    ModelRequest,
    TranscriptMaker,
)
from agent_magics.models.faults import FEW_TRIES, Fault, Garbled, brief
from agent_magics.models.wires.answer import parse_event
from agent_magics.models.wires.bodies import compact
from agent_magics.models.wires.remote import Wire
from agent_magics.protocol.items import AssistantMessage, Item, Usage, UserMessage
from agent_magics.rows.asking import RowAnswer, Terms

# Bytes of an answer that is read without a look at each of its parts, which count there.
PLAIN = 1 << 20
GARBLED = "{address} gave an answer that is not one of its {api}: {beginning!r}."
ENDINGS: dict[Finish, str] = {
    "length": "The answer was cut off: it is longer than the model may write.",
    "content_filter": "The provider's content filter stopped the answer.",
    "incomplete": "The answer is not whole; the server does not say why.",
}


@dataclass(frozen=True, slots=True)
class Messages:
    """The items of one question as the conversation of a request."""

    items: Sequence[Item]

    @property
    def sent(self) -> Sequence[Item]:
        """The items that the request carries: all."""
        return self.items

    def encoded(self, maker: TranscriptMaker) -> Encoded:
        """Return the items, encoded by the transcript of `maker`."""
        transcript = maker()
        for item in self.items:
            transcript.add(item)
        return transcript.encoded()


def request_of(terms: Terms, items: Sequence[Item], *, has_schema: bool = True) -> ModelRequest:
    """Return the request that asks `items`; `has_schema`: the server is to enforce the schema."""
    return ModelRequest(
        model=terms.model,
        instructions=terms.instructions,
        history=Messages(items),
        tools=(),
        prompt="",
        number=1,
        service_tier=terms.service_tier,
        reasoning_summary=terms.reasoning_summary,
        output_schema=terms.schema if has_schema else None,
        stream=False,
    )


class RequestForm:
    """Makes the bodies of a map's requests; what all have in common is encoded once.

    Args:
        wire: the wire API of the requests.
        terms: what all questions share.
        address: the server's address.
        has_schema: whether the server is to enforce the schema.

    Attributes:
        request: one of the requests, without its items.
    """

    def __init__(self, wire: Wire, terms: Terms, address: str, *, has_schema: bool) -> None:
        self.wire, self.terms, self.has_schema = wire, terms, has_schema
        self.request = request_of(terms, (), has_schema=has_schema)
        self._address = address
        mark = uuid.uuid4().hex
        self._around = self._encode((UserMessage(mark),)).split(compact(mark))

    def body(self, items: Sequence[Item]) -> bytes:
        """Return the body of the request that asks `items`."""
        match items:
            case (UserMessage(str() as text, "user"),):
                return compact(text).join(self._around)
        return self._encode(items)

    def _encode(self, items: Sequence[Item]) -> bytes:
        request = request_of(self.terms, items, has_schema=self.has_schema)
        return self.wire.body(request, self._address)


def read_answer(
    content: bytes, wire: Wire, request: ModelRequest, address: str, *, batched: bool = False
) -> RowAnswer:
    """Return the answer that a body holds.

    Args:
        content: the body of a response with status 200.
        wire: the wire API of the request.
        request: the request.
        address: the server's address.
        batched: whether the price is that of the provider's batch API.

    Raises:
        FatalError: it holds none, or an error.
    """
    if plain := _plain_answer(content, wire):
        text, usage = plain
        return RowAnswer(text, usage, cost_of(request.model, usage, batched=batched))
    decoder = wire.decoder(request, address)
    events = [*decoder.feed(content), *decoder.close()]
    done = decoder.done
    if done is None:
        beginning = brief(content[:60].decode("utf-8", "replace"))
        sentence = GARBLED.format(address=address, api=wire.api, beginning=beginning)
        raise Fault(sentence, passing=True, tries=FEW_TRIES, kind="garbled")
    error = ENDINGS.get(done.finish)
    kind = done.finish.replace("_", " ") if error else ""
    cost = cost_of(request.model, done.usage, batched=batched)
    return RowAnswer(_text_of(events), done.usage, cost, error, kind)


def _plain_answer(content: bytes, wire: Wire) -> tuple[str, Usage] | None:
    """Return the text and the usage of a body as most are; None where the decoder must read it."""
    if len(content) > PLAIN or not content.startswith(b"{"):
        return None
    try:
        return wire.plain_answer(parse_event(content))
    except Garbled:
        return None


def _text_of(events: Sequence[ModelEvent]) -> str:
    return "".join(
        event.item.text
        for event in events
        if isinstance(event, ItemDone) and isinstance(event.item, AssistantMessage)
    )
