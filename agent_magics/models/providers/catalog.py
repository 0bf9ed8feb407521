"""Looks up models' context windows and prices in ``catalog.toml``, which names its sources.

A model name is matched by these rules and no others; nothing is guessed:

1. Case does not matter. The part before the last ``/`` is a prefix and is removed
   (``openai/gpt-5.5``, ``models/gemini-2.5-pro``).
2. The rest is a name of the catalog, or it is one after a date at its end was removed:
   ``-2026-04-23``, ``-20250929``, ``@20250929``, ``-0125``. `find_model` tries the whole name
   first, so that a version with a price of its own keeps it.
3. A prefix that is not the vendor's own means that another company serves the model: its window is
   known, its price is not.
"""

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path

from agent_magics.protocol.items import JsonMapping, Usage

DATE = "2026-11-22"
"""The date of the figures; the same as `date` in catalog.toml."""

_DATED = re.compile(r"[-@](?:20\d\d-\d\d-\d\d|20\d{6}|\d{4})$")
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a request whose input has more than `above` tokens; USD per million tokens."""

    above: int
    input: float
    cached: float
    output: float


@dataclass(frozen=True, slots=True)
class ModelCard:
    """Context window and prices of one model.

    Attributes:
        name: its name in the catalog.
        context_window: tokens of input and answer together, or of the input alone where the vendor
            counts so; None where unknown.
        max_output: tokens of the longest answer.
        input_price: USD per million tokens of input; None where unknown.
        cached_price: USD per million tokens of input read from the vendor's cache.
        output_price: USD per million tokens of the answer, including reasoning.
        long_prices: prices of longer requests, the longest first.
        batch_share: what a request through the vendor's batch API costs, as a share of these
            prices; None where unknown.
    """

    name: str
    context_window: int | None = None
    max_output: int | None = None
    input_price: float | None = None
    cached_price: float | None = None
    output_price: float | None = None
    long_prices: tuple[Prices, ...] = ()
    batch_share: float | None = None

    def cost(self, usage: Usage) -> float | None:
        """Return the list price of one request in USD; None where the price is unknown.

        Args:
            usage: tokens of one request: the price may depend on its length.
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
        """Return the same model without prices, for another company that serves it."""
        return replace(self, input_price=None, cached_price=None, output_price=None, long_prices=())


@lru_cache(maxsize=256)
def find_model(name: str) -> ModelCard | None:
    """Return the card of the model called `name`, by the rules above; None if there is none."""
    prefix, _, bare = name.strip().lower().rpartition("/")
    known = _catalog()
    found = known.get(bare) or known.get(_DATED.sub("", bare))
    if found is None:
        return None
    card, own_prefixes = found
    return card if not prefix or prefix in own_prefixes else card.unpriced()


def known_models() -> Collection[str]:
    """Return the names of all models in the catalog."""
    return _catalog().keys()


@cache
def _catalog() -> Mapping[str, tuple[ModelCard, frozenset[str]]]:
    """Return every card by its name, with the prefixes under which its vendor's price applies."""
    import tomllib  # noqa: PLC0415 - for one file, which is read late

    text = Path(__file__).with_name("catalog.toml").read_text("utf-8")
    return {
        name: (_card(name, fields, vendor.get("batch")), frozenset(vendor["prefixes"]))
        for vendor in tomllib.loads(text)["vendor"]
        for name, fields in vendor["models"].items()
    }


def _card(name: str, fields: JsonMapping, batch_share: float | None) -> ModelCard:
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
        batch_share,
    )


def dollars(amount: float) -> str:
    """Format an amount of USD with two significant digits: ``12.30 USD``, ``0.0042 USD``.

    Without the dollar sign, which begins a formula in the Markdown of notebooks.
    """
    if amount == 0:
        return "0.00 USD"
    if amount >= 0.1:
        return f"{amount:,.2f} USD"
    digits = 1 - math.floor(math.log10(amount))
    return f"{amount:.{digits}f} USD"
