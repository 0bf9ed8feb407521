"""Detects single commands (rm, chmod, dd, git push ...) that destroy what no undo brings back.

Undo holds files of the workspace. It does not hold what stands outside, git's own data, the whole
workspace at once, devices, and targets that are not known before the command runs.
"""

import os
import re
from collections.abc import Callable
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import dropwhile, pairwise, takewhile

from agent_magics.approval.commands.place import UNKNOWN_FOLDER, CommandPlace, Effort, normal_path
from agent_magics.approval.commands.words import Words, is_option, names, program_of
from agent_magics.files.beneath import is_below

_GLOB_TAIL = re.compile(r"[*.?\[\]{},!]*\Z")  # a last component that may match everything
_EXPENDABLE = ("/tmp", "/var/tmp", "/dev/shm")
_HARMLESS_DEVICES = names("/dev/null /dev/stdout /dev/stderr /dev/full /dev/tty")
_REMOTE = re.compile(r"[\w.@-]+::?[^/:]|[\w.@-]+:/|\w+://")  # as rsync and scp name other machines
# a variable, a command substitution, {} of `find` and `xargs`, or ~- and the home of nobody known
_UNKNOWN = re.compile(r"[$`]|\{\}|\A~")
_UNSET_VARIABLE = re.compile(r"\$(\w+|\{\w+\})/+[*.]*\Z")  # "$DIR"/* is /* if DIR is empty


def _is_vital(word: str, place: CommandPlace, *, workspace: bool = True) -> bool:
    """Tell whether `word` names /, a folder in it, the home, the workspace, or a folder above
    these.
    """
    if not word:
        return False
    place.effort.spend(5)
    if _UNSET_VARIABLE.match(word) and not word.startswith(("$HOME", "${HOME}", "$PWD", "${PWD}")):
        return True
    parts = expanded(word).split("/")
    while len(parts) > 1 and parts[-1] != ".." and _GLOB_TAIL.match(parts[-1]):
        parts.pop()
    if len(parts) == 1 and parts[0] != ".." and _GLOB_TAIL.match(parts[0]):
        parts = ["" if expanded(word).startswith("/") else "."]
    named = "/".join(parts) or "/"
    precious = (os.path.expanduser("~"), "/root", *(place.roots if workspace else ()))
    return any(
        path.count("/") == 1 or any(is_below(one, (path,)) for one in precious)
        for path in place.paths_of(named)
    )


def expanded(word: str) -> str:
    """Return a word with ``~``, ``~NAME``, $HOME and $PWD replaced by a home and the current
    folder.
    """
    home = os.path.expanduser("~")
    if word == "~+" or word.startswith("~+/"):
        word = "." + word[2:]
    with suppress(ValueError):  # no user has such a name
        word = os.path.expanduser(word)
    for variable, value in (("HOME", home), ("PWD", ".")):
        for form in (f"${{{variable}}}", f"${variable}"):
            if word == form or word.startswith(form + "/"):
                word = value + word[len(form) :]
    return word


_MOVING = names("cd chdir pushd popd")
_BEFORE_COMMAND = names("{ ! if then elif else while until do time command builtin coproc")
_OPTION_OF_CD = re.compile(r"-[A-Za-z@]+|--")
_EARLIER = names("- ~- $OLDPWD ${OLDPWD}")


def folder_entered(words: Words) -> str | None:
    """Return the folder that `cd`, `pushd` or `popd` enters; None for other commands.

    Returns:
        A path, `UNKNOWN_FOLDER`, or "-" for one in which the script was before.
    """
    words = list(dropwhile(lambda word: word in _BEFORE_COMMAND or "=" in word, words))
    if not words or words[0] not in _MOVING:
        return None
    target = next(dropwhile(_OPTION_OF_CD.fullmatch, words[1:]), "~")
    on_stack = len(words) == 1 or "-n" in words or target.startswith(("-", "+"))
    if target in _EARLIER or (on_stack and words[0] in ("pushd", "popd")):
        return "-"
    target = expanded(target)
    return UNKNOWN_FOLDER if _UNKNOWN.search(target) else target


def _has_option(words: Words, letters: str, *names: str) -> bool:
    """Tell whether a short option is in any cluster, or an abbreviated long one, before ``--``."""
    options = takewhile(lambda word: word != "--", words)
    return any(is_option(word, letters, names) for word in options)


def _operands(words: Words) -> list[str]:
    """Return the words that are no options."""
    end = list(words).index("--") if "--" in words else len(words)
    return [w for w in words[:end] if not w.startswith("-")] + list(words[end + 1 :])


def _danger_in_rm(words: Words, place: CommandPlace) -> str:
    if "--no-preserve-root" in words:
        return "it deletes the whole system"
    if not _has_option(words, "rR", "--recursive"):
        return ""
    return _danger_of_loss(_operands(words), place)


