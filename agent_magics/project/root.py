"""Finds the root of the project that a workspace belongs to."""

import os
from pathlib import Path

_REPOSITORY, _PYPROJECT = ".git", "pyproject.toml"


def find_root(workspace: Path) -> Path:
    """Return the root of a workspace's project, with links resolved.

    It is the git repository that the workspace is in; else the nearest folder with a
    ``pyproject.toml``; else the workspace itself.
    """
    workspace = Path(os.path.realpath(workspace))
    for name in (_REPOSITORY, _PYPROJECT):
        for folder in (workspace, *workspace.parents):
            if os.path.lexists(folder / name):
                return folder
    return workspace


def folders_down(workspace: Path) -> list[Path]:
    """Return the folders from the project's root down to the workspace, both included."""
    root, workspace = find_root(workspace), Path(os.path.realpath(workspace))
    return [each for each in (*reversed(workspace.parents), workspace) if each.is_relative_to(root)]
