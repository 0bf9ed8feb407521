"""Finds what commands change in the environment of this kernel, where only a tripwire guards it.

There are too many files for their content to be kept. So what was changed is told, this package
imports it no more, and compiled modules are removed, since Python writes them anew.
"""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from agent_magics.exec.protected.put_back import Finding, remove_compiled
from agent_magics.files.beneath import is_below
from agent_magics.files.own_places import holds_kernel_places, kernel_places
from agent_magics.files.trusted_imports import distrust, distrust_changes
from agent_magics.text.brief import number_of

_TICK = 20_000_000  # ns by which a file's time may be behind the clock
_LONGEST = 3.0  # seconds of one search
_MOST_DISTRUSTED = 500  # packages; of more nothing of the environment is imported at all


def installed_below(roots: Sequence[str]) -> list[str]:
    """Return the outermost folders below `roots` that hold the kernel's programs and modules."""
    places = [place for place in kernel_places() if is_below(place, roots) and place not in roots]
    return [p for p in places if not is_below(p, [other for other in places if other != p])]


class Installed:
    """The kernel's environment, as far as commands may write it; thread-safe.

    A search takes some 4 us a file, so no command waits for it: until it has ended, no module that
    was changed since the first of the commands began is imported.
    """

    def __init__(self) -> None:
        self._places: set[str] = set()
        self._too_large: set[str] = set()  # told once
        self._seen: dict[str, set[tuple[str, int]]] = {}  # by place, in the last search
        self._commands: set[object] = set()
        self._begun = 0  # commands
        self._since: int | None = None  # ns; what was changed since then has not been looked at
        self._lock = threading.Lock()

    def begin(self, command: object, roots: Sequence[str]) -> None:
        """Record that a command starts which may write the folders `roots`."""
        places = installed_below(roots)
        if not places:
            return
        with self._lock:
            self._places.update(places)
            self._commands.add(command)
            self._begun += 1
            self._change_since(time.time_ns() - _TICK if self._since is None else self._since)

    def end(self, command: object) -> None:
        """Record that a command has ended."""
        with self._lock:
            self._commands.discard(command)

    @property
    def is_due(self) -> bool:
        """Whether something may have been changed since the last search."""
        return self._since is not None

    def examine(self) -> list[Finding]:
        """Search for what was changed since the last time, or since the first command began."""
        with self._lock:
            since, begun, are_over = self._since, self._begun, not self._commands
            places = sorted(self._places)
        if since is None:
            return []
        began = time.time_ns() - _TICK
        found = [each for place in places for each in self._examine(place, since)]
        with self._lock:
            self._change_since(None if are_over and begun == self._begun else began)
        return found

    def _change_since(self, since: int | None) -> None:
        self._since = since
        distrust_changes(since)

    def _examine(self, place: str, since: int) -> Iterator[Finding]:
        deadline = time.monotonic() + _LONGEST
        found = set(_changed(place, since, deadline))
        changed = sorted({path for path, _ in found - self._seen.get(place, set())})
        self._seen[place] = found
        if time.monotonic() > deadline and place not in self._too_large:
            self._too_large.add(place)
            yield Finding(place, "not protected", why="it is too large to be looked through")
        compiled = {path for path in changed if "/__pycache__/" in f"{path}/"}
        for path in compiled:
            remove_compiled(path)
        if others := [path for path in changed if path not in compiled]:
            suspect = {*map(_package_of, others)}
            if len(suspect) > _MOST_DISTRUSTED:
                suspect = {each for each in kernel_places() if is_below(each, (place,))}
            distrust(suspect)
            why = (
                f"{number_of(len(others), 'file')} of this kernel's environment, such as "
                f"{others[0]}, changed: of these packages agent-magics imports nothing any more; "
                "install them again before you restart"
            )
            yield Finding(place, "changed", why=why)


def _changed(folder: str, since: int, deadline: float) -> Iterator[tuple[str, int]]:
    """Yield (path, time in ns) of the files below a folder whose metadata or content changed since
    a time, and of the folders that were moved there since, or (with 0) cannot be looked into.
    """
    todo = [folder]
    while todo and time.monotonic() < deadline:
        place = todo.pop()
        try:
            with os.scandir(place) as found:
                entries = list(found)
            for entry in entries:
                is_folder = entry.is_dir(follow_symlinks=False)
                todo += [entry.path] * is_folder
                with suppress(FileNotFoundError):
                    # Not the modification time, which a command can set.
                    changed = entry.stat(follow_symlinks=False).st_ctime_ns
                    # In the kernel's own places, such as site-packages, packages come and go.
                    may_count = not (is_folder and holds_kernel_places(entry.path))
                    if changed >= since and may_count:
                        yield entry.path, changed
        except FileNotFoundError:
            continue
        except OSError:
            yield place, 0


def _package_of(path: str) -> str:
    """Return what stands directly in the kernel's own place that contains `path`, or the path of
    such a place itself.
    """
    while not holds_kernel_places(folder := os.path.dirname(path)):
        path = folder
    return path
