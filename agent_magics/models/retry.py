"""Asking again: after which waits, how often, and without showing anybody the same text twice."""

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
from agent_magics.protocol.items import (
    CALL_TYPES,
    AssistantMessage,
    Reasoning,
    WebSearchCall,
)

CAME_OUT_DIFFERENTLY = (
    "The answer was cut off, and came out differently when it was asked for again; "
    "the new one follows as a whole."
)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a request is made, and what is waited in between.

    Attributes:
        tries: requests altogether.
        first_delay: seconds before the second one; doubled each time.
        longest_delay: the doubling ends here.
        longest_asked: a server that asks for a longer wait than this is not waited for.
        wait: waits the given seconds; a test puts its own here.
        chance: a random number from 0 to 1, which keeps many clients from coming at once.
    """

    tries: int = 6
    first_delay: float = 0.5
    longest_delay: float = 30.0
    longest_asked: float = 120.0
    wait: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random

    def tries_for(self, fault: Fault) -> int:
        """Return how many requests are made altogether where each fails with `fault`."""
        return min(self.tries, fault.tries)

    def delay(self, attempt: int, fault: Fault) -> float | None:
        """Return the seconds to wait after request number `attempt` failed; None: give up."""
        if not fault.passing or attempt >= self.tries_for(fault):
            return None
        if fault.retry_after is not None:
            # A little later than asked for, never earlier.
            asked = fault.retry_after * (1 + 0.1 * self.chance())
            return asked if fault.retry_after <= self.longest_asked else None
        delay = min(self.first_delay * 2 ** (attempt - 1), self.longest_delay)
        return delay * (1 - 0.25 * self.chance())


async def stream_with_retries(
    ask: Callable[[], AsyncGenerator[ModelEvent, None]], policy: RetryPolicy
) -> AsyncGenerator[ModelEvent, None]:
    """Yield the events of ``ask()``, which is called again while its faults are passing ones.

    Raises:
        FatalError: what the last try raised.
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
                raise too_long(fault, policy) or fault from None
            wait = RetryWait(fault.reason, attempt, delay, policy.tries_for(fault))
        yield wait
        await policy.wait(delay)


def too_long(fault: Fault, policy: RetryPolicy) -> Fault | None:
    """Return the sentence for a server that asks for a wait nobody sits through, or None."""
    asked = fault.retry_after
    if not fault.passing or asked is None or asked <= policy.longest_asked:
        return None
    minutes = max(1, round(asked / 60))
    return Fault(f"{fault} It asks to wait about {minutes} minutes; run the cell again then.")


@dataclass(slots=True)
class Shown:
    """What has been given on of an answer, so that the same answer is not given on again.

    A repeated answer is compared with what was shown: as long as it says the same, only what is
    new goes through. Where it says something else, the text shown so far is ended as a message of
    its own (people have read it, so the conversation keeps it), a notice says why, and the new
    answer follows as a whole. Calls, and the reasoning that belongs to them, wait for the answer's
    end: a call of an answer that was cut off must not run beside those of the repeated one.
    """

    _messages: list[str] = field(default_factory=list)
    _text: str = ""
    _again: str = ""
    _number: int = 0
    _reasoned: bool = False
    _comparing: bool = False
    _waiting: list[ModelEvent] = field(default_factory=list)
    _belonging: list[ModelEvent] = field(default_factory=list)

    def begin(self) -> None:
        """A request is made (again)."""
        self._waiting.clear()
        self._belonging.clear()
        self._number = 0
        self._again = ""
        self._comparing = bool(self._messages or self._text or self._reasoned)

    def receive(self, event: ModelEvent) -> list[ModelEvent]:
        """Return what of `event` is to be given on now."""
        match event:
            case TextChunk(text):
                return self._receive_text(text)
            case ReasoningChunk():
                return self._receive_reasoning(event)
            case ItemDone(item):
                return self._receive_item(event, item)
            case ResponseDone():
                return [*self._missing(), *self._waiting, *self._belonging, event]
        return [event]

    def _receive_text(self, text: str) -> list[ModelEvent]:
        if not self._comparing:
            self._text += text
            return [TextChunk(text)]
        self._again += text
        return self._compare(whole=False)

    def _compare(self, *, whole: bool) -> list[ModelEvent]:
        """Go on comparing; `whole` says that the repeated message has no more text."""
        is_last = self._number == len(self._messages)
        expected = self._text if is_last else self._messages[self._number]
        again = self._again
        if again == expected or (not whole and expected.startswith(again)):
            return []
        if not is_last or not again.startswith(expected):
            return self._differ()
        self._comparing = False
        self._text = again
        new = again[len(expected) :]
        return [TextChunk(new)] if new else []

    def _differ(self) -> list[ModelEvent]:
        ended = [ItemDone(AssistantMessage(self._text))] if self._text else []
        self._messages, self._text, self._number = [], self._again, 0
        self._comparing = False
        new = [TextChunk(self._again)] if self._again else []
        return [*ended, Notice(CAME_OUT_DIFFERENTLY), *new]

    def _missing(self) -> list[ModelEvent]:
        """The repeated answer has ended, and some of what was shown did not come again."""
        missing = self._text or self._number < len(self._messages)
        return self._differ() if self._comparing and missing else []

    def _receive_reasoning(self, event: ReasoningChunk) -> list[ModelEvent]:
        """Reasoning comes out in other words each time; it is shown once."""
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
                self._number, self._again = self._number + 1, ""
                return []
            self._again = text
            before = self._compare(whole=True)
            self._comparing = False
        self._messages.append(text)
        self._number = len(self._messages)
        self._text = self._again = ""
        return [*before, *events]
