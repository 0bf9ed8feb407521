"""A model whose answers are written beforehand: for tests, documentation and trying tools out."""

import itertools
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from agent_magics.models.base import ModelEvent, ModelRequest, TranscriptMaker
from agent_magics.models.handwritten import arguments_text, write_reply
from agent_magics.models.responses import decode_stream
from agent_magics.models.tape import Tape
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import AssistantMessage, FunctionCall, Item


@dataclass(frozen=True, slots=True)
class Call:
    """A function call; without `call_id` the calls of a script are call_1, call_2, …"""

    name: str
    arguments: Mapping[str, Any] | str = "{}"
    call_id: str | None = None


Piece: TypeAlias = str | Call | Item
Reply: TypeAlias = Piece | Sequence[Piece] | bytes
ScriptedTurn: TypeAlias = Reply | Callable[[ModelRequest], Reply]


@dataclass(frozen=True, slots=True)
class SeenHistory:
    """The history as it was when a request was made; `shortened` is what it carried of it."""

    items: tuple[Item, ...]
    shortened: tuple[Item, ...] | None = None

    @property
    def sent(self) -> tuple[Item, ...]:
        """The items that the request carried."""
        return self.items if self.shortened is None else self.shortened

    def encoded(self, maker: TranscriptMaker) -> bytes:
        """What was sent, as the transcript of `maker` writes it."""
        transcript = maker()
        for item in self.sent:
            transcript.add(item)
        return transcript.encoded()


class ScriptedModel:
    """Gives one element of `turns` as the answer to each request.

    An element is the final text, a `Call`, a list of texts, calls and items, or a function of the
    request that returns one of these; bytes are played as the SSE stream they are.

        model = ScriptedModel([Call("read_file", {"path": "a.py"}), "It prints hello."])

    Attributes:
        requests: what was asked so far, each with the history of that moment.
    """

    source = "script"

    def __init__(self, turns: Sequence[ScriptedTurn]) -> None:
        self._turns = list(turns)
        self._call_numbers = itertools.count(1)
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Give the next answer; see `Model.stream`.

        Raises:
            FatalError: the script has no more answers.
        """
        async with aclosing(decode_stream(self._say(request))) as events:
            async for event in events:
                yield event

    async def _say(self, request: ModelRequest) -> AsyncGenerator[bytes, None]:
        """Give the next answer as a provider streams it."""
        items, sent = tuple(request.history.items), tuple(request.history.sent)
        seen = SeenHistory(items, None if sent == items else sent)
        tape = request.tape or Tape()
        request = replace(request, history=seen, tape=None)
        self.requests.append(request)
        count = len(self.requests)
        if count > len(self._turns):
            raise FatalError(
                f"The script has {len(self._turns)} answers, and this is request {count}: "
                "add an answer, or find out why the turn goes on."
            )
        turn = self._turns[count - 1]
        reply = turn(request) if callable(turn) else turn
        said = reply if isinstance(reply, bytes) else write_reply(self._items(reply))
        tape.begin("responses")
        tape.feed(said)
        yield said

    def secrets(self) -> tuple[str, ...]:
        """A script has none."""
        return ()

    async def close(self) -> None:
        """Nothing is held."""

    def _items(self, reply: Piece | Sequence[Piece]) -> list[Item]:
        pieces = reply if isinstance(reply, list | tuple) else [reply]
        return [self._item(piece) for piece in pieces]

    def _item(self, piece: Piece) -> Item:
        if isinstance(piece, str):
            return AssistantMessage(piece)
        if isinstance(piece, Call):
            call_id = piece.call_id or f"call_{next(self._call_numbers)}"
            return FunctionCall(call_id, piece.name, arguments_text(piece.arguments))
        return piece
