"""Runs a command, and names and kills the processes that it leaves behind, which fails the run.

`python make/watched.py COMMAND…`. On Linux every process that the command starts stays a descendant
of this program, also one that has left its parent and its process group. The command has a folder
for temporary files of its own, in which only pytest may leave files. If RUN_MINUTES is set, a
command that has not ended by then is interrupted, and what still runs is named. If whoever started
this program is killed, or this program itself, the command is interrupted, too.
"""

import ctypes
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType

import psutil

PATIENCE = 15  # seconds that a command has to end after an interrupt
GRACE = 5.0  # seconds that processes have to end in by themselves after it
# Folders of pytest; of kernels that nbval and some tests kill, which the next kernel removes; of
# the notebooks that such kernels ran; what Node keeps compiled; what clusters of Dask share.
KEPT = re.compile(r"pytest-of-|agent-magics-\d+-|notebook-|node-compile-cache|dask-scratch-space$")
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ORPHANED = signal.SIGUSR1  # the parent has ended
_prctl = ctypes.CDLL(None).prctl


class Command:
    """One command, its descendants and its temporary folder."""

    def __init__(self, words: list[str], folder: Path) -> None:
        self._folder = folder
        self._interrupted = False
        self._process: subprocess.Popen[bytes] | None = None
        # Signals that have a handler here are not ignored there, as they are in a script's `&`.
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, _ORPHANED):
            signal.signal(number, self._interrupt)
        signal.signal(signal.SIGALRM, self._end)
        signal.setitimer(signal.ITIMER_REAL, 60 * float(os.environ.get("RUN_MINUTES", "0")))
        # In a group of its own, so that Ctrl-C reaches it once, through this program.
        self._process = subprocess.Popen(
            words,
            env={**os.environ, "TMPDIR": str(folder)},
            process_group=0,
            preexec_fn=partial(_prctl, _PR_SET_PDEATHSIG, signal.SIGINT),
        )

    def _end(self, number: int, frame: FrameType | None) -> None:
        """Interrupt a command that takes too long."""
        for process in descendants():
            print(f"still running: {_describe(process)}", file=sys.stderr)
        self._interrupt(number, frame)

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        """Send the command an interrupt, as Ctrl-C does; kill it with all it started if need be."""
        if not self._process:  # nothing has begun
            sys.exit(128 + number)
        self._interrupted = True
        for again in (number, signal.SIGALRM):
            signal.signal(again, lambda *_: kill_all())
        signal.signal(_ORPHANED, lambda *_: None)  # a parent that ends by the same Ctrl-C
        signal.alarm(PATIENCE)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGINT)

    def wait(self) -> int:
        """Wait for the command and for its orphans; return its exit status."""
        assert self._process
        pid = status = 0
        while pid != self._process.pid:
            pid, status = os.waitpid(-1, 0)
        signal.alarm(0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        return self._process.returncode

    def left_behind(self) -> list[str]:
        """Return a line for each unexpected process and file that is left."""
        if self._interrupted:
            return []
        _, alive = psutil.wait_procs(descendants(), timeout=GRACE)
        files = [path for path in self._folder.iterdir() if not KEPT.match(path.name)]
        return [*map(_describe, alive), *(f"file {path.name}" for path in files)]


def descendants() -> list[psutil.Process]:
    """Return all processes below this one."""
    return psutil.Process().children(recursive=True)


def kill_all() -> None:
    """Kill all descendants of this process.

    Those that remove the semaphores of others (of multiprocessing, of joblib) have a while for it.
    """
    _kill(lambda: [each for each in descendants() if not _tracks(each)])
    psutil.wait_procs(list(filter(_tracks, descendants())), timeout=GRACE)
    _kill(descendants)


def _kill(chosen: Callable[[], list[psutil.Process]]) -> None:
    while left := [each for each in chosen() if not _is_over(each)]:
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def _tracks(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        words = process.cmdline()  # none within `exec`, of which this may be seen
        return not words or "resource_tracker" in " ".join(words)
    return False


def _is_over(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _describe(process: psutil.Process) -> str:
    with process.oneshot():
        try:
            test = process.environ().get("PYTEST_CURRENT_TEST", "an unknown test")
            return f"process {process.pid} of {test}: {' '.join(process.cmdline())[:200]}"
        except psutil.Error as error:
            return str(error)


def main(command: list[str]) -> int:
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _prctl(_PR_SET_PDEATHSIG, _ORPHANED)
    folder = Path(tempfile.mkdtemp(prefix="agent-magics-run-"))
    folder.chmod(0o1777)  # tests write there as other users, too
    try:
        watched = Command(command, folder)
        status = watched.wait()
        left = watched.left_behind()
    finally:
        kill_all()
        with suppress(ChildProcessError):
            while os.waitpid(-1, 0):
                pass
        # Tens of thousands of files: Python itself would take a minute.
        # A second Ctrl-C is not for it.
        subprocess.run(["rm", "-rf", folder], check=False, process_group=0)
    for line in left:
        print(f"left behind: {line}", file=sys.stderr)
    return status or bool(left)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
