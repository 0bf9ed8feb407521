"""Finds and ends every descendant process, including reparented ones.

Law: the caller of `kill_tree` is a child subreaper. Then a descendant stays below it whatever it
does (a new session, a double fork), and "no child left" means that no descendant is left. macOS has
no subreapers: there a daemon escapes (never run).
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable

from agent_magics.exec.launcher.linux import IS_LINUX

_PATIENCE = (
    5.0  # seconds before giving up on unkillable processes (another user's, hung in a driver)
)
_STOP_PATIENCE = 1.0  # seconds before killing processes that were not seen to stop
_FIRST_PAUSE = 0.0005  # seconds between checks whether the killed are gone; doubled each time
_LONGEST_PAUSE = 0.02

# Indices of the fields of /proc/PID/stat after the program's name (man 5 proc_pid_stat)
_STATE, _PARENT, _FOREGROUND = 0, 1, 5
_AT_WORK = {b"R", b"D"}  # states: runnable, uninterruptible
_REST = {b"T", b"t", b"Z", b"X"}  # states: stopped, traced, ended


def reap(ended: dict[int, int]) -> bool:
    """Reap the children that have ended.

    Args:
        ended: receives process id -> wait status of each of them.

    Returns:
        Whether any child is left.
    """
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return True
            ended[pid] = status
    except ChildProcessError:
        return False


def wait_for_children(patience: float) -> None:
    """Wait until every child has ended, at most for `patience` seconds."""
    deadline = time.monotonic() + patience
    pause = _FIRST_PAUSE
    while reap({}) and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def descendants(root: int, keep: Collection[int] = ()) -> list[int]:
    """Return the processes below `root`, parents before their children, including zombies.

    Args:
        root: a process id, itself not in the result.
        keep: processes that are left out, with their descendants.
    """
    if _has_children_files():
        return _walk(root, keep, _children_of)
    return _walk(root, keep, ProcessTable().children_of)


def send_signal(pids: Iterable[int], number: int) -> None:
    """Send signal `number` to each of `pids` that still exists and may receive it."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill_tree(
    ended: dict[int, int], keep: Collection[int] = (), patience: float = _PATIENCE
) -> set[int]:
    """Kill every descendant of this process and wait until they are gone.

    Args:
        ended: receives process id -> wait status of the children that have ended.
        keep: children to spare, with their descendants.
        patience: seconds without a new process before giving up on unkillable ones.

    Returns:
        The living processes that were sent SIGKILL.
    """
    deadline = time.monotonic() + patience
    pause = _FIRST_PAUSE
    seen: set[int] = set()
    killed: set[int] = set()
    while reap(ended):
        found = stop_tree(keep)
        if keep and not found:
            break
        killed.update(pid for pid in found if not _is_zombie(pid))
        # Children first: the death of a leader may continue stopped processes (SIGCONT).
        send_signal(reversed(found), signal.SIGKILL)
        if not seen.issuperset(found):  # new ones were found: do not give up yet
            deadline = time.monotonic() + patience
        elif time.monotonic() > deadline:
            break
        seen.update(found)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
    return killed


def stop_tree(keep: Collection[int] = ()) -> list[int]:
    """Stop every descendant of this process, until none is new and none runs.

    A stopped process cannot fork, so even a fast fork bomb is caught. A process that gets SIGSTOP
    during a fork completes the fork first, so each one is checked to have stopped.

    Returns:
        All that were found, parents before their children, including zombies.
    """
    deadline = time.monotonic() + _STOP_PATIENCE
    table = None if _has_children_files() else ProcessTable()
    children_of = _children_of if table is None else table.children_of
    found: dict[int, None] = {}  # a set that keeps the order
    while True:
        # Before the walk, which then sees each child of those that have come to rest. Some that had
        # are stopped again: another process may have continued them.
        moving = [pid for pid in found if _may_fork(pid, children_of)]
        if table is not None:
            table.refresh()
        new = [pid for pid in _walk(os.getpid(), keep, children_of) if pid not in found]
        found.update(dict.fromkeys(new))
        moving = [pid for pid in (*moving, *new) if _stop(pid)]
        if not moving or time.monotonic() > deadline:
            return list(found)
        if not new:
            time.sleep(_FIRST_PAUSE)


