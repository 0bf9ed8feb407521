"""Tells where our own files stand: the person's settings and state, and a project's settings."""

import os
import stat
from functools import lru_cache
from pathlib import Path

from agent_magics.files.locks import own_write
from agent_magics.protocol.errors import FatalError

# The folder of a project's settings, rules, tools and servers.
FOLDER = ".agent_magics"
CONFIG = "config.toml"  # of settings and servers, there and in the person's own folder
MCP_JSON = ".mcp.json"  # servers of a project, which other clients read too


def config_folder() -> Path:
    """Return the person's folder for settings of agent-magics (the platform's)."""
    return _folders(*map(os.environ.get, ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "HOME")))[0]


def state_folder() -> Path:
    """Return the person's folder for what agent-magics keeps (the platform's)."""
    return _folders(*map(os.environ.get, ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "HOME")))[1]


@lru_cache(maxsize=4)
def _folders(*variables: str | None) -> tuple[Path, Path]:
    """Return both folders; `variables` only invalidates the cache."""
    import platformdirs  # noqa: PLC0415 - 5 ms that `import agent_magics` need not pay

    found = platformdirs.PlatformDirs("agent-magics", appauthor=False)
    return found.user_config_path, found.user_state_path


def make_project_folder(folder: Path) -> None:
    """Make the folder of a project's settings; it may not be a link to another place.

    Raises:
        FatalError: it is none of the project.
        OSError: it cannot be made.
    """
    with own_write(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise FatalError(
            f"{folder} is no folder of this project; nothing was written. Remove what stands there."
        )


def user_rules_file() -> Path:
    """Return the path of the person's own rules (in the platform's configuration folder)."""
    return config_folder() / "rules.toml"


def user_tools_folder() -> Path:
    """Return the folder of the person's own tools, beside their rules."""
    return config_folder() / "tools"


def user_config_file() -> Path:
    """Return the path of the person's own settings, beside their rules."""
    return config_folder() / CONFIG


def trust_folder(what: str = "rules") -> Path:
    """Return the folder with digests of trusted files of projects; `what` is "rules", "tools" or
    "mcp".
    """
    return state_folder() / f"trusted-{what}"
