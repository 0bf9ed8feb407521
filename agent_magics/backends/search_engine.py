"""The processes that search: ripgrep where there is one, else Python; each can be stopped."""

import os
import re
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_magics.protocol.errors import RespondToModel

_CHECK_SECONDS = 10.0
_HEARTBEAT = 0.1
_MOST_PATTERN_BYTES = 50_000
_PYTHON_SEARCH = Path(__file__).with_name("pygrep.py")
# All that the engines need of our environment; above all no keys.
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")
_LINE_BREAK = re.compile(r"(?<!\\)(?:\\\\)*\\n|\n")
_CLASS = re.compile(r"(?<!\\)\[\^?\]?(?:\\.|[^\]\\])*\]")


def choose_engine(
    pattern: str, case_sensitive: bool, context: int, distrusted: Sequence[Path]
) -> list[str]:
    """Return the command to which the files are added: ripgrep's if it understands `pattern`.

    Raises:
        RespondToModel: `pattern` is no regular expression.
    """
    _refuse_pattern(pattern)
    ripgrep = find_ripgrep(distrusted)
    if ripgrep is not None:
        command = [ripgrep, "--no-config", "--json", "--no-ignore", "--no-mmap", "--threads=1"]
        command += ["--case-sensitive" if case_sensitive else "--ignore-case"]
        command += [f"--context={context}", "-e", pattern, "--"]
        if _try_out(command, "-").returncode in (0, 1):
            return command
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


def _refuse_pattern(pattern: str) -> None:
    if not pattern:
        raise RespondToModel("The pattern is empty; give a regular expression to look for.")
    if "\0" in pattern or len(pattern.encode("utf-8", "replace")) > _MOST_PATTERN_BYTES:
        raise RespondToModel(
            "The pattern is too long or holds a NUL character; give a plainer one."
        )
    if any(0xD800 <= ord(c) <= 0xDFFF for c in pattern):
        raise RespondToModel("The pattern holds half a character (a surrogate); write it whole.")
    if _LINE_BREAK.search(_CLASS.sub("", pattern)):
        raise RespondToModel(
            f"{pattern!r} spans lines, but one line is searched at a time; "
            "look for one of its lines and use context."
        )


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
class SearchEngine:
    """Runs one process after the other until the search is cancelled or its time is over."""

    is_cancelled: Callable[[], bool]
    deadline: float
    unreadable: int = 0
    timed_out: bool = False

    def records(self, command: list[str], opened: Mapping[int, str]) -> Iterator[bytes]:
        """Yield what `command` prints, line by line; whatever happens, it is not left running.

        Args:
            command: the engine; the files are added to it as ``/dev/fd/N``.
            opened: their descriptors.
        """
        if not opened:
            return
        with tempfile.TemporaryFile() as complaints:
            process = subprocess.Popen(
                [*command, *(f"/dev/fd/{descriptor}" for descriptor in opened)],
                pass_fds=tuple(opened),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=complaints,
                env=_environment(),
                cwd="/",
                start_new_session=True,  # Jupyter's interrupt goes to our group; we end this one
            )
            try:
                yield from self._lines(process.stdout.fileno())
            finally:
                process.kill()
                process.wait()
                process.stdout.close()
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
