"""Reads fields of a server's JSON with checks of their types."""

import math
from collections.abc import Callable

from agent_magics.models.faults import Garbled, brief
from agent_magics.protocol.items import JsonMapping

# More tokens than any request can have; a larger count is invalid.
MOST_TOKENS = 10**10
NO_COUNT = "The model server counts its tokens as {value} ({name}), which is no count: taken as 0."


def text_field(data: JsonMapping, name: str) -> str:
    """Return the text at `name`, "" where there is none.

    Raises:
        Garbled: it is not a text.
    """
    value = data.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Garbled("not of the API's form")
    return value


def optional_text(data: JsonMapping, name: str) -> str | None:
    """Return the text at `name`; None where it is missing or not a text."""
    value = data.get(name)
    return value if isinstance(value, str) else None


def optional_whole(data: JsonMapping, name: str) -> int | None:
    """Return the non-negative integer at `name`; None where it is missing or something else."""
    value = data.get(name)
    is_whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if is_whole else None


def count_field(data: object, name: str, warn: Callable[[str], None]) -> int:
    """Return a count of tokens, 0 where it is missing or invalid.

    Args:
        data: the object that contains it; anything else counts as an empty object.
        name: the field.
        warn: called with a sentence about an invalid count.
    """
    value = data.get(name) if isinstance(data, dict) else None
    if value is None:
        return 0
    if type(value) in (int, float) and 0 <= value <= MOST_TOKENS:
        return int(value)
    warn(NO_COUNT.format(value=brief(repr(value))[:80], name=name))
    return 0


def stated_cost(usage: JsonMapping) -> float | None:
    """Return the cost of a request in USD as the server reports it (OpenRouter's "Usage
    Accounting").

    With a provider's key of one's own (`is_byok`) it is what OpenRouter takes for itself, which may
    be nothing; what the provider takes stands in the details.
    """
    cost = _amount(usage.get("cost"))
    if cost is None or not usage.get("is_byok"):
        return cost
    details = usage.get("cost_details")
    name = "upstream_inference_cost"
    upstream = _amount(details.get(name)) if isinstance(details, dict) else None
    return None if upstream is None else cost + upstream


def _amount(value: object) -> float | None:
    """Return an amount of money; None where it is missing or invalid."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value < MOST_TOKENS and math.isfinite(value) else None
