"""Finds what commands change in the environment of this kernel, where only a tripwire guards it.

There are too many files for their content to be kept. So what was changed is told, this package
imports it no more, and compiled modules are removed, since Python writes them anew.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from agent_magics.exec.protected.put_back import Finding
from agent_magics.files.beneath import folder_of
from agent_magics.files.own_places import is_below, kernel_places
from agent_magics.files.trusted_imports import distrust, distrust_changes

_TICK = 20_000_000  # ns by which a file's time may be behind the clock
_LONGEST = 3.0  # seconds of one search
_MOST_DISTRUSTED = 50  # folders and files; of more changes nothing is imported at all


def installed_below(roots: Sequence[str]) -> list[str]:
    """Return the outermost folders below `roots` that hold the kernel's programs and modules."""
    places = [place for place in kernel_places() if is_below(place, roots) and place not in roots]
    return [p for p in places if not is_below(p, [other for other in places if other != p])]


class Installed:
    """The kernel's environment in the writable folders of one command.

    Args:
        roots: these folders.
    """

    def __init__(self, roots: Sequence[str]) -> None:
        self.since = time.time_ns() - _TICK
        self._places = installed_below(roots)
        if self._places:
            distrust_changes(self, self.since)

    def release(self) -> None:
        """Record that the command has ended."""
        distrust_changes(self, None)

    def examine(self) -> Iterator[Finding]:
        """Yield what was changed since the last time, or since the command began."""
        for place in self._places:
            began, deadline = time.time_ns() - _TICK, time.monotonic() + _LONGEST
            changed = list(_changed(place, self.since, deadline))
            self.since = began
            if time.monotonic() > deadline:
                yield Finding(place, "not protected", why="it is too large to be looked through")
            compiled = [path for path in changed if path.endswith(".pyc")]
            for path in compiled:
                with suppress(OSError), folder_of(path) as (folder, name):
                    os.unlink(name, dir_fd=folder)
            if others := [path for path in changed if path not in set(compiled)]:
                suspect = {*map(_module_of, others)}
                distrust(suspect if len(suspect) <= _MOST_DISTRUSTED else [place])
                why = (
                    f"{len(others)} files of this kernel's environment, such as {others[0]}, are "
                    "not imported by agent-magics any more; install them again before you restart"
                )
                yield Finding(place, "changed", why=why)


def _changed(folder: str, since: int, deadline: float) -> Iterator[str]:
    """Yield the files below a folder whose metadata or content changed since a time in ns."""
    todo = [folder]
    while todo and time.monotonic() < deadline:
        with suppress(OSError), os.scandir(todo.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
                # Not the modification time, which a command can set.
                elif entry.stat(follow_symlinks=False).st_ctime_ns >= since:
                    yield entry.path


def _module_of(path: str) -> str:
    """Return what must not be imported: a file beside packages, else the folder around it."""
    folder = os.path.dirname(path)
    return path if os.path.basename(folder) == "site-packages" else folder
