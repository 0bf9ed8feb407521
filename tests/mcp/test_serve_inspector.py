"""Our tools before a client of others: the command line of the MCP inspector."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_magics import Agent, tool
from tests.support.mcp.foreign_servers import node_program

LIMIT = 90.0
ROOT = Path(__file__).parents[2]


@tool
def add(a: int, b: int = 2) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": a + b}


@tool
def broken() -> str:
    """Fail."""
    raise ValueError("no such luck")


@pytest.fixture(scope="module")
def served() -> Iterator[Any]:
    with Agent(tools=["coding", add, broken]) as agent, agent.serve() as serving:
        yield serving


class Inspector:
    """Runs the inspector's command line with a home of its own."""

    def __init__(self, home: Path) -> None:
        self._command = [*node_program("mcp-inspector"), "--cli"]
        self._env = {"HOME": str(home), "PATH": os.defpath, "NO_COLOR": "1"}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._command, *words],
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )

    def ask(self, *words: str) -> dict[str, Any]:
        done = self.run(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def inspector(tmp_path: Path) -> Inspector:
    return Inspector(tmp_path)


def over_http(served: Any, *words: str) -> list[str]:
    header = f"Authorization: Bearer {served.token}"
    return [served.url, "--transport", "http", "--header", header, *words]


def test_it_lists_the_tools_and_finds_no_fault_with_their_schemas(
    inspector: Inspector, served: Any
) -> None:
    done = inspector.run(*over_http(served, "--method", "tools/list", "--strict"))
    assert done.returncode == 0, done.stdout + done.stderr
    names = [each["name"] for each in json.loads(done.stdout)["tools"]]
    assert tuple(names) == served.tools


def test_it_calls_tools(inspector: Inspector, served: Any) -> None:
    call = ("--method", "tools/call", "--tool-name")
    added = inspector.ask(*over_http(served, *call, "add", "--tool-arg", "a=3"))
    assert added["structuredContent"] == {"sum": 5}
    assert added["content"] == [{"type": "text", "text": '{"sum":5}'}]
    failed = inspector.run(*over_http(served, *call, "broken"))
    assert json.loads(failed.stdout)["isError"] is True
    assert "no such luck" in failed.stdout


def test_it_is_refused_without_the_token(inspector: Inspector, served: Any) -> None:
    done = inspector.run(served.url, "--transport", "http", "--method", "tools/list")
    assert done.returncode != 0
    assert "auth_required" in done.stderr


def test_it_starts_our_server_over_standard_streams(inspector: Inspector, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("written before\n")
    program = [sys.executable, "-m", "agent_magics.serve", "--cwd", str(tmp_path)]
    listed = inspector.ask(
        *program, "-e", f"PYTHONPATH={ROOT}", "--method", "tools/call", "--tool-name",
        "read_file", "--tool-arg", "path=notes.txt",
    )  # fmt: skip
    assert "written before" in listed["content"][0]["text"]
