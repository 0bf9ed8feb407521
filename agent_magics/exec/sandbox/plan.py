"""Computes what a command may access, from a run's settings and the existing files.

Law: everything outside the writable folders is read-only by default; the lists here are the
exceptions inside them, and to reading.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from agent_magics.exec.launcher.wire import Confinement
from agent_magics.exec.protected.git_places import git_parts, is_approved
from agent_magics.files.beneath import is_below, real_path
from agent_magics.files.own_places import places_that_run_later
from agent_magics.files.paths import read_judge
from agent_magics.files.secret_places import secret_places
from agent_magics.files.survey import Survey, survey

_Paths = Sequence[str]

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
    unreadable: Iterable[str] = (),
) -> Confinement:
    """Return the confinement of a command.

    It is cheap to call before every command: folders are read again only if they changed.

    Args:
        tier: 1 or 2; see `Confinement`.
        policy: "read-only" or "workspace-write".
        roots: the folders of the workspace, writable under "workspace-write".
        cwd: the folder in which the command runs; it is never hidden.
        tmp: the private folder for temporary files, always writable.
        network: whether the command may use the network.
        extra_writable: files and folders that the person allowed this command to write too,
            including protected ones; absolute and as they were judged: they are not resolved again,
            so that a link that was put there since is refused.
        notebook: the notebook that is open in this kernel, protected with its recording.
        unreadable: further files and folders that it may not read, without symlinks.
    """
    workspace, private = _real(roots), real_path(tmp)
    approved = tuple(dict.fromkeys(os.fspath(path) for path in extra_writable))
    writable = (*(workspace if policy == "workspace-write" else ()), *approved)
    found = survey(tuple(dict.fromkeys((*workspace, *approved))), read_judge())
    if notebook:
        found.kept.extend(_notebook_parts(notebook))
    needed = (*workspace, private, *_real((cwd, sys.prefix, sys.base_prefix)))
    return Confinement(
        tier=tier,
        writable=tuple(dict.fromkeys((*writable, private))),
        protected=_protected(writable, approved, found),
        hidden=_hidden((*secret_places(), *found.secrets, *unreadable), approved, needed),
        network=network,
        workspace=workspace,
    )


# -- protected paths ------------------------------------------------------------------------------


def _protected(writable: _Paths, approved: _Paths, found: Survey) -> tuple[str, ...]:
    """Return the paths below `writable` that stay read-only, except those the person approved by
    name.
    """
    places = [
        *found.kept,
        *(part for place in (*found.repositories, *found.bare) for part in git_parts(place)),
        *(f"{folder}/{_PROJECT_SETTINGS}" for folder in writable),
        *places_that_run_later(writable),
    ]
    inside = {path for path in places if is_below(path, writable) and path not in writable}
    return tuple(sorted(path for path in inside if not is_approved(path, approved)))


def _notebook_parts(notebook: str | os.PathLike[str]) -> list[str]:
    """Return the open notebook and the recording beside it."""
    path = Path(real_path(notebook))
    return [str(path), str(path.with_name(f"{path.stem}.agent.jsonl"))]


# -- hidden paths ---------------------------------------------------------------------------------


def _hidden(places: Iterable[str], approved: _Paths, needed: _Paths) -> tuple[str, ...]:
    """Return `places` except those that contain something that the command needs; of one that
    contains an approved path, what stands beside the way to that.
    """
    hidden = (place for place in set(places) if not _holds_any(place, needed))
    return tuple(sorted({path for place in hidden for path in _beside(approved, place)}))


def _beside(approved: _Paths, place: str) -> Iterator[str]:
    """Yield `place`; or where it contains an approved path, its entries beside the way to that."""
    inside = [path for path in approved if is_below(path, (place,))]
    if inside and place not in inside:
        with suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                # What a link leads to is judged where it stands.
                if not entry.is_symlink():
                    yield from _beside(inside, entry.path)
            return
    if place not in inside:  # or it cannot be looked into
        yield place


def _holds_any(folder: str, paths: Iterable[str]) -> bool:
    return any(is_below(path, (folder,)) for path in paths)


def _real(paths: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(real_path(path) for path in paths))
