"""One MCP server from its table: all keys, and one sentence for each mistake."""

from pathlib import Path

import pytest

from agent_magics.mcp.config.table import TableReader
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.mcp import McpServerConfig

FOLDER = Path("/w")


def read(table, name="s"):
    def place(name, key):
        return f"/p/config.toml, line of {name}.{key}"

    return TableReader(place, FOLDER).read(name, table)


def error_in(table, name="s"):
    with pytest.raises(FatalError) as caught:
        read(table, name)
    return str(caught.value)


def test_a_program_with_all_its_keys():
    assert read(
        {
            "command": "uvx",
            "args": ["mcp-server-git"],
            "env": {"A": "1"},
            "env_vars": ["HOME"],
            "cwd": "sub/../here",
            "enabled": False,
            "required": True,
            "enabled_tools": ["a"],
            "disabled_tools": ["b"],
            "startup_timeout_sec": 3,
            "tool_timeout_sec": 2.5,
            "supports_parallel_tool_calls": True,
            "approval_mode": "prompt",
        }
    ) == McpServerConfig(
        name="s",
        command="uvx",
        args=("mcp-server-git",),
        env={"A": "1"},
        env_vars=("HOME",),
        cwd=Path("/w/here"),
        enabled=False,
        required=True,
        enabled_tools=("a",),
        disabled_tools=("b",),
        startup_timeout_sec=3.0,
        tool_timeout_sec=2.5,
        supports_parallel_tool_calls=True,
        approval_mode="prompt",
        source="/p/config.toml, line of s.",
    )


def test_a_server_over_http():
    server = read(
        {
            "url": "https://example.org/mcp",
            "headers": {"X-Team": "blue"},
            "bearer_token_env_var": "TOKEN",
            "timeout_seconds": 7,
        }
    )
    assert (server.transport, server.headers) == ("http", {"X-Team": "blue"})
    assert (server.bearer_token_env_var, server.tool_timeout_sec) == ("TOKEN", 7.0)
    assert read({"url": "http://localhost:1/sse", "transport": "sse"}).transport == "sse"


def test_an_absolute_folder_and_ones_home():
    assert read({"command": "x", "cwd": "/a"}).cwd == Path("/a")
    assert read({"command": "x", "cwd": "~/a"}).cwd == Path("~/a").expanduser()


@pytest.mark.parametrize(
    ("table", "key", "words"),
    [
        ({"comand": "x"}, "comand", "did you mean command? There are: command, args, env,"),
        ({"command": "x", "zzz": 1}, "zzz", "'zzz' is not a key of an MCP server; there are: "),
        ({"url": "https://a/b", "http_headers": {}}, "http_headers", "did you mean headers?"),
        ({}, "", "MCP server 's' has neither command nor url"),
        ({"command": "x", "url": "https://a/b"}, "url", "either command or url, not both"),
        ({"command": "x", "headers": {}}, "headers", "headers is only for a server with url"),
        (
            {"command": "x", "bearer_token_env_var": "T"},
            "bearer_token_env_var",
            "bearer_token_env_var is only for a server with url",
        ),
        ({"url": "https://a/b", "args": []}, "args", "args is only for a server with command"),
        ({"command": "x", "transport": "http"}, "transport", "does not go with command"),
        ({"url": "https://a/b", "transport": "stdio"}, "transport", "does not go with url"),
        ({"url": "https://a/b", "transport": "ws"}, "transport", "one of: stdio | http | sse"),
        ({"command": 5}, "command", "command must be text"),
        ({"command": ""}, "command", "command must be text"),
        ({"command": "x", "args": "y"}, "args", "args must be a list of texts"),
        ({"command": "x", "args": ["a", 1]}, "args", "args must be a list of texts"),
        ({"command": "x", "env": []}, "env", "env must be a table of texts"),
        ({"command": "x", "env_vars": ["A=b"]}, "env_vars", "names of environment variables"),
        ({"command": "x", "enabled": "yes"}, "enabled", "enabled must be true or false"),
        (
            {"command": "x", "tool_timeout_sec": 0},
            "tool_timeout_sec",
            "tool_timeout_sec must be a number of seconds above 0",
        ),
        (
            {"command": "x", "startup_timeout_sec": True},
            "startup_timeout_sec",
            "startup_timeout_sec must be a number of seconds above 0",
        ),
        (
            {"command": "x", "tool_timeout_sec": 1, "timeout_seconds": 1},
            "timeout_seconds",
            "give one of them",
        ),
        (
            {"command": "x", "approval_mode": "never"},
            "approval_mode",
            "approval_mode = 'never' is not one of: auto | prompt | approve",
        ),
        (
            {"url": "https://a/b", "oauth_callback_port": 8080},
            "oauth_callback_port",
            "oauth_callback_port is only for a server with oauth_client_id",
        ),
        (
            {"url": "https://a/b", "oauth_issuer": "login"},
            "oauth_issuer",
            "oauth_issuer must be an address",
        ),
        (
            {"url": "https://a/b", "oauth_client_id": "x", "oauth_callback_port": 0},
            "oauth_callback_port",
            "must be a port, from 1 to 65535",
        ),
        (
            {"command": "x", "oauth_client_id": "x"},
            "oauth_client_id",
            "oauth_client_id is only for a server with url",
        ),
        ({"url": "ftp://a/b"}, "url", "must be an address such as https://example.org/mcp"),
        ({"url": "https://[bad"}, "url", "must be an address such as https://example.org/mcp"),
    ],
)
def test_a_mistake_says_where_and_what(table, key, words):
    message = error_in(table)
    assert message.startswith(f"/p/config.toml, line of s.{key}: ")
    assert words in message
    assert message.endswith(".")


@pytest.mark.parametrize(
    "table",
    [
        {"url": "https://a/b", "bearer_token": "SECRET"},
        {"url": "https://a/b", "bearer_token_env_var": "SECRET-123"},
        {"url": "https://a/b", "oauth_client_id": "x", "oauth_client_secret_env_var": "SECRET-1"},
        {"url": "https://me:SECRET@a/b"},
        {"url": "https://a/b", "headers": {"A": "SECRET\r\nB: c"}},
        {"url": "https://a/b", "headers": {"A": "SECRET J\u00fcrgen"}},
        {"url": "https://a/b", "headers": {"A": "SECRET\x01"}},
        {"url": "https://a/b", "headers": {"A": ["SECRET"]}},
        {"command": "x", "env": {"A": ["SECRET"]}},
        {"command": "x", "args": ["--key", "SECRET", 3]},
        {"command": "x", "env_vars": ["A=SECRET"]},
        {"command": ["SECRET"]},
        {"url": ["SECRET"]},
    ],
)
def test_no_sentence_repeats_what_may_be_secret(table):
    assert "SECRET" not in error_in(table)


@pytest.mark.parametrize("name", ["", " a", "a\nb", "x" * 65])
def test_a_name_can_be_shown_on_one_line(name):
    assert "must be 1 to 64 characters" in error_in({"command": "x"}, name)
