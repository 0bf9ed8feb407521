"""Compacts a conversation: prunes old outputs first, then has the model write a summary."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

from agent_magics.dispatch.context import TurnContext
from agent_magics.dispatch.pool import POOL
from agent_magics.dispatch.results.stored import Origin
from agent_magics.engine.context.history import History
from agent_magics.engine.context.pruning import prune
from agent_magics.engine.context.summary import (
    INSTRUCTIONS,
    SplitConversation,
    SummaryHistory,
    replacement,
    shorten_text,
    split,
    write_record,
)
from agent_magics.engine.context.tokens import count_items, guess_text
from agent_magics.engine.context.usage import ContextMeter
from agent_magics.models.base import (
    ContextOverflow,
    ItemDone,
    Model,
    ModelRequest,
    Notice,
    ResponseDone,
    RetryWait,
)
from agent_magics.protocol.errors import FatalError, clause
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

# The share of a refused conversation's tokens that the provider may accept.
BELOW_REFUSED = 0.9

# How often a summary is asked for when the record itself is too long, each time with half of it.
TRIES = 3

# Identifies these requests in a recording; no prompt of a person begins so.
PROMPT = "[summary of the conversation]"

NOTHING_OLD = "there is nothing old enough to be replaced"


class _CompactionFailed(Exception):
    """A compaction failed and the conversation is unchanged; the message has no full stop."""


@dataclass(frozen=True, slots=True)
class _Shorter:
    """The result of a compaction: the items to send from now on."""

    items: list[Item]
    pruned: int = 0
    summary: str = ""


class Compaction:
    """Shortens one turn's conversation when the model's context is full.

    Args:
        context: the turn's context.
        model: the client that writes summaries.
        history: the conversation.
        meter: measures how full the model's context is.
        plan: returns the present plan.
        prepare: lets hooks see and change a request for a summary.
        spent: called with the usage of each summary.
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
        """Shorten the conversation where it is too long; where that fails, warn and go on."""
        config = self._context.config
        if self._meter.wants_count(config):
            # On another thread: loading an encoding would block the loop for too long.
            await asyncio.wrap_future(POOL.submit(self._meter.count_exactly, config.model))
        if not self._meter.is_full(config):
            return
        self._warn_of_default()
        try:
            self._apply(self._prune_enough() or await self._replace_old(prompt))
        except (_CompactionFailed, FatalError) as failure:
            self._meter.set(self._meter.tokens(config), config)
            self._warn(f"The conversation is long and could not be shortened: {clause(failure)}.")

    async def recover(self, prompt: str, overflow: ContextOverflow) -> None:
        """Shorten a conversation that the provider has just refused as too long.

        Raises:
            FatalError: nothing can be left out, or the compaction failed.
        """
        self._refused = self._meter.tokens(self._context.config)
        try:
            self._apply(await self._replace_old(prompt))
        except (_CompactionFailed, FatalError) as failure:
            pruned = self._pruned(self._history.sent, self._limit // 4, unread=True)
            if not pruned.pruned:
                raise FatalError(
                    f"{overflow} It could not be shortened: {clause(failure)}."
                ) from None
            self._apply(pruned)
            self._warn(f"No summary could be made of the conversation: {clause(failure)}.")

    async def compact(self) -> None:
        """Replace the whole conversation by a summary, on the person's demand.

        Raises:
            FatalError: why it failed; the conversation is unchanged.
        """
        try:
            self._apply(await self._replace_old("", kept=0))
        except _CompactionFailed as failure:
            raise FatalError(f"Not shortened, and nothing was lost: {clause(failure)}.") from None

    # -- the two ways -----------------------------------------------------------------------------

    def _prune_enough(self) -> _Shorter | None:
        """Return the conversation without old outputs, if that makes it short enough.

        Pruning a little is not worth it, since the provider's cache of the conversation is lost.
        """
        items, limit = self._history.sent, self._limit
        kept = min(MOST_OUTPUTS, int(KEPT_OUTPUTS * limit))
        tried = prune(items, kept, lambda text: "@r0")  # without keeping anything
        if not tried.count or self._tokens_of(tried.items) > ENOUGH * limit:
            return None
        return self._pruned(items, kept)

    def _pruned(self, items: Sequence[Item], kept: int, *, unread: bool = False) -> _Shorter:
        # Which call read what is not known any more.
        origin = Origin((f"{self._context.config.cwd}/",))
        keep = partial(self._context.handles.keep, origin=origin)
        pruned = prune(items, kept, keep, unread=unread)
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
            raise _CompactionFailed(NOTHING_OLD)
        summary = await self._summarise(prompt, parts.old)
        words = min(MOST_WORDS, int(KEPT_WORDS * limit))
        sessions = [] if self._context.processes is None else self._context.processes.sessions()
        items = replacement(
            SplitConversation(parts.old, recent),
            summary,
            words,
            self._plan(),
            [session for session in sessions if not session.ended],
        )
        if count_items(items) >= count_items(self._history.sent):
            raise _CompactionFailed("a summary would not have been shorter")
        return _Shorter(items, pruned, summary)

    def _is_worth_it(self, old: Sequence[Item]) -> bool:
        """Return whether a summary would replace more than an earlier summary and what it kept."""
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
                raise _CompactionFailed("the model's summary was empty")
            return shorten_text(summary, min(MOST_SUMMARY, int(LONGEST_SUMMARY * self._limit)))
        raise _CompactionFailed("its record is too long for the model, too")

    async def _ask(self, prompt: str, text: str) -> str:
        """Request a summary; only the text of the answer is used, and nothing of it is shown."""
        request = ModelRequest(
            model=self._context.config.model,
            instructions=INSTRUCTIONS,
            history=SummaryHistory(self._history.items, text),
            tools=(),
            prompt=prompt,
            number=self._asked,
            conversation=self._context.session_id,
            turn=self._context.turn_id,
        )
        request = await self._prepare(request)
        emit, texts = self._context.emit, list[str]()
        async with aclosing(self._model.stream(request)) as events:
            async for event in events:
                match event:
                    case ItemDone(AssistantMessage(text=words)):
                        texts.append(words)
                    case RetryWait(reason, attempt, delay, tries):
                        emit(ModelRetry, reason=reason, attempt=attempt, delay=delay, tries=tries)
                    case Notice(message):
                        self._warn(message)
                    case ResponseDone(usage):
                        self._spent(usage)
        return "\n\n".join(texts)

    # -- doing it ---------------------------------------------------------------------------------

    @property
    def _limit(self) -> int:
        """The most tokens: by the model's context, or less than the refused conversation had."""
        limit = self._meter.limit(self._context.config).tokens
        return min(limit, int(self._refused * BELOW_REFUSED)) if self._refused else limit

    def _tokens_of(self, items: Sequence[Item]) -> int:
        """Estimate the tokens of a request with `items` from those of the present request."""
        frame = self._meter.tokens(self._context.config) - count_items(self._history.sent)
        return max(frame, 0) + count_items(items)

    def _apply(self, shorter: _Shorter) -> None:
        """Send the shorter conversation from now on, and emit the event about it."""
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

    def _warn_of_default(self) -> None:
        limit = self._meter.limit(self._context.config)
        if limit.known or self._meter.default_warned:
            return
        self._meter.default_warned = True
        self._warn(
            f"How much {self._context.config.model} can read is not known; {limit.window:,} tokens "
            "are taken. context_window=... says it."
        )

    def _warn(self, message: str) -> None:
        self._context.emit(Warned, message=message)
