"""Takes snapshots of protected files; a repeated one is cheap if nothing changed."""

import hashlib
import json
import os
import re
import stat
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass

from agent_magics.files.beneath import folder_of, is_below
from agent_magics.files.own_places import holds_kernel_places, kernel_places
from agent_magics.files.plain_files import NotPlain, load_json, read_plain, stamp_of

_MOST_BYTES = 256 * 1024  # size limit of a file whose content is kept
_MOST_NOTEBOOK = 8 * 1024 * 1024
_MOST_CONTENT = 32 << 20  # bytes of one place's files that are kept together
MOST_ENTRIES = 1_000  # per protected place; one can be a whole virtual environment
# Of the kernel's environment: site-packages is the fourth, and folders there count by name.
_LEVELS = 4
_GIT_FOLDER = frozenset({"HEAD", "objects"})
_GIT_WATCHED = frozenset({"hooks", "config", "config.worktree", "info", "modules"})
_UNWATCHED = re.compile(r"\.sample$|/info/refs$|\.lock$")  # files of git that nothing executes
_COMPILED = "/__pycache__"


@dataclass(frozen=True, slots=True)
class SnapshotEntry:
    """One file, folder or link.

    Attributes:
        mode: type and permissions, as in `os.stat_result.st_mode`.
        signature: metadata that changes whenever a file does, since no program can reset its ctime.
        content: a file's bytes, a link's target; for a notebook, a digest of its cells' sources;
            None for a folder, and for a file that is too large to be kept.
    """

    mode: int
    signature: tuple[int, ...] = ()
    content: bytes | None = None

    def is_like(self, other: "SnapshotEntry") -> bool:
        """Tell whether both have the same content and mode, whatever their time stamps."""
        if self.mode != other.mode:
            return False
        if self.content is None or other.content is None:
            return self.signature == other.signature
        return self.content == other.content

    def is_continued_by(self, other: "SnapshotEntry | None") -> bool:
        """Tell whether the other one differs only by appended content."""
        if self.content is None or other is None or other.content is None:
            return False
        return self.mode == other.mode and other.content.startswith(self.content)


Snapshot = dict[str, SnapshotEntry]


def take(place: str, known: Mapping[str, SnapshotEntry], most: int = MOST_ENTRIES) -> Snapshot:
    """Return a snapshot of `place` and, if it is a folder, of what it contains, in `_order`.

    Args:
        place: an absolute path, which need not exist.
        known: an earlier snapshot; files unchanged since are not read again.
        most: the number of entries at which it is cut.
    """
    found: Snapshot = {}
    left = _MOST_CONTENT
    for path, status in _walk(place, most):
        if len(found) >= most:
            break
        # Compiled modules are never restored.
        room = 0 if is_compiled(path) else left
        found[path] = entry = _as_entry(path, status, known.get(path), room)
        left -= len(entry.content or b"")
    return found


def up_to_a_common_end(before: Snapshot, now: Snapshot, most: int) -> tuple[Snapshot, Snapshot]:
    """Return two snapshots of one place without what only one of them can contain, because the
    other was cut at `most` entries.
    """
    ends = [max(map(_order, each)) for each in (before, now) if len(each) >= most]
    if not ends:
        return before, now
    end = min(ends)
    before, now = ({p: e for p, e in each.items() if _order(p) <= end} for each in (before, now))
    return before, now


def _order(path: str) -> tuple[int, list[str]]:
    """Return the key by which the paths of a snapshot are in ascending order: the outer levels
    come first, so that nothing deep keeps them out.
    """
    return path.count("/"), path.split("/")


def is_compiled(path: str) -> bool:
    """Tell whether Python keeps a compiled module at `path`, which it writes anew if needed."""
    return f"{_COMPILED}/" in path


def folders_above(path: str) -> Iterator[str]:
    """Yield the folders that contain `path`, the nearest first."""
    while len(path := os.path.dirname(path)) > 1:
        yield path


def is_in(path: str, places: Set[str]) -> bool:
    """Tell whether `path` is one of `places` or below one; their number does not slow it down."""
    return path in places or not places.isdisjoint(folders_above(path))


def unwatched(folder: str, names: Iterable[str]) -> Iterator[str]:
    """Yield the names in a folder of files that no snapshot contains, as nothing executes them."""
    return (name for name in names if _UNWATCHED.search(f"{folder}/{name}"))


def _walk(place: str, most: int) -> Iterator[tuple[str, os.stat_result]]:
    """Yield what stands at `place` and below, at least the first `most`, with its status."""
    of_kernel = holds_kernel_places(place) or is_below(place, tuple(kernel_places()))
    deepest = place.count("/") + _LEVELS if of_kernel else sys.maxsize
    waiting = deque([place])
    while waiting:
        path = waiting.popleft()
        try:
            status = os.lstat(path)
        except OSError:
            continue
        is_folder = stat.S_ISDIR(status.st_mode)
        if not (is_folder and path.endswith(_COMPILED)):  # it counts by what it contains
            yield path, status
        # Each folder has one of compiled modules at most.
        if is_folder and path.count("/") < deepest and len(waiting) <= 2 * most:
            waiting.extend(_watched_in(path))


def _watched_in(folder: str) -> list[str]:
    """Return the paths in a folder that are compared, in order; none where it cannot be read."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    if set(names) >= _GIT_FOLDER:  # the repository of a submodule: most of it may change
        names = [name for name in names if name in _GIT_WATCHED]
    idle = {name for name in unwatched(folder, names) if _is_file(f"{folder}/{name}")}
    return [f"{folder}/{name}" for name in names if name not in idle]


def _is_file(path: str) -> bool:
    """Tell whether a regular file stands at `path`, and no link."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def _as_entry(
    path: str, status: os.stat_result, known: SnapshotEntry | None, left: int
) -> SnapshotEntry:
    if stat.S_ISDIR(status.st_mode):
        return SnapshotEntry(status.st_mode)
    signature = stamp_of(status)
    if known is not None and known.signature == signature and known.mode == status.st_mode:
        return known
    if status.st_size > left:
        return SnapshotEntry(status.st_mode, signature)
    try:
        return SnapshotEntry(status.st_mode, signature, _content(path, status))
    except OSError:  # deleted meanwhile, or unreadable
        return SnapshotEntry(status.st_mode, signature)


def _content(path: str, status: os.stat_result) -> bytes | None:
    if stat.S_ISLNK(status.st_mode):
        return os.fsencode(os.readlink(path))
    is_notebook = path.endswith(".ipynb")
    with folder_of(path) as (folder, name):
        try:
            most = _MOST_NOTEBOOK if is_notebook else _MOST_BYTES
            data = read_plain(name, most, folder=folder)
        except NotPlain:
            return None
    return _digest_of_cells(data) if is_notebook else data


def _digest_of_cells(data: bytes) -> bytes:
    """Digest a notebook's cells without their outputs, which every save changes."""
    try:
        cells = load_json(data)["cells"]
        sources = [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    except (ValueError, KeyError, TypeError):
        return hashlib.sha256(data).digest()
    return hashlib.sha256(json.dumps(sources).encode()).digest()
