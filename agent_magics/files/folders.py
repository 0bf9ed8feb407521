"""Lists of folders, and the walk through them that listing and searching share."""

import heapq
import os
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from agent_magics.backends.beneath import folder_of, open_folder
from agent_magics.backends.files import explain
from agent_magics.backends.ignore_rules import (
    IGNORE_FILE,
    IgnoreFile,
    IgnoreRules,
    read_ignore_file,
    rules_above,
)
from agent_magics.backends.name_globs import name_matcher
from agent_magics.backends.paths import printable, read_judge
from agent_magics.protocol.errors import RespondToModel

Sort = Literal["name", "size", "mtime"]

_MOST_ENTRIES = 1_000_000
_MOST_IGNORED_NAMED = 5
_ASKED_EVERY = 100  # entries
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing in a folder.

    Attributes:
        path: relative to the folder that was listed.
        kind: "folder", "file", "link" or "other" (a FIFO, a socket, a device).
        size: bytes of a file, else None.
        target: what a link says it leads to, else "".
        modified: when it was last changed; None where it went away meanwhile.
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
    """One page of a folder's entries, and the true counts.

    Attributes:
        total: entries in all, of which `entries` are a part.
        hidden: entries left out because their name starts with a dot, or is .git.
        ignored: entries left out because of ignore files.
        ignored_names: the first of them; folders end with "/".
        protected: protected folders that were named but not entered.
        unreadable: folders that this user may not look into.
        complete: False when the walk was ended by its limit; `total` is then a lower bound.
    """

    entries: tuple[Entry, ...]
    total: int
    hidden: int = 0
    ignored: int = 0
    ignored_names: tuple[str, ...] = ()
    protected: int = 0
    unreadable: int = 0
    complete: bool = True


class FolderItem(NamedTuple):
    """One name of a folder, as it was when the folder was read.

    Attributes:
        path: absolute.
        kind: as of `Entry`; a link to a folder is a link.
    """

    name: str
    path: str
    kind: str


