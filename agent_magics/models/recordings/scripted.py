"""A model client whose answers are given in advance: for tests, documentation and trying out
tools.
"""

import itertools
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TypeAlias, get_args

from agent_magics.models.base import Encoded, ModelEvent, ModelRequest, TranscriptMaker
from agent_magics.models.recordings.handwritten import arguments_text, write_reply
from agent_magics.models.wire_capture import WireCapture
from agent_magics.models.wires.answer import read_answer
from agent_magics.models.wires.responses.model import ResponseDecoder
from agent_magics.protocol.checked import check
from agent_magics.protocol.errors import FatalError, clause
from agent_magics.protocol.items import AssistantMessage, FunctionCall, Item, JsonMapping
from agent_magics.text.brief import number_of


@dataclass(frozen=True, slots=True)
class Call:
    """A function call in a script.

    Attributes:
        name: the tool.
        arguments: a mapping, or the JSON text itself.
        call_id: None numbers the calls of a script call_1, call_2, …

    Raises:
        FatalError: the arguments are neither text nor a JSON object.
    """

    name: str
    arguments: JsonMapping | str = "{}"
    call_id: str | None = None

    def __post_init__(self) -> None:
        try:
            arguments_text(self.arguments)
        except (TypeError, ValueError, RecursionError) as error:
            raise FatalError(
                f"Call({self.name!r}): the arguments are no JSON object ({clause(error)}); give a "
                "dict of texts, numbers, lists and dicts, or JSON as text."
            ) from None


Piece: TypeAlias = str | Call | Item
_PIECES: tuple[type, ...] = (str, Call, *get_args(Item))
Reply: TypeAlias = Piece | Sequence[Piece] | bytes
ScriptedTurn: TypeAlias = Reply | Callable[[ModelRequest], Reply]


@dataclass(frozen=True, slots=True)
class SeenHistory:
    """A snapshot of the history at a request; `shortened` is the part sent, if not all of it."""

    items: tuple[Item, ...]
    shortened: tuple[Item, ...] | None = None

    @property
    def sent(self) -> tuple[Item, ...]:
        """The items that the request carried."""
        return self.items if self.shortened is None else self.shortened

    def encoded(self, maker: TranscriptMaker) -> Encoded:
        """Return the sent items, encoded by the transcript of `maker`."""
        transcript = maker()
        for item in self.sent:
            transcript.add(item)
        return transcript.encoded()


class ScriptedModel:
    """A model client that answers each request with the next element of `turns`.

    An element is the final text, a `Call`, a list of texts, calls and items, or a function of the
    request that returns one of these; bytes are sent as the SSE stream they are.

        model = ScriptedModel([Call("read_file", {"path": "a.py"}), "It prints hello."])

    Args:
        turns: the answers, one for each request.

    Attributes:
        requests: the requests so far, each with a snapshot of its history.
    """

    source = "script"

    def __init__(self, turns: Sequence[ScriptedTurn]) -> None:
        check("ScriptedModel: turns", turns, Sequence)
        self._turns = list(turns)
        self._call_numbers = itertools.count(1)
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Send the next answer; see `Model.stream`.

        Raises:
            FatalError: the script has no more answers.
        """
        async with aclosing(read_answer(self._reply_bytes(request), ResponseDecoder())) as events:
            async for event in events:
                yield event

    async def _reply_bytes(self, request: ModelRequest) -> AsyncGenerator[bytes, None]:
        """Yield the next answer as a provider streams it."""
        items, sent = tuple(request.history.items), tuple(request.history.sent)
        seen = SeenHistory(items, None if sent == items else sent)
        capture = request.capture or WireCapture()
        request = replace(request, history=seen, capture=None)
        self.requests.append(request)
        count = len(self.requests)
        if count > len(self._turns):
            answers = number_of(len(self._turns), "answer")
            raise FatalError(
                f"The script has {answers}, and this is request {count}: "
                "add an answer, or find out why the turn goes on."
            )
        turn = self._turns[count - 1]
        reply = turn(request) if callable(turn) else turn
        answer = reply if isinstance(reply, bytes) else write_reply(self._items(reply))
        capture.begin("responses")
        capture.feed(answer)
        yield answer

    def secrets(self) -> tuple[str, ...]:
        """Return no secrets; a script has none."""
        return ()

    async def close(self) -> None:
        """Do nothing; a script holds no connections."""

    def _items(self, reply: Piece | Sequence[Piece]) -> list[Item]:
        if isinstance(reply, Sequence) and not isinstance(reply, str):
            return [self._item(piece) for piece in reply]
        return [self._item(reply)]

    def _item(self, piece: Piece) -> Item:
        if not isinstance(piece, _PIECES):
            raise FatalError(
                f"Answer {len(self.requests)} of the script holds {piece!r}; it may hold texts, "
                "calls (Call), and items of a conversation."
            )
        if isinstance(piece, str):
            return AssistantMessage(piece)
        if isinstance(piece, Call):
            call_id = piece.call_id or f"call_{next(self._call_numbers)}"
            return FunctionCall(call_id, piece.name, arguments_text(piece.arguments))
        return piece
