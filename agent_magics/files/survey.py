"""Finds what commands must not access in a writable folder: repositories, the person's secrets.

Law: what is protected does not depend on the shape of a tree. All of it is searched, however
deep and wide; a folder that could not be read is listed in `Survey.missed`, for a report. A
folder is read again only after it changed, so that a survey around every command is cheap.
"""

import errno
import os
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from agent_magics.files.beneath import real_path
from agent_magics.files.locks import thread_lock
from agent_magics.files.secret_places import REASON_OF, Inodes, inodes_of, linked_secrets
from agent_magics.protocol.errors import clause

_LONGEST = 3.0  # seconds of one survey; folders read by then are cached for the next
_MOST_TREES = 8  # cached trees
_MOST_WALKS = 4  # through one tree, while folders in it are moved
# A change within the same tick of the kernel's clock as the listing may not alter the time stamp.
_TICK = 0.05  # seconds
_SECRET_STARTS = (".", "_netrc", "id_", "kernel-", "jpserver-", "nbserver-")
# The last parts of places such as .docker/config.json.
_SECRET_ENDS = frozenset(place.rpartition("/")[2] for place in REASON_OF if place[0] == ".")
_BARE_REPOSITORY = frozenset({"HEAD", "objects", "refs"})
_NAMES_REPOSITORY = "commondir"  # in the folder of a linked worktree, wherever that stands
_GONE = (errno.ENOENT, errno.ENOTDIR)

Judge = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class _Surveyed:
    """One folder as it was at `stamp`; paths are absolute."""

    stamp: tuple[int, ...] = ()
    sought: Inodes = frozenset()
    subfolders: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    git: tuple[str, ...] = ()
    is_bare: bool = False


@dataclass(slots=True)
class Survey:
    """The findings below some folders.

    Attributes:
        repositories: each ``.git``, which may be a folder, a file or a link.
        bare: folders that are themselves a git repository, or a part of one, without ``.git``.
        secrets: files and folders that only the person may read.
        missed: folders that could not be read -> the reason.
        kept: other files that must not change; filled in by the caller.
        moved: whether a folder was gone once it was to be looked at.
    """

    repositories: list[str] = field(default_factory=list)
    bare: list[str] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)
    missed: dict[str, str] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)
    moved: bool = False

    def add(self, other: "Survey") -> None:
        """Add the findings of another survey to these."""
        self.repositories += other.repositories
        self.bare += other.bare
        self.secrets += other.secrets
        self.missed |= other.missed


_known: OrderedDict[str, dict[str, _Surveyed]] = OrderedDict()  # root -> path -> folder
_last: dict[tuple[str, ...], tuple[float, Survey]] = {}  # when it was made
_sought: dict[tuple[str, ...], Inodes] = {}  # in the last survey
_lock = thread_lock()


def survey(roots: tuple[str, ...], judge: Judge, age: float = 0.0) -> Survey:
    """Search all of `roots`, which are absolute paths without symlinks.

    Args:
        roots: the folders.
        age: maximal age in seconds of an earlier result to return instead.
    """
    made, last = _last.get(roots, (0.0, Survey()))
    if time.monotonic() - made < age:
        return last
    deadline = time.monotonic() + _LONGEST
    with _lock:
        sought = _sought.get(roots, frozenset())
        found = _look_through(roots, judge, sought, deadline)
        linked = inodes_of(found.secrets, linked=True) | linked_secrets()
        if linked != sought:
            found = _look_through(roots, judge, linked, deadline)
        _sought.clear()
        _sought[roots] = linked
        _last.clear()
        _last[roots] = time.monotonic(), found
    return found


def _look_through(roots: tuple[str, ...], judge: Judge, sought: Inodes, deadline: float) -> Survey:
    found = Survey()
    for root in roots:
        for _ in range(_MOST_WALKS):
            part, known = Survey(), _known.pop(root, {})
            _known[root] = _walk(root, known, part, judge, sought, deadline)
            if not part.moved:
                break
        found.add(part)
    while len(_known) > _MOST_TREES:
        _known.popitem(last=False)
    return found


def _walk(
    root: str,
    known: dict[str, _Surveyed],
    found: Survey,
    judge: Judge,
    sought: Inodes,
    deadline: float,
) -> dict[str, _Surveyed]:
    """Add findings below `root` to `found`; return the folders seen, to cache them."""
    seen: dict[str, _Surveyed] = {}
    waiting = [root]
    while waiting:
        if time.monotonic() > deadline:
            why = f"the tree is too large to be looked through ({len(waiting)} folders are left)"
            found.missed[waiting[-1]] = why
            return known | seen
        path = waiting.pop()
        try:
            folder = _look(path, known.get(path), judge, sought)
        except OSError as error:
            if error.errno not in _GONE:
                found.missed[path] = clause(error).lower()
            # It was listed, and may stand now where was looked before.
            found.moved |= error.errno in _GONE and path != root
            continue
        seen[path] = folder
        waiting += folder.subfolders
        found.repositories += folder.git
        found.secrets += folder.secrets
        if folder.is_bare:
            found.bare.append(path)
    return seen


def _look(path: str, known: _Surveyed | None, judge: Judge, sought: Inodes) -> _Surveyed:
    """Return the findings in a folder, cached while it is unchanged.

    Raises:
        OSError: it cannot be read.
    """
    status = os.lstat(path)
    # Not the modification time, which anyone who may write there can reset.
    stamp = (status.st_dev, status.st_ino, status.st_ctime_ns)
    if known is not None and known.stamp == stamp and known.sought == sought:
        return known
    is_settled = not -_TICK < time.time() - status.st_ctime < _TICK
    return _look_into(path, stamp if is_settled else (), judge, sought)


def _look_into(path: str, stamp: tuple[int, ...], judge: Judge, sought: Inodes) -> _Surveyed:
    with os.scandir(path) as entries:
        found = list(entries)
    names = {entry.name for entry in found}
    return _Surveyed(
        stamp,
        sought,
        tuple(entry.path for entry in found if entry.is_dir(follow_symlinks=False)),
        tuple(
            real_path(entry.path)
            for entry in found
            if (_may_be_secret(entry.name.lower()) and judge(entry.path))
            or (sought and _is_one_of(entry, sought))
        ),
        # On a case-insensitive file system .GIT is the same name.
        git=tuple(f"{path}/{name}" for name in names if name.lower() == ".git"),
        is_bare=names >= _BARE_REPOSITORY or _NAMES_REPOSITORY in names,
    )


def _may_be_secret(name: str) -> bool:
    """Tell whether a file of this name is worth judging: to judge all would take too long."""
    return name.startswith(_SECRET_STARTS) or name in _SECRET_ENDS


def _is_one_of(entry: os.DirEntry[str], sought: Inodes) -> bool:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:  # it is gone
        return False
    return (status.st_dev, status.st_ino) in sought
