"""Identifies what a command line runs: its folder, and the programs and scripts it names.

An approval is bound to these and not to the words alone: if a program, a script or a search path is
replaced, the identity changes, and the question is asked again. Files that a program reads (a
Makefile, a package's scripts) are not covered, and a script may call others: only for commands
accepted by `runs_only_itself` is everything known that will run.
"""

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain, islice

from agent_magics.approval.commands.danger import loose_commands_of
from agent_magics.approval.commands.destructive import expanded, folder_entered
from agent_magics.approval.commands.place import UNKNOWN_FOLDER, Effort, TooLongToJudge
from agent_magics.approval.commands.script import commands_of, is_shell
from agent_magics.approval.commands.words import program_of
from agent_magics.files.beneath import is_below, real_path
from agent_magics.files.plain_files import stamp_of

_INTERPRETER = re.compile(
    r"(?:python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|Rscript|julia|osascript)[\d.]*\Z"
)
# Programs that start no other one, whatever they are given, and neither run a file's content nor
# put it anywhere (`cp x ~/.profile`, `uniq x ~/.profile`) nor give it rights (`chmod u+s x`). Not
# `printf`: shells set variables with it (-v, %n), and run what stands in a variable's subscript.
_RUNS_ONLY_ITSELF = frozenset(
    {
        *("basename", "cat", "cd", "cksum", "cmp", "comm", "cut", "date", "df", "dirname", "du"),
        *("echo", "expr", "false", "fold", "free", "grep", "head", "id", "join", "kill", "ls"),
        *("md5sum", "mkdir", "mkfifo", "nl", "nproc", "od", "paste", "ps", "pwd"),
        *("readlink", "realpath", "rev", "rm", "rmdir", "seq", "sha1sum", "sha256sum"),
        *("sha512sum", "sleep", "stat", "sync", "tac", "tail"),
        *("touch", "tr", "true", "truncate", "uname", "uptime", "wc", "whoami"),
    }
)
# Options by which such a program takes the names of files from a file, however they are shortened.
_NAMES_FROM_FILE = {
    **dict.fromkeys(("wc", "du"), re.compile(r"--f")),
    **dict.fromkeys(
        ("cksum", "md5sum", "sha1sum", "sha256sum", "sha512sum"), re.compile(r"-[^-]*c|--c")
    ),
}
# Options by which one may follow the links that it finds in folders: -R of grep, -L of ls and du.
_FOLLOWS_LINKS = re.compile(r"-[^-]*[RL]|--d")
_READS_SCRIPT = frozenset({"source", ".", "awk", "gawk", "mawk", "sed", "make", "env"})
_MOST_COMMANDS = 20  # limit per script
_MOST_WORDS = 64  # limit of words that may name a file, over all commands
_MOST_NAMES = 256  # limit of files that they may name for an answer that holds once
_MOST_FOLDERS = 8  # limit of folders that a command may change to
_MOST_BELOW = 500  # files in the folders that it names
_CLUSTER = re.compile(r"-[A-Za-z0-9]+")
_LONGEST_PATH = 4096  # PATH_MAX of Linux
# What may name a file within a word, such as a script within an option; and what a shell expands.
_NAME = re.compile(r"[\w.@+~/-]+")
_COMPOSED = re.compile(r"[*?\[{$`]")
# Written while the question is open, by a front end or a program that runs on; one that may be run
# (`a.out`) counts all the same.
_WRITTEN_MEANWHILE = (".ipynb", ".jsonl", ".log", ".out", ".err", ".csv")
_MOST_HASHED = 64 << 20  # bytes; a larger file is identified by its metadata


def runs_only_itself(argv: Sequence[str]) -> bool:
    """Tell whether a command line names every program that it starts and every file that these
    read, and none of these starts others.

    The caller must check that the names refer to the expected programs.
    """
    commands = commands_of(argv)
    return bool(commands) and all(map(_runs_only_what_it_names, commands or ()))


def _runs_only_what_it_names(words: Sequence[str]) -> bool:
    from_file = _NAMES_FROM_FILE.get(words[0])
    has_others = from_file is not None and any(map(from_file.match, words[1:]))
    return words[0] in _RUNS_ONLY_ITSELF and not has_others


