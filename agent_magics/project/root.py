"""Finds the root of the project that a workspace belongs to."""

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from agent_magics.files.beneath import real_path

REPOSITORY, _PYPROJECT = ".git", "pyproject.toml"
_MARKS = (REPOSITORY, _PYPROJECT)


def find_root(workspace: Path) -> Path:
    """Return the root of a workspace's project, with links resolved.

    It is the git repository that the workspace is in; else the nearest folder with a
    ``pyproject.toml``; else the workspace itself.
    """
    return folders_down(Path(real_path(workspace)))[0]


def folders_down(workspace: Path, marks: Sequence[str] = _MARKS) -> list[Path]:
    """Return the folders from the project's root down to the workspace; see `find_root`.

    Args:
        workspace: an absolute path without links, as that of an agent is.
        marks: what a root has, the strongest first.
    """
    upwards = _upwards(str(workspace))
    for name in marks:
        for place, folder in enumerate(upwards):
            if os.path.lexists(f"{folder}/{name}"):
                return upwards[place::-1]
    return upwards[:1]


@lru_cache(maxsize=64)  # looked up at the start of every run
def _upwards(workspace: str) -> list[Path]:
    return [Path(workspace), *Path(workspace).parents]
