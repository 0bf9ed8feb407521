"""One look at a workspace: the stamp of everything in it that is watched, folder by folder.

It costs one `lstat` a file, so nothing else is done for a file that is as it was.
"""

import os
import re
import stat
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from agent_magics.backends.beneath import open_folder
from agent_magics.backends.ignore_rules import (
    IGNORE_FILE,
    IgnoreFile,
    IgnoreRules,
    read_ignore_file,
)
from agent_magics.backends.workspace_states import Stamp, stamp_of

MOST_ENTRIES = 50_000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A file written so shortly before a look may be written again without a new time stamp; it stands
# with a ctime of 0, by which it is read again at the next look.
_CLOCK_TICK = 20_000_000  # ns
# Made by tools and made again by them; some hold more files than the whole project.
_LEFT_OUT = frozenset(
    {
        *(".git", ".hg", ".svn", "node_modules", "bower_components", ".venv", "__pycache__"),
        *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".tox", ".nox", ".eggs"),
        *(".ipynb_checkpoints", ".virtual_documents", ".gradle", ".terraform", "site-packages"),
        *(".cache", ".npm", ".rustup"),
    }
)
# Ours, and of our own patches and undos while they are made.
_OURS = re.compile(r"\.agent\.jsonl$|^\.agent-(?:patch|undo)-[0-9a-f]+\.tmp$")
_ENVIRONMENT = "pyvenv.cfg"  # marks a virtual environment, whatever its folder is called

Folder = dict[str, Stamp]
Tree = dict[str, Folder]  # "" and "a/b/" -> what stands in it


class TooLarge(Exception):
    """There is more in the workspace than is watched."""


@dataclass(slots=True)
class Scanner:
    """Looks at one workspace again and again; what is left out is found out once for each name.

    Attributes:
        root: absolute, without links.
        tracked: paths that git tracks; they are watched whatever a .gitignore says.
        left_out: folders that were met and left out, for people.
    """

    root: str
    skipped: frozenset[str] = frozenset()
    tracked: frozenset[str] = frozenset()
    left_out: set[str] = field(default_factory=set)
    _verdicts: dict[str, dict[str, bool]] = field(default_factory=dict)
    _rules: dict[str, tuple[Stamp, IgnoreFile | None]] = field(default_factory=dict)
    _ignored: set[str] = field(default_factory=set)
    _count: int = 0
    _fresh: int = 0

    def scan(self, *, renew: bool) -> Tree:
        """Return the tree.

        Args:
            renew: read .gitignore files anew where they have changed. Not between the two looks
                at one command: what it ignores by itself must not seem to be gone.

        Raises:
            TooLarge: there is too much.
            OSError: the root cannot be looked into.
        """
        tree: Tree = {}
        self._count = 0
        self._fresh = time.time_ns() - _CLOCK_TICK
        root = open_folder(self.root)
        try:
            readable = os.open(".", _FOLDER, dir_fd=root)
        finally:
            os.close(root)
        self._walk(readable, "", IgnoreRules(), tree, renew)
        return tree

    def track(self, paths: Sequence[str]) -> None:
        """Take note of what git tracks now."""
        tracked = folders_above(paths)
        if tracked != self.tracked:
            self.tracked = tracked
            self._verdicts.clear()
            self._ignored.clear()

    def _walk(self, folder: int, path: str, above: IgnoreRules, tree: Tree, renew: bool) -> None:
        try:
            rules = self._rules_in(folder, path, above, renew or path not in self._verdicts)
            here, deeper = self._entries(folder, path, rules)
            if path and _ENVIRONMENT in here:
                self.left_out.add(path)
                return
            tree[path] = here
            for name in deeper:
                try:
                    below = os.open(name, _FOLDER, dir_fd=folder)
                except OSError:  # not ours to read, or gone already
                    continue
                self._walk(below, f"{path}{name}/", rules.below(name), tree, renew)
        finally:
            os.close(folder)

    def _entries(self, folder: int, path: str, rules: IgnoreRules) -> tuple[Folder, list[str]]:
        verdicts = self._verdicts.setdefault(path, {})
        here: Folder = {}
        deeper = []
        fresh = self._fresh
        with os.scandir(folder) as entries:
            for entry in entries:
                name = entry.name
                left_out = verdicts.get(name)
                if left_out is None:
                    is_folder = entry.is_dir(follow_symlinks=False)
                    left_out = verdicts[name] = self._is_left_out(path, name, is_folder, rules)
                if left_out:
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                mode, ctime = status.st_mode, status.st_ctime_ns
                if mode & 0o170000 == 0o040000:
                    here[name] = (mode,)
                    deeper.append(name)
                    continue
                if ctime > fresh:
                    ctime = 0
                here[name] = (ctime, status.st_mtime_ns, status.st_size, status.st_ino, mode)
        self._count += len(here)
        if self._count > MOST_ENTRIES:
            raise TooLarge
        return here, deeper

    def _is_left_out(self, folder: str, name: str, is_folder: bool, rules: IgnoreRules) -> bool:
        path = f"{folder}{name}"
        if name in _LEFT_OUT:
            if name != ".git":
                self.left_out.add(f"{path}/")
            return True
        if path in self.skipped or (name.endswith((".jsonl", ".tmp")) and _OURS.search(name)):
            return True
        if folder not in self._ignored and not rules.ignores(name, is_folder):
            return False
        if not is_folder:
            return path not in self.tracked
        if f"{path}/" not in self.tracked:
            return True
        self._ignored.add(f"{path}/")  # it is entered for what is tracked in it, and no more
        return False

    def _rules_in(self, folder: int, path: str, above: IgnoreRules, renew: bool) -> IgnoreRules:
        stamp, own = self._rules.get(path, ((), None))
        if renew:
            now: Stamp = ()
            with suppress(OSError):
                status = os.lstat(IGNORE_FILE, dir_fd=folder)
                now = stamp_of(status) if stat.S_ISREG(status.st_mode) else ()
            if now != stamp:
                own = read_ignore_file(IGNORE_FILE, folder) if now else None
                self._rules[path] = (now, own)
                self._forget_below(path)
        return above.with_file(own)

    def _forget_below(self, path: str) -> None:
        self._ignored = {
            each for each in self._ignored if each == path or not each.startswith(path)
        }
        for folder in [each for each in self._verdicts if each.startswith(path)]:
            del self._verdicts[folder]


def folders_above(paths: Sequence[str]) -> frozenset[str]:
    """Return `paths` and every folder above one, as "a/b/"."""
    found = set(paths)
    for path in paths:
        while path := path.rstrip("/").rpartition("/")[0]:
            if f"{path}/" in found:
                break
            found.add(f"{path}/")
            path = f"{path}/"
    return frozenset(found)
