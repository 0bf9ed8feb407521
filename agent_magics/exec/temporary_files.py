"""Provides a private folder for this process's temporary files; removed at exit, or after a
crash.
"""

import atexit
import contextlib
import os
import shutil
import stat
import tempfile
import threading
from pathlib import Path

from agent_magics.files.beneath import folder_of, set_mode_at
from agent_magics.files.locks import hold, is_held

_PREFIX = "agent-magics-"


class _Scratch:
    """The folder, and the lock by which later processes see that it is in use."""

    def __init__(self, parent: Path) -> None:
        self.owner = os.getpid()
        self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{self.owner}-", dir=parent))
        self._lock_fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        hold(self._lock_fd)

    def remove(self) -> None:
        """Remove the folder with its contents; a forked child keeps the parent's."""
        remove_own(self.path, self.owner)

    def close(self) -> None:
        """Close the descriptor; the lock is kept while a forked process holds it too."""
        with contextlib.suppress(OSError):
            os.close(self._lock_fd)


_scratch: _Scratch | None = None
_lock = threading.Lock()


def scratch_folder() -> Path:
    """Return this process's folder for temporary files (0700), created on first use.

    Folders left behind by dead processes are removed then.

    Raises:
        OSError: no temporary folder is writable.
    """
    global _scratch
    with _lock:
        if _scratch is None or _scratch.owner != os.getpid() or not _scratch.path.is_dir():
            parent = Path(os.path.realpath(tempfile.gettempdir()))
            sweep(parent)
            _scratch = _Scratch(parent)
            atexit.register(_scratch.remove)
        return _scratch.path


def remove_own(folder: Path, owner: int) -> None:
    """Remove a folder, but not in a child that was forked from its owner."""
    if os.getpid() == owner:
        remove_tree(folder)


def remove_tree(folder: str | os.PathLike[str]) -> None:
    """Remove a folder, also where folders in it may not be changed, as in Go's module cache."""
    shutil.rmtree(folder, ignore_errors=True)
    if not os.path.lexists(folder):
        return
    with contextlib.suppress(OSError):
        with folder_of(os.fspath(folder)) as (parent, name):
            set_mode_at(name, parent, stat.S_IRWXU)
        for _, names, _, within in os.fwalk(folder):
            for each in names:
                with contextlib.suppress(OSError):  # it is a link
                    set_mode_at(each, within, stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)


def sweep(parent: Path) -> None:
    """Remove the folders in `parent` that belong to ended processes of this package."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.name.startswith(_PREFIX) and _is_abandoned(entry):
                    remove_tree(entry.path)


def _is_abandoned(entry: "os.DirEntry[str]") -> bool:
    """Tell whether a folder is unused: its process has ended, and nobody holds its lock.

    Both are needed: in another container the process may have another id, and a folder is not
    locked yet when it has just been created.
    """
    pid = entry.name.removeprefix(_PREFIX).partition("-")[0]
    status = entry.stat(follow_symlinks=False)
    if not pid.isdecimal() or not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return False
    return not _is_running(int(pid)) and is_held(entry.path) is False


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def _forget() -> None:
    """In a forked child: forget the folder, which belongs to the parent."""
    global _scratch, _lock
    _lock = threading.Lock()
    if _scratch is not None:
        _scratch.close()
        _scratch = None


os.register_at_fork(after_in_child=_forget)
