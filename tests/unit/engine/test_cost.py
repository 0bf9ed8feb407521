"""What requests took and cost: nothing that is not known counts as 0."""

import pytest

from agent_magics.engine.cost import Spending, cost_of, tool_shares
from agent_magics.models.providers.catalog import find_model
from agent_magics.protocol.items import (
    AssistantMessage,
    FunctionCall,
    InputImage,
    InputText,
    LocalShellCall,
    ToolCallOutput,
    Usage,
    UserMessage,
)

ONE = Usage(1000, 100, 200, 50)


def test_a_bill_adds_up():
    spending = Spending().add("gpt-5.5", ONE).add("gpt-5.5", Usage(2000, 100))
    assert spending.requests == 2
    assert spending.usage == Usage(3000, 200, 200, 50)
    card = find_model("gpt-5.5")
    assert spending.cost == pytest.approx(card.cost(ONE) + card.cost(Usage(2000, 100)))
    assert (spending.last_model, spending.last_input) == ("gpt-5.5", 2000)


def test_nothing_asked_has_no_cost():
    assert Spending().cost is None


def test_a_price_that_is_not_known_makes_the_whole_unknown_and_is_named():
    spending = Spending().add("gpt-5.5", ONE).add("gpt-99", ONE).add("gpt-99", ONE)
    assert spending.cost is None
    assert spending.known_cost > 0
    assert spending.unpriced == ("gpt-99",)


def test_what_the_server_reports_holds_before_the_list():
    reported = Usage(1000, 100, reported_cost=0.5)
    assert cost_of("gpt-5.5", reported) == 0.5
    assert cost_of("gpt-99", reported) == 0.5
    assert cost_of("gpt-99", Usage(1, 1, reported_cost=0.0)) == 0.0


def test_a_server_that_counts_nothing_costs_nobody_knows_what():
    assert cost_of("gpt-5.5", Usage()) is None
    spending = Spending().add("gpt-5.5", Usage()).add("gpt-5.5", ONE)
    assert spending.cost is None
    assert (spending.uncounted, spending.unpriced) == (1, ())
    assert spending.known_cost > 0


def test_usage_adds_up_what_servers_report():
    assert (Usage(1) + Usage(1)).reported_cost is None
    assert (Usage(reported_cost=0.5) + Usage(1)).reported_cost == 0.5
    assert (Usage(1) + Usage(reported_cost=0.5)).reported_cost == 0.5
    assert (Usage(reported_cost=0.25) + Usage(reported_cost=0.5)).reported_cost == 0.75


def test_shares_of_tools_are_those_of_calls_and_outputs():
    items = [
        UserMessage("w" * 400),
        FunctionCall("a", "read_file", "x" * 40),
        ToolCallOutput("a", "y" * 360),
        LocalShellCall("b", ("ls",)),
        ToolCallOutput("b", "z" * 20),
        AssistantMessage("done"),
    ]
    shares = tool_shares(items)
    assert list(shares) == ["read_file", "local_shell"]
    assert shares["read_file"] > 4 * shares["local_shell"]
    assert 0.4 < shares["read_file"] < 0.6
    assert sum(shares.values()) < 1


def test_images_count_and_an_empty_conversation_has_no_tools():
    text = [FunctionCall("a", "look", "{}"), ToolCallOutput("a", "x")]
    image = [text[0], ToolCallOutput("a", (InputText("x"), InputImage("data:,")))]
    person = [UserMessage("w" * 400)]
    assert tool_shares([*person, *image])["look"] > tool_shares([*person, *text])["look"]
    assert tool_shares([]) == {}
    assert tool_shares([ToolCallOutput("gone", "x")]) == {"unknown": 1.0}
