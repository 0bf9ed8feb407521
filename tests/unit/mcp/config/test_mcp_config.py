"""Which MCP servers there are: the nearer holds, and a project's only after trust in its bytes."""

import os
from pathlib import Path

import pytest

from agent_magics.config_files.places import user_config_file
from agent_magics.mcp.config.edit import McpFile
from agent_magics.mcp.config.sources import ProjectServers, read_mcp_config
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.mcp import McpServerConfig


class Places:
    """A person's folder and a project's."""

    def __init__(self, root):
        self.user_file = user_config_file()
        self.folder = root / "project"
        self.folder.mkdir()
        self.project = ProjectServers(self.folder)

    def write(self, *, user=None, toml=None, json=None):
        files = (self.user_file, user), (self.project.toml_file, toml)
        for path, text in (*files, (self.project.json_file, json)):
            if text is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)

    def trust(self):
        self.project.trust(self.project.digest(self.project.read()))

    def read(self, given=None):
        return read_mcp_config(self.folder, given)

    def commands(self, given=None):
        return {server.name: server.command for server in self.read(given).servers}


@pytest.fixture
def places(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Places(tmp_path)


def table(name, command):
    return f'[mcp_servers.{name}]\ncommand = "{command}"\n'


def json_of(**commands):
    entries = ", ".join(f'"{name}": {{"command": "{word}"}}' for name, word in commands.items())
    return f'{{"mcpServers": {{{entries}}}}}'


def test_without_files_there_are_none(places):
    assert places.read().servers == ()
    assert places.read().warnings == ()


def test_of_two_with_one_name_the_nearer_holds_as_a_whole(places):
    places.write(
        user=table("a", "user") + 'args = ["x"]\n' + table("b", "user") + table("c", "user"),
        json=json_of(a="json", b="json", d="json"),
        toml=table("a", "toml") + table("e", "toml"),
    )
    places.trust()
    assert places.commands({"e": {"command": "given"}}) == {
        "e": "given",
        "a": "toml",
        "b": "json",
        "d": "json",
        "c": "user",
    }
    assert {server.name: server.args for server in places.read().servers}["a"] == ()


def test_a_projects_servers_wait_for_trust_in_these_very_bytes(places):
    places.write(user=table("mine", "user"), toml=table("a", "one"))
    assert places.commands() == {"mine": "user"}
    [warning] = places.read().warnings
    assert warning == (
        "The MCP servers in .agent_magics/config.toml are left out: you have not trusted these "
        "files (or they have changed since). %agent mcp trust shows them."
    )
    places.trust()
    assert places.commands() == {"a": "one", "mine": "user"}
    assert places.read().warnings == ()
    places.write(toml=table("a", "two"))
    assert places.commands() == {"mine": "user"}
    places.write(toml=table("a", "one"))
    assert places.commands() == {"a": "one", "mine": "user"}
    places.write(json=json_of(b="x"))
    assert places.commands() == {"mine": "user"}
    assert "config.toml and .mcp.json are left out" in places.read().warnings[0]


def test_what_a_stranger_wrote_is_not_even_understood_before_it_is_trusted(places):
    places.write(toml="not = [toml", json="{")
    assert places.read().servers == ()
    places.trust()
    with pytest.raises(FatalError, match=r"config\.toml, line 1: this is not TOML"):
        places.read()


def test_files_that_changed_since_they_were_shown_are_not_trusted(places):
    places.write(json=json_of(a="one"))
    shown = places.project.digest(places.project.read())
    places.write(json=json_of(a="two"))
    with pytest.raises(FatalError, match=r"not .*those of .* %agent mcp trust"):
        places.project.trust(shown)
    assert places.commands() == {}


def test_a_mistake_names_file_and_line(places):
    places.write(user='# mine\n[mcp_servers.a]\ncommand = "x"\n\nenabeld = true\n')
    with pytest.raises(FatalError) as caught:
        places.read()
    assert str(caught.value).startswith(
        f"{places.user_file}, line 5: 'enabeld' is not a key of an MCP server; did you mean enabled"
    )
    places.write(user='[mcp_servers.a]\ncommand = "x"\n[colour]\nname = "y"\n')
    with pytest.raises(FatalError, match=r"line 3: 'colour' is not known here; a config\.toml"):
        places.read()
    places.write(user="mcp_servers = 5\n")
    with pytest.raises(FatalError, match=r"line 1: MCP servers are written as \[mcp_servers"):
        places.read()


def test_a_changed_variable_is_seen_at_the_next_run(places, monkeypatch):
    places.write(json='{"mcpServers": {"a": {"command": "${AGM_TEST_SERVER}"}}}')
    places.trust()
    monkeypatch.delenv("AGM_TEST_SERVER", raising=False)
    [warning] = places.read().warnings
    assert "needs the environment variable AGM_TEST_SERVER" in warning
    monkeypatch.setenv("AGM_TEST_SERVER", "x")
    assert places.commands() == {"a": "x"}


# -- given by a program ----------------------------------------------------------------------------


def test_dicts_and_configs_may_be_given(places):
    config = McpServerConfig(name="", url="https://a.b/c", transport="sse", cwd=None)
    given = {"a": {"command": Path("/bin/x"), "cwd": Path("sub"), "args": ("y",)}, "b": config}
    a, b = places.read(given).servers
    assert (a.name, a.command, a.args) == ("a", "/bin/x", ("y",))
    assert a.cwd == places.folder / "sub"
    assert (b.name, b.url, b.transport) == ("b", "https://a.b/c", "sse")
    assert {a.source, b.source} == {"Agent(mcp_servers=...)"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["a"], "mcp_servers must be a dict of a name to the settings of a server, not list"),
        ({1: {"command": "x"}}, "Agent(mcp_servers=...): the name of a server must be text"),
        ({"a": "x"}, "Agent(mcp_servers=...), a: MCP server 'a' must be a table"),
        ({"a": {"comand": "x"}}, "Agent(mcp_servers=...), a.comand: 'comand' is not a key"),
        ({"a": McpServerConfig(name="a")}, "Agent(mcp_servers=...), a: MCP server 'a' has neither"),
    ],
)
def test_what_is_given_wrongly_is_told(places, given, words):
    with pytest.raises(FatalError) as caught:
        places.read(given)
    assert str(caught.value).startswith(words)


