"""When and how what is sent becomes shorter: old outputs first, then a summary by the model."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from agent_magics.dispatch.context import TurnContext
from agent_magics.dispatch.pool import POOL
from agent_magics.engine.compaction import (
    INSTRUCTIONS,
    Parts,
    Record,
    replacement,
    shorten_text,
    split,
    write_record,
)
from agent_magics.engine.history import History
from agent_magics.engine.meter import ContextMeter
from agent_magics.engine.pruning import prune
from agent_magics.engine.tokens import count_items, guess_text
from agent_magics.models.base import (
    ContextOverflow,
    ItemDone,
    Model,
    ModelRequest,
    Notice,
    ResponseDone,
    RetryWait,
)
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.events import HistoryCompacted, ModelRetry, PlanStep, Warned
from agent_magics.protocol.items import AssistantMessage, Item, Usage, UserMessage

# Shares of the limit. Pruning alone is enough when it brings the conversation below the first.
ENOUGH = 0.7
KEPT_OUTPUTS = 0.3
KEPT_STEPS = 0.25
KEPT_WORDS = 0.25
LONGEST_SUMMARY = 0.2
# Tokens: the most of each, however long the model's context is.
MOST_OUTPUTS, MOST_STEPS, MOST_WORDS, MOST_SUMMARY = 40_000, 20_000, 20_000, 10_000

# Of a conversation that was refused: what the provider may take.
BELOW_REFUSED = 0.9

# How often a summary is asked for when the record itself is too long, each time with half of it.
TRIES = 3

# What a recording finds these requests by; no prompt of a person begins so.
PROMPT = "[summary of the conversation]"

NOTHING_OLD = "there is nothing old enough to be replaced"


class _Failed(Exception):
    """Why the conversation was left as it is, without a full stop."""


@dataclass(frozen=True, slots=True)
class _Shorter:
    """What is to be sent from now on."""

    items: list[Item]
    pruned: int = 0
    summary: str = ""


class Shortening:
    """Makes room in one turn's conversation.

    Args:
        context: of the turn.
        model: who writes summaries.
        history: the conversation.
        meter: how full the model's context is.
        plan: returns the plan as it stands.
        prepare: lets hooks see a request for a summary, and change it.
        spent: is told the tokens of each summary.
    """

    def __init__(
        self,
        context: TurnContext,
        model: Model,
        history: History,
        meter: ContextMeter,
        *,
        plan: Callable[[], Sequence[PlanStep]],
        prepare: Callable[[ModelRequest], Awaitable[ModelRequest]],
        spent: Callable[[Usage], None],
    ) -> None:
        self._context = context
        self._model = model
        self._history = history
        self._meter = meter
        self._plan = plan
        self._prepare = prepare
        self._spent = spent
        self._asked = 0
        self._refused = 0  # tokens that were too many for the provider

    async def make_room(self, prompt: str) -> None:
        """Shorten what is sent where it has become too long; where that fails, say so and go on."""
        config = self._context.config
        if self._meter.wants_count(config):
            # On another thread: loading an encoding takes longer than the loop may stand still.
            await asyncio.wrap_future(POOL.submit(self._meter.count_exactly, config.model))
        if not self._meter.is_full(config):
            return
        self._say_default()
        try:
            self._apply(self._prune_enough() or await self._replace_old(prompt))
        except (_Failed, FatalError) as failure:
            self._meter.set(self._meter.tokens(config), config)
            self._warn(f"The conversation is long and could not be shortened: {_clause(failure)}.")

    async def recover(self, prompt: str, overflow: ContextOverflow) -> None:
        """Shorten a conversation that the provider has just refused as too long.

        Raises:
            FatalError: there is nothing that could be left out, or it did not work.
        """
        self._refused = self._meter.tokens(self._context.config)
        try:
            self._apply(await self._replace_old(prompt))
        except (_Failed, FatalError) as failure:
            pruned = self._pruned(self._history.sent, self._limit // 4, unread=True)
            if not pruned.pruned:
                raise FatalError(
                    f"{overflow} It could not be shortened: {_clause(failure)}."
                ) from None
            self._apply(pruned)
            self._warn(f"No summary could be made of the conversation: {_clause(failure)}.")

    async def compact(self) -> None:
        """Replace all there is by a summary, because the person wants it.

        Raises:
            FatalError: why not; the conversation is then as it was.
        """
        try:
            self._apply(await self._replace_old("", kept=0))
        except _Failed as failure:
            raise FatalError(f"Not shortened, and nothing was lost: {failure}.") from None

    # -- the two ways -----------------------------------------------------------------------------

    def _prune_enough(self) -> _Shorter | None:
        """Return the conversation without old outputs, if that is worth its price.

        It is not for a little: what the provider has cached of the conversation is lost with it.
        """
        items, limit = self._history.sent, self._limit
        kept = min(MOST_OUTPUTS, int(KEPT_OUTPUTS * limit))
        tried = prune(items, kept, lambda text: "@r0")  # without keeping anything
        if not tried.count or self._tokens_of(tried.items) > ENOUGH * limit:
            return None
        return self._pruned(items, kept)

    def _pruned(self, items: Sequence[Item], kept: int, *, unread: bool = False) -> _Shorter:
        pruned = prune(items, kept, self._context.handles.keep, unread=unread)
        return _Shorter(pruned.items, pruned.count)

    async def _replace_old(self, prompt: str, kept: int | None = None) -> _Shorter:
        limit = self._limit
        if kept is None:
            # At most half of what there is, should the provider count more than we guess.
            half = count_items(self._history.sent) // 2
            kept = min(MOST_STEPS, int(KEPT_STEPS * limit), half) or 1
        parts = split(self._history.sent, kept)
        recent = parts.recent
        pruned = 0
        if count_items(recent) > limit // 2:
            # The last step alone is too long; the rest of it can be read piece by piece.
            shorter = self._pruned(recent, limit // 4, unread=True)
            recent, pruned = shorter.items, shorter.pruned
        if not self._is_worth_it(parts.old):
            if pruned:
                return _Shorter([*parts.old, *recent], pruned)
            raise _Failed(NOTHING_OLD)
        summary = await self._summarise(prompt, parts.old)
        words = min(MOST_WORDS, int(KEPT_WORDS * limit))
        sessions = [] if self._context.processes is None else self._context.processes.sessions()
        items = replacement(
            Parts(parts.old, recent),
            summary,
            words,
            self._plan(),
            [session for session in sessions if not session.ended],
        )
        if count_items(items) >= count_items(self._history.sent):
            raise _Failed("a summary would not have been shorter")
        return _Shorter(items, pruned, summary)

    def _is_worth_it(self, old: Sequence[Item]) -> bool:
        """Return whether a summary would replace more than an earlier one and what it kept."""
        has_steps = any(not isinstance(item, UserMessage) for item in old)
        return has_steps or count_items(old) > self._limit // 2

    # -- asking for a summary ---------------------------------------------------------------------

    async def _summarise(self, prompt: str, old: Sequence[Item]) -> str:
        self._asked += 1
        room = self._limit - guess_text(INSTRUCTIONS)
        for attempt in range(TRIES):
            text = write_record(old, room >> attempt)
            try:
                summary = await self._ask(f"{PROMPT} {prompt}".strip(), text)
            except ContextOverflow:
                continue
            if not summary.strip():
                raise _Failed("the model's summary was empty")
            return shorten_text(summary, min(MOST_SUMMARY, int(LONGEST_SUMMARY * self._limit)))
        raise _Failed("its record is too long for the model, too")

    async def _ask(self, prompt: str, text: str) -> str:
        """Ask once; nothing of the answer is shown or kept but its text."""
        request = ModelRequest(
            model=self._context.config.model,
            instructions=INSTRUCTIONS,
            history=Record(self._history.items, text),
            tools=(),
            prompt=prompt,
            number=self._asked,
            conversation=self._context.session_id,
        )
        request = await self._prepare(request)
        emit, said = self._context.emit, list[str]()
        async with aclosing(self._model.stream(request)) as events:
            async for event in events:
                match event:
                    case ItemDone(AssistantMessage(text=words)):
                        said.append(words)
                    case RetryWait(reason, attempt, delay, tries):
                        emit(ModelRetry, reason=reason, attempt=attempt, delay=delay, tries=tries)
                    case Notice(message):
                        self._warn(message)
                    case ResponseDone(usage):
                        self._spent(usage)
        return "\n\n".join(said)

    # -- doing it ---------------------------------------------------------------------------------

    @property
    def _limit(self) -> int:
        """How many tokens there may be, by the model's context or by what was refused of it."""
        limit = self._meter.limit(self._context.config).tokens
        return min(limit, int(self._refused * BELOW_REFUSED)) if self._refused else limit

    def _tokens_of(self, items: Sequence[Item]) -> int:
        """Return the tokens of a request with `items`, by what one with the present ones has."""
        frame = self._meter.tokens(self._context.config) - count_items(self._history.sent)
        return max(frame, 0) + count_items(items)

    def _apply(self, shorter: _Shorter) -> None:
        """Send this from now on."""
        before, after = self._history.sent, shorter.items
        tokens = self._meter.tokens(self._context.config), self._tokens_of(after)
        self._history.shorten(after, len(self._history.items))
        self._meter.set(tokens[1], self._context.config)
        self._context.emit(
            HistoryCompacted,
            items_before=len(before),
            items_after=len(after),
            tokens_before=tokens[0],
            tokens_after=tokens[1],
            pruned=shorter.pruned,
            summary=shorter.summary,
        )

    def _say_default(self) -> None:
        limit = self._meter.limit(self._context.config)
        if limit.known or self._meter.default_said:
            return
        self._meter.default_said = True
        self._warn(
            f"How much {self._context.config.model} can read is not known; {limit.window:,} tokens "
            "are taken. context_window=... says it."
        )

    def _warn(self, message: str) -> None:
        self._context.emit(Warned, message=message)


def _clause(failure: Exception) -> str:
    """Return a sentence as a part of another one."""
    return str(failure).rstrip(".")
