"""Lists and walks folders, applying ignore files and protection of paths."""

import errno
import heapq
import math
import os
import time
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import dropwhile
from pathlib import Path
from typing import Literal, NamedTuple

from agent_magics.files.beneath import closing_descriptor, folder_of, open_folder, real_path
from agent_magics.files.ignore_rules import (
    IGNORE_FILE,
    IgnoreFile,
    IgnoreRules,
    read_ignore_file,
    rules_above,
)
from agent_magics.files.name_globs import name_matcher
from agent_magics.files.paths import printable
from agent_magics.files.text.windows import explain
from agent_magics.protocol.errors import RespondToModel

Sort = Literal["name", "size", "mtime"]

SECONDS = 30.0  # of one walk
_MOST_ENTRIES = 1_000_000
_MOST_IGNORED_NAMED = 5
_ASKED_EVERY = 100  # entries
_LONGEST = 4096  # characters of a path below the root; the system takes none that is longer
_KEPT_OPEN = 50  # one folder in so many on the way down: else a tree costs its depth squared
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """One entry of a folder.

    Attributes:
        path: relative to the listed folder.
        kind: "folder", "file", "link" or "other" (a FIFO, a socket, a device).
        size: bytes of a file, else None.
        target: where a symbolic link points, as it is written, else "".
        modified: time of the last change; None where it disappeared meanwhile.
    """

    path: str
    kind: str
    size: int | None = None
    target: str = ""
    modified: datetime | None = None

    def __str__(self) -> str:
        name = printable(self.path)
        if self.kind == "file":
            return f"{name}  {self.size:,} bytes" if self.size is not None else name
        if self.kind == "link":
            return f"{name} -> {printable(self.target)}"
        return f"{name}/" if self.kind == "folder" else f"{name}  (no regular file)"


@dataclass(frozen=True, slots=True)
class Listing:
    """One page of a folder's entries, and counts over the whole folder.

    Attributes:
        total: number of all entries, of which `entries` are a part.
        hidden: entries left out because their name starts with a dot, or is .git.
        ignored: entries left out because of ignore files.
        ignored_names: the first of these; folders end with "/".
        protected: protected folders that were listed but not entered.
        withheld: entries that are not listed, because a rule forbids reading them.
        unreadable: folders that this user has no right to read.
        complete: False when the walk reached a limit; `total` is then a lower bound.
        unseen: what was not looked through when time ran out; see `FolderWalk.unseen_from`.
    """

    entries: tuple[FolderEntry, ...]
    total: int
    hidden: int = 0
    ignored: int = 0
    ignored_names: tuple[str, ...] = ()
    protected: int = 0
    unreadable: int = 0
    complete: bool = True
    withheld: int = 0
    unseen: tuple[str, ...] = ()


class FolderItem(NamedTuple):
    """One directory entry, as it was when the folder was read.

    Attributes:
        path: absolute.
        kind: as in `FolderEntry`; a link to a folder is a link.
    """

    name: str
    path: str
    kind: str


@dataclass(frozen=True, slots=True)
class WalkRights:
    """What a walk over files may see, and whether it goes on.

    Attributes:
        judge: returns why a path (absolute) is protected, or ""; such files are not read and such
            folders not entered. None where all may be.
        is_withheld: tells which paths are not even named; for links also their targets.
        is_cancelled: polled during the walk; True ends it.
    """

    judge: Callable[[str], str] | None = None
    is_withheld: Callable[[str], bool] | None = None
    is_cancelled: Callable[[], bool] = lambda: False


ALL_RIGHTS = WalkRights()