def _stop(pid: int) -> bool:
    """Send SIGSTOP; return False if it cannot have an effect."""
    try:
        os.kill(pid, signal.SIGSTOP)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _may_fork(pid: int, children_of: Callable[[int], list[int]]) -> bool:
    """Return whether a thread of a process that was sent SIGSTOP may still be inside a fork."""
    # Uninterruptible is the parent of a vfork for as long as its child, which is there, is stopped.
    # One that has no child may be halfway through a fork.
    rests = _REST | ({b"D"} if children_of(pid) else set())
    return any(fields[_STATE] not in rests for fields in _read_threads(pid))


def foreground_group(leader: int) -> int:
    """Return the process group that Ctrl-C would reach.

    Args:
        leader: a session leader.

    Returns:
        The foreground group of its terminal; its own group where it has none.
    """
    fields = _read_stat(leader)
    group = int(fields[_FOREGROUND]) if fields else 0
    return group if group > 0 else leader


class ProcessTable:
    """Parents of all processes, read from /proc: for kernels without the `children` files.

    These need CONFIG_PROC_CHILDREN. On macOS `ps` is used instead (never run).
    """

    def __init__(self) -> None:
        self._parents: dict[int, int] = {}
        self._children: dict[int, list[int]] = {}
        self.refresh()

    def refresh(self) -> None:
        """Add new processes and remove ended ones.

        Each process is read only once, for speed: while a tree is being stopped, this competes with
        processes that fork.
        """
        if IS_LINUX:
            self._refresh_from_proc()
        else:
            self._parents = _parents_by_ps()
        self._children = {}
        for pid, parent in self._parents.items():
            self._children.setdefault(parent, []).append(pid)

    def children_of(self, pid: int) -> list[int]:
        """Return the children of `pid`."""
        return self._children.get(pid, [])

    def _refresh_from_proc(self) -> None:
        present = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        for pid in present - self._parents.keys():
            fields = _read_stat(pid)
            if fields:
                self._parents[pid] = int(fields[_PARENT])
        for pid in self._parents.keys() - present:
            del self._parents[pid]


def _walk(root: int, keep: Collection[int], children_of: Callable[[int], list[int]]) -> list[int]:
    found: dict[int, None] = {}  # a set that keeps the order
    waiting = [root]
    while waiting:
        parent = waiting.pop()
        # "not in found": a reused process id could create a cycle.
        children = [pid for pid in children_of(parent) if pid not in keep and pid not in found]
        found.update(dict.fromkeys(children))
        waiting += children
    return list(found)


def _has_children_files() -> bool:
    pid = os.getpid()
    return os.path.exists(f"/proc/{pid}/task/{pid}/children")


def _children_of(pid: int) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(OSError):  # it has ended meanwhile
        for thread in os.listdir(f"/proc/{pid}/task"):
            with (
                contextlib.suppress(OSError),
                open(f"/proc/{pid}/task/{thread}/children", "rb") as f,
            ):
                children += map(int, f.read().split())
    return children


def is_at_work(pid: int) -> bool:
    """Tell whether a thread of a process runs, waits for a processor or for a disk."""
    return any(fields[_STATE] in _AT_WORK for fields in _read_threads(pid))


def _read_threads(pid: int) -> list[list[bytes]]:
    """Return what `_read_stat` does, for each thread."""
    threads: list[str] = []
    with contextlib.suppress(OSError):  # it has ended meanwhile
        threads = os.listdir(f"/proc/{pid}/task")
    return [fields for thread in threads if (fields := _read_stat(f"{pid}/task/{thread}"))]


def _read_stat(pid: int | str) -> list[bytes]:
    """Return the fields of /proc/PID/stat after the program's name; [] if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            line = file.read()
    except OSError:
        return []
    return line[line.rindex(b")") + 2 :].split()  # a name may hold spaces and parentheses


def _is_zombie(pid: int) -> bool:
    fields = _read_stat(pid)
    return bool(fields) and fields[_STATE] in (b"Z", b"X")


def _parents_by_ps() -> dict[int, int]:
    import subprocess  # noqa: PLC0415 - on Linux its memory would be copied for every command

    listing = subprocess.run(["/bin/ps", "-axo", "pid=,ppid="], capture_output=True, check=True)
    return {int(pid): int(parent) for pid, parent in map(bytes.split, listing.stdout.splitlines())}
