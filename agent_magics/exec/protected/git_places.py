"""Lists the parts of a repository that make git run programs: hooks, configuration, filters."""

import os
from itertools import islice

from agent_magics.files.beneath import real_path
from agent_magics.files.plain_files import read_plain

# Git runs programs named in these (hooks, core.fsmonitor, filters), as the person, at their next
# git call. `git commit` writes none of them.
GIT_PARTS = ("hooks", "config", "config.worktree", "commondir", "info", "modules")
# Of a linked worktree: where its hooks and configuration are, and a configuration of its own.
_WORKTREE_PARTS = ("commondir", "gitdir", "config.worktree")
_MOST_WORKTREES = 100


def git_parts(dot_git: str) -> list[str]:
    """Return the parts of a repository that can make git run programs, as symlink-free paths; some
    may not exist.

    A ``.git`` that is a file (worktrees, submodules) names the real folder; then both that file and
    the folder's own parts count.

    Args:
        dot_git: the path of ``.git``, or of the folder of a bare repository.
    """
    place = real_path(dot_git)
    if os.path.isdir(place):
        return _parts_of(place)
    parts = [place]
    named = _read_line(place).removeprefix("gitdir:").strip()
    if named:
        real = real_path(os.path.join(os.path.dirname(place), named))
        parts += [*_parts_of(real), f"{real}/commondir", f"{real}/gitdir"]
        if common := _read_line(f"{real}/commondir"):
            parts += _parts_of(real_path(os.path.join(real, common)))
    return list(dict.fromkeys(parts))


def _parts_of(git_folder: str) -> list[str]:
    worktrees = _worktrees_of(git_folder)
    parts = [f"{git_folder}/{part}" for part in GIT_PARTS]
    parts += [f"{worktree}/{part}" for worktree in worktrees for part in _WORKTREE_PARTS]
    return [real_path(part) if os.path.islink(part) else part for part in parts]


def _worktrees_of(git_folder: str) -> list[str]:
    """Return the folders that a repository's linked worktrees read, wherever they are."""
    try:
        with os.scandir(f"{git_folder}/worktrees") as entries:
            return sorted(entry.path for entry in islice(entries, _MOST_WORKTREES))
    except OSError:
        return []


def _read_line(path: str) -> str:
    """Return the first line of a small regular file, or "" if it cannot be a path."""
    try:
        line = os.fsdecode(read_plain(path, links=True).partition(b"\n")[0].strip())
    except OSError:
        return ""
    return "" if "\0" in line else line
