"""Which MCP servers an agent has: from a program and from files, read anew where they changed."""

from pathlib import Path

import pytest

from agent_magics.config_files.places import user_config_file
from agent_magics.engine.thread import shared_engine
from agent_magics.files import plain_files
from agent_magics.mcp.config.sources import ProjectServers
from agent_magics.protocol.errors import FatalError
from agent_magics.tools.mcp.servers import McpServers, read_given

TABLE = '[mcp_servers.{}]\ncommand = "server"\n'


@pytest.fixture
def config():
    """The person's own configuration file, which is not there yet."""
    file = user_config_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    yield file
    file.unlink(missing_ok=True)


def servers(given=None):
    spawn = shared_engine().spawn
    return McpServers(Path.cwd(), given, spawn=spawn, hidden=frozenset, changed=print)


def names(found, **options):
    tools = found.tools(**options)
    return [] if tools is None else [state.config.name for state in tools.states]


def test_there_are_none(config):
    assert servers().tools() is None


def test_a_program_s_and_the_person_s_are_there_and_none_is_started(config):
    config.write_text(TABLE.format("mine"), encoding="utf-8")
    found = servers({"given": {"command": "x"}})
    assert names(found) == ["given", "mine"]
    assert {str(state.status) for state in found.tools().states} == {"stopped"}
    assert names(servers({"given": {"command": "x"}}), files=False) == ["given"]


def test_nothing_is_read_again_and_no_connection_made_anew_while_the_files_stay(
    config, monkeypatch
):
    monkeypatch.setattr(plain_files, "_TICK", 0)  # as if each change were long ago
    config.write_text(TABLE.format("mine"), encoding="utf-8")
    found = servers()
    tools, read = found.tools(), found._config
    assert found.tools() is tools
    assert found._config is read
    config.write_text(TABLE.format("mine") + "enabled = false\n", encoding="utf-8")
    assert found.tools() is tools
    assert [str(state.status) for state in tools.states] == ["disabled"]
    assert found._config is not read
    config.unlink()
    assert found.tools() is None


def test_a_project_s_servers_wait_for_trust_and_the_person_is_told(config):
    folder = Path.cwd() / ".agent_magics"
    folder.mkdir()
    (folder / "config.toml").write_text(TABLE.format("theirs"), encoding="utf-8")
    found = servers()
    assert names(found) == []
    assert "you have not trusted these files" in found.warnings[0]
    project = ProjectServers(Path.cwd())
    project.trust(project.digest(project.read()))
    assert names(found) == ["theirs"]


def test_what_a_program_gives_later_takes_the_place_of_what_it_gave(config):
    found = servers({"a": {"command": "x"}})
    assert names(found) == ["a"]
    found.give({"b": {"command": "x"}})
    assert names(found) == ["b"]
    found.give(None)
    assert names(found) == []


def test_what_is_wrong_is_told_with_its_place(config):
    config.write_text("[mcp_servers.a]\ncolour = 1\n", encoding="utf-8")
    with pytest.raises(FatalError, match=r"config\.toml, line 2"):
        servers().tools()
    with pytest.raises(FatalError, match="mcp_servers"):
        read_given(Path.cwd(), {"a": {"colour": 1}})
