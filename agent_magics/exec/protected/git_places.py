"""Lists the parts of a repository that make git run programs: hooks, configuration, filters."""

import os
from collections.abc import Collection

from agent_magics.files.beneath import is_below, real_path
from agent_magics.files.git.repositories import git_folders, named_for_git

# Git runs programs named in these (hooks, core.fsmonitor, filters), as the person, at their next
# git call. `git commit` writes none of them. A linked worktree has the same files, or names the
# folder that has them.
GIT_PARTS = (*("hooks", "config", "config.worktree", "commondir", "gitdir", "info", "modules"),)


def git_parts(dot_git: str) -> list[str]:
    """Return the parts of a repository that can make git run programs; some may not exist.

    A ``.git`` that is a file or a link (worktrees, submodules) names the real folder, and so may a
    file in that; then what names it counts, too. So do hooks and configuration that stand elsewhere
    because the configuration says so.

    Args:
        dot_git: the path of ``.git``, or of the folder of a bare repository.

    Returns:
        Absolute paths; links in their folders are resolved. Of a link both it and its target.
    """
    folders = git_folders(dot_git)
    parts = [] if os.path.isdir(dot_git) and not os.path.islink(dot_git) else [dot_git]
    parts += [f"{folder}/{part}" for folder in folders for part in GIT_PARTS]
    parts += [place for folder in folders for place in named_for_git(folder, dot_git)]
    return list(dict.fromkeys(each for part in parts for each in _with_target(part)))


def is_approved(path: str, approved: Collection[str]) -> bool:
    """Tell whether the person named `path`, or the .git that contains it."""
    return path in approved or is_below(path, [p for p in approved if p.endswith("/.git")])


def _with_target(path: str) -> tuple[str, ...]:
    return (path, real_path(path)) if os.path.islink(path) else (path,)
