"""Sums the tokens that providers counted, and their cost."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from agent_magics.engine.context.tokens import count_item
from agent_magics.models.providers.catalog import find_model
from agent_magics.protocol.items import CALL_TYPES, Item, LocalShellCall, ToolCallOutput, Usage


@dataclass(frozen=True, slots=True)
class Spending:
    """The sum of the answered requests of a run or of a conversation.

    Attributes:
        requests: the number of answered requests.
        known_cost: USD of those whose cost is known.
        unpriced: models of other requests, whose price is not known.
        uncounted: requests whose tokens the server did not report.
        last_model: the model of the last request.
        last_input: its input tokens; 0 where the server did not report them.
    """

    requests: int = 0
    usage: Usage = Usage()
    known_cost: float = 0.0
    unpriced: tuple[str, ...] = ()
    uncounted: int = 0
    last_model: str = ""
    last_input: int = 0

    @property
    def cost(self) -> float | None:
        """USD of all requests; None where the cost of one is not known."""
        known = self.requests and not (self.unpriced or self.uncounted)
        return self.known_cost if known else None

    def add(self, model: str, usage: Usage) -> "Spending":
        """Return the spending with one more request.

        Args:
            model: the model of the request.
            usage: of that request alone, since its price may depend on its length.
        """
        cost = cost_of(model, usage)
        counted = is_counted(usage)
        unpriced = self.unpriced
        if cost is None and counted and model not in unpriced:
            unpriced = (*unpriced, model)
        return replace(
            self,
            requests=self.requests + 1,
            usage=self.usage + usage,
            known_cost=self.known_cost + (cost or 0.0),
            unpriced=unpriced,
            uncounted=self.uncounted + (not counted),
            last_model=model,
            last_input=usage.input_tokens,
        )

    def include(self, model: str, usage: Usage) -> "Spending":
        """Return the spending with a request of a sub-agent, which leaves the last one alone."""
        return replace(
            self.add(model, usage), last_model=self.last_model, last_input=self.last_input
        )


def cost_of(model: str, usage: Usage, *, batched: bool = False) -> float | None:
    """Return the cost in USD of one request to `model`, None where it is not known.

    A cost that the server reports takes precedence over the price list: it includes discounts,
    service classes and the actual host of the model. `batched`: at the price of the batch API.
    """
    if usage.reported_cost is not None:
        return usage.reported_cost
    if not is_counted(usage):
        return None
    card = find_model(model)
    cost = None if card is None else card.cost(usage)
    if card is None or cost is None or not batched:
        return cost
    return None if card.batch_share is None else cost * card.batch_share


def is_counted(usage: Usage) -> bool:
    """Return whether the server has reported tokens or a cost for a request."""
    return bool(usage.input_tokens or usage.output_tokens or usage.reported_cost is not None)


def tool_shares(items: Iterable[Item]) -> dict[str, float]:
    """Estimate the share (0 to 1) of a conversation's tokens per tool, the largest first.

    Providers count whole requests, so this is an estimate: four bytes of UTF-8 count as a token,
    and an image as in `tokens`. A tool's share holds its calls and their outputs; the rest up to 1
    are the messages of people and of the model. Instructions and tool descriptions are not counted.
    """
    names: dict[str | None, str] = {}
    tokens: dict[str, int] = {}
    total = 0
    for item in items:
        count = count_item(item)
        total += count
        if isinstance(item, CALL_TYPES):
            name = "local_shell" if isinstance(item, LocalShellCall) else item.name
            names[item.call_id] = name
        elif isinstance(item, ToolCallOutput):
            name = names.get(item.call_id, "unknown")
        else:
            continue
        tokens[name] = tokens.get(name, 0) + count
    ranked = sorted(tokens.items(), key=lambda pair: -pair[1])
    return {name: count / total for name, count in ranked}