@dataclass(slots=True)
class FolderWalk:
    """One walk over a folder: what was asked for, and what was counted on the way.

    What `.gitignore` files name is left out: those below the root, and where the root stands in a
    git repository those above it too. What is named by its own path is walked all the same.

    Attributes:
        depth: levels to go down, None for all.
        judge: names protected folders, which are not entered; None enters all.
    """

    root: str
    depth: int | None
    include_hidden: bool
    is_cancelled: Callable[[], bool]
    judge: Callable[[str], str] | None
    hidden: int = 0
    ignored: int = 0
    ignored_names: list[str] = field(default_factory=list)
    protected: int = 0
    unreadable: int = 0

    def entries(self) -> Iterator[tuple[str, FolderItem]]:
        """Yield (relative path, entry), folders before files, each folder before what it holds.

        Every folder is opened without following a link, so that one which is swapped for a link
        while the walk goes on is not entered.
        """
        root = open_folder(self.root)
        try:
            yield from self._entries(root)
        finally:
            os.close(root)

    def _entries(self, root: int) -> Iterator[tuple[str, FolderItem]]:
        items, rules = self._read(root, "", rules_above(self.root))
        open_folders = [("", iter(items), rules)]
        while open_folders:
            folder, rest, rules = open_folders[-1]
            entry = next(rest, None)
            if entry is None:
                open_folders.pop()
                continue
            path = f"{folder}{entry.name}"
            yield path, entry
            deeper = self.depth is None or len(open_folders) < self.depth
            if deeper and entry.kind == "folder" and self._may_enter(entry):
                items, below = self._read(root, f"{path}/", rules.below(entry.name))
                open_folders.append((f"{path}/", iter(items), below))

    def _stop_if_cancelled(self) -> None:
        if self.is_cancelled():
            raise RespondToModel("Interrupted while listing.")

    def _may_enter(self, folder: FolderItem) -> bool:
        self._stop_if_cancelled()
        if self.judge is None or not self.judge(folder.path):
            return True
        self.protected += 1
        return False

    def _read(
        self, root: int, folder: str, rules: IgnoreRules
    ) -> tuple[list[FolderItem], IgnoreRules]:
        """Return a folder's entries in order, and the rules that hold in it."""
        try:
            items, own = _read_folder(root, folder, f"{self.root.rstrip('/')}/{folder}")
        except OSError:
            if not folder:
                raise
            self.unreadable += 1
            return [], rules
        if own is not None:
            rules = rules.with_file(own)
        shown = [item for item in items if not self._is_hidden(item.name)]
        self.hidden += len(items) - len(shown)
        if rules.files:
            shown = self._without_ignored(folder, shown, rules)
        shown.sort(key=_in_order)
        return shown, rules

    def _without_ignored(
        self, folder: str, items: list[FolderItem], rules: IgnoreRules
    ) -> list[FolderItem]:
        shown = []
        for number, item in enumerate(items):
            if number % _ASKED_EVERY == 0:  # many rules make one large folder slow
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
    guarded: bool = False,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Listing:
    """List what is in a folder; links are shown and never followed, .git is left out.

    Args:
        path: an absolute path without symlinks.
        shown: how messages name it.
        depth: levels to go down, 1 for the folder's own entries, None for all.
        pattern: glob that an entry's name (or, with a "/", its path) has to match.
        kinds: of entries that are listed, None for all.
        sort: "name" for folders first, each before what it holds; "size" for the largest first;
            "mtime" for the latest change first.
        include_hidden: list names that start with a dot too.
        offset: entries to leave out at the start.
        limit: most entries of the page; None for all.
        guarded: do not enter protected folders.
        is_cancelled: asked now and then; True ends the walk.

    Raises:
        RespondToModel: it is no folder, may not be read, or the walk was cancelled.
    """
    judge = read_judge() if guarded else None
    walk = FolderWalk(str(path), depth, include_hidden, is_cancelled, judge)
    fitting = _Fitting(walk, name_matcher(pattern), kinds)
    try:
        if sort == "name":
            page = fitting.page(offset, limit)
        else:
            page = fitting.sorted_page(sort, offset, limit)
    except NotADirectoryError:
        raise RespondToModel(f"{shown} is not a folder; use read_file for a file.") from None
    except OSError as error:
        raise RespondToModel(explain(error, path, shown)) from None
    return Listing(
        tuple(page),
        fitting.total,
        walk.hidden,
        walk.ignored,
        tuple(walk.ignored_names),
        walk.protected,
        walk.unreadable,
        fitting.complete,
    )


@dataclass(slots=True)
class _Fitting:
    """The entries of a walk that were asked for, and how many they are."""

    walk: FolderWalk
    matches: Callable[[str], bool]
    kinds: Container[str] | None
    total: int = 0
    complete: bool = True

    def page(self, offset: int, limit: int | None) -> list[Entry]:
        """Return a page in the walk's own order; only what is on it is looked at."""
        page: list[Entry] = []
        for name, item in self._items():
            if self.total > offset and (limit is None or len(page) < limit):
                page.append(_as_entry(name, item))
        return page

    def sorted_page(self, sort: Sort, offset: int, limit: int | None) -> list[Entry]:
        """Return a page in another order; no more is kept than its end needs."""
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


def _by_size(entry: Entry) -> int:
    return -1 if entry.size is None else entry.size


def _by_time(entry: Entry) -> datetime:
    return entry.modified or _NEVER


def _read_folder(root: int, folder: str, path: str) -> tuple[list[FolderItem], IgnoreFile | None]:
    """Return a folder's entries as they come, and its ignore file."""
    opened = open_folder(folder, start=root)
    try:
        readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=opened)
    finally:
        os.close(opened)
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


def _as_entry(name: str, found: FolderItem) -> Entry:
    try:
        with folder_of(found.path) as (folder, own_name):
            status = os.lstat(own_name, dir_fd=folder)
            is_link = found.kind == "link"
            target = os.readlink(own_name, dir_fd=folder) if is_link else ""
    except OSError:  # it went away while we looked
        return Entry(name, "file" if found.kind == "link" else found.kind)
    size = status.st_size if found.kind == "file" else None
    modified = datetime.fromtimestamp(status.st_mtime, UTC).astimezone()
    return Entry(name, found.kind, size, target, modified)