@dataclass(slots=True)
class FolderWalk:
    """One recursive walk over a folder: its options and its counts.

    Entries that `.gitignore` files name are left out: by the files below the root, and where the
    root is in a git repository by those above it too. A root that is itself ignored is walked all
    the same.

    Attributes:
        depth: levels to descend, None for all.
        deadline: time of `time.monotonic` at which the walk ends.
        stopped_at: the first path (relative) that it had not reached then; "" while it goes on.
    """

    root: str
    depth: int | None
    include_hidden: bool
    rights: WalkRights
    deadline: float = math.inf
    stopped_at: str = ""
    withheld: int = 0
    hidden: int = 0
    ignored: int = 0
    ignored_names: list[str] = field(default_factory=list)
    protected: int = 0
    unreadable: int = 0
    _top: list[FolderItem] = field(default_factory=list)  # the root's own entries, in order

    def unseen_from(self, path: str) -> tuple[str, ...]:
        """Return the root's own entries that a walk which ended before `path` (relative) has not
        looked through, in the order of the walk; folders end with "/".
        """
        begun = path.partition("/")[0]
        rest = [*dropwhile(lambda item: item.name != begun, self._top)]
        names = [printable(f"{item.name}{'/' * (item.kind == 'folder')}") for item in rest]
        if names and path != begun:
            names[:1] = [f"{names[0]} from {printable(path)} on"]
        return tuple(names)

    def entries(self) -> Iterator[tuple[str, FolderItem]]:
        """Yield (relative path, entry), folders before files, each folder before its contents.

        Every folder is opened without following a link, so one that is replaced by a link during
        the walk is not entered.
        """
        with closing_descriptor(open_folder(self.root)) as root:
            yield from self._entries(root)

    def _entries(self, root: int) -> Iterator[tuple[str, FolderItem]]:
        starts = [("", root)]
        items, rules = self._read(starts[-1], "", rules_above(self.root))
        self._top = items
        open_folders = [("", iter(items), rules)]
        try:
            while open_folders:
                folder, rest, rules = open_folders[-1]
                entry = next(rest, None)
                if entry is None:
                    open_folders.pop()
                    if folder == starts[-1][0] and folder:
                        os.close(starts.pop()[1])
                    continue
                path = f"{folder}{entry.name}"
                if time.monotonic() > self.deadline:
                    self.stopped_at = path
                    return
                yield path, entry
                deeper = self.depth is None or len(open_folders) < self.depth
                if deeper and entry.kind == "folder" and self._may_enter(entry):
                    if len(open_folders) % _KEPT_OPEN == 0 and starts[-1][0] != folder:
                        with suppress(OSError):  # it was moved away
                            starts.append((folder, _open_below(starts[-1], folder)))
                    items, below = self._read(starts[-1], f"{path}/", rules.below(entry.name))
                    open_folders.append((f"{path}/", iter(items), below))
        finally:
            for _, descriptor in starts[1:]:
                os.close(descriptor)

    def _stop_if_cancelled(self) -> None:
        if self.rights.is_cancelled():
            raise RespondToModel("Interrupted while listing.")

    def _may_enter(self, folder: FolderItem) -> bool:
        self._stop_if_cancelled()
        judge = self.rights.judge
        if judge is None or not judge(folder.path):
            return True
        self.protected += 1
        return False

    def _read(
        self, start: tuple[str, int], folder: str, rules: IgnoreRules
    ) -> tuple[list[FolderItem], IgnoreRules]:
        """Return a folder's entries in order, and the ignore rules that apply in it."""
        try:
            items, own = _read_folder(start, folder, f"{self.root.rstrip('/')}/{folder}")
        except OSError:
            if not folder:
                raise
            self.unreadable += 1
            return [], rules
        if own is not None:
            rules = rules.with_file(own)
        items = self._without_withheld(items)
        shown = [item for item in items if not self._is_hidden(item.name)]
        self.hidden += len(items) - len(shown)
        if rules.files:
            shown = self._without_ignored(folder, shown, rules)
        shown.sort(key=_in_order)
        return shown, rules

    def _without_withheld(self, items: list[FolderItem]) -> list[FolderItem]:
        is_withheld = self.rights.is_withheld
        if is_withheld is None:
            return items
        shown = [item for item in items if not any(map(is_withheld, _places_of(item)))]
        self.withheld += len(items) - len(shown)
        return shown

    def _without_ignored(
        self, folder: str, items: list[FolderItem], rules: IgnoreRules
    ) -> list[FolderItem]:
        shown = []
        for number, item in enumerate(items):
            if number % _ASKED_EVERY == 0:  # with many rules a single large folder takes long
                self._stop_if_cancelled()
            is_folder = item.kind == "folder"
            if not rules.ignores(item.name, is_folder):
                shown.append(item)
                continue
            self.ignored += 1
            if len(self.ignored_names) < _MOST_IGNORED_NAMED:
                self.ignored_names.append(f"{folder}{item.name}{'/' * is_folder}")
        return shown

    def _is_hidden(self, name: str) -> bool:
        return name[0] == "." and (not self.include_hidden or name == ".git")


