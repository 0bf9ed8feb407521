"""Runs the search processes, ripgrep or else Python, with cancellation and a time limit."""

import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Self

from agent_magics.files.plain_files import file_stamp
from agent_magics.files.search.patterns import (
    is_plain,
    names_returns,
    refuse_ambiguous,
    refuse_unsearchable,
)
from agent_magics.protocol.errors import RespondToModel

_CHECK_SECONDS = 10.0
_HEARTBEAT = 0.1
# More than one process, so that files are opened for one while others search.
_MOST_AT_ONCE = 6
# Files of the first process, which begins while others are still looked for. To start ripgrep
# takes as long as 500 small files, and it has threads; Python has none, so more share the work.
_FIRST_OF_RIPGREP, _FIRST_OF_PYTHON = 1000, 50
_THREADS = min(os.cpu_count() or 1, 8)
_PYTHON_SEARCH = Path(__file__).with_name("pygrep.py")
# The only environment variables that engines inherit; no keys are among them.
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")
_WORKING: set[tuple[int, ...]] = set()  # stamps of ripgrep that have accepted a pattern


def choose_engine(
    pattern: str, case_sensitive: bool, context: int, distrusted: Sequence[Path], takes_nul: bool
) -> tuple[list[str], int]:
    """Return the search command, to which files are appended: ripgrep's if it accepts `pattern`;
    and how many files its first process gets. Files with NUL bytes are searched if `takes_nul`.

    Raises:
        RespondToModel: `pattern` is not a regular expression.
    """
    refuse_unsearchable(pattern)
    breaks = "lf" if names_returns(pattern) else "crlf"
    ripgrep = find_ripgrep(distrusted)
    if ripgrep is not None:
        command = [ripgrep, "--no-config", "--json", "--no-ignore", "--no-mmap"]
        command += [f"--threads={_THREADS}", "--case-sensitive" if case_sensitive else "-i"]
        command += ["--crlf"] if breaks == "crlf" else []
        command += ["--text"] if takes_nul else []
        command += [f"--context={context}", "-e", pattern, "--"]
        # A search of one folder takes as long as trying the pattern out.
        stamp = file_stamp(ripgrep)
        is_known = stamp in _WORKING and is_plain(pattern)
        if is_known or _try_out(command, "-").returncode in (0, 1):
            _WORKING.add(stamp)
            return command, _FIRST_OF_RIPGREP
    refuse_ambiguous(pattern)
    # Python may accept what ripgrep does not, such as a look-behind, and says where an error is.
    case = "s" if case_sensitive else "i"
    script = [sys.executable, "-I", "-S", "-X", "utf8", "-W", "ignore", str(_PYTHON_SEARCH)]
    kinds = "all" if takes_nul else "text"
    command = [*script, pattern, case, breaks, kinds, str(context)]
    tried = _try_out(command)
    if tried.returncode == 2:
        message = tried.stderr.decode("utf-8", "replace")
        raise RespondToModel(f"{pattern!r} is not a regular expression: {message}.")
    return command, _FIRST_OF_PYTHON


def find_ripgrep(distrusted: Sequence[Path]) -> str | None:
    """Return the path of ``rg``, or None; programs below `distrusted` folders are not used."""
    roots = [os.path.realpath(folder) for folder in distrusted]

    def is_trusted(path: str) -> bool:
        real = Path(os.path.realpath(path))
        return os.path.isabs(path) and not any(real.is_relative_to(root) for root in roots)

    folders = filter(is_trusted, os.environ.get("PATH", "").split(os.pathsep))
    found = shutil.which("rg", path=os.pathsep.join(folders))
    return found if found is not None and is_trusted(found) else None


def _try_out(command: list[str], *files: str) -> subprocess.CompletedProcess[bytes]:
    """Run `command` on a short text, to see whether it accepts its pattern."""
    try:
        return subprocess.run(
            [*command, *files],
            input=b"\r",  # at which old versions of ripgrep fail, if the pattern fits no text
            capture_output=True,
            env=_environment(),
            timeout=_CHECK_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RespondToModel("The pattern takes too long to prepare; give a plainer one.") from None


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ}


@dataclass(slots=True)
class _SearchProcess:
    """One process that searches one batch of files."""

    process: "subprocess.Popen[bytes]"
    error_file: IO[bytes]
    paths: dict[int, str]


@dataclass(slots=True)
class SearchEngine:
    """Runs a few search processes at a time until the search is finished, cancelled or out of time.

    As a context manager it ends all of them on exit.

    Attributes:
        command: the engine's command; files are appended as ``/dev/fd/N``.
        deadline: time of `time.monotonic` at which the search ends.
        unreadable: number of lines that the processes wrote to standard error.
        stopped_at: the first file that was perhaps not searched when time ran out; "" before that.
    """

    command: list[str]
    is_cancelled: Callable[[], bool]
    deadline: float
    unreadable: int = 0
    stopped_at: str = ""
    _running: "deque[_SearchProcess]" = field(default_factory=deque)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes that still run."""
        for run in self._running:
            self._end(run)

    @property
    def timed_out(self) -> bool:
        """Whether time has run out."""
        return bool(self.stopped_at)

    @property
    def is_busy(self) -> bool:
        """Whether as many processes run as may run at once."""
        return sum(run.process.poll() is None for run in self._running) >= _MOST_AT_ONCE

    @property
    def is_idle(self) -> bool:
        """Whether no process runs and all output was read."""
        return not self._running

    def start(self, opened: Mapping[int, str]) -> None:
        """Search files, given as descriptor -> path; the caller may close them afterwards."""
        if not opened:
            return
        error_file = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the process ended
        process = subprocess.Popen(
            [*self.command, *(f"/dev/fd/{descriptor}" for descriptor in opened)],
            pass_fds=tuple(opened),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=error_file,
            env=_environment(),
            cwd="/",
            start_new_session=True,  # not interrupted by Jupyter, but ended by us
        )
        self._running.append(_SearchProcess(process, error_file, dict(opened)))

    def finish_first(self) -> tuple[dict[int, str], Iterator[bytes]]:
        """Return the files of the process started first, and the lines of its output."""
        run = self._running[0]
        return run.paths, self._records(run)

    def _records(self, run: _SearchProcess) -> Iterator[bytes]:
        yield from self._lines(run)
        self._running.popleft()
        self._end(run)

    def _end(self, run: _SearchProcess) -> None:
        run.process.kill()
        run.process.wait()
        if run.process.stdout is not None:
            run.process.stdout.close()
        with run.error_file as error_output:
            error_output.seek(0)
            self.unreadable += sum(1 for line in error_output if line.strip())

    def _lines(self, run: _SearchProcess) -> Iterator[bytes]:
        assert run.process.stdout is not None  # it was started with a pipe
        pipe = run.process.stdout.fileno()
        parts: list[bytes] = []
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while True:
                if self.is_cancelled():
                    raise RespondToModel("Interrupted while searching.")
                if time.monotonic() > self.deadline:
                    self.stopped_at = next(iter(run.paths.values()))
                    return
                if not selector.select(_HEARTBEAT):
                    continue
                chunk = os.read(pipe, 1 << 16)
                if not chunk:
                    return
                first, *rest = chunk.split(b"\n")
                parts.append(first)
                for following in rest:
                    yield b"".join(parts)
                    parts = [following]
