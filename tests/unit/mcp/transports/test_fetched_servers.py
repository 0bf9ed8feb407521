"""Servers that npx and the like fetch: nothing in the workspace decides what runs."""

import json
import shlex
import stat
import subprocess
from pathlib import Path

import pytest

from agent_magics.mcp.transports.stdio import start_of
from agent_magics.protocol.mcp import McpServerConfig


@pytest.fixture
def workspace(tmp_path):
    """A folder that a model has filled: a program of the server's name, and another `node`."""
    for name in ("planted", "node"):
        program = tmp_path / "node_modules/.bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n", encoding="utf-8")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "package.json").write_text(json.dumps({"bin": "x"}), encoding="utf-8")
    return tmp_path


@pytest.mark.soak
@pytest.mark.needs("program npx")
def test_npx_runs_nothing_of_the_workspace(workspace):
    words = ["--offline", "--yes", "planted"]
    # The control: in the workspace it does.
    subprocess.run(["npx", *words], cwd=workspace, capture_output=True, timeout=60)
    assert (workspace / "ran").exists()
    (workspace / "ran").unlink()
    folder, args = start_of(McpServerConfig("x", command="npx", args=tuple(words)), workspace)
    subprocess.run(["npx", *args], cwd=folder, capture_output=True, timeout=60)
    assert not (workspace / "ran").exists()


@pytest.mark.parametrize(
    "line",
    ["npx -y x .", "/usr/bin/npx x .", "uvx x .", "npm exec x .", "pnpm dlx x .", "uv tool ."],
)
def test_what_is_fetched_starts_elsewhere_and_is_told_where_the_workspace_is(line, tmp_path):
    command, *args = line.split()
    folder, started = start_of(McpServerConfig("x", command=command, args=tuple(args)), tmp_path)
    assert not folder.is_relative_to(tmp_path)
    assert started == [*args[:-1], f"{tmp_path}/."]
    assert sorted(path.name for path in folder.iterdir()) == ["package.json"]


@pytest.mark.parametrize(
    "line",
    [
        *("npx.cmd x", "npm --yes exec x", "pnpm --silent dlx x", "uv -q tool run x"),
        *("npm --prefix y exec x", "uv --directory y tool run x", "pnpm -C y --silent dlx x"),
        *("env npx x", "env -i A=b npx x", "env -S 'npx x'", "timeout 60 npx x", "nice uvx x"),
        *(
            "bash -c 'npx -y x'",
            "sh -lc 'exec npx x'",
            "sh -c 'A=b npx x'",
            "bash -c 'sleep 1; uvx x'",
        ),
    ],
)
def test_behind_wrappers_too(line, tmp_path):
    command, *args = shlex.split(line)
    folder, _ = start_of(McpServerConfig("x", command=command, args=tuple(args)), tmp_path)
    assert not folder.is_relative_to(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        *("node ./server.js", "uv run server.py", "npm run server", "env A=b node server.js"),
        *("bash -c 'node server.js'", "python server.py npx", "node server.js --with npx"),
    ],
)
def test_what_the_person_has_in_the_workspace_starts_there(line, tmp_path):
    command, *args = shlex.split(line)
    config = McpServerConfig("x", command=command, args=tuple(args))
    assert start_of(config, tmp_path) == (tmp_path, args)


def test_a_folder_that_the_person_names_is_the_one(tmp_path):
    config = McpServerConfig("x", command="npx", args=("x", "."), cwd=Path("/srv"))
    assert start_of(config, tmp_path) == (Path("/srv"), ["x", "."])