def _danger_of_loss(targets: Words, place: CommandPlace) -> str:
    """Return a warning if undo does not hold all of what is destroyed.

    Without targets on the command line, `xargs` adds them, or a substitution was cut off.
    """
    targets = [form for target in targets for form in without_braces(target, place.effort)]
    if any(_is_vital(target, place) for target in targets):
        return "it destroys a root, the home folder or the workspace with all below"
    paths = [path for target in targets for path in place.paths_of(expanded(target))]
    is_unknown = any(_UNKNOWN.search(expanded(target)) for target in targets)
    if not targets or is_unknown or any(is_below(path, (UNKNOWN_FOLDER,)) for path in paths):
        return "it destroys data, and which is not known before it runs"
    parts = (part for path in paths for part in path.split("/"))
    if any(part.startswith(".") and _may_be_git(part, place) for part in parts):  # as in a shell
        return _LOSS_OF_GIT
    if not all(is_below(path, (*place.roots, *_EXPENDABLE)) for path in paths):
        return "it destroys data outside the workspace"
    return ""


_LOSS_OF_GIT = "it destroys what only git holds"
_LONGEST_GLOB = 200
_BRACES = re.compile(r"\{([^{},]*+,[^{}]*+|[a-zA-Z0-9]\.\.[a-zA-Z0-9])\}")  # an innermost list


