"""Tracks how full the model's context is: a provider's last count, and an estimate of the rest."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from agent_magics.engine.context.history import History
from agent_magics.engine.context.tokens import count_item, exact_counter, guess_text
from agent_magics.engine.instructions import compose_instructions
from agent_magics.models.providers.catalog import find_model
from agent_magics.protocol.config import RunConfig
from agent_magics.protocol.items import Item, Usage
from agent_magics.protocol.records import ContextCounted

# The assumed context window of an unknown model; most have at least this much.
DEFAULT_WINDOW = 128_000
# Room for the answer where the model's longest one is not known.
DEFAULT_ANSWER = 16_384
# The share of the remaining window that may be filled, with a margin for wrong estimates.
FILLED = 0.9
# From this share of the limit on, tokens are counted exactly.
NEAR = 0.8
# After an attempt to shorten, this share of the limit must be new before the next one.
STEP = 0.1


@dataclass(frozen=True, slots=True)
class ContextLimit:
    """The number of tokens at which a conversation is shortened.

    Attributes:
        tokens: the limit.
        window: the context window that it is computed from.
        known: False where the window is only the default.
    """

    tokens: int
    window: int
    known: bool


@lru_cache(maxsize=64)
def limit_of(model: str, window: int | None = None) -> ContextLimit:
    """Return the limit of `model`; `window`, if given, replaces the catalogue's value."""
    card = find_model(model)
    known = window or (card.context_window if card is not None else None)
    size = known or DEFAULT_WINDOW
    answer = (card.max_output if card is not None else None) or DEFAULT_ANSWER
    # Some models' longest answers would leave no room for the conversation.
    room = size - min(answer, size // 3)
    return ContextLimit(int(room * FILLED), size, known is not None)


class ContextMeter:
    """Measures one conversation, in time that does not grow with its length.

    Attributes:
        default_warned: whether the person was warned that the window is only assumed.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self.default_warned = False
        self._held_at: ContextLimit | None = None  # for which `_hold` was set
        self.reset()

    def reset(self) -> None:
        """Estimate the whole conversation anew: nobody has counted what is sent of it now."""
        self._counted = 0  # by the provider, up to its last answer
        self._from = 0  # the first item that it has not counted
        self._guessed = 0  # estimated since then
        self._upto = 0  # the first item that was not guessed either
        self._exact = False
        self._hold = 0

    def measure(self, usage: Usage) -> None:
        """Set the provider's count, which includes the answer that the history now ends with."""
        if not usage.input_tokens:
            return  # some servers report no tokens
        self._take(usage.input_tokens + usage.output_tokens)

    def tokens(self, config: RunConfig) -> int:
        """Estimate the tokens of the next request."""
        self._guess_new(config)
        return self._counted + self._guessed

    def wants_count(self, config: RunConfig) -> bool:
        """Return whether the limit is so near that `count_exactly` is worth its time."""
        return not self._exact and self.tokens(config) >= NEAR * self.limit(config).tokens

    def count_exactly(self, model: str) -> None:
        """Replace estimates by tiktoken's counts, if available; the first time takes a second."""
        self._exact = True
        count = exact_counter(model)
        if count is None:
            return
        history = self._history
        guessed = history.items[self._from : self._upto] if self._from else history.sent
        self._guessed += sum(count_item(item, count) - count_item(item) for item in guessed)

    def _guess_new(self, config: RunConfig) -> None:
        items = self._history.items
        new: Sequence[Item] = items[self._upto :]
        if self._upto == 0 and items:
            self._guessed = guess_text(compose_instructions(config))
            new = self._history.sent  # what was left out of it is among the items, too
        count = (exact_counter(config.model) if self._exact else None) or guess_text
        self._guessed += sum(count_item(item, count) for item in new)
        self._upto = len(items)

    def limit(self, config: RunConfig) -> ContextLimit:
        """Return the limit for `config`."""
        return limit_of(config.model, config.context_window)

    def is_full(self, config: RunConfig) -> bool:
        """Return whether the conversation is to be shortened before the next request."""
        limit = self.limit(config)
        hold = self._hold if self._held_at in (None, limit) else 0  # another model's means nothing
        return self.tokens(config) >= max(limit.tokens, min(hold, limit.window))

    def set(self, tokens: int, config: RunConfig) -> None:
        """Set the count of the conversation as it is now sent.

        It counts as full again only after it has grown by a share of the limit, so that a
        conversation that cannot be shortened is not tried at each request; or where it would
        reach the window, beyond which some servers leave the beginning out without a word.
        """
        self._held_at = self.limit(config)
        self._hold = tokens + int(self._held_at.tokens * STEP)
        self._take(tokens)

    def _take(self, tokens: int) -> None:
        self.count(ContextCounted(tokens=tokens, hold=self._hold))
        self._history.keep(ContextCounted(tokens=tokens, hold=self._hold))

    def count(self, counted: ContextCounted) -> None:
        """Set the count of the present history, as read from a record."""
        self._counted, self._hold = counted.tokens, counted.hold
        self._from = self._upto = len(self._history.items)
        self._guessed, self._exact = 0, False
