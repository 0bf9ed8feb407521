"""What a command may touch, worked out from a run's settings and from what is there right now.

Law: everything outside the writable folders is read-only without being named; the lists here are
the exceptions, inside them and to reading.
"""

import os
import stat
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from agent_magics.backends.beneath import real_path
from agent_magics.backends.exec.survey import Survey, survey
from agent_magics.backends.launcher.wire import Confinement
from agent_magics.backends.own_places import is_below, places_that_run_later
from agent_magics.backends.secret_places import secret_places

_Paths = Sequence[str]
_LONGEST_LINE = 4096  # PATH_MAX of linux/limits.h

# git runs what these say (hooks, core.fsmonitor, filters), as the person, at their next git call.
# `git commit` writes none of them.
GIT_PARTS = ("hooks", "config", "config.worktree", "commondir", "info", "modules")
_PROJECT_SETTINGS = ".agent_magics"


def build_confinement(
    *,
    tier: int,
    policy: str,
    roots: Iterable[str | os.PathLike[str]],
    cwd: str | os.PathLike[str],
    tmp: str | os.PathLike[str],
    network: bool = False,
    extra_writable: Iterable[str | os.PathLike[str]] = (),
    notebook: str | os.PathLike[str] | None = None,
) -> Confinement:
    """Return what a command is confined to.

    It is cheap to call before every command: folders are looked into again only when they changed.

    Args:
        tier: 1 or 2; see `Confinement`.
        policy: "read-only" or "workspace-write".
        roots: the folders of the workspace, writable under "workspace-write".
        cwd: where the command runs; it is never hidden.
        tmp: the private folder for temporary files, always writable.
        network: whether the command may use the network.
        extra_writable: files and folders that the person let this command write too, protected
            ones included.
        notebook: the notebook that is open in this kernel, protected with its recording.
    """
    workspace, approved, private = _real(roots), _real(extra_writable), real_path(tmp)
    writable = (*(workspace if policy == "workspace-write" else ()), *approved)
    found = survey(tuple(dict.fromkeys((*workspace, *approved))))
    if notebook:
        found.kept.extend(_notebook_parts(notebook))
    needed = (*workspace, *approved, private, *_real((cwd, sys.prefix, sys.base_prefix)))
    return Confinement(
        tier=tier,
        writable=tuple(dict.fromkeys((*writable, private))),
        protected=_protected(writable, approved, found),
        hidden=_hidden((*secret_places(), *found.secrets), needed),
        network=network,
    )


def git_parts(dot_git: str) -> list[str]:
    """Return what of a repository makes git run something, as symlink-free paths; some are absent.

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
    return parts


def _parts_of(git_folder: str) -> list[str]:
    parts = (f"{git_folder}/{part}" for part in GIT_PARTS)
    return [real_path(part) if os.path.islink(part) else part for part in parts]


def _read_line(path: str) -> str:
    """Return the first line of a small regular file, or "" where there is none that is a path."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return ""
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        line = os.fsdecode(file.readline(_LONGEST_LINE).strip())
    return "" if "\0" in line else line


# -- what stays as it is -------------------------------------------------------------------------


def _protected(writable: _Paths, approved: _Paths, found: Survey) -> tuple[str, ...]:
    """Return what stays read-only below `writable`, but for what the person approved by name."""
    places = [
        *found.kept,
        *(part for place in (*found.repositories, *found.bare) for part in git_parts(place)),
        *(f"{folder}/{_PROJECT_SETTINGS}" for folder in writable),
        *places_that_run_later(writable),
    ]
    inside = {path for path in places if is_below(path, writable) and path not in writable}
    return tuple(sorted(path for path in inside if not _is_approved(path, approved)))


def _is_approved(path: str, approved: _Paths) -> bool:
    """Tell whether the person named `path`, something in it, or the .git that it belongs to."""
    return any(
        is_below(named, (path,)) or (named.endswith("/.git") and is_below(path, (named,)))
        for named in approved
    )


def _notebook_parts(notebook: str | os.PathLike[str]) -> list[str]:
    """Return the open notebook and the recording that is played beside it."""
    path = Path(real_path(notebook))
    return [str(path), str(path.with_name(f"{path.stem}.agent.jsonl"))]


# -- what is not shown ---------------------------------------------------------------------------


def _hidden(places: Iterable[str], needed: Sequence[str]) -> tuple[str, ...]:
    """Return `places` but for those in which something stands that the command needs."""
    return tuple(sorted(place for place in set(places) if not _holds_any(place, needed)))


def _holds_any(folder: str, paths: Iterable[str]) -> bool:
    return any(is_below(path, (folder,)) for path in paths)


def _real(paths: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(real_path(path) for path in paths))