def list_folder(
    path: Path,
    shown: str,
    *,
    depth: int | None = 1,
    pattern: str | None = None,
    kinds: Container[str] | None = None,
    sort: Sort = "name",
    include_hidden: bool = False,
    offset: int = 0,
    limit: int | None = None,
    rights: WalkRights = ALL_RIGHTS,
    seconds: float = SECONDS,
) -> Listing:
    """List the entries of a folder; links are listed and never followed, .git is left out.

    Args:
        path: an absolute path without symlinks.
        shown: its name in messages.
        depth: levels to descend, 1 for the folder's own entries, None for all.
        pattern: glob that an entry's name (or, with a "/", its path) has to match.
        kinds: kinds of entries to list, None for all; see `FolderEntry`.
        sort: "name" for folders first, each before its contents; "size" for the largest first;
            "mtime" for the latest change first.
        include_hidden: list names that start with a dot too.
        offset: number of entries to skip.
        limit: maximal number of entries of the page; None for all.
        rights: what may be seen.
        seconds: time limit of the walk.

    Returns:
        The page, and counts over the whole folder.

    Raises:
        RespondToModel: it is not a folder, may not be read, or the walk was cancelled.
    """
    deadline = time.monotonic() + seconds
    walk = FolderWalk(str(path), depth, include_hidden, rights, deadline)
    fitting = _Fitting(walk, name_matcher(pattern), kinds)
    try:
        if sort == "name":
            page = fitting.page(offset, limit)
        else:
            page = fitting.sorted_page(sort, offset, limit)
    except NotADirectoryError:
        raise RespondToModel(f"{shown} is not a folder; use read_file for a file.") from None
    except OSError as error:
        raise RespondToModel(explain(error, path, shown, rights.is_withheld)) from None
    return Listing(
        tuple(page),
        fitting.total,
        walk.hidden,
        walk.ignored,
        tuple(walk.ignored_names),
        walk.protected,
        walk.unreadable,
        fitting.complete and not walk.stopped_at,
        walk.withheld,
        walk.unseen_from(walk.stopped_at),
    )


@dataclass(slots=True)
class _Fitting:
    """Filters the entries of a walk by name and kind, and counts those that pass."""

    walk: FolderWalk
    matches: Callable[[str], bool]
    kinds: Container[str] | None
    total: int = 0
    complete: bool = True

    def page(self, offset: int, limit: int | None) -> list[FolderEntry]:
        """Return a page in the order of the walk; only entries on it are examined with lstat."""
        page: list[FolderEntry] = []
        for name, item in self._items():
            if self.total > offset and (limit is None or len(page) < limit):
                page.append(_as_entry(name, item))
        return page

    def sorted_page(self, sort: Sort, offset: int, limit: int | None) -> list[FolderEntry]:
        """Return a page in another order; at most `offset` + `limit` entries are held in memory."""
        entries = (_as_entry(name, item) for name, item in self._items())
        key = _by_size if sort == "size" else _by_time
        if limit is None:
            return sorted(entries, key=key, reverse=True)[offset:]
        return heapq.nlargest(offset + limit, entries, key=key)[offset:]

    def _items(self) -> Iterator[tuple[str, FolderItem]]:
        for seen, (name, item) in enumerate(self.walk.entries()):
            if seen >= _MOST_ENTRIES:
                self.complete = False
                return
            if (self.kinds is None or item.kind in self.kinds) and self.matches(name):
                self.total += 1
                yield name, item


def _in_order(item: FolderItem) -> tuple[bool, str]:
    return item.kind != "folder", item.name


def _by_size(entry: FolderEntry) -> int:
    return -1 if entry.size is None else entry.size


def _by_time(entry: FolderEntry) -> datetime:
    return entry.modified or _NEVER


def _open_below(start: tuple[str, int], folder: str) -> int:
    """Open a folder of a walk, from one above it: its path, and its descriptor."""
    above, descriptor = start
    return open_folder(folder[len(above) :], start=descriptor)


def _read_folder(
    start: tuple[str, int], folder: str, path: str
) -> tuple[list[FolderItem], IgnoreFile | None]:
    """Return a folder's entries, unsorted, and its parsed ignore file."""
    if len(folder) > _LONGEST:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
    with closing_descriptor(_open_below(start, folder)) as opened:
        readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=opened)
    try:
        with os.scandir(readable) as entries:
            items = [FolderItem(each.name, f"{path}{each.name}", _kind(each)) for each in entries]
        has_rules = any(item.name == IGNORE_FILE for item in items)
        return items, read_ignore_file(IGNORE_FILE, readable) if has_rules else None
    finally:
        os.close(readable)


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_file(follow_symlinks=False):
        return "file"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "link" if entry.is_symlink() else "other"


def _places_of(item: FolderItem) -> tuple[str, ...]:
    """Return the path of an entry and, for a link, its resolved target."""
    return (item.path, real_path(item.path)) if item.kind == "link" else (item.path,)


def _as_entry(name: str, found: FolderItem) -> FolderEntry:
    try:
        with folder_of(found.path) as (folder, own_name):
            status = os.lstat(own_name, dir_fd=folder)
            is_link = found.kind == "link"
            target = os.readlink(own_name, dir_fd=folder) if is_link else ""
    except OSError:  # it was deleted meanwhile
        return FolderEntry(name, "file" if found.kind == "link" else found.kind)
    size = status.st_size if found.kind == "file" else None
    modified = datetime.fromtimestamp(status.st_mtime, UTC).astimezone()
    return FolderEntry(name, found.kind, size, target, modified)
