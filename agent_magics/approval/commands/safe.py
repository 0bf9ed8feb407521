"""Recognises commands that only read, by a list; a command that is not listed is not safe.

Deliberately left out, except in a read-only sandbox (see `git`): all of git (its configuration can
name programs for pagers, diffs, filters and status, and a file to which any command writes traces);
`rg` (it reads `.env` and keys: ignore files can re-include hidden files, and keys need not be
hidden); login shells, whose profile is the person's where the home is not the workspace. Left out
everywhere: recursive grep, for the same reason; egrep and fgrep (scripts that search PATH for
grep); arch (on macOS it runs its arguments); zsh; awk, xargs and every interpreter.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from agent_magics.approval.commands.git import git_only_reads, rg_only_reads
from agent_magics.approval.commands.place import CommandPlace
from agent_magics.approval.commands.script import script_of, split_script
from agent_magics.approval.commands.words import (
    SYSTEM_FOLDERS,
    Words,
    is_option,
    names,
    program_of,
)
from agent_magics.files.beneath import is_below

# With any options these only print; their operands are not files.
_PRINTERS = names("echo true false pwd whoami id uname which nproc expr seq tr basename dirname")
# With any options these only print what they read.
_READERS = names("cat head ls stat nl cut rev paste realpath readlink tac comm fold od df cmp")
# Options that write, run a program, recurse into folders, compose file names from other words, read
# file names from a file, or wait for more input: short letters (anywhere in a cluster), then long
# names and their abbreviations.
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
# Other options decompress, disable its sandbox, or set times.
_FILE_WORD = re.compile(r"(-[bihL]+|--brief|--mime(-type|-encoding)?|[^-].*)\Z", re.S)
# A shell's built-in printf also has %n, which sets a variable, such as PATH.
_PRINTF_FORMAT = re.compile(r"(?!-)([^%]|%%|%-?\d*s)*\Z")
_FOLLOWS = re.compile(r"\+[0-9]*[bcl]?f")  # the old form of `tail -f`
_SED_LINES = re.compile(r"\d+(,(\d+|\$))?p(;\d+(,(\d+|\$))?p)*\Z")
_UNREADABLE = ("/proc", "/sys", "/dev")
_SCRIPT_SHELLS = frozenset({"bash", "sh", "dash"})  # with -c they read no startup file


def only_reads(argv: Words, place: CommandPlace) -> bool:
    """Tell whether a command is known to only read files that the model may read.

    Raises:
        TooLongToJudge: it takes more steps than `place` has left.
    """
    if not argv:
        return False
    place.effort.spend(len(argv))
    folder, slash, program = argv[0].rpartition("/")
    if slash and folder not in SYSTEM_FOLDERS:
        return False
    words = argv[1:]
    if not all(map(_can_be_passed, words)):
        return False
    if program in _PRINTERS:
        return True
    if program == "printf":
        return bool(words) and bool(_PRINTF_FORMAT.match(words[0]))
    if program == "date":
        return all(_DATE_WORD.match(word) for word in words)
    if program in _SCRIPT_SHELLS:
        return _shell_only_reads(argv, place)
    if program == "git" and place.confined:
        return git_only_reads(
            words, lambda word: _is_readable(word, place), lambda word: _is_file(word, place)
        )
    at_home = place.confined and all(is_below(each, place.roots) for each in place.folders)
    reads = at_home and program == "rg" and rg_only_reads(words)
    if not (reads or _reads_files(program, words)) or not _all_readable(words, place):
        return False
    # For two folders diff reads all files in them, including protected ones.
    return program != "diff" or not _names_folder(words, place)


def programs_of(argv: Words) -> list[str]:
    """Return the names of the programs started by a command for which `only_reads` is true.

    The caller must check that the names refer to the expected programs.
    """
    if program_of(argv[0]) not in _SCRIPT_SHELLS:
        return [argv[0]]
    commands = split_script(argv[-1]) or []
    return [argv[0], *(words[0] for words in commands if words[0] != "cd")]


def _shell_only_reads(argv: Words, place: CommandPlace) -> bool:
    """Tell whether a shell's script only reads, and no command can have written the shell's
    profile.
    """
    script = script_of(argv)
    if script is None:
        return False
    is_login = argv[1] != "-c"
    home = os.path.realpath(os.path.expanduser("~"))
    if is_login and (not place.confined or is_below(home, place.roots)):
        return False
    return _script_only_reads(script, place)


def _can_be_passed(word: str) -> bool:
    """Tell whether a word can be passed to a program at all."""
    try:
        return b"\0" not in os.fsencode(word)
    except UnicodeEncodeError:
        return False


def _reads_files(program: str, words: Words) -> bool:
    """Tell whether a program with these options only reads; its operands are checked elsewhere."""
    if program in _READERS:
        return True
    if program == "find":
        return not any(_FIND_FORBIDDEN.match(word) for word in words)
    if program == "sed":
        plain = not any(word.startswith("-") for word in words[2:])
        return len(words) >= 2 and words[0] == "-n" and bool(_SED_LINES.match(words[1])) and plain
    if program == "file":
        return all(_FILE_WORD.match(word) for word in words)
    if program == "uniq":  # a second operand is an output file
        operands = (at for at, word in enumerate(words) if _ends_options(word))
        return next(operands, len(words)) >= len(words) - 1
    if program == "tail" and any(map(_FOLLOWS.fullmatch, words)):
        return False
    forbidden = _FORBIDDEN.get(program)
    return forbidden is not None and not any(is_option(word, *forbidden) for word in words)


def _ends_options(word: str) -> bool:
    """Tell whether every word after `word` may be an operand."""
    return word in ("-", "--") or not word.startswith("-")


def _all_readable(words: Words, place: CommandPlace) -> bool:
    return all(_is_readable(named, place) for word in words for named in _files_in(word))


def _files_in(word: str) -> Iterator[str]:
    """Yield the parts of a word that may name a file: operands and values of options."""
    yield word  # even with a dash: after -- it is an operand
    if word.startswith("@"):
        yield word[1:]
    elif word.startswith("--"):
        yield word.partition("=")[2]
    elif word.startswith("-"):
        yield word[2:]


def _is_readable(named: str, place: CommandPlace) -> bool:
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


def _is_file(word: str, place: CommandPlace) -> bool:
    """Tell whether a word names a regular file, in the top folder of a repository."""
    return (
        not place.has_moved
        and all(os.path.isfile(path) and not os.path.islink(path) for path in place.paths_of(word))
        and os.path.lexists(os.path.join(place.folders[0], ".git"))
    )


def _names_folder(words: Words, place: CommandPlace) -> bool:
    return any(os.path.isdir(path) for word in words for path in place.paths_of(word))


_MOST_CDS = 3


def reading_commands(commands: Sequence[Words], place: CommandPlace) -> list[bool]:
    """Tell for each command of a plain script whether it only reads files that the model may read.

    `cd` starts no program and counts as reading; after one that does not lead to the folder its
    operand names, nothing else does.

    Raises:
        TooLongToJudge: it takes more steps than `place` has left.
    """
    return [
        len(words) == 2 if words[0] == "cd" else there is not None and _reads_there(words, there)
        for words, there in _with_places(commands, place)
    ]


def _with_places(
    commands: Sequence[Words], place: CommandPlace
) -> Iterator[tuple[Words, CommandPlace | None]]:
    """Yield the commands of a script with the context of each, None where it is unknown."""
    there: CommandPlace | None = replace(place, in_script=True)
    moves = 0
    for words in commands:
        if words[0] == "cd":
            moves += 1
            known = there if len(words) == 2 and moves <= _MOST_CDS else None
            leads = known is not None and _leads_where_it_says(words[1], known)
            there = known.after_cd(words[1]) if known is not None and leads else None
        yield words, there


def _reads_there(words: Words, place: CommandPlace) -> bool:
    return program_of(words[0]) not in _SCRIPT_SHELLS and only_reads(words, place)


def _script_only_reads(script: str, place: CommandPlace) -> bool:
    place.effort.spend(len(script) // 4)
    commands = split_script(script)
    return commands is not None and all(
        there is not None and (words[0] == "cd" or _reads_there(words, there))
        for words, there in _with_places(commands, place)
    )


def _leads_where_it_says(target: str, place: CommandPlace) -> bool:
    """Tell whether `cd` leads to exactly the folder that its operand names, and may."""
    if target.startswith("-") or ".." in target.split("/") or not _is_readable(target, place):
        return False
    paths = place.paths_of(target)
    # After a symlink a shell and the programs it starts resolve `..` differently.
    return place.real_paths_of(target) == paths and any(map(os.path.isdir, paths))
