"""What the words of ``%agent mcp`` understand, and what they never show."""

import base64
import json

import pandas
import pytest

from agent_magics.kernel.commands.mcp.contents import prompt_text, value_of
from agent_magics.kernel.commands.mcp.control import login_text
from agent_magics.kernel.commands.mcp.files import how_reached, read_addition, trust_servers
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import InputImage, InputText
from agent_magics.protocol.mcp import McpContents, McpServerConfig

# -- add -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "settings", "project"),
    [
        (
            ["x", "--", "uvx", "y", "--port", "1"],
            {"command": "uvx", "args": ["y", "--port", "1"]},
            0,
        ),
        (["x", "--", "cmd"], {"command": "cmd"}, 0),
        (["--project", "x", "--", "cmd", "--"], {"command": "cmd", "args": ["--"]}, 1),
        (["x", "https://a.b/c"], {"url": "https://a.b/c"}, 0),
        (
            ["x", "https://a.b/c", "--bearer-token-env-var", "TOKEN", "--transport", "sse"],
            {"url": "https://a.b/c", "bearer_token_env_var": "TOKEN", "transport": "sse"},
            0,
        ),
        (
            ["x", "--env", "PORT=1=2", "--env-var", "A", "--env-var", "B", "--cwd", "s", "--", "c"],
            {"command": "c", "env": {"PORT": "1=2"}, "env_vars": ["A", "B"], "cwd": "s"},
            0,
        ),
    ],
)
def test_a_server_is_added_by_its_command_or_address(words, settings, project):
    assert read_addition(words) == ("x", settings, bool(project))


@pytest.mark.parametrize(
    "words",
    [
        *(
            [],
            ["x"],
            ["x", "--"],
            ["x", "cmd"],
            ["x", "y", "--", "c"],
            ["x", "https://a", "--", "c"],
        ),
        *(["-x", "--", "c"], ["x y", "--", "c"], ["x", "--env", "A", "--", "c"]),
        *(["x", "--unknown", "1", "--", "c"], ["x", "https://a.b", "--cwd"]),
    ],
)
def test_what_is_no_addition_is_told_how_it_is_written(words):
    with pytest.raises(FatalError, match=r"%agent mcp add takes: NAME -- COMMAND ARGS"):
        read_addition(words)


def test_a_secret_is_refused_and_not_repeated():
    with pytest.raises(FatalError) as caught:
        read_addition(["x", "--env", "API_KEY=hunter2", "--", "c"])
    assert "--env-var API_KEY" in str(caught.value)
    assert "hunter2" not in str(caught.value)


# -- what is shown ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["-y", "@scope/server", "/data"], "npx -y @scope/server /data"),
        (["--token", "S", "x"], "npx --token … x"),
        (["--token=S", "--api-key=S"], "npx --token=… --api-key=…"),
        (["--key=SECRET"], "npx --key=…"),
        (["-e", "API_KEY=S"], "npx -e API_KEY=…"),
        (["--header", "Authorization: Bearer S"], "npx --header Authorization:…"),
        (["ghp_0123456789abcdef"], "npx …"),
        (["from-the-environment"], "npx …"),
        (["a\u202eb"], "npx a⟨U+202E⟩b"),
    ],
)
def test_a_command_is_shown_without_what_may_be_secret(args, line, monkeypatch):
    monkeypatch.setenv("AGM_TEST_TOKEN", "from-the-environment")
    assert how_reached(McpServerConfig("x", command="npx", args=tuple(args))) == line


def test_an_address_is_shown_without_its_query_and_secrets(monkeypatch):
    monkeypatch.setenv("AGM_TEST_TOKEN", "from-the-environment")
    address = "https://a.b:1/c/from-the-environment?api_key=S#S"
    server = McpServerConfig("x", url=address, transport="http")
    assert how_reached(server) == "https://a.b:1/c/…"


def test_the_password_of_an_address_is_not_shown():
    server = McpServerConfig("db", command="srv", args=("postgres://me:hunter2@db:5432/x",))
    assert how_reached(server) == "srv postgres://me:…@db:5432/x"


