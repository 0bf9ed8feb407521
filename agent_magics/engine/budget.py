"""When a run has had enough, and what the model is asked for then.

A budget holds for one run: one cell, one `Agent.run`. It is looked at before each request, so the
request that goes over it is finished, with its tool calls; then one more request, without tools,
asks for a summary. That is the margin: two requests at most.
"""

from agent_magics.engine.bill import Bill
from agent_magics.models.catalog import dollars
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

    Attributes:
        option: the one that was reached ("max_turns"), "" before.
        reached: the same with its limit ("max_turns=3").
    """

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._warned = False
        self.option = ""
        self.reached = ""
        self._spent = ""

    def is_used_up(self, requests: int, bill: Bill) -> bool:
        """Return whether the run may make no further request for its own ends.

        Args:
            requests: how many it has made; those that only shorten the conversation do not count.
            bill: what all of them took.
        """
        config, usage = self._config, bill.usage
        tokens = usage.input_tokens + usage.output_tokens
        if requests >= config.max_turns:
            count = "1 request" if requests == 1 else f"{requests} requests"
            return self._end("max_turns", config.max_turns, f"{count} to the model")
        if config.max_tokens is not None and tokens >= config.max_tokens:
            return self._end("max_tokens", config.max_tokens, f"{tokens:,} tokens")
        if config.max_cost is None or not bill.requests:
            return False
        if bill.cost is None:
            return self._end("max_cost", config.max_cost, "a request whose cost is not known")
        if bill.cost >= config.max_cost:
            return self._end("max_cost", config.max_cost, dollars(bill.cost))
        return False

    def warning(self, bill: Bill) -> str:
        """Return, once, what keeps a budget from being kept; else ""."""
        uncounted = bill.requests and not (bill.usage.input_tokens or bill.usage.output_tokens)
        if self._config.max_tokens is None or not uncounted or self._warned:
            return ""
        self._warned = True
        return NOT_COUNTED.format(limit=self._config.max_tokens)

    def told(self, sentence: str, reason: str = "") -> str:
        """Return one of the sentences above, filled in."""
        return sentence.format(
            budget=self.reached, option=self.option, spent=self._spent, reason=reason
        )

    def _end(self, option: str, limit: float, spent: str) -> bool:
        self.option, self.reached, self._spent = option, f"{option}={limit}", spent
        return True
