"""Which tools of MCP servers a list of tools means."""

import pytest

from agent_magics.protocol.errors import FatalError
from agent_magics.tools.catalog.sources import split_tools
from agent_magics.tools.mcp.names import Selection, no_such_tool, qualified_names


def mine():
    """Not a server's."""


@pytest.mark.parametrize(
    ("wanted", "rest", "named"),
    [
        (None, None, ()),
        ("data", ["data"], ()),
        (mine, [mine], ()),
        ("mcp", [], ("mcp",)),
        (["python", mine, "mcp__a__*"], ["python", mine], ("mcp__a__*",)),
        (["mcp__a__b", "mcp__a__b", "data"], ["data"], ("mcp__a__b",)),
        (["mcp__my__tool", "mcpx"], ["mcp__my__tool", "mcpx"], ()),
    ],
)
def test_names_of_servers_tools_are_told_from_others(wanted, rest, named):
    assert split_tools(wanted, {"mcp__my__tool": mine}) == (rest, named)


def test_names_patterns_and_the_word_for_all():
    chosen = Selection(["mcp__time__now", "mcp__git__lo*"])
    names = ["mcp__time__now", "mcp__time__noww", "mcp__git__log", "mcp__git__Log"]
    assert [name in chosen for name in names] == [True, False, True, False]
    assert chosen.exact == {"mcp__time__now"}
    assert "mcp__anything__at_all" in Selection(["mcp"])


@pytest.mark.parametrize(
    ("name", "server", "fits"),
    [
        ("mcp__time__now", "time", True),
        ("mcp__time__now", "tim", False),
        ("mcp__my_server__now", "my server", True),
        ("mcp__t*", "time", True),
        ("mcp__t*", "git", False),
        ("mcp__*__now", "git", True),
        ("mcp__time__n?w", "time", True),
        ("mcp__time__n?w", "timer", False),
        ("mcp", "git", True),
    ],
)
def test_which_servers_are_meant(name, server, fits):
    assert Selection([name]).names_server(server) is fits


def test_a_name_that_was_cut_still_means_its_server():
    server = "s" * 90
    (name,) = qualified_names([(server, "tool")]).values()
    assert Selection([name]).names_server(server)


@pytest.mark.parametrize(
    ("name", "servers", "says"),
    [
        ("mcp__tiem__now", ["time", "git"], r"Did you mean time\?"),
        ("mcp__other__*", ["time", "git"], r"so\. The servers are: time, git\."),
        ("mcp__time__now", [], "there are no MCP servers. %agent mcp add"),
    ],
)
def test_a_server_that_is_not_there(name, servers, says):
    with pytest.raises(FatalError, match=says):
        Selection(["mcp", name]).check(servers)


def test_all_of_none_is_none():
    Selection(["mcp"]).check([])


def test_a_tool_that_is_not_there():
    tools = ["mcp__time__get_current_time", "mcp__time__convert_time"]
    assert no_such_tool("mcp__time__get_curent_time", "time", tools).endswith(
        "; near: mcp__time__get_current_time."
    )
    assert no_such_tool("mcp__time__zzz", "time", tools).endswith("; it has 2.")
