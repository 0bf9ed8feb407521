"""Ends a run when its limits of requests, tokens or cost are reached.

A budget holds for one run: one cell, one `Agent.run`. It is checked before each request, so the
request that exceeds it is finished, with its tool calls; then one more request, without tools, asks
for a summary. A run exceeds its budget by two requests at most.

The budgets of a sub-agent are hard: a request is made only where another one as large, for the
summary, still fits. So they are exceeded at most by what one answer is longer than the last.
"""

from agent_magics.engine.cost import Spending
from agent_magics.models.providers.catalog import dollars
from agent_magics.protocol.brief import number_of
from agent_magics.protocol.config import RunConfig

SUMMARY = (
    "This run has reached its budget ({budget}), so no tools can be called any more. Answer now, "
    "in at most 150 words, with a summary for the person: what was done, what was found, and what "
    "is left to do. This holds for this answer alone; afterwards the person may ask you to go on."
)
REACHED = (
    "Stopped at {budget}, after {spent} in this run; what was done stands. Run again to go on, or "
    "raise {option}."
)
NO_SUMMARY = "The model gave no summary{reason}."
NO_VALUE = "There is no value: {budget} ended the run before the model's answer."
NOT_CALLED = "Not run: the budget of this run is used up ({budget})."
NOT_COUNTED = "The server reports no tokens, so max_tokens={limit} cannot be kept."


class Budget:
    """The budgets of one run.

    Args:
        config: the settings with the limits.
        hard: whether the request for a summary must fit as well.

    Attributes:
        option: the budget that was reached ("max_turns"), "" before.
        reached: the same with its limit ("max_turns=3").
    """

    def __init__(self, config: RunConfig, *, hard: bool = False) -> None:
        self._config = config
        self._kept = int(hard)  # requests that are kept back, for the summary
        self._warned = False
        self.option = ""
        self.reached = ""
        self._spent = ""

    def is_used_up(self, requests: int, spending: Spending) -> bool:
        """Return whether a budget is reached, so that only the request for a summary is allowed.

        Args:
            requests: the number of requests made, without those that shorten the conversation.
            spending: the tokens and the cost of all of them.
        """
        if requests + self._kept >= self._config.max_turns:
            count = number_of(requests, "request")
            return self._end("max_turns", self._config.max_turns, f"{count} to the model")
        return self.is_spent(spending, room_for=2 * self._kept)

    def is_spent(self, spending: Spending, *, room_for: int = 0) -> bool:
        """Return whether the tokens or the cost are used up.

        Args:
            spending: the tokens and the cost of all requests.
            room_for: the number of further requests, as large as the last, that must fit.
        """
        config, usage = self._config, spending.usage
        tokens = usage.input_tokens + usage.output_tokens
        coming = room_for * spending.last_input
        if config.max_tokens is not None and tokens + coming >= config.max_tokens:
            return self._end("max_tokens", config.max_tokens, f"{tokens:,} tokens")
        if config.max_cost is None or not spending.requests:
            return False
        if spending.cost is None:
            return self._end("max_cost", config.max_cost, "a request whose cost is not known")
        if spending.cost * (1 + room_for / spending.requests) >= config.max_cost:
            return self._end("max_cost", config.max_cost, dollars(spending.cost))
        return False

    def has_no_summary(self, spending: Spending) -> bool:
        """Return whether a hard budget has no room for the summary."""
        return bool(self._kept) and self.is_spent(spending, room_for=1)

    def warning(self, spending: Spending) -> str:
        """Return once a warning that a budget cannot be enforced; else ""."""
        uncounted = spending.requests and not (
            spending.usage.input_tokens or spending.usage.output_tokens
        )
        if self._config.max_tokens is None or not uncounted or self._warned:
            return ""
        self._warned = True
        return NOT_COUNTED.format(limit=self._config.max_tokens)

    def fill(self, sentence: str, reason: str = "") -> str:
        """Return one of the sentences above, filled in."""
        return sentence.format(
            budget=self.reached, option=self.option, spent=self._spent, reason=reason
        )

    def _end(self, option: str, limit: float, spent: str) -> bool:
        self.option, self.reached, self._spent = option, f"{option}={limit}", spent
        return True