def reaches_what_is_kept(
    argv: Sequence[str], cwd: str, writable: Sequence[str], is_kept: Callable[[str], bool]
) -> bool:
    """Tell whether a command may reach what is kept from others, within a writable folder or by a
    link in it.

    A command in the sandbox can make such a link, and what follows it outside acts on its target.

    Args:
        argv: program and arguments.
        cwd: the folder in which it would run, without symlinks.
        writable: folders whose files other commands may change.
        is_kept: tells of an absolute path whether a command in the sandbox may not write or read
            it.
    """
    commands = _commands_in(argv)
    pieces = (piece for words in commands for word in words for piece in names_in(word))
    pieces = (piece for piece in pieces if piece and "\0" not in piece)
    names = {name for piece in pieces for name in (piece, expanded(piece))}  # a shell's, or not
    folders = folders_of(commands, cwd)
    if len(names) > _MOST_WORDS or len(folders) > _MOST_FOLDERS or UNKNOWN_FOLDER in folders:
        return True  # too many to look at, or not known
    paths = {os.path.join(folder, name) for folder in folders for name in names} | folders
    follows = any(_FOLLOWS_LINKS.match(word) for words in commands for word in words)
    return any(_leads_out(path, writable, is_kept, follows) for path in paths)


def folders_of(commands: Sequence[Sequence[str]], cwd: str) -> set[str]:
    """Return the folders in which commands may run: `cwd`, and where a `cd` among them may lead."""
    folders = {cwd}
    for words in commands:
        target = folder_entered(words) if len(folders) <= _MOST_FOLDERS else None
        if target == "-":  # one of these, if there is another
            target = None if folders != {cwd} else UNKNOWN_FOLDER
        if target is not None:
            folders |= {os.path.join(folder, target) for folder in folders}
    return folders


def names_in(word: str) -> Iterator[str]:
    """Yield what may name a file in a word: all of it, the value of an option or an assignment.

    In a cluster of options (`-ufNAME`) it is not known which letter is the last. Of a very long one
    more is yielded than is looked at, and nothing that is too long for a path.
    """
    yield word
    if "=" in word:
        yield from word.split("=")
    letters = _CLUSTER.match(word)
    tails = range(max(2, len(word) - _LONGEST_PATH), letters.end() + 1 if letters else 0)
    yield from (word[at:] for at in tails[: _MOST_NAMES + 1])


def _leads_out(
    path: str, writable: Sequence[str], is_kept: Callable[[str], bool], follows: bool
) -> bool:
    """Tell whether `path` leads to what is kept, or to a folder that may hold that.

    Args:
        path: absolute; it need not exist.
        writable: folders whose files commands may change.
        is_kept: see `reaches_what_is_kept`.
        follows: whether the command follows the links that it finds in folders.
    """
    plain = os.path.normpath(path)
    try:
        real = real_path(path)
        is_linked = real != plain
        if not is_below(plain, writable):
            return False
        if not (is_linked or (follows and os.path.isdir(real))):
            return plain not in writable and is_kept(plain)
    except ValueError:  # no path has such a name
        return False
    reached = list(islice(_reached_from(real, is_linked, follows), _MOST_BELOW + 1))
    too_many = len(reached) > _MOST_BELOW
    return too_many or any(is_kept(place) for place, by_link in reached if by_link)


def _reached_from(start: str, by_link: bool, follows: bool) -> Iterator[tuple[str, bool]]:
    """Yield (place, whether a link leads there) for `start` and what is below it.

    Args:
        start: a file or folder, without symlinks.
        by_link: whether a link led to it.
        follows: whether links below it are followed too.
    """
    todo, seen = [(start, by_link)], {start}
    while todo:
        folder, by_link = todo.pop()
        yield folder, by_link
        for entry in _entries_below(folder):
            if not (follows and os.path.islink(entry)):
                yield entry, by_link
            elif (target := real_path(entry)) not in seen or not by_link:
                seen.add(target)
                todo.append((target, True))


def identity_of_command(
    argv: Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    writable: Sequence[str],
    *,
    once: bool = False,
) -> list[object]:
    """Return JSON values that are equal only while the command would run the same things.

    Args:
        argv: program and arguments.
        cwd: the folder in which it would run, without symlinks.
        env: its environment.
        writable: folders whose files other commands may change; programs there are identified by
            content, and not only by metadata.
        once: whether the answer holds for one run: then every file that a word may name is
            included, by metadata, even files that the command itself will change.
    """
    variables = "\0".join(f"{name}={env[name]}" for name in sorted(env))
    environment = hashlib.sha256(variables.encode("utf-8", "surrogateescape")).hexdigest()
    files: dict[str, object] = {}
    commands = _commands_in(argv)
    for words in commands:
        for path, is_script in _files_of(words, cwd, env.get("PATH", "")):
            if path not in files:
                files[path] = _identity(path, () if is_script else writable)
    if once:
        files |= {path: _identity(path, ("/dev/null",)) for path in _named_files(commands, cwd)}
    return [list(argv), cwd, _identity(cwd), environment, sorted(files.items())]