def without_braces(word: str, effort: Effort) -> list[str]:
    """Return what a shell makes of a word with lists in braces: `.{git,x}` is `.git` and `.x`.

    Raises:
        TooLongToJudge: it takes more steps than `effort` has left.
    """
    waiting, found = [word], list[str]()
    while waiting:
        word = waiting.pop()
        effort.spend(2 + len(word) // 50)
        if braces := _BRACES.search(word):
            before, after = word[: braces.start()], word[braces.end() :]
            listed = braces[1].split(",")
            if len(listed) == 1:  # a range
                first, last = sorted((ord(braces[1][0]), ord(braces[1][-1])))
                listed = [*map(chr, range(first, last + 1))]
            effort.spend(len(listed) * (len(word) // 50))  # before there are that many words
            waiting += [f"{before}{each}{after}" for each in listed]
        else:
            found.append(word)
    return found


def _may_be_git(glob: str, place: CommandPlace) -> bool:
    """Tell whether a component of a path may be ``.git``."""
    place.effort.spend(len(glob) // 2)
    # Some file systems know no case; the time for a glob grows with its square.
    return len(glob) > _LONGEST_GLOB or fnmatchcase(".git", glob.lower())


_SIZE = re.compile(r"(?:-s|--s\w*=?)(.*)")


def _danger_in_truncate(words: Words, place: CommandPlace) -> str:
    options = ((_SIZE.fullmatch(word), after) for word, after in pairwise((*words, "")))
    sizes = [option[1] or after for option, after in options if option]
    if sizes and all(size.startswith("+") for size in sizes):
        return ""  # it makes files longer
    return _danger_of_loss(_operands(words), place)


def _danger_in_shred(words: Words, place: CommandPlace) -> str:
    return "it overwrites data so that nothing recovers it"


def _danger_in_mv(words: Words, place: CommandPlace) -> str:
    if any(_is_device(word.partition("=")[2] or word) for word in words):
        return "it puts a file in the place of a device"
    return ""


def _danger_in_rsync(words: Words, place: CommandPlace) -> str:
    if not any(word.startswith("--del") for word in words):
        return ""
    # Any operand but the first may be the destination: options with values may follow it.
    targets = _operands(words)[1:]
    if any(_REMOTE.match(target) for target in targets):
        return "it destroys data on another machine"
    return _danger_of_loss(targets, place)


def _danger_in_chmod(words: Words, place: CommandPlace) -> str:
    if _has_option(words, "R", "--recursive") and any(_is_vital(w, place) for w in words):
        return "it changes rights of a root, the home folder or the workspace with all below"
    return ""


def _danger_in_dd(words: Words, place: CommandPlace) -> str:
    named = [word.removeprefix("of=") for word in words if word.startswith("of=")]
    targets = [word for word in named if word not in _HARMLESS_DEVICES]
    if any(_is_device(target) for target in targets):
        return "it overwrites a device"
    return _danger_of_loss(targets, place) if targets else ""


def _is_device(word: str) -> bool:
    path = normal_path(word) if word.startswith("/") else ""
    return is_below(path, ("/dev",)) and not is_below(path, _EXPENDABLE)


def _danger_in_power(words: Words, place: CommandPlace) -> str:
    return "it stops the machine"


def _danger_in_systemctl(words: Words, place: CommandPlace) -> str:
    stops = {"poweroff", "reboot", "halt", "kexec", "emergency", "rescue", "0", "6"}
    return "it stops the machine" if stops & set(words) else ""


def _danger_in_kill(words: Words, place: CommandPlace) -> str:
    return "it kills every process" if "-1" in words[1:] else ""


_FIND_TESTS = names("-name -iname -path -ipath -wholename -regex -iregex")
_FIND_INVERTED = names("! -not -o -or ,")
_FIND_ACTIONS = names("-delete -exec -execdir -ok -okdir")
_FIND_LINKS = re.compile("-[HLP]|-O[0-9]")
_GIT_IN_REGEX = re.compile(r"git(?![\w-])", re.IGNORECASE)
_DELETERS = names("rm unlink shred truncate")


def _danger_in_find(words: Words, place: CommandPlace) -> str:
    if "-delete" not in words and _DELETERS.isdisjoint(map(program_of, words)):
        return ""
    if any(_is_vital(word, place, workspace=False) for word in words if "*" not in word):
        return "it deletes files all over the system or the home folder"
    words = list(dropwhile(_FIND_LINKS.fullmatch, words))
    first = next((at for at, word in enumerate(words) if word[:1] in ("-", "(", "!")), len(words))
    folders = words[:first] or (".",)
    tests = list(takewhile(lambda word: word not in _FIND_ACTIONS, words[first:]))
    if any(_finds_git(test, after, place) for test, after in pairwise(tests)):
        return _LOSS_OF_GIT
    if _selects_by_name(tests):
        folders = [folder for folder in folders if not _is_vital(folder, place)]
    return _danger_of_loss(folders, place) if folders else ""


def _finds_git(test: str, pattern: str, place: CommandPlace) -> bool:
    """Tell whether a test of names or paths finds ``.git`` or what is in it, and says so."""
    if test not in _FIND_TESTS:
        return False
    if "regex" in test:
        return bool(_GIT_IN_REGEX.search(pattern))
    parts = (part for part in pattern.split("/") if re.search(r"\w|^\.", part))
    return any(_may_be_git(part, place) for part in parts)


def _selects_by_name(tests: Words) -> bool:
    """Tell whether only files with certain names, or empty ones, are found."""
    if not _FIND_INVERTED.isdisjoint(tests):
        return False
    patterns = [after for test, after in pairwise(tests) if test in _FIND_TESTS]
    return "-empty" in tests or any(re.search(r"\w", pattern) for pattern in patterns)


_WITHOUT_REMAINS = names(
    "shred srm wipe wipefs blkdiscard mke2fs mkswap lvremove vgremove pvremove"
)
CHECKS: dict[str, Callable[[Words, CommandPlace], str]] = {
    "rm": _danger_in_rm,
    "truncate": _danger_in_truncate,
    "mv": _danger_in_mv,
    "rsync": _danger_in_rsync,
    **dict.fromkeys(_WITHOUT_REMAINS, _danger_in_shred),
    "find": _danger_in_find,
    "chmod": _danger_in_chmod,
    "chown": _danger_in_chmod,
    "chgrp": _danger_in_chmod,
    "dd": _danger_in_dd,
    "kill": _danger_in_kill,
    **dict.fromkeys(("shutdown", "reboot", "halt", "poweroff"), _danger_in_power),
    **dict.fromkeys(("systemctl", "init", "telinit"), _danger_in_systemctl),
}


_LOSSES_IN_GIT = (
    # (subcommand, the words of which one must be there, why)
    ("stash", names("drop clear"), "it throws away changes that are kept nowhere else"),
    ("reflog", names("expire delete"), "it forgets where git finds what was thrown away"),
    ("update-ref", names("-d --delete"), "it deletes a branch whether or not it is merged"),
    ("filter-branch", names(""), "it rewrites the history"),
    ("filter-repo", names(""), "it rewrites the history"),
    ("prune", names(""), "it deletes what git found no longer needed"),
)


def danger_in_git_command(argv: Words) -> str:
    """Return why a subcommand of git with its arguments is dangerous, or ""."""
    command, words = (argv[0], argv[1:]) if argv else ("", ())
    if command == "push":
        forced = any(word.startswith(("--force", "+", ":")) for word in words)
        if forced or _has_option(words, "fd", "--mirror", "--force", "--delete", "--prune"):
            return "it overwrites the history of a remote repository"
    if command == "reset" and _has_option(words, "", "--hard"):
        return "it throws away changes that are not committed"
    if command == "clean" and _has_option(words, "f", "--force"):
        return "it deletes files that git does not know"
    if command == "branch" and (
        _has_option(words, "D")
        or (_has_option(words, "d", "--delete") and _has_option(words, "f", "--force"))
    ):
        return "it deletes a branch whether or not it is merged"
    if command == "worktree" and "remove" in words and _has_option(words, "f", "--force"):
        return "it deletes a folder with changes that are not committed"
    if command == "gc" and any(word.startswith("--prune") for word in words):
        return "it deletes what git found no longer needed"
    for name, one_of, why in _LOSSES_IN_GIT:
        if command == name and (not one_of or not one_of.isdisjoint(words)):
            return why
    return ""