def test_trust_shows_what_is_written_and_no_value_of_the_persons(tmp_path, monkeypatch):
    """A file that nobody trusts yet chooses which variables it names."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PLAIN_NAME", "a value of mine")
    servers = {
        "a": {
            "command": "srv",
            "args": ["${PLAIN_NAME}", "${UNSET:-or this}"],
            "env": {"LD_PRELOAD": "./x.so"},
        },
        "b": {"type": "http", "url": "https://a.b/${PLAIN_NAME}", "headers": {"X-A": "${B}"}},
    }
    addresses = ["${PLAIN_NAME:-https://a.b}/c", "https://${H}:${P}/c", "https://[${H:-x}/c"]
    servers |= {f"u{n}": {"url": f"{each}?key=${{K}}"} for n, each in enumerate(addresses)}
    project = tmp_path / "project"
    (project / ".agent_magics").mkdir(parents=True)
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    (project / ".agent_magics/config.toml").write_text(
        '[mcp_servers.c]\ncommand = "c"\napproval_mode = "approve"\ncwd = "sub"\n'
    )
    said = trust_servers(project)
    assert "a value of mine" not in said and "./x.so" not in said
    assert "| `srv ${PLAIN_NAME} ${UNSET:-or this}` | sets `LD_PRELOAD` |" in said
    assert "| `https://a.b/${PLAIN_NAME}` | is sent `X-A` |" in said
    assert [each for each in addresses if f"| `{each}` |" not in said] == []
    assert f"runs in `{project}/sub`; its calls run without a question" in said


def test_the_page_to_log_in_at_is_a_link_with_its_host():
    text = login_text("x", "https://a.b/c?d=(1)](javascript:x)")
    assert "[this page of a.b](https://a.b/c?d=%281%29%5D%28javascript:x%29)" in text
    for address in ("javascript:alert(1)", "https://bank@evil.org/", "nothing"):
        with pytest.raises(FatalError, match="names no page where one could log in"):
            login_text("x", address)


# -- values ----------------------------------------------------------------------------------------


def blob(data, kind):
    return McpContents("u", kind, blob=base64.b64encode(data).decode())


@pytest.mark.parametrize(
    ("contents", "value"),
    [
        (McpContents("u", "text/plain", "a"), "a"),
        (McpContents("u", "", "a"), "a"),
        (McpContents("u", "application/json; charset=utf-8", '{"a": [1]}'), {"a": [1]}),
        (McpContents("u", "application/geo+json", "[1]"), [1]),
        (McpContents("u", "application/json", "{no json"), "{no json"),
        (McpContents("u", "application/json", "[" * 100_000), "[" * 100_000),
        (McpContents("u", "image/svg+xml", "<svg/>"), "<svg/>"),
        (McpContents("u", "text/html", "<b>"), "<b>"),
        (blob(b"ab", "application/octet-stream"), b"ab"),
        (blob(b"<svg/>", "image/svg+xml"), b"<svg/>"),
    ],
)
def test_a_resource_becomes_what_it_says_it_is(contents, value):
    assert value_of(contents) == value


def test_a_picture_is_one_and_a_table_is_one():
    picture = value_of(blob(b"\x89PNG\r\n\x1a\n", "image/png"))
    assert (type(picture).__name__, picture.data) == ("Image", b"\x89PNG\r\n\x1a\n")
    table = value_of(McpContents("u", "text/csv", "a,b\n1,2\n"))
    assert table.equals(pandas.DataFrame({"a": [1], "b": [2]}))
    assert value_of(McpContents("u", "text/csv", "")) == ""


@pytest.mark.parametrize("data", ["!", "é", "a"])
def test_broken_bytes_are_the_servers_fault(data):
    with pytest.raises(FatalError, match="no base64"):
        value_of(McpContents("asking://x", "image/png", blob=data))


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([("user", "Hello.")], "Hello."),
        ([("user", "One?"), ("assistant", "Two.")], "user: One?\n\nassistant: Two."),
        (
            [("user", (InputText("See"), InputImage("data:image/png;base64,AA")))],
            "See\n[image]",
        ),
        ([], ""),
    ],
)
def test_a_prompt_is_one_text(messages, text):
    assert prompt_text(messages) == text
