"""What the first levels of a writable folder hold that a command must not touch.

Law: a folder is looked into again only after it changed, and never more than a fixed number of
them, so that a survey before every command costs next to nothing.
"""

import os
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from threading import Lock

from agent_magics.backends.beneath import real_path
from agent_magics.backends.paths import read_judge

_LEVELS = 4  # the folder itself, and three below
_MOST_FOLDERS = 200
_MOST_NAMES = 5_000  # of one folder
_MOST_KEPT = 2_000  # folders remembered, of all workspaces together
# Made by tools, full of files, and holding neither repositories nor secrets of the person.
_SKIPPED = frozenset(
    {".git", "node_modules", "__pycache__", ".tox", ".nox", ".mypy_cache", "site-packages"}
)
_SECRET_STARTS = (".", "_netrc", "id_", "kernel-", "jpserver-", "nbserver-")
_BARE_REPOSITORY = frozenset({"HEAD", "objects", "refs"})


@dataclass(frozen=True, slots=True)
class _Folder:
    """One folder as it was at `stamp`."""

    stamp: tuple[int, int]
    subfolders: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    git: tuple[str, ...] = ()
    is_bare: bool = False


@dataclass(slots=True)
class Survey:
    """What was found below some folders.

    Attributes:
        repositories: each ``.git``, which may be a folder, a file or a link.
        bare: folders that are themselves a git repository, without ``.git``.
        secrets: files and folders that only the person may read.
        kept: other files that must stay as they are; filled in by whoever knows them.
    """

    repositories: list[str] = field(default_factory=list)
    bare: list[str] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)


_known: OrderedDict[str, _Folder] = OrderedDict()
_lock = Lock()


def survey(roots: tuple[str, ...]) -> Survey:
    """Look through the first levels of `roots`, which are absolute paths without symlinks."""
    found = Survey()
    for root in roots:
        for path, folder in _walk(root):
            found.repositories += folder.git
            if folder.is_bare:
                found.bare.append(path)
            found.secrets += folder.secrets
    return found


def _walk(root: str) -> Iterator[tuple[str, _Folder]]:
    """Yield the folders nearest to `root` first, so that the limit cuts off the deepest."""
    waiting = deque([(root, 1)])
    for _ in range(_MOST_FOLDERS):
        if not waiting:
            return
        path, level = waiting.popleft()
        folder = _look(path)
        if folder is None:
            continue
        yield path, folder
        if level < _LEVELS:
            waiting.extend((f"{path}/{name}", level + 1) for name in folder.subfolders)


def _look(path: str) -> _Folder | None:
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    stamp = (status.st_ino, status.st_mtime_ns)
    with _lock:
        known = _known.get(path)
    if known is None or known.stamp != stamp:
        known = _look_into(path, stamp)
        with _lock:
            _known[path] = known
            _known.move_to_end(path)
            if len(_known) > _MOST_KEPT:
                _known.popitem(last=False)
    return known


def _look_into(path: str, stamp: tuple[int, int]) -> _Folder:
    try:
        with os.scandir(path) as entries:
            found = list(islice(entries, _MOST_NAMES))
    except OSError:  # not a folder, or not ours to look into
        return _Folder(stamp)
    names = {entry.name for entry in found}
    judge = read_judge()
    return _Folder(
        stamp,
        tuple(
            sorted(
                entry.name
                for entry in found
                if entry.name not in _SKIPPED and entry.is_dir(follow_symlinks=False)
            )
        ),
        tuple(
            real_path(entry.path)
            for entry in found
            if entry.name.lower().startswith(_SECRET_STARTS) and judge(entry.path)
        ),
        # A file system without case knows .GIT by the same name.
        git=tuple(f"{path}/{name}" for name in names if name.lower() == ".git"),
        is_bare=names >= _BARE_REPOSITORY,
    )
