"""Retries failed requests with exponential back-off, without showing the same text twice."""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from agent_magics.models.base import (
    ItemDone,
    ModelEvent,
    Notice,
    ReasoningChunk,
    ResponseDone,
    RetryWait,
    TextChunk,
)
from agent_magics.models.faults import Fault
from agent_magics.protocol.errors import clause
from agent_magics.protocol.items import CALL_TYPES, AssistantMessage, Reasoning, WebSearchCall

CAME_OUT_DIFFERENTLY = (
    "The answer was cut off, and came out differently when it was asked for again; "
    "the new one follows as a whole."
)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Number of requests, and the waits between them.

    Attributes:
        tries: maximal number of requests.
        first_delay: seconds before the second request; doubled each time.
        longest_delay: upper limit of the doubled delay, in seconds.
        longest_asked: longest wait in seconds that a server may ask for; beyond it the request
            fails.
        wait: waits the given seconds; tests replace it.
        chance: returns a random number from 0 to 1 for jitter, so that many clients do not retry at
            once.
    """

    tries: int = 6
    first_delay: float = 0.5
    longest_delay: float = 30.0
    longest_asked: float = 120.0
    wait: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random

    def tries_for(self, fault: Fault) -> int:
        """Return the maximal number of requests if each fails with `fault`."""
        return min(self.tries, fault.tries)

    def delay(self, attempt: int, fault: Fault) -> float | None:
        """Return the seconds to wait after request number `attempt` failed; None means give up."""
        if not fault.passing or attempt >= self.tries_for(fault):
            return None
        if fault.retry_after:
            # Jitter only adds to the wait that the server asks for. One of 0 (or a date that has
            # passed) is allowed by RFC 9110, 10.2.3, but would use up all attempts at once.
            asked: float = fault.retry_after * (1 + 0.1 * self.chance())
            return asked if fault.retry_after <= self.longest_asked else None
        delay = min(self.first_delay * 2.0 ** (attempt - 1), self.longest_delay)
        return delay * (1 - 0.25 * self.chance())


async def stream_with_retries(
    ask: Callable[[], AsyncGenerator[ModelEvent, None]], policy: RetryPolicy
) -> AsyncGenerator[ModelEvent, None]:
    """Yield the events of ``ask()``, calling it again after transient errors.

    Raises:
        FatalError: the error of the last request.
    """
    attempt, shown = 0, Shown()
    while True:
        attempt += 1
        shown.begin()
        try:
            async with aclosing(ask()) as events:
                async for event in events:
                    for each in shown.receive(event):
                        yield each
            return
        except Fault as fault:
            delay = policy.delay(attempt, fault)
            if delay is None:
                raise too_long(fault, policy) or counted(fault, attempt) from None
            wait = RetryWait(fault.reason, attempt, delay, policy.tries_for(fault))
        yield wait
        await policy.wait(delay)


def counted(fault: Fault, tries: int) -> Fault:
    """Add the number of requests to an error's message, if there were several."""
    if tries > 1:
        fault.args = (f"{clause(fault)}. It was asked {tries} times.", *fault.args[1:])
    return fault


def too_long(fault: Fault, policy: RetryPolicy) -> Fault | None:
    """Return the error for a server that asks for a longer wait than the policy allows, or None."""
    asked = fault.retry_after
    if not fault.passing or asked is None or asked <= policy.longest_asked:
        return None
    minutes = max(1, round(asked / 60))
    return Fault(
        f"{clause(fault)}. It asks to wait about {minutes} minutes; run the cell again then."
    )


