"""Detects what commands change in a workspace, by scans before and after; keeps earlier contents.

Law: changes before a command began are never attributed to it. So each command begins with a scan,
and all commands of this process share one record of a workspace. Changes by the person
*while* a command runs cannot be distinguished from the command's. And what could not be looked at
before is not taken for new: an undo would delete it.
"""

import os
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, NamedTuple

from agent_magics.file_history.git_objects import GitFiles, index_stamp, read_git
from agent_magics.file_history.scan import Scanner, Tree, WorkspaceTooLarge
from agent_magics.file_history.states import (
    ABSENT,
    MOST_FILE,
    PathChange,
    PathState,
    Stamp,
    digest_of,
    look_in,
    unkept,
)
from agent_magics.files.beneath import PathChanged, is_below, open_folder, real_path
from agent_magics.files.paths import open_notebook, read_judge

# Limit in bytes of a workspace's copies, in an unnamed file that is deleted with the kernel.
MOST_COPIES = 256 * 1024 * 1024
_GIT = "git:"


class ObservedChanges(NamedTuple):
    """The changes found by one scan.

    Attributes:
        certain: whether a call ran all the time; otherwise the person may have made them too.
    """

    changes: tuple[PathChange, ...] = ()
    certain: bool = True


class _Copies:
    """Stores contents by digest in one unnamed file."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._places: dict[str, tuple[int, int]] = {}
        self._end = 0

    def keep(self, digest: str, content: bytes) -> bool:
        if digest in self._places:
            return True
        if self._end + len(content) > MOST_COPIES:
            return False
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="agent-magics-")  # noqa: SIM115 - stays
                weakref.finalize(self, self._file.close)
            os.pwrite(self._file.fileno(), content, self._end)
        except OSError:
            return False
        self._places[digest] = (self._end, len(content))
        self._end += len(content)
        return True

    def get(self, digest: str) -> bytes | None:
        place = self._places.get(digest)
        if place is None or self._file is None:
            return None
        return os.pread(self._file.fileno(), place[1], place[0])

    @property
    def is_full(self) -> bool:
        return self._end > MOST_COPIES // 2


class WorkspaceMemory:
    """The last known state of one workspace; thread-safe.

    Args:
        root: an absolute path without links.

    Attributes:
        too_large: whether it has too many entries, so that nothing is watched.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.too_large = False
        self._scanner = Scanner(root, _open_files_below(root))
        self._tree: Tree | None = None
        self._closed: set[str] = set()  # folders that cannot be looked into
        self._states: dict[str, PathState] = {}
        self._git: GitFiles | None = None
        self._git_stamp = (-1, -1)
        self._copies = _Copies()
        self._calls = self._sessions = 0  # commands that run within their call, and after it
        self._owed: tuple[PathChange, ...] = ()  # what tools have found of commands' changes
        self._lock = threading.Lock()

    @property
    def left_out(self) -> list[str]:
        """Folders that are not watched: tools generate them, or they cannot be looked into."""
        return sorted(self._scanner.left_out | self._closed)

    def begin(self) -> ObservedChanges:
        """Scan before a command; return changes since the last scan if other commands ran."""
        with self._lock:
            found = self._look(renew=not (self._calls or self._sessions))
            found = found if self._calls or self._sessions else ObservedChanges()
            self._calls += 1
            return found

    def end(self, *, session: bool = False) -> ObservedChanges:
        """Scan after a command; return the changes since the last scan.

        Args:
            session: whether it had outlived its call.
        """
        with self._lock:
            self._sessions, self._calls = self._sessions - session, self._calls - (not session)
            return self._look(renew=False, certain=not session)

    def hand_over(self) -> ObservedChanges:
        """Scan when a command continues as a session; `end` follows."""
        with self._lock:
            self._calls, self._sessions = self._calls - 1, self._sessions + 1
            return self._look(renew=False, certain=True)

    def take_back(self) -> ObservedChanges:
        """Scan when a call goes on with a session; `hand_over` or `end` follows."""
        with self._lock:
            found = self._look(renew=False)
            self._calls, self._sessions = self._calls + 1, self._sessions - 1
            return found

    @property
    def is_busy(self) -> bool:
        """Whether commands run."""
        return self._calls + self._sessions > 0

    def changes_at(self, paths: Sequence[str]) -> ObservedChanges:
        """Scan around the write of a tool; return the changes to its paths since the last scan.

        Those to other paths are returned by the next scan of a command.
        """
        with self._lock:
            found, certain = self._look(renew=False)
            self._owed = tuple(each for each in found if each.path not in paths)
            return ObservedChanges(tuple(each for each in found if each.path in paths), certain)

    def content(self, digest: str) -> bytes | None:
        """Return a content by the digest in a change."""
        return self._copies.get(digest)

    # -- one scan ----------------------------------------------------------------------------------

    def _look(self, *, renew: bool, certain: bool = False) -> ObservedChanges:
        found = (*self._owed, *self._changes(renew=renew))
        self._owed = ()
        return ObservedChanges(found, certain or self._calls > 0)

    def _changes(self, *, renew: bool) -> list[PathChange]:
        if self.too_large:
            return []
        if renew:
            self._renew()
        try:
            tree, closed = self._scanner.scan(renew=renew)
        except WorkspaceTooLarge:
            self.too_large, self._tree, self._states = True, None, {}
            return []
        except OSError:
            return []
        before, was_closed = self._tree, self._closed
        self._tree, self._closed = tree, closed
        if before is None:
            self._learn(tree, tree.items())
            return []
        # What cannot be looked at now may still be there, and what could not be may have been.
        tree |= _only_in(before, tree, closed)
        opened = _only_in(tree, before, was_closed)
        self._learn(tree, opened.items())
        return self._compare(before | opened, tree)

    def _renew(self) -> None:
        """Start new copies if they fill up, and read git's index if it changed."""
        if self._copies.is_full:
            self._copies, self._tree, self._states = _Copies(), None, {}
        stamp = index_stamp(self.root)
        if stamp != self._git_stamp:
            self._git_stamp, self._git = stamp, read_git(self.root)
            self._scanner.track(list(self._git.entries) if self._git else [])

    def _compare(self, before: Tree, now: Tree) -> list[PathChange]:
        differing = [
            path for path in before.keys() | now.keys() if before.get(path) != now.get(path)
        ]
        names: dict[str, set[str]] = {}
        for path in differing:
            old, new = before.get(path, {}), now.get(path, {})
            names[path] = {name for name in old.keys() | new if old.get(name) != new.get(name)}
        were = {
            f"{path}{name}": self._state_before(f"{path}{name}", before.get(path, {}).get(name))
            for path, changed in names.items()
            for name in changed
        }
        self._fetch(were)
        self._learn(now, names.items())
        are = {path: self._state_now(path, now) for path in were}
        self._fetch(are)
        return [
            PathChange(f"{self.root}/{path}", was, are[path])
            for path, was in sorted(were.items())
            if was != are[path]
        ]

    def _state_before(self, path: str, stamp: Stamp | None) -> PathState:
        if stamp is None:
            return ABSENT
        if len(stamp) == 1:
            return PathState("folder", stamp[0] & 0o7777)
        return self._states.get(path) or unkept(stamp, "it could not be read")

    def _state_now(self, path: str, now: Tree) -> PathState:
        folder, _, name = path.rpartition("/")
        stamp = now.get(f"{folder}/" if folder else "", {}).get(name)
        return self._state_before(path, stamp)

    def _fetch(self, states: dict[str, PathState]) -> None:
        """Copy the contents of files that are known only by their git object."""
        wanted = {
            path: state.digest.removeprefix(_GIT)
            for path, state in states.items()
            if state.digest.startswith(_GIT)
        }
        if not wanted or self._git is None:
            return
        contents = self._git.contents({wanted[path]: states[path].size for path in sorted(wanted)})
        for path, object_id in wanted.items():
            state, content = states[path], contents.get(object_id)
            if content is None or len(content) != state.size:
                why = "git could not give its content back"
                states[path] = PathState("file", state.mode, size=state.size, stamp="?", why=why)
                continue
            digest = digest_of(content)
            kept = self._copies.keep(digest, content)
            states[path] = PathState(
                *("file", state.mode, digest if kept else "", state.size),
                why="" if kept else "no room is left for copies",
            )

    def _learn(self, tree: Tree, names: Iterable[tuple[str, Iterable[str]]]) -> None:
        """Determine the states of files and links, reading those that git does not have."""
        judge = read_judge([Path(self.root)])
        for folder, changed in names:
            stamps = tree.get(folder, {})
            unread = []
            for name in changed:
                path, stamp = f"{folder}{name}", stamps.get(name)
                if stamp is None or len(stamp) == 1:
                    self._states.pop(path, None)
                elif object_id := self._git.object_of(path, stamp) if self._git else "":
                    mode, size = stamp[4] & 0o7777, stamp[2]
                    self._states[path] = PathState("file", mode, _GIT + object_id, size)
                    if size > MOST_FILE or judge(f"{self.root}/{path}"):
                        unread.append(name)
                else:
                    unread.append(name)
            if unread:
                self._read(folder, unread, judge)

    def _read(self, folder: str, names: Sequence[str], judge: Callable[[str], str]) -> None:
        try:
            opened = open_folder(f"{self.root}/{folder}")
        except OSError:
            for name in names:
                self._states.pop(f"{folder}{name}", None)
            return
        try:
            for name in names:
                path = f"{folder}{name}"
                self._states.pop(path, None)
                with suppress(OSError):
                    self._states[path] = look_in(
                        *(opened, name, f"{self.root}/{path}"), judge, self._copies.keep
                    )
        finally:
            os.close(opened)


def _only_in(one: Tree, other: Tree, folders: Set[str]) -> Tree:
    """Return what only the first tree has of what is in some folders, or below them."""
    return {path: one[path] for path in one.keys() - other.keys() if _is_in(path, folders)}


def _is_in(path: str, folders: Set[str]) -> bool:
    while path and path not in folders:
        path = path[: path.rfind("/", 0, -1) + 1]
    return path in folders


def _open_files_below(root: str) -> frozenset[str]:
    """Return the open notebook, which the front end may save at any moment."""
    notebook = open_notebook()
    path = real_path(notebook) if notebook is not None else ""
    return frozenset({path[len(root) + 1 :]} if path.startswith(f"{root}/") else ())


@lru_cache(maxsize=16)
def memory_of(root: str) -> WorkspaceMemory:
    """Return this process's record of a workspace; `root` is absolute and without links."""
    return WorkspaceMemory(root)


def memories_of(roots: Iterable[Path]) -> Iterator[WorkspaceMemory]:
    """Yield the records of the folders that commands may write; nested roots are merged."""
    real = list(dict.fromkeys(real_path(root) for root in roots))
    for root in real:
        if not is_below(root, [other for other in real if other != root]):
            with suppress(PathChanged):
                yield memory_of(root)
