"""What requests took, by the tokens that the provider counted, and what that cost."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from agent_magics.engine.tokens import count_item
from agent_magics.models.catalog import find_model
from agent_magics.protocol.items import (
    CALL_TYPES,
    Item,
    LocalShellCall,
    ToolCallOutput,
    Usage,
)


@dataclass(frozen=True, slots=True)
class Bill:
    """The requests of a run or of a conversation; each is added when its answer has come.

    Attributes:
        requests: how many were answered.
        known_cost: USD of those whose cost is known.
        unpriced: models that other requests went to, whose price is not known.
        uncounted: requests whose tokens the server did not count.
        last_model: the model of the last request.
        last_input: its input tokens; 0 where the server did not count.
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

    def add(self, model: str, usage: Usage) -> "Bill":
        """Return the bill with one more request.

        Args:
            usage: of that request alone: its price may depend on its length.
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


def cost_of(model: str, usage: Usage) -> float | None:
    """Return the cost in USD of one request to `model`, None where it is not known.

    What the server itself says that it cost holds before the price list: it knows discounts,
    service classes and who else serves the model.
    """
    if usage.reported_cost is not None:
        return usage.reported_cost
    if not is_counted(usage):
        return None
    card = find_model(model)
    return None if card is None else card.cost(usage)


def is_counted(usage: Usage) -> bool:
    """Return whether the server has said anything about a request."""
    return bool(usage.input_tokens or usage.output_tokens or usage.reported_cost is not None)


def context_share(bill: Bill) -> float | None:
    """Return which share of the context window the last request took, None if not known."""
    card = find_model(bill.last_model)
    if card is None or not card.context_window or not bill.last_input:
        return None
    return bill.last_input / card.context_window


def tool_shares(items: Iterable[Item]) -> dict[str, float]:
    """Estimate which share of a conversation's tokens each tool takes, the largest first.

    Providers count whole requests, so this is an estimate: four bytes of UTF-8 are a token, and an
    image is what `tokens` says. A tool has its calls and their outputs; what is left to 1 are the
    words of people and of the model. Instructions and descriptions of tools are not counted.
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
