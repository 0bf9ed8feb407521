"""Detects single commands (rm, chmod, dd, git push ...) that destroy vital files or data."""

import os
import re
from collections.abc import Callable
from itertools import takewhile

from agent_magics.approval.commands.place import CommandPlace, is_below, normal_path
from agent_magics.approval.commands.words import Words, is_option, names, program_of

_GLOB_TAIL = re.compile(r"[*.?\[\]{},!]*\Z")  # a last component that may match everything
# a variable, a command substitution, or {} of `find` and `xargs`
_UNKNOWN = re.compile(r"[$`]|\{\}")
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
    """Return a word with ``~``, $HOME and $PWD replaced by the home and the current folder."""
    home = os.path.expanduser("~")
    if word == "~" or word.startswith("~/"):
        word = home + word[1:]
    for variable, value in (("HOME", home), ("PWD", ".")):
        for form in (f"${{{variable}}}", f"${variable}"):
            if word == form or word.startswith(form + "/"):
                word = value + word[len(form) :]
    return word


def _has_option(words: Words, letters: str, *names: str) -> bool:
    """Tell whether a short option is in any cluster, or an abbreviated long one, before ``--``."""
    options = takewhile(lambda word: word != "--", words)
    return any(is_option(word, letters, names) for word in options)


def _danger_in_rm(words: Words, place: CommandPlace) -> str:
    if "--no-preserve-root" in words:
        return "it deletes the whole system"
    if not _has_option(words, "rR", "--recursive"):
        return ""
    if any(_is_vital(w, place) for w in words):
        return "it deletes a root, the home folder or the workspace with all below"
    end = list(words).index("--") if "--" in words else len(words)
    targets = [w for w in words[:end] if not w.startswith("-")] + list(words[end + 1 :])
    return _danger_of_unknown(targets)


def _danger_of_unknown(targets: Words) -> str:
    """Return a warning if targets of a deletion are unknown: in a variable, a substitution, or none
    at all.

    Without targets on the command line, `xargs` adds them, or a substitution was cut off.
    """
    if targets and not any(_UNKNOWN.search(expanded(target)) for target in targets):
        return ""
    return "it deletes folders with all below, and which is not known before it runs"


def _danger_in_chmod(words: Words, place: CommandPlace) -> str:
    if _has_option(words, "R", "--recursive") and any(_is_vital(w, place) for w in words):
        return "it changes rights of a root, the home folder or the workspace with all below"
    return ""


def _danger_in_dd(words: Words, place: CommandPlace) -> str:
    for word in words:
        target = normal_path(word.removeprefix("of=")) if word.startswith("of=/") else ""
        if target.startswith("/dev/") and target not in ("/dev/null", "/dev/stdout", "/dev/stderr"):
            return "it overwrites a device"
    return ""


def _danger_in_power(words: Words, place: CommandPlace) -> str:
    return "it stops the machine"


def _danger_in_systemctl(words: Words, place: CommandPlace) -> str:
    stops = {"poweroff", "reboot", "halt", "kexec", "emergency", "rescue", "0", "6"}
    return "it stops the machine" if stops & set(words) else ""


def _danger_in_kill(words: Words, place: CommandPlace) -> str:
    return "it kills every process" if "-1" in words[1:] else ""


_FIND_TESTS = names(
    "-name -iname -path -ipath -wholename -regex -iregex -empty -mtime -mmin -ctime -newer -size"
)


def _danger_in_find(words: Words, place: CommandPlace) -> str:
    if not ("-delete" in words or any(program_of(word) in ("rm", "unlink") for word in words)):
        return ""
    if any(_is_vital(word, place, workspace=False) for word in words if "*" not in word):
        return "it deletes files all over the system or the home folder"
    first = next((at for at, word in enumerate(words) if word[:1] in ("-", "(", "!")), len(words))
    folders = words[:first] or (".",)
    if any(map(_UNKNOWN.search, map(expanded, folders))):
        return _danger_of_unknown(folders)
    if not _FIND_TESTS & set(words) and any(_is_vital(word, place) for word in folders):
        return "it deletes everything in the workspace"
    return ""


CHECKS: dict[str, Callable[[Words, CommandPlace], str]] = {
    "rm": _danger_in_rm,
    "find": _danger_in_find,
    "chmod": _danger_in_chmod,
    "chown": _danger_in_chmod,
    "chgrp": _danger_in_chmod,
    "dd": _danger_in_dd,
    "kill": _danger_in_kill,
    **dict.fromkeys(("shutdown", "reboot", "halt", "poweroff"), _danger_in_power),
    **dict.fromkeys(("systemctl", "init", "telinit"), _danger_in_systemctl),
}


def danger_in_git_command(argv: Words) -> str:
    """Return why a subcommand of git with its arguments is dangerous, or ""."""
    command, words = (argv[0], argv[1:]) if argv else ("", ())
    if command == "push":
        forced = any(word.startswith(("--force", "+")) for word in words)
        if forced or _has_option(words, "f", "--mirror", "--force"):
            return "it overwrites the history of a remote repository"
    if command == "reset" and _has_option(words, "", "--hard"):
        return "it throws away changes that are not committed"
    if command == "clean" and _has_option(words, "f", "--force"):
        return "it deletes files that git does not know"
    return ""