# -- changing the files ----------------------------------------------------------------------------


def test_a_server_is_added_switched_and_removed_in_the_persons_file(places):
    file = McpFile(places.user_file)
    file.add("git", {"command": "uvx", "args": ["mcp-server-git"]})
    assert places.user_file.read_text() == (
        '[mcp_servers.git]\ncommand = "uvx"\nargs = ["mcp-server-git"]\n'
    )
    assert places.user_file.stat().st_mode & 0o777 == 0o600
    file.add("web", {"url": "https://a.b/c"})
    file.switch("git", False)
    assert [(s.name, s.enabled) for s in places.read().servers] == [("git", False), ("web", True)]
    file.remove("git")
    assert file.names() == ("web",)
    assert places.user_file.read_text() == '\n[mcp_servers.web]\nurl = "https://a.b/c"\n'


def test_what_would_not_be_understood_is_not_written(places):
    places.write(user="# mine\n" + table("a", "x"))
    before = places.user_file.read_bytes()
    file = McpFile(places.user_file)
    for change, words in (
        (lambda: file.add("b", {"url": "nowhere"}), "MCP server 'b': url must be an address"),
        (lambda: file.add("a", {"command": "y"}), "There is an MCP server 'a' in"),
        (lambda: file.remove("b"), "There is no MCP server 'b' in .*; there are: a."),
        (lambda: file.switch("b", True), "There is no MCP server 'b' in"),
    ):
        with pytest.raises(FatalError, match=words):
            change()
    assert places.user_file.read_bytes() == before


def test_a_link_to_ones_settings_stays_a_link(places, tmp_path):
    kept = tmp_path / "dotfiles.toml"
    kept.write_text("# mine\n")
    places.user_file.parent.mkdir(parents=True)
    places.user_file.symlink_to(kept)
    McpFile(places.user_file).add("a", {"command": "x"})
    assert places.user_file.is_symlink()
    assert kept.read_text().startswith("# mine\n\n[mcp_servers.a]")


def test_a_projects_file_stays_as_trusted_as_it_was(places):
    file = McpFile(places.project.toml_file, places.project)
    file.add("a", {"command": "x"})
    assert places.commands() == {"a": "x"}
    places.write(json=json_of(b="y"))
    file.add("c", {"command": "z"})
    assert places.commands() == {}
    places.trust()
    file.remove("a")
    assert places.commands() == {"c": "z", "b": "y"}


def test_a_project_cannot_lead_a_change_elsewhere(places, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    places.project.toml_file.parent.symlink_to(elsewhere)
    with pytest.raises(FatalError, match="is no folder of this project; nothing was written"):
        McpFile(places.project.toml_file, places.project).add("a", {"command": "x"})
    assert os.listdir(elsewhere) == []
