"""Ends a run when its limits of requests, tokens or cost are reached.

A budget holds for one run: one cell, one `Agent.run`. It is checked before each request, so the
request that exceeds it is finished, with its tool calls; then one more request, without tools, asks
for a summary. A run exceeds its budget by two requests at most.

The budgets of a sub-agent are hard: a request is made only where another one as large, for the
summary, still fits. So they are exceeded at most by what one answer is longer than the last.
"""

from agent_magics.dispatch.context import Emit
from agent_magics.engine.cost import Spending
from agent_magics.models.providers.catalog import dollars
from agent_magics.protocol.config import RunConfig
from agent_magics.protocol.events import TokensCounted, Warned
from agent_magics.protocol.items import Usage
from agent_magics.text.brief import number_of

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
    """The budgets of one run, and what it has spent.

    Args:
        config: the settings with the limits.
        emit: gets what is spent, and a warning where a budget cannot be enforced.
        hard: whether the request for a summary must fit as well.

    Attributes:
        spending: the tokens and the cost of all requests.
        option: the budget that was reached ("max_turns"), "" before.
        reached: the same with its limit ("max_turns=3").
    """

    def __init__(self, config: RunConfig, emit: Emit, *, hard: bool = False) -> None:
        self._config, self._emit = config, emit
        self.spending = Spending()
        self._kept = int(hard)  # requests that are kept back, for the summary
        self._warned = False
        self.option = ""
        self.reached = ""
        self._spent = ""

    def add(self, model: str, usage: Usage) -> None:
        """Add a request of the run."""
        self._take(self.spending.add(model, usage), usage)

    def include(self, model: str, usage: Usage) -> None:
        """Add a request of a sub-agent, which counts against the budgets, too."""
        self._take(self.spending.include(model, usage), usage)

    def _take(self, spending: Spending, usage: Usage) -> None:
        self.spending = spending
        self._emit(TokensCounted, request=usage, turn=spending.usage, cost=spending.cost)
        limit, total = self._config.max_tokens, spending.usage
        if limit is None or total.input_tokens or total.output_tokens or self._warned:
            return
        self._warned = True
        self._emit(Warned, message=NOT_COUNTED.format(limit=limit))

    def is_used_up(self, requests: int) -> bool:
        """Return whether a budget is reached, so that only the request for a summary is allowed.

        Args:
            requests: the number of requests made, without those that shorten the conversation.
        """
        if requests + self._kept >= self._config.max_turns:
            count = number_of(requests, "request")
            return self._end("max_turns", self._config.max_turns, f"{count} to the model")
        return self.is_spent(room_for=2 * self._kept)

    def is_spent(self, *, room_for: int = 0) -> bool:
        """Return whether the tokens or the cost are used up.

        Args:
            room_for: the number of further requests, as large as the last, that must fit.
        """
        config, spending, usage = self._config, self.spending, self.spending.usage
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

    def has_no_summary(self) -> bool:
        """Return whether a hard budget has no room for the summary."""
        return bool(self._kept) and self.is_spent(room_for=1)

    def fill(self, sentence: str, reason: str = "") -> str:
        """Return one of the sentences above, filled in."""
        return sentence.format(
            budget=self.reached, option=self.option, spent=self._spent, reason=reason
        )

    def _end(self, option: str, limit: float, spent: str) -> bool:
        self.option, self.reached, self._spent = option, f"{option}={limit}", spent
        return True
