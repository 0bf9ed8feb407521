"""The commands that are promised to only read: whatever is not known to is left out.

Left out on purpose, but for a read-only sandbox (see `exec_git`): all of git (configurations name
programs for pagers, diffs, filters and status, and, whatever the command is, a file that traces are
written to); `rg` (it reads `.env` and keys: ignore files can name hidden files, and keys need not
be hidden). Left out everywhere: recursive grep, for the same reason; egrep and fgrep
(scripts that look for grep again); arch (on macOS it runs what follows it); zsh and login shells
(they run profiles from a home that may be the workspace); awk, xargs and every interpreter.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from agent_magics.dispatch.exec_git import git_only_reads, rg_only_reads
from agent_magics.dispatch.exec_place import Place, is_below
from agent_magics.dispatch.exec_script import split_script


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


Words = Sequence[str]

# Whatever their options are, these print something and change nothing; the words are no files.
_TALKERS = _names("echo true false pwd whoami id uname which nproc expr seq tr basename dirname")
# Whatever their options are, these only print what they read.
_READERS = _names("cat head ls stat nl cut rev paste realpath readlink tac comm fold od df cmp")
# Options that write, run a program, walk into folders, make names of files out of other words or
# read them out of a file, or wait for what comes: short letters (anywhere in a cluster), then
# long names and their abbreviations.
_FORBIDDEN: dict[str, tuple[str, tuple[str, ...]]] = {
    "wc": ("", ("--files0-from",)),
    "du": ("", ("--files0-from",)),
    "sort": ("oT", ("--output", "--compress-program", "--temporary-directory", "--files0-from")),
    "tail": ("fF", ("--follow", "--retry")),
    "grep": ("rRfd", ("--recursive", "--dereference-recursive", "--file", "--directories")),
    "diff": (
        "lrNX",
        (
            *("--paginate", "--recursive", "--new-file", "--unidirectional-new-file"),
            *("--exclude-from", "--from-file", "--to-file"),
        ),
    ),
}

_FIND_FORBIDDEN = re.compile(r"-(exec|execdir|ok|okdir|delete|fls|fprint.*|files0-from)\Z", re.S)
_DATE_WORD = re.compile(r"(-u|--utc|-R|-I\w*|--iso-8601(=\w+)?|\+.*)\Z", re.S)
# Of the rest some unpack, run without a sandbox, or set times.
_FILE_WORD = re.compile(r"(-[bihL]+|--brief|--mime(-type|-encoding)?|[^-].*)\Z", re.S)
# A shell's own printf also has %n, which sets a variable, such as PATH.
_PRINTF_FORMAT = re.compile(r"(?!-)([^%]|%%|%-?\d*s)*\Z")
_SED_LINES = re.compile(r"\d+(,(\d+|\$))?p(;\d+(,(\d+|\$))?p)*\Z")
_SYSTEM_FOLDERS = ("/bin", "/usr/bin")
_UNREADABLE = ("/proc", "/sys", "/dev")
_SCRIPT_SHELLS = frozenset({"bash", "sh", "dash"})  # with -c they read no file of settings


def only_reads(argv: Words, place: Place) -> bool:
    """Tell whether a command is known to only read what the model may read.

    Raises:
        TooLongToJudge: it takes more effort than `place` has left.
    """
    if not argv:
        return False
    place.effort.spend(len(argv))
    folder, slash, program = argv[0].rpartition("/")
    if slash and folder not in _SYSTEM_FOLDERS:
        return False
    words = argv[1:]
    if not all(map(_can_be_passed, words)):
        return False
    if program in _TALKERS:
        return True
    if program == "printf":
        return bool(words) and bool(_PRINTF_FORMAT.match(words[0]))
    if program == "date":
        return all(_DATE_WORD.match(word) for word in words)
    if program in _SCRIPT_SHELLS:
        return len(words) == 2 and words[0] == "-c" and _script_only_reads(words[1], place)
    if program == "git" and place.confined:
        return git_only_reads(words, lambda word: _is_readable(word, place))
    at_home = place.confined and all(is_below(each, place.roots) for each in place.folders)
    reads = at_home and program == "rg" and rg_only_reads(words)
    if not (reads or _reads_files(program, words)) or not _all_readable(words, place):
        return False
    # Of two folders diff reads every pair of files, whatever they are.
    return program != "diff" or not _names_folder(words, place)


def programs_of(argv: Words) -> list[str]:
    """Return the programs that a command starts for which `only_reads` is true, as it names them.

    Whether they are the programs they are named after is for the caller to find out.
    """
    if _name_of(argv[0]) not in _SCRIPT_SHELLS:
        return [argv[0]]
    commands = split_script(argv[-1]) or []
    return [argv[0], *(words[0] for words in commands if words[0] != "cd")]


def _name_of(program: str) -> str:
    return program.rpartition("/")[2]


def _can_be_passed(word: str) -> bool:
    """Tell whether a program can be given this word at all."""
    try:
        return b"\0" not in os.fsencode(word)
    except UnicodeEncodeError:
        return False


def _reads_files(program: str, words: Words) -> bool:
    """Tell whether these options only read; what the words name is judged elsewhere."""
    if program in _READERS:
        return True
    if program == "find":
        return not any(_FIND_FORBIDDEN.match(word) for word in words)
    if program == "sed":
        plain = not any(word.startswith("-") for word in words[2:])
        return len(words) >= 2 and words[0] == "-n" and bool(_SED_LINES.match(words[1])) and plain
    if program == "file":
        return all(_FILE_WORD.match(word) for word in words)
    if program == "uniq":  # a second operand is written to, whatever it looks like
        operands = (at for at, word in enumerate(words) if _ends_options(word))
        return next(operands, len(words)) >= len(words) - 1
    return program in _FORBIDDEN and not any(_is_forbidden(program, word) for word in words)


def _ends_options(word: str) -> bool:
    """Tell whether every word behind `word` may be an operand."""
    return word in ("-", "--") or not word.startswith("-")


def _is_forbidden(program: str, word: str) -> bool:
    letters, names = _FORBIDDEN[program]
    if word.startswith("--"):
        name = word.partition("=")[0]
        return len(name) > 2 and any(full.startswith(name) for full in names)
    return word.startswith("-") and any(letter in word for letter in letters)


def _all_readable(words: Words, place: Place) -> bool:
    return all(_is_readable(named, place) for word in words for named in _files_in(word))


def _files_in(word: str) -> Iterator[str]:
    """Yield what may name a file in a word: operands and the values of options."""
    yield word  # also with a dash: after a lone -- it is an operand
    if word.startswith("@"):
        yield word[1:]
    elif word.startswith("--"):
        yield word.partition("=")[2]
    elif word.startswith("-"):
        yield word[2:]


def _is_readable(named: str, place: Place) -> bool:
    if named in ("", "-"):
        return True
    if named.startswith("~") or (place.in_script and named.startswith("@")):
        return False
    if place.has_moved and ".." in named.split("/"):
        return False
    paths = place.paths_of(named) | place.real_paths_of(named)
    if any(is_below(path, _UNREADABLE) and path != "/dev/null" for path in paths):
        return False
    return not (place.is_denied(named) or any(place.is_denied(path) for path in paths))


def _names_folder(words: Words, place: Place) -> bool:
    return any(os.path.isdir(path) for word in words for path in place.paths_of(word))


_MOST_CDS = 3


def reading_commands(commands: Sequence[Words], place: Place) -> list[bool]:
    """Tell of each command of a plain script whether it only reads what the model may read.

    `cd` starts nothing and counts as reading; behind one that does not lead where its text says,
    nothing else does.

    Raises:
        TooLongToJudge: it takes more effort than `place` has left.
    """
    return [
        len(words) == 2 if words[0] == "cd" else there is not None and _reads_there(words, there)
        for words, there in _with_places(commands, place)
    ]


def _with_places(commands: Sequence[Words], place: Place) -> Iterator[tuple[Words, Place | None]]:
    """Yield the commands of a script with where each runs, None where that is not known."""
    there: Place | None = replace(place, in_script=True)
    moves = 0
    for words in commands:
        if words[0] == "cd":
            moves += 1
            known = there is not None and len(words) == 2 and moves <= _MOST_CDS
            leads = known and _leads_where_it_says(words[1], there)
            there = there.after_cd(words[1]) if leads else None
        yield words, there


def _reads_there(words: Words, place: Place) -> bool:
    return _name_of(words[0]) not in _SCRIPT_SHELLS and only_reads(words, place)


def _script_only_reads(script: str, place: Place) -> bool:
    place.effort.spend(len(script) // 4)
    commands = split_script(script)
    return commands is not None and all(
        there is not None and (words[0] == "cd" or _reads_there(words, there))
        for words, there in _with_places(commands, place)
    )


def _leads_where_it_says(target: str, place: Place) -> bool:
    """Tell whether `cd` goes to the folder that the text of its operand says, and may."""
    if target.startswith("-") or ".." in target.split("/") or not _is_readable(target, place):
        return False
    paths = place.paths_of(target)
    # Behind a symlink a shell and the programs it starts take `..` for different folders.
    return place.real_paths_of(target) == paths and any(map(os.path.isdir, paths))
