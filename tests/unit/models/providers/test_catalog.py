"""The catalog: its figures are whole, and names find their model by rules, never by a guess."""

import tomllib
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.models.providers import catalog
from agent_magics.models.providers.catalog import ModelCard, Prices, dollars, find_model
from agent_magics.protocol.items import Usage

DATA = tomllib.loads(
    files("agent_magics.models.providers").joinpath("catalog.toml").read_text("utf-8")
)
ROWS = [
    (vendor["name"], name, fields)
    for vendor in DATA["vendor"]
    for name, fields in vendor["models"].items()
]


def test_the_date_is_that_of_the_data():
    assert DATA["date"] == catalog.DATE


def test_every_vendor_names_the_page_of_its_prices():
    assert all(vendor["page"].startswith("https://") for vendor in DATA["vendor"])
    assert len(ROWS) > 60
    names = [name for _, name, _ in ROWS]
    assert len(names) == len(set(names))
    assert all(name == name.lower() for name in names)


@pytest.mark.parametrize(("vendor", "name", "fields"), ROWS, ids=lambda value: str(value)[:30])
def test_the_figures_of_a_model_are_possible(vendor, name, fields):
    card = find_model(name)
    assert card is not None
    assert card.name == name
    assert card.context_window >= 8_000
    if vendor == "open models":
        assert card.input_price is None
        return
    assert 0 < card.input_price <= card.output_price
    assert card.cached_price is None or card.cached_price < card.input_price
    assert card.max_output <= card.context_window
    for longer in card.long_prices:
        assert longer.above < card.context_window
        assert longer.input > card.input_price
    starts = [longer.above for longer in card.long_prices]
    assert starts == sorted(starts, reverse=True)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("gpt-5.5", "gpt-5.5"),
        ("GPT-5.5", "gpt-5.5"),
        ("openai/gpt-5.5-2026-04-23", "gpt-5.5"),
        ("models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("claude-sonnet-4-5@20250929", "claude-sonnet-4-5"),
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("gpt-4o-2024-05-13", "gpt-4o-2024-05-13"),  # with a price of its own
        ("codestral-2508", "codestral-2508"),
    ],
)
def test_a_name_finds_its_model(name, found):
    card = find_model(name)
    assert card.name == found
    assert card.input_price is not None


@pytest.mark.parametrize(
    "name",
    [
        "gpt-99",
        "gpt-5.5-turbo",
        "my-gpt-5.5",
        "gpt",
        "ft:gpt-4.1-2025-04-14:org::id",  # trained further, which costs more
        "gpt-5.5:free",
        "gpt-5.5-1",
        "",
        "/",
        "-2026-04-23",
    ],
)
def test_what_no_rule_finds_is_not_known(name):
    assert find_model(name) is None


@pytest.mark.parametrize(
    "name", ["groq/openai/gpt-oss-120b", "fireworks/deepseek-v4-pro", "openrouter/openai/gpt-5.5"]
)
def test_of_a_model_that_somebody_else_serves_only_the_window_is_known(name):
    card = find_model(name)
    assert card.context_window
    assert card.input_price is None
    assert card.cost(Usage(1000, 1000)) is None


@given(st.text(max_size=40))
def test_any_name_may_be_asked_for(name):
    card = find_model(name)
    assert card is None or card.name in name.lower()


CARD = ModelCard("m", 1000, 100, 2.0, 0.5, 10.0, (Prices(200, 4.0, 1.0, 20.0),))


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (Usage(100, 10), (100 * 2 + 10 * 10) / 1e6),
        (Usage(100, 10, 60), (40 * 2 + 60 * 0.5 + 10 * 10) / 1e6),
        (Usage(200, 10), (200 * 2 + 10 * 10) / 1e6),
        (Usage(201, 10, 1), (200 * 4 + 1 + 10 * 20) / 1e6),  # the whole request
        (Usage(100, 10, 500), (100 * 0.5 + 10 * 10) / 1e6),  # a server that counts wrongly
        (Usage(100, 10, reasoning_tokens=8), (100 * 2 + 10 * 10) / 1e6),  # part of the output
    ],
)
def test_the_cost_of_a_request(usage, cost):
    assert CARD.cost(usage) == pytest.approx(cost)


def test_without_a_price_for_it_cached_input_costs_what_other_does():
    card = ModelCard("m", input_price=2.0, output_price=10.0)
    assert card.cost(Usage(100, 0, 60)) == pytest.approx(100 * 2 / 1e6)


@pytest.mark.parametrize(
    ("amount", "said"),
    [
        (0, "0.00 USD"),
        (1234.5, "1,234.50 USD"),
        (0.3, "0.30 USD"),
        (0.042, "0.042 USD"),
        (0.0099, "0.0099 USD"),
        (0.00123, "0.0012 USD"),
        (0.0000012, "0.0000012 USD"),
        (0.0999, "0.100 USD"),
    ],
)
def test_amounts_in_words(amount, said):
    assert dollars(amount) == said
