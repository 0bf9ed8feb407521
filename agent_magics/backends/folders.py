"""Lists of folders, and the walk through them that listing and searching share."""

import fnmatch
import os
import re
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from agent_magics.backends.beneath import folder_of, open_folder
from agent_magics.backends.files import explain
from agent_magics.backends.paths import printable, read_judge
from agent_magics.protocol.errors import RespondToModel


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing in a folder.

    Attributes:
        path: relative to the folder that was listed.
        kind: "folder", "file", "link" or "other" (a FIFO, a socket, a device).
        size: bytes of a file, else None.
        target: what a link says it leads to, else "".
    """

    path: str
    kind: str
    size: int | None = None
    target: str = ""

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
        protected: protected folders that were named but not entered.
        unreadable: folders that this user may not look into.
        complete: False when the walk was ended by its limit; `total` is then a lower bound.
    """

    entries: tuple[Entry, ...]
    total: int
    hidden: int = 0
    protected: int = 0
    unreadable: int = 0
    complete: bool = True


_MOST_ENTRIES = 1_000_000
_MOST_GLOBS = 100
_BRACES = re.compile(r"\{([^{}]*)\}")


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
        open_folders = [("", iter(self._sorted(root, "")))]
        while open_folders:
            folder, rest = open_folders[-1]
            entry = next(rest, None)
            if entry is None:
                open_folders.pop()
                continue
            path = f"{folder}{entry.name}"
            yield path, entry
            deeper = self.depth is None or len(open_folders) < self.depth
            if deeper and entry.kind == "folder" and self._may_enter(entry):
                open_folders.append((f"{path}/", iter(self._sorted(root, f"{path}/"))))

    def _may_enter(self, folder: FolderItem) -> bool:
        if self.is_cancelled():
            raise RespondToModel("Interrupted while listing.")
        if self.judge is None or not self.judge(folder.path):
            return True
        self.protected += 1
        return False

    def _sorted(self, root: int, folder: str) -> list[FolderItem]:
        try:
            everything = list(_read_folder(root, folder, f"{self.root.rstrip('/')}/{folder}"))
        except OSError:
            if not folder:
                raise
            self.unreadable += 1
            return []
        shown = [entry for entry in everything if not self._is_hidden(entry.name)]
        self.hidden += len(everything) - len(shown)
        return sorted(shown, key=lambda entry: (entry.kind != "folder", entry.name))

    def _is_hidden(self, name: str) -> bool:
        return name == ".git" or (name.startswith(".") and not self.include_hidden)


def list_folder(
    path: Path,
    shown: str,
    *,
    depth: int | None = 1,
    pattern: str | None = None,
    kinds: Container[str] | None = None,
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
    matches = name_matcher(pattern)
    page: list[Entry] = []
    seen = total = 0
    try:
        for name, entry in walk.entries():
            seen += 1
            if seen > _MOST_ENTRIES:
                break
            if (kinds is None or entry.kind in kinds) and matches(name):
                if total >= offset and (limit is None or len(page) < limit):
                    page.append(_as_entry(name, entry))
                total += 1
    except NotADirectoryError:
        raise RespondToModel(f"{shown} is not a folder; use read_file for a file.") from None
    except OSError as error:
        raise RespondToModel(explain(error, path, shown)) from None
    complete = seen <= _MOST_ENTRIES
    return Listing(tuple(page), total, walk.hidden, walk.protected, walk.unreadable, complete)


def _read_folder(root: int, folder: str, path: str) -> Iterator[FolderItem]:
    opened = open_folder(folder, start=root)
    try:
        readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=opened)
    finally:
        os.close(opened)
    try:
        with os.scandir(readable) as entries:
            for entry in entries:
                yield FolderItem(entry.name, f"{path}{entry.name}", _kind(entry))
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
        if found.kind == "link":
            with folder_of(found.path) as (folder, link):
                return Entry(name, "link", target=os.readlink(link, dir_fd=folder))
        if found.kind == "file":
            with folder_of(found.path) as (folder, file):
                return Entry(name, "file", os.lstat(file, dir_fd=folder).st_size)
    except OSError:  # it went away while we looked
        return Entry(name, "file")
    return Entry(name, found.kind)


def name_matcher(pattern: str | None) -> Callable[[str], bool]:
    """Return what tells whether a relative path fits a glob.

    A pattern without "/" is held against the name alone, one with "/" against the whole relative
    path, where ``**`` stands for any folders or none. ``{a,b}`` means either.

    Raises:
        RespondToModel: the braces of `pattern` stand for too many globs.
    """
    if pattern is None:
        return lambda path: True
    globs = [_as_parts(glob) for glob in _without_braces(pattern)]
    if "/" not in pattern.strip("/"):
        return lambda path: any(_fits(parts, [path.rpartition("/")[2]]) for parts in globs)
    return lambda path: any(_fits(parts, path.split("/")) for parts in globs)


_GlobParts = list[re.Pattern[str] | None]  # None stands for ``**``


def _as_parts(glob: str) -> _GlobParts:
    return [
        None if part == "**" else re.compile(fnmatch.translate(part))
        for part in glob.removeprefix("./").strip("/").split("/")
    ]


def _fits(globs: _GlobParts, parts: list[str]) -> bool:
    """Follow all ways through `globs` at once; the time is that of one pass, whatever the stars."""
    reached = _past_stars(globs, {0})
    for part in parts:
        following = set()
        for at in reached:
            if at < len(globs):
                glob = globs[at]
                if glob is None:
                    following.add(at)
                elif glob.match(part):
                    following.add(at + 1)
        reached = _past_stars(globs, following)
    return len(globs) in reached


def _past_stars(globs: _GlobParts, reached: set[int]) -> set[int]:
    everywhere = set(reached)
    for at in reached:
        while at < len(globs) and globs[at] is None:
            at += 1
            everywhere.add(at)
    return everywhere


def _without_braces(pattern: str) -> list[str]:
    """Write ``a{b,c}d`` out as ``abd``, ``acd``; an unbalanced brace stands for itself."""
    globs = [pattern]
    while found := next(filter(None, map(_BRACES.search, globs)), None):
        choices = found[1].split(",")
        globs = [
            whole
            for glob in globs
            for whole in (
                [glob.replace(found[0], choice, 1) for choice in choices]
                if found[0] in glob
                else [glob]
            )
        ]
        if len(globs) > _MOST_GLOBS:
            raise RespondToModel(
                f"The braces of {pattern!r} mean over {_MOST_GLOBS} globs; use fewer."
            )
    return globs
