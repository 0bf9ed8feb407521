"""What a command line leads to right now: the folder, the programs and scripts behind its words.

An approval is for these, not for the words alone: when a program, a script or a search path has
become another one meanwhile, the identity is another one too, and the question is asked again.
What is behind a program (a Makefile, a package's scripts) is not looked at.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from agent_magics.dispatch.exec_danger import loose_commands_of
from agent_magics.dispatch.exec_place import Effort, TooLongToJudge, is_below
from agent_magics.dispatch.exec_script import commands_of, is_shell

_INTERPRETER = re.compile(
    r"(?:python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|Rscript|julia|osascript)[\d.]*\Z"
)
_READS_SCRIPT = frozenset({"source", ".", "awk", "gawk", "mawk", "sed", "make", "env"})
_MOST_COMMANDS = 20  # of one script that are looked at
_MOST_HASHED = 64 << 20  # bytes of one file; a larger one is known by what the file system says


def identity_of_command(
    argv: Sequence[str], cwd: str, env: Mapping[str, str], writable: Sequence[str]
) -> list[object]:
    """Return JSON values that are equal only while the command would run the same things.

    Args:
        argv: program and arguments.
        cwd: the folder that it would run in, without symlinks.
        env: its environment.
        writable: folders whose files other commands may change; of programs there the content
            counts, not only what the file system says about them.
    """
    variables = "\0".join(f"{name}={env[name]}" for name in sorted(env))
    environment = hashlib.sha256(variables.encode("utf-8", "surrogateescape")).hexdigest()
    files: dict[str, object] = {}
    for words in _commands_in(argv):
        for path, is_script in _files_of(words, cwd, env.get("PATH", "")):
            if path not in files:
                files[path] = _identity(path, () if is_script else writable)
    return [list(argv), cwd, _identity(cwd), environment, sorted(files.items())]


def find_program(name: str, search: str) -> str | None:
    """Return the file that running `name` starts: what ``execvp`` finds along a search path.

    Args:
        name: a program's name without a slash.
        search: a value of PATH.
    """
    for folder in search.split(os.pathsep):
        path = os.path.join(folder, name)
        try:
            mode = os.stat(path).st_mode
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(mode) and os.access(path, os.X_OK):
            return path
    return None


def _commands_in(argv: Sequence[str]) -> list[Sequence[str]]:
    found = commands_of(argv)
    if found is None:
        try:
            found = loose_commands_of(argv, Effort())
        except TooLongToJudge:
            found = []
    return [argv, *found[:_MOST_COMMANDS]]


def _files_of(words: Sequence[str], cwd: str, search: str) -> Iterator[tuple[str, bool]]:
    """Yield the program of a simple command, and the script that it would read, if any."""
    name = words[0]
    program = os.path.join(cwd, name) if "/" in name else find_program(name, search)
    if program is None:
        yield name, False  # when it appears, that is a change
        return
    yield program, False
    bare = name.rpartition("/")[2]
    if is_shell(name) or _INTERPRETER.match(bare) or bare in _READS_SCRIPT:
        for word in words[1 : 1 + _MOST_COMMANDS]:
            path = os.path.join(cwd, word)
            if word and "\0" not in word and os.path.isfile(path):
                yield path, True
                return


def _identity(path: str, writable: Sequence[str] = ()) -> object:
    """Return what a file is: its content below `writable` (or if that is empty), else its version.

    Args:
        path: as it is found; it need not exist.
        writable: the folders whose files are known by their content; none means all folders.
    """
    try:
        real = os.path.realpath(path)
        found = os.stat(real)
    except (OSError, ValueError):
        return None
    if stat.S_ISDIR(found.st_mode):
        return [real, found.st_dev, found.st_ino]
    by_content = not writable or is_below(real, writable)
    if by_content and stat.S_ISREG(found.st_mode) and found.st_size <= _MOST_HASHED:
        return [real, stat.S_IMODE(found.st_mode), _digest(real, *_version(found))]
    return [real, *_version(found)]


def _version(found: os.stat_result) -> tuple[int, ...]:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@lru_cache(maxsize=256)
def _digest(path: str, *version: int) -> str:
    """Return the digest of a file's content; as long as its version is the same, from memory."""
    try:
        with open(path, "rb", opener=_open_plain) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return "unreadable"


def _open_plain(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)  # never waits for a pipe
