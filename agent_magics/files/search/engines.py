"""The processes that search: ripgrep where there is one, else Python; each can be stopped."""

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

from agent_magics.backends.search_pattern import refuse_ambiguous, refuse_unsearchable
from agent_magics.protocol.errors import RespondToModel

_CHECK_SECONDS = 10.0
_HEARTBEAT = 0.1
# More than one process, so that files are opened for one while the others read.
_MOST_AT_ONCE = 6
_THREADS = min(os.cpu_count() or 1, 8)
_PYTHON_SEARCH = Path(__file__).with_name("pygrep.py")
# All that the engines need of our environment; above all no keys.
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")


def choose_engine(
    pattern: str, case_sensitive: bool, context: int, distrusted: Sequence[Path]
) -> list[str]:
    """Return the command to which the files are added: ripgrep's if it understands `pattern`.

    Raises:
        RespondToModel: `pattern` is no regular expression.
    """
    refuse_unsearchable(pattern)
    ripgrep = find_ripgrep(distrusted)
    if ripgrep is not None:
        command = [ripgrep, "--no-config", "--json", "--no-ignore", "--no-mmap"]
        command += [f"--threads={_THREADS}", "--case-sensitive" if case_sensitive else "-i"]
        command += [f"--context={context}", "-e", pattern, "--"]
        if _try_out(command, "-").returncode in (0, 1):
            return command
    refuse_ambiguous(pattern)
    # What ripgrep does not know, such as a look-behind, Python may; it also names an error's place.
    case = "s" if case_sensitive else "i"
    script = [sys.executable, "-I", "-S", "-X", "utf8", "-W", "ignore", str(_PYTHON_SEARCH)]
    command = [*script, pattern, case, str(context)]
    tried = _try_out(command)
    if tried.returncode == 2:
        message = tried.stderr.decode("utf-8", "replace")
        raise RespondToModel(f"{pattern!r} is not a regular expression: {message}.")
    return command


def find_ripgrep(distrusted: Sequence[Path]) -> str | None:
    """Return the path of ``rg``, or None; never one below a folder in `distrusted`."""
    roots = [os.path.realpath(folder) for folder in distrusted]

    def is_trusted(path: str) -> bool:
        real = Path(os.path.realpath(path))
        return os.path.isabs(path) and not any(real.is_relative_to(root) for root in roots)

    folders = filter(is_trusted, os.environ.get("PATH", "").split(os.pathsep))
    found = shutil.which("rg", path=os.pathsep.join(folders))
    return found if found is not None and is_trusted(found) else None


def _try_out(command: list[str], *files: str) -> subprocess.CompletedProcess[bytes]:
    """Run `command` on nothing, to see whether it takes its pattern."""
    try:
        return subprocess.run(
            [*command, *files],
            stdin=subprocess.DEVNULL,
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
class _Run:
    """One process that searches one batch of files."""

    process: "subprocess.Popen[bytes]"
    complaints: IO[bytes]
    paths: dict[int, str]


@dataclass(slots=True)
class SearchEngine:
    """Runs processes, a few at once, until the search is cancelled or its time is over.

    Whatever happens, none of them is left running.

    Attributes:
        command: the engine; the files are added to it as ``/dev/fd/N``.
    """

    command: list[str]
    is_cancelled: Callable[[], bool]
    deadline: float
    unreadable: int = 0
    timed_out: bool = False
    _running: "deque[_Run]" = field(default_factory=deque)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End what still runs."""
        for run in self._running:
            self._end(run)

    @property
    def is_busy(self) -> bool:
        """Whether as many run as may run at once; what has ended waits to be read."""
        return sum(run.process.poll() is None for run in self._running) >= _MOST_AT_ONCE

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs, and all was read."""
        return not self._running

    def start(self, opened: Mapping[int, str]) -> None:
        """Search files, given as descriptor -> path; they may be closed when this returns."""
        if not opened:
            return
        complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the process ended
        process = subprocess.Popen(
            [*self.command, *(f"/dev/fd/{descriptor}" for descriptor in opened)],
            pass_fds=tuple(opened),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
            env=_environment(),
            cwd="/",
            start_new_session=True,  # Jupyter's interrupt goes to our group; we end this one
        )
        self._running.append(_Run(process, complaints, dict(opened)))

    def finish_first(self) -> tuple[dict[int, str], Iterator[bytes]]:
        """Return the files of the process started first, and what it prints, line by line."""
        run = self._running[0]
        return run.paths, self._records(run)

    def _records(self, run: _Run) -> Iterator[bytes]:
        yield from self._lines(run.process.stdout.fileno())  # type: ignore[union-attr]
        self._running.popleft()
        self._end(run)

    def _end(self, run: _Run) -> None:
        run.process.kill()
        run.process.wait()
        run.process.stdout.close()  # type: ignore[union-attr]
        with run.complaints as complaints:
            complaints.seek(0)
            self.unreadable += sum(1 for line in complaints if line.strip())

    def _lines(self, pipe: int) -> Iterator[bytes]:
        parts: list[bytes] = []
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while True:
                if self.is_cancelled():
                    raise RespondToModel("Interrupted while searching.")
                if time.monotonic() > self.deadline:
                    self.timed_out = True
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