def find_program(name: str, search: str) -> str | None:
    """Return the file that running `name` starts, found along a search path as ``execvp`` does.

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


def _named_files(commands: Sequence[Sequence[str]], cwd: str) -> Iterator[str]:
    """Yield the files that words may name, relative to any folder the command may change to.

    Where names are composed when it runs, every file in these folders may be meant.
    """
    words = [word for words in commands for word in words if "\0" not in word]
    # What only reads data may go on beside something that writes it (`tail *.log`).
    runs_files = not (commands[1:] and all(map(_runs_only_what_it_names, commands[1:])))
    pieces = (piece for word in words for piece in (*names_in(word), *_NAME.findall(word)))
    named = dict.fromkeys(expanded(piece) for piece in pieces if piece)
    names = list(islice(named, _MOST_NAMES))
    names += [f"{name.replace('.', '/')}.py" for name in names]  # python -m name
    paths = [os.path.join(cwd, name) for name in names]
    folders = [cwd, *islice(filter(os.path.isdir, paths), _MOST_FOLDERS)]
    for folder in dict.fromkeys(folders):
        paths = [os.path.join(folder, name) for name in names]
        if runs_files and (len(named) > _MOST_NAMES or any(map(_COMPOSED.search, words))):
            paths += islice(_entries_in(folder), _MOST_BELOW)
        yield from filter(os.path.isfile, paths)
    below = (folder for folder in folders if not is_below(cwd, (os.path.normpath(folder),)))
    entries = chain.from_iterable(map(_entries_below, below))
    yield from islice(filter(os.path.isfile, entries), _MOST_BELOW)


def _entries_in(folder: str) -> Iterator[str]:
    with suppress(OSError), os.scandir(folder) as entries:
        for each in entries:
            if not each.name.endswith(_WRITTEN_MEANWHILE) or os.access(each.path, os.X_OK):
                yield each.path


def _entries_below(folder: str) -> Iterator[str]:
    for parent, folders, names in os.walk(folder):
        yield from (os.path.join(parent, name) for name in (*folders, *names))


def _files_of(words: Sequence[str], cwd: str, search: str) -> Iterator[tuple[str, bool]]:
    """Yield (path, whether it is a script) of a simple command's program and of the script it
    would read.
    """
    name = words[0]
    program = os.path.join(cwd, name) if "/" in name else find_program(name, search)
    if program is None:
        yield name, False  # its later appearance changes the identity
        return
    yield program, False
    bare = program_of(name)
    if is_shell(name) or _INTERPRETER.match(bare) or bare in _READS_SCRIPT:
        for word in words[1 : 1 + _MOST_COMMANDS]:
            path = os.path.join(cwd, word)
            if word and "\0" not in word and os.path.isfile(path):
                yield path, True
                return


def _identity(path: str, writable: Sequence[str] = ()) -> object:
    """Return the identity of a file: its content below `writable` (or if that is empty), else its
    metadata.

    Args:
        path: as found; it need not exist.
        writable: folders whose files are identified by content; empty means all folders.
    """
    try:
        real = real_path(path)
        found = os.stat(real)
    except (OSError, ValueError):
        return None
    if stat.S_ISDIR(found.st_mode):
        return [real, found.st_dev, found.st_ino]
    by_content = not writable or is_below(real, writable)
    if by_content and stat.S_ISREG(found.st_mode) and found.st_size <= _MOST_HASHED:
        return [real, stat.S_IMODE(found.st_mode), _digest(real, *stamp_of(found))]
    return [real, *stamp_of(found)]


@lru_cache(maxsize=256)
def _digest(path: str, *version: int) -> str:
    """Return the SHA-256 digest of a file's content; cached by path and metadata."""
    try:
        with open(path, "rb", opener=_open_plain) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return "unreadable"


def _open_plain(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)  # does not block on a FIFO
