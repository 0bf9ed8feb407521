"""Programs of others that speak the Model Context Protocol, from build/mcp.

`make servers` installs them. Where they are missing the tests are skipped in one line, but not in
CI.
"""

import os
from pathlib import Path

import pytest

ENVIRONMENTS = Path(__file__).parents[2] / "build" / "mcp"


def folder_of(name: str) -> Path:
    """Return an environment's folder; skip the test, or in CI fail it, without one."""
    if not (ENVIRONMENTS / f"{name}.stamp").is_file():
        missing = f"the MCP servers ({name}) are not installed: make servers"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    return ENVIRONMENTS / name


def node_program(name: str) -> list[str]:
    """Return the command that runs a program of npm."""
    folder = folder_of("npm")
    return [str(folder / "bin" / "node"), str(folder / "node_modules" / ".bin" / name)]


def python_program(name: str) -> list[str]:
    """Return the command that runs a Python server, such as ``mcp-server-git``."""
    python = folder_of("python") / "bin" / "python"
    return [str(python), "-m", name.replace("-", "_")]
