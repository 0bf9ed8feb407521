"""Which tools clients see, and how."""

import pytest

from agent_magics import Agent, DynamicToolSpec, FatalError, tool
from agent_magics.serve.listing import list_tools


@tool
def data_of(name: str) -> dict[str, int]:
    """Return data."""
    return {name: 1}


@tool(mutating=False, name="say-it")
def say(text: str) -> str:
    """Return text."""
    return text


@tool
def unclear(n: int):
    """Return who knows what."""
    return n


def listed(tools, wanted=None, *, complete=True, **settings):
    with Agent(tools=tools, **settings) as agent:
        return list_tools(agent.turn_config(), wanted, complete=complete)


def test_every_built_in_tool_has_a_schema_of_an_object():
    listing = listed(["coding"], model="gpt-5.5")
    assert "apply_patch" in listing.names, "models get it with a grammar, clients as a function"
    for each in listing.tools:
        assert each.input_schema["type"] == "object"
        assert each.input_schema["properties"] or each.name in ("list_sessions", "list_agents")
        assert each.description
        assert each.title
    assert listing.data == frozenset(), "our own tools return text for a model"


def test_hints_and_titles_of_own_functions():
    listing = listed([data_of, say, unclear])
    assert listing.names == ("data_of", "say-it", "unclear")
    assert [each.annotations.read_only_hint for each in listing.tools] == [False, True, False]
    assert listing.tools[1].title == "Say it"
    assert listing.data == {"data_of", "unclear"}


def test_dynamic_tools_are_listed_with_their_schema():
    spec = DynamicToolSpec("ask", "Ask.", {"type": "object", "properties": {"q": {}}})
    with Agent(tools=[say]) as agent:
        agent.register(spec, lambda arguments: "answer")
        listing = list_tools(agent.turn_config(), None, complete=True)
    assert listing.names == ("say-it", "ask")
    assert "q" in listing.tools[1].input_schema["properties"]
    assert "ask" in listing.data


def test_names_and_sets_choose():
    assert listed(["coding", say], ["say-it", "read-only", "read_file"]).names == (
        "say-it",
        "read_file",
        "list_dir",
        "grep_files",
        "glob",
        "view_image",
    )
    with pytest.raises(FatalError, match="no tool 'nothing' to serve; there are: say-it"):
        listed([say], ["nothing"])
    assert listed([say], ["nothing", "say-it"], complete=False).names == ("say-it",)


def test_the_digest_changes_with_what_clients_see():
    @tool(mutating=False, name="say-it")
    def say_more(text: str) -> str:
        """Return more text."""
        return text

    assert listed([say]).digest == listed([say]).digest
    assert listed([say]).digest != listed([say_more]).digest


def test_tools_of_other_servers_are_for_these_to_serve(tmp_path):
    never = {"command": str(tmp_path / "no-such-program")}
    assert listed([say], mcp_servers={"other": never}).names == ("say-it",)