@dataclass(slots=True)
class Shown:
    """Removes from a repeated answer what was already emitted of the interrupted one.

    A repeated answer is compared with the emitted text: while they agree, only new text is emitted.
    Where they differ, the text so far is ended as a message of its own (people have read it, so the
    conversation keeps it), a notice says why, and the new answer follows as a whole. Calls, and the
    reasoning that belongs to them, are held back until the answer ends: a call of an interrupted
    answer must not run beside those of the repeated one.
    """

    _messages: list[str] = field(default_factory=list)
    _pieces: list[str] = field(default_factory=list)
    _number: int = 0
    _same: int = 0
    _reasoned: bool = False
    _comparing: bool = False
    _waiting: list[ModelEvent] = field(default_factory=list)
    _belonging: list[ModelEvent] = field(default_factory=list)
    _notices: set[Notice] = field(default_factory=set)

    @property
    def _text(self) -> str:
        """The emitted text of the message that has not ended."""
        self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    def begin(self) -> None:
        """Prepare for a request, the first or a repeated one."""
        self._waiting.clear()
        self._belonging.clear()
        self._number = self._same = 0
        self._comparing = bool(self._messages or self._text or self._reasoned)

    def receive(self, event: ModelEvent) -> list[ModelEvent]:
        """Return the events to emit now for a received `event`."""
        match event:
            case TextChunk(text):
                return self._receive_text(text)
            case ReasoningChunk():
                return self._receive_reasoning(event)
            case ItemDone(item):
                return self._receive_item(event, item)
            case ResponseDone():
                return [*self._missing(), *self._waiting, *self._belonging, event]
            case Notice():
                return self._receive_notice(event)
        return [event]

    def _receive_notice(self, notice: Notice) -> list[ModelEvent]:
        if notice in self._notices:
            return []
        self._notices.add(notice)
        return [notice]

    def _receive_text(self, text: str) -> list[ModelEvent]:
        if not self._comparing:
            self._pieces.append(text)
            return [TextChunk(text)]
        return self._compare(text, whole=False)

    def _compare(self, text: str, *, whole: bool) -> list[ModelEvent]:
        """Compare `text` with the emitted text, of which `_same` characters have matched so far.

        Args:
            text: the next part of the repeated message.
            whole: whether the message ends with it.
        """
        is_last = self._number == len(self._messages)
        expected = self._text if is_last else self._messages[self._number]
        rest = len(expected) - self._same
        if expected.startswith(text, self._same) and (len(text) == rest or not whole):
            self._same += len(text)
            return []
        if not is_last or not text.startswith(expected[self._same :]):
            return self._differ(expected[: self._same] + text)
        self._comparing = False
        self._pieces.append(text[rest:])
        return [TextChunk(text[rest:])]

    def _differ(self, again: str) -> list[ModelEvent]:
        ended = [ItemDone(AssistantMessage(self._text))] if self._text else []
        self._messages, self._pieces, self._number = [], [again], 0
        self._comparing = False
        new = [TextChunk(again)] if again else []
        return [*ended, Notice(CAME_OUT_DIFFERENTLY), *new]

    def _missing(self) -> list[ModelEvent]:
        """Return events for an answer that ended before repeating all emitted text."""
        is_last = self._number == len(self._messages)
        shown = self._text if is_last else self._messages[self._number]
        return self._differ(shown[: self._same]) if self._comparing and shown else []

    def _receive_reasoning(self, event: ReasoningChunk) -> list[ModelEvent]:
        """Emit reasoning of the first answer only; it is worded differently each time."""
        if self._comparing:
            return []
        self._reasoned = True
        return [event]

    def _receive_item(self, event: ItemDone, item: object) -> list[ModelEvent]:
        if isinstance(item, Reasoning | WebSearchCall):
            self._belonging.append(event)
            return []
        belonging, self._belonging = self._belonging, []
        if isinstance(item, CALL_TYPES):
            self._waiting += [*belonging, event]
            return []
        if isinstance(item, AssistantMessage):
            return self._receive_message(item.text, [*belonging, event])
        return [*belonging, event]

    def _receive_message(self, text: str, events: list[ModelEvent]) -> list[ModelEvent]:
        before: list[ModelEvent] = []
        if self._comparing:
            if self._number < len(self._messages) and text == self._messages[self._number]:
                self._number, self._same = self._number + 1, 0
                return []
            self._same = 0
            before = self._compare(text, whole=True)
            self._comparing = False
        self._messages.append(text)
        self._number = len(self._messages)
        self._pieces.clear()
        return [*before, *events]
