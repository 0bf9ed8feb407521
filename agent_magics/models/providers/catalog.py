"""What is known of models beforehand: how much they can read, and what their vendor charges.

The figures stand in ``catalog.toml``, which says where they come from. A name finds its model by
these rules and no others; what they do not find is not known, and nothing is guessed:

1. Case does not matter. What stands before the last ``/`` is the prefix, and is taken off
   (``openai/gpt-5.5``, ``models/gemini-2.5-pro``).
2. The rest is a name of the catalog; or it is one after a date at its end was taken off:
   ``-2026-04-23``, ``-20250929``, ``@20250929``, ``-0125`` (`find_model` tries the whole name
   first, so that a version with a price of its own keeps it).
3. A prefix that is not the vendor's own says that somebody else serves the model: the window is
   known, the price is not.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from agent_magics.protocol.items import Usage

DATE = "2026-11-22"
"""When the figures were read; the same as `date` in catalog.toml."""

_DATED = re.compile(r"[-@](?:20\d\d-\d\d-\d\d|20\d{6}|\d{4})$")
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Prices:
    """What a request costs whose input has more than `above` tokens; USD per million tokens."""

    above: int
    input: float
    cached: float
    output: float


@dataclass(frozen=True, slots=True)
class ModelCard:
    """One model.

    Attributes:
        name: as it stands in the catalog.
        context_window: tokens of the whole context window, where the vendor counts so with room
            for the answer in it; None where it is not known.
        max_output: tokens of the longest answer.
        input_price: USD per million tokens of input; None where the price is not known.
        cached_price: the same for input that the vendor's cache had.
        output_price: the same for the answer, reasoning included.
        long_prices: what holds instead for longer requests, the longest first.
    """

    name: str
    context_window: int | None = None
    max_output: int | None = None
    input_price: float | None = None
    cached_price: float | None = None
    output_price: float | None = None
    long_prices: tuple[Prices, ...] = ()

    def cost(self, usage: Usage) -> float | None:
        """Return what one request cost in USD, by the list; None where the price is not known.

        Args:
            usage: of one request: the price may depend on how long it was.
        """
        if self.input_price is None or self.output_price is None:
            return None
        cached = self.input_price if self.cached_price is None else self.cached_price
        prices = Prices(0, self.input_price, cached, self.output_price)
        for longer in self.long_prices:
            if usage.input_tokens > longer.above:
                prices = longer
                break
        hits = min(usage.cached_tokens, usage.input_tokens)
        return (
            (usage.input_tokens - hits) * prices.input
            + hits * prices.cached
            + usage.output_tokens * prices.output
        ) / _MILLION

    def unpriced(self) -> "ModelCard":
        """Return the same model where somebody else than its vendor serves it."""
        return replace(self, input_price=None, cached_price=None, output_price=None, long_prices=())


@lru_cache(maxsize=256)
def find_model(name: str) -> ModelCard | None:
    """Return what is known of the model called `name`, by the rules above; None if nothing is."""
    prefix, _, bare = name.strip().lower().rpartition("/")
    known = _catalog()
    found = known.get(bare) or known.get(_DATED.sub("", bare))
    if found is None:
        return None
    card, own = found
    return card if not prefix or prefix in own else card.unpriced()


@cache
def _catalog() -> Mapping[str, tuple[ModelCard, frozenset[str]]]:
    """Every card by its name, with the prefixes under which its vendor's price holds."""
    import tomllib  # noqa: PLC0415 - for one file, which is read late

    text = Path(__file__).with_name("catalog.toml").read_text("utf-8")
    return {
        name: (_card(name, fields), frozenset(vendor["prefixes"]))
        for vendor in tomllib.loads(text)["vendor"]
        for name, fields in vendor["models"].items()
    }


def _card(name: str, fields: Mapping[str, Any]) -> ModelCard:
    longer = sorted(fields.get("above", ()), key=lambda row: -row["tokens"])
    return ModelCard(
        name,
        fields.get("window"),
        fields.get("answer"),
        fields.get("input"),
        fields.get("cached"),
        fields.get("output"),
        tuple(
            Prices(row["tokens"], row["input"], row.get("cached", row["input"]), row["output"])
            for row in longer
        ),
    )


def dollars(amount: float) -> str:
    """Return an amount with two digits that count: ``12.30 USD``, ``0.0042 USD``.

    Without the sign, which begins a formula in the Markdown of notebooks.
    """
    if amount == 0:
        return "0.00 USD"
    if amount >= 0.1:
        return f"{amount:,.2f} USD"
    digits = 1 - math.floor(math.log10(amount))
    return f"{amount:.{digits}f} USD"
