"""Starts MCP programs of other projects, from build/mcp.

`make servers` installs them. Where they are missing the tests are skipped in one line, but not in
CI.
"""

from pathlib import Path

from tests.support.needs import require

ENVIRONMENTS = Path(__file__).parents[3] / "build" / "mcp"


def folder_of(name: str) -> Path:
    """Return an environment's folder."""
    require(f"server mcp/{name}")
    return ENVIRONMENTS / name


def node_program(name: str) -> list[str]:
    """Return the command that runs a program of an npm package."""
    folder = folder_of("npm")
    return [str(folder / "bin" / "node"), str(folder / "node_modules" / ".bin" / name)]


def python_program(name: str) -> list[str]:
    """Return the command that runs a Python server, such as ``mcp-server-git``."""
    python = folder_of("python") / "bin" / "python"
    return [str(python), "-m", name.replace("-", "_")]
