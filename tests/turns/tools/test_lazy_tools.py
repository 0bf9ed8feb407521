"""Past a budget tools are offered only once a search has found them; they can be called anyway."""

import pytest

from agent_magics import Call, DynamicToolSpec, tool
from agent_magics.dispatch.catalog.offer import TOOL_BUDGET, ToolOffer, estimated_tokens
from agent_magics.protocol.tools import ConfiguredToolSpec, FunctionToolSpec
from tests.support.turns import scripted


def spec(name, description="", **properties):
    parameters = {"type": "object", "properties": properties, "required": []}
    return FunctionToolSpec(name, description, parameters)


TICKETS = [
    DynamicToolSpec(f"{verb}_{noun}", f"{verb.title()} one {noun}.", {"properties": {"title": {}}})
    for verb in ("create", "close", "list")
    for noun in ("ticket", "invoice", "customer")
]


def crowded(*turns, budget=100, **options):
    agent = scripted(*turns, tools=["read_file"], **options)
    for each in TICKETS:
        agent.register(each, lambda arguments: "done")
    agent.catalog.budget = budget
    return agent


def offered(agent):
    requests = agent._models.given.requests
    return [[each.spec.name for each in request.tools] for request in requests]


def test_within_the_budget_all_are_offered_and_there_is_nothing_to_search():
    agent = crowded("Done.", budget=TOOL_BUDGET)
    agent.run_sync("Go.")
    assert offered(agent) == [["read_file", *[t.name for t in TICKETS]]]
    output = agent.call_sync("tool_search", {"query": "ticket"})
    assert output.text == "All tools there are have been offered already."


def test_past_it_only_built_in_tools_and_the_search_are_offered():
    agent = crowded("Done.")
    agent.run_sync("Go.")
    assert offered(agent) == [["read_file", "tool_search"]]
    told = agent._models.given.requests[0].tools[1].spec.description
    assert all(each.name in told for each in TICKETS)


def test_what_is_found_is_offered_from_the_next_request_on_behind_the_rest():
    agent = crowded(
        Call("tool_search", {"query": "invoice", "limit": 2}),
        Call("tool_search", {"query": "close a ticket", "limit": 1}),
        Call("tool_search", {"query": "invoice", "limit": 2}),
        "Done.",
        "Again.",
    )
    result = agent.run_sync("Go.")
    first = ["read_file", "tool_search"]
    requests = offered(agent)
    assert requests[0] == first
    assert requests[1][:2] == first
    assert all("invoice" in name for name in requests[1][2:])
    assert len(requests[1]) == 4
    assert requests[2] == [*requests[1], "close_ticket"]
    assert requests[3] == requests[2]
    tools = [request.tools for request in agent._models.given.requests]
    assert tools[3] is tools[2], "an unchanged list is the same object: it is encoded once"
    assert "close_ticket(title): Close one ticket." in result.calls[1].output

    agent.run_sync("Go on.")
    assert offered(agent)[-1] == requests[3], "the next turn goes on with what was found"
    agent.reset()
    agent._models.given._turns.append("New.")
    agent.run_sync("Anew.")
    assert offered(agent)[-1] == first


def test_a_tool_that_is_not_offered_can_be_called():
    agent = crowded(Call("create_ticket", {"title": "a"}), "Done.")
    assert agent.run_sync("Go.").calls[0].output == "done"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"query": "weather"}, "No tool fits 'weather'. There are: create_ticket, "),
        ({"query": ""}, "No tool fits ''."),
        ({"query": "ticket", "limit": 0}, "limit: expected a number from 1 to 50, got 0."),
    ],
)
def test_searches_that_find_nothing_say_what_there_is(arguments, words):
    assert words in crowded().call_sync("tool_search", arguments).text


def test_pinned_tools_are_always_offered_and_hidden_ones_never():
    agent = crowded("Done.")
    agent.session.registrations.show("list_ticket")
    agent.session.registrations.hide("list_invoice")
    agent.session.registrations.hide("read_file")
    agent.run_sync("Go.")
    assert offered(agent) == [["list_ticket", "tool_search"]]
    assert "list_invoice" not in agent._models.given.requests[0].tools[1].spec.description
    assert "no tool named 'list_invoice'" in agent.call_sync("list_invoice").text
    agent.session.registrations.show("list_invoice")
    assert agent.call_sync("list_invoice", {}).text == "done"


def test_a_persons_own_function_is_deferred_like_any():
    @tool
    def mine() -> str:
        """Mine."""
        return "mine"

    agent = crowded("Done.")
    agent.register(mine)
    agent.run_sync("Go.")
    assert "mine" not in offered(agent)[0]


def test_calls_are_counted():
    calls = [Call("create_ticket", {}), Call("create_ticket", {}), Call("read_file", {"path": "a"})]
    agent = crowded(calls, "Done.")
    agent.run_sync("Go.")
    assert dict(agent.session.conversation.uses) == {"create_ticket": 2, "read_file": 1}


# -- the offer by itself ---------------------------------------------------------------------------


def test_a_cost_is_a_quarter_of_the_characters():
    small, large = spec("a", "x" * 40), spec("a", "x" * 440)
    assert estimated_tokens(large) - estimated_tokens(small) == 100


def test_nothing_is_computed_before_the_first_request():
    class Untouched(FunctionToolSpec):
        def __init__(self):
            self.name = "a"

        def __getattr__(self, name):
            raise AssertionError(f"{name} was looked at")

    offer = ToolOffer([ConfiguredToolSpec(Untouched())])
    assert len(offer.now().all) == 1


def test_names_found_that_are_gone_are_left_out():
    specs = [ConfiguredToolSpec(spec(name, "word " * 100)) for name in ("a", "b")]
    offer = ToolOffer(specs, (), 10, ConfiguredToolSpec(spec("tool_search")))
    names = [each.spec.name for each in offer.now().specs(["gone", "b"])]
    assert names == ["tool_search", "b"]


def test_parameters_are_searched_too():
    specs = [
        ConfiguredToolSpec(spec("a", "One.", color={"type": "string", "description": "paint"})),
        ConfiguredToolSpec(spec("b", "Two.", size={"type": "string"})),
    ]
    offer = ToolOffer(specs, (), 1, ConfiguredToolSpec(spec("tool_search")))
    assert [each.name for each in offer.now().search("size", 5)] == ["b"]
    assert [each.name for each in offer.now().search("paint", 5)] == ["a"]
