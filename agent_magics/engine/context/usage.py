"""How full the model's context is: the provider's last count, and a guess of what came since."""

from dataclasses import dataclass
from functools import lru_cache

from agent_magics.engine.history import History
from agent_magics.engine.tokens import count_item, exact_counter, guess_text
from agent_magics.models.catalog import find_model
from agent_magics.protocol.config import RunConfig
from agent_magics.protocol.items import Usage

# The context of a model that nobody knows; most of today's have at least this much.
DEFAULT_WINDOW = 128_000
# Room for the answer where the model's longest one is not known.
DEFAULT_ANSWER = 16_384
# The share of what is left that may be filled. The rest is for what the guess misses.
FILLED = 0.9
# From this share of the limit on it is worth to count exactly.
NEAR = 0.8
# After an attempt to shorten, this share of the limit must be new before the next one.
STEP = 0.1


@dataclass(frozen=True, slots=True)
class ContextLimit:
    """At how many tokens a conversation is shortened.

    Attributes:
        tokens: the limit.
        window: the context window it comes from.
        known: False where the window is only the default.
    """

    tokens: int
    window: int
    known: bool


@lru_cache(maxsize=64)
def limit_of(model: str, window: int | None = None) -> ContextLimit:
    """Return the limit of `model`; `window`, if given, holds instead of what is known of it."""
    card = find_model(model)
    known = window or (card.context_window if card is not None else None)
    size = known or DEFAULT_WINDOW
    answer = (card.max_output if card is not None else None) or DEFAULT_ANSWER
    # Some models may answer at a length that would leave no room to ask.
    room = size - min(answer, size // 3)
    return ContextLimit(int(room * FILLED), size, known is not None)


class ContextMeter:
    """Measures one conversation; what a request costs here does not grow with its length.

    Attributes:
        default_said: the person knows that the model's context is only assumed.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self.default_said = False
        self.reset()

    def reset(self) -> None:
        """Begin with an empty conversation."""
        self._counted = 0  # by the provider, up to its last answer
        self._from = 0  # the first item that it has not counted
        self._guessed = 0  # since then
        self._upto = 0  # the first item that was not guessed either
        self._exact = False
        self._hold = 0

    def measure(self, usage: Usage) -> None:
        """Take the provider's count of the answer that the history now ends with."""
        if not usage.input_tokens:
            return  # some servers do not count
        self._counted = usage.input_tokens + usage.output_tokens
        self._from = self._upto = len(self._history.items)
        self._guessed, self._exact = 0, False

    def tokens(self, config: RunConfig) -> int:
        """Return how many tokens the next request has, as far as one can know."""
        self._guess_new(config)
        return self._counted + self._guessed

    def wants_count(self, config: RunConfig) -> bool:
        """Return whether the limit is so near that `count_exactly` is worth its time."""
        return not self._exact and self.tokens(config) >= NEAR * self.limit(config).tokens

    def count_exactly(self, model: str) -> None:
        """Count what was only guessed, where there is a way to; the first time takes a second."""
        self._exact = True
        count = exact_counter(model)
        if count is None:
            return
        items = self._history.items
        for place in range(self._from, self._upto):
            self._guessed += count_item(items[place], count) - count_item(items[place])

    def _guess_new(self, config: RunConfig) -> None:
        items = self._history.items
        if self._upto == 0 and items:
            self._guessed = guess_text(config.instructions)
        count = (exact_counter(config.model) if self._exact else None) or guess_text
        while self._upto < len(items):
            self._guessed += count_item(items[self._upto], count)
            self._upto += 1

    def limit(self, config: RunConfig) -> ContextLimit:
        """Return the limit that holds for `config`."""
        return limit_of(config.model, config.context_window)

    def is_full(self, config: RunConfig) -> bool:
        """Return whether the conversation is to be shortened before the next request."""
        return self.tokens(config) >= max(self.limit(config).tokens, self._hold)

    def set(self, tokens: int, config: RunConfig) -> None:
        """Take `tokens` as the count of the conversation as it is now sent.

        Until a good deal more has come it is not full again: what could not be made shorter is not
        tried at each request.
        """
        self._counted, self._guessed, self._exact = tokens, 0, False
        self._from = self._upto = len(self._history.items)
        self._hold = tokens + int(self.limit(config).tokens * STEP)
