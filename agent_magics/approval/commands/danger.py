"""Looks for commands that destroy what nobody can bring back; a best effort.

It looks into wrappers and scripts and may be fooled; what it misses is asked about as any other
command.
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from agent_magics.dispatch.exec_place import (
    Effort,
    Place,
    TooLongToJudge,
    is_below,
    normal_path,
)
from agent_magics.dispatch.exec_script import SHELLS, LooseLexer

Words = Sequence[str]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_INTERPRETER = re.compile(r"(python[\d.]*|perl|ruby|node|php)\Z")
_DOWNLOADERS = _names("curl wget aria2c fetch http https")
# Programs and words of the shell that run what follows them.
_WRAPPERS = _names(
    "sudo doas su run0 pkexec env nohup timeout nice ionice stdbuf time setsid xargs parallel "
    "command exec builtin eval busybox strace ltrace chroot ssh watch flock unbuffer chrt "
    "taskset caffeinate systemd-run find trap if then elif else while until do ! { coproc"
)
_DEEPEST = 6  # scripts within scripts
_NEAR = 200  # characters that belong together
_SCRIPT_LIKE = re.compile(r"[\s;&|()]")
_MAY_BE_SCRIPT = re.compile(r"[\s;&|()$`<>]")
_DOWNLOAD = re.compile(r"(?:[<$]\(|`)\s*(?:sudo\s+)?(?:curl|wget)\b")
_RUNNER = re.compile(r"(?:\b(?:ba|z|da|k|a|fi)?sh|\beval|\bsource|(?:^|\s)\.|\bpython[\d.]*)\s")
_COMMAND_END = re.compile(r"[;|&\n]")
_DISK_WRITE = re.compile(r">\|?\s*[\"']?/dev/(?:sd|hd|vd|xvd|nvme|mmcblk|disk|md|dm-|k?mem\b)")
_FUNCTION = re.compile(r"\([ \t]{0,20}\)\s{0,20}\{")
_NAME_END = re.compile(r"[\s(){};&|]")
_FORKING = re.compile(r"\bfork\s+while\s+fork\b|\bwhile\b[^\n]{0,40}\bfork\s*\(")


def danger_of(argv: Words, place: Place, depth: int = 0) -> str:
    """Return why `argv` is dangerous, or "".

    Raises:
        TooLongToJudge: it takes more effort than `place` has left.
    """
    if not argv or depth > _DEEPEST:
        return ""
    place.effort.spend(len(argv))
    program = _program(argv[0])
    if any(_FORKING.search(word) for word in argv[1:]):
        return "a fork bomb"
    if program in SHELLS:
        return _danger_in_words(argv[1:], place, depth)
    if program not in _WRAPPERS and "=" not in argv[0]:
        return _danger_from(argv, 0, place, depth)
    # Whose options take which values is not known here: any word may be the program.
    for start in range(len(argv)):
        if reason := _danger_from(argv, start, place, depth):
            return reason
    scripts = [word for word in argv[1:] if _SCRIPT_LIKE.search(word)]
    return _danger_in_words(scripts, place, depth)


def words_that_run(words: Words) -> range:
    """Return the positions at which the program of a simple command may stand.

    Whose options take which values is not known here, so behind a wrapper or an assignment it may
    be any word.
    """
    if words and (_program(words[0]) in _WRAPPERS or "=" in words[0]):
        return range(len(words))
    return range(min(1, len(words)))


def loose_commands_of(argv: Words, effort: Effort) -> list[list[str]]:
    """Return the commands that shells and wrappers seem to run out of the words of `argv`.

    Raises:
        TooLongToJudge: there is more to look at than there is effort.
    """
    found: list[list[str]] = []
    waiting = [(word, 1) for word in _scripts_in(argv)]
    while waiting:
        script, depth = waiting.pop()
        if depth > _DEEPEST:
            raise TooLongToJudge
        effort.spend(5 + len(script) // 8)
        lexer = LooseLexer(_without_ifs(script), effort)
        lexer.run()
        for _, words in lexer.commands:
            found.append(words)
            waiting += [(word, depth + 1) for word in _scripts_in(words)]
        waiting += [(nested, depth + 1) for nested in lexer.nested]
    return found


def _scripts_in(words: Words) -> list[str]:
    """Return the words that may be a script which this command runs."""
    may_run = any(_program(word) in SHELLS for word in words) or len(words_that_run(words)) > 1
    return [word for word in words[1:] if _MAY_BE_SCRIPT.search(word)] if may_run else []


def _without_ifs(script: str) -> str:
    return re.sub(r"\$\{IFS\}|\$IFS\b", " ", script)


def without_global_options(words: Words) -> list[str]:
    """Return a command of git without the options before its subcommand; others as they are."""
    if not words or _program(words[0]) != "git":
        return list(words)
    at = 1
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in _GIT_OPTIONS_WITH_VALUE else 1
    return ["git", *words[at:]]


def _danger_from(argv: Words, start: int, place: Place, depth: int) -> str:
    """Judge the command that begins with word `start`."""
    program = _program(argv[start])
    if program.startswith("mkfs"):
        return "it formats a disk"
    if program != "git" and program not in _CHECKS:
        return ""
    words = argv[start + 1 :]
    place.effort.spend(len(words))
    if program == "git":
        return _danger_in_git(words, place, depth)
    return _CHECKS[program](words, place)


def _program(word: str) -> str:
    return word.rpartition("/")[2]


def _danger_in_words(words: Words, place: Place, depth: int) -> str:
    """Judge words each of which may be a script of its own."""
    return next(filter(None, (_danger_in_script(w, place, depth + 1) for w in words)), "")


def _danger_in_script(script: str, place: Place, depth: int) -> str:
    if depth > _DEEPEST:
        return ""
    place.effort.spend(5 + len(script) // 8)
    script = _without_ifs(script)
    if _runs_substituted_download(script, place):
        return "it runs what it downloads"
    if _DISK_WRITE.search(script):
        return "it overwrites a disk"
    if _has_fork_bomb(script, place):
        return "a fork bomb"
    lexer = LooseLexer(script, place.effort)
    lexer.run()
    return _danger_in_commands(lexer.commands, place, depth) or _danger_in_words(
        lexer.nested, place, depth
    )


def _danger_in_commands(commands: Sequence[tuple[str, list[str]]], place: Place, depth: int) -> str:
    downloading, here = False, place  # `here`: while && tells that `cd` has worked
    for joined_by, words in commands:
        first = _count_first(words)
        downloading = downloading and joined_by == "|"
        if downloading and any(_runs_its_input(words, at) for at in range(first)):
            return "it runs what it downloads"
        downloading |= any(_program(word) in _DOWNLOADERS for word in words[:first])
        here = here if joined_by == "&&" else place
        if reason := danger_of(words, here, depth):
            return reason
        if words[0] in ("cd", "pushd") and len(words) > 1 and len(place.folders) < 16:
            target = _expanded(words[1])
            place, here = (
                place.after_cd(target),
                replace(here, folders=tuple(sorted(here.paths_of(target)))),
            )
    return ""


def _runs_its_input(words: Words, at: int) -> bool:
    """Tell whether the program at word `at` runs what it is piped."""
    program = _program(words[at])
    if program in SHELLS:
        return True
    return bool(_INTERPRETER.match(program)) and words[at + 1 : at + 2] in ([], ["-"])


def _count_first(words: Words) -> int:
    """Count the words that may be the program: all, where wrappers or assignments come first."""
    return len(words) if _program(words[0]) in _WRAPPERS or "=" in words[0] else 1


def _runs_substituted_download(script: str, place: Place) -> bool:
    for match in _DOWNLOAD.finditer(script):
        place.effort.spend(12)
        before = script[max(0, match.start() - _NEAR) : match.start()]
        if _RUNNER.search(_COMMAND_END.split(before)[-1]):
            return True
    return False


def _has_fork_bomb(script: str, place: Place) -> bool:
    """Tell whether a function pipes itself into itself, or a loop forks."""
    for match in _FUNCTION.finditer(script):
        place.effort.spend(12)
        before = script[max(0, match.start() - _NEAR) : match.start()].rstrip(" \t")
        name = _NAME_END.split(before)[-1]
        piped = script[match.end() : match.end() + _NEAR].split("|")
        if name and any(
            left.rstrip().endswith(name) and right.lstrip().startswith(name)
            for left, right in pairwise(piped)
        ):
            return True
    return bool(_FORKING.search(script))


# -- what is too long to be taken apart -----------------------------------------------------------

_MOST_SEARCHED = 100_000  # characters; some 15 ms where each of them is hostile
# Each sign begins with a literal, which is what makes searching for it quick.
_OPTION = r"-[\w-]{1,30}\s{1,9}"
_RECURSIVE = rf"(?:{_OPTION}){{0,3}}-(?:\w{{0,9}}[rR]|-rec)"
_PLAIN_DANGERS = {
    "it deletes a root or the home folder with all below": re.compile(
        rf"rm\s{{1,9}}(?={_RECURSIVE})(?:{_OPTION}){{1,4}}"
        r"[\"']?(?:/\w{0,20}|~|\$HOME|\${HOME})/?\*?[\"']?(?![\w/.-])"
    ),
    "it formats a disk": re.compile(r"mkfs[.\s]"),
    "it overwrites a disk": re.compile(r"/dev/(?<=[=> \"']/dev/)(?:sd|hd|vd|xvd|nvme|mmcblk)"),
    "it overwrites the history of a remote repository": re.compile(
        r"git push\s[^\n;&|]{0,30}?(?:--force|--mirror|-f\b)"
    ),
    "it throws away what is not committed": re.compile(r"git (?:reset --hard|clean -\w{0,9}f)"),
}
_PIPED_TO_SHELL = re.compile(r"\|\s{0,9}(?:sudo\s{1,9})?(?:ba|z|da|k)?sh\b")


def danger_in_text(text: str) -> str:
    """Return why a text that is too long to be taken apart looks dangerous, or "".

    Quotes, folders and wrappers are not understood here; the time is linear in the length.
    """
    text = text[:_MOST_SEARCHED]
    if ("curl" in text or "wget" in text) and _PIPED_TO_SHELL.search(text):
        return "it runs what it downloads"
    return next((why for why, sign in _PLAIN_DANGERS.items() if sign.search(text)), "")


# -- single programs ------------------------------------------------------------------------------

_GLOB_TAIL = re.compile(r"[*.?\[\]{},!]*\Z")  # a last part that may match everything
_UNSET_VARIABLE = re.compile(r"\$(\w+|\{\w+\})/+[*.]*\Z")  # "$DIR"/* where DIR is empty


def _is_vital(word: str, place: Place, *, workspace: bool = True) -> bool:
    """Tell whether `word` names /, a folder in it, the home, the workspace, or one above them."""
    if not word:
        return False
    place.effort.spend(5)
    if _UNSET_VARIABLE.match(word) and not word.startswith(("$HOME", "${HOME}", "$PWD", "${PWD}")):
        return True
    parts = _expanded(word).split("/")
    while len(parts) > 1 and parts[-1] != ".." and _GLOB_TAIL.match(parts[-1]):
        parts.pop()
    if len(parts) == 1 and parts[0] != ".." and _GLOB_TAIL.match(parts[0]):
        parts = ["" if _expanded(word).startswith("/") else "."]
    named = "/".join(parts) or "/"
    precious = (os.path.expanduser("~"), "/root", *(place.roots if workspace else ()))
    return any(
        path.count("/") == 1 or any(is_below(one, (path,)) for one in precious)
        for path in place.paths_of(named)
    )


def _expanded(word: str) -> str:
    home = os.path.expanduser("~")
    if word == "~" or word.startswith("~/"):
        word = home + word[1:]
    for variable, value in (("HOME", home), ("PWD", ".")):
        for form in (f"${{{variable}}}", f"${variable}"):
            if word == form or word.startswith(form + "/"):
                word = value + word[len(form) :]
    return word


def _has_option(words: Words, letters: str, *names: str) -> bool:
    """Look for a short letter in any cluster, or an abbreviation of a long name, before ``--``."""
    for word in words:
        if word == "--":
            return False
        if word.startswith("--"):
            if any(name.startswith(word.partition("=")[0]) for name in names):
                return True
        elif word.startswith("-") and any(letter in word for letter in letters):
            return True
    return False


def _danger_in_rm(words: Words, place: Place) -> str:
    if "--no-preserve-root" in words:
        return "it deletes the whole system"
    if _has_option(words, "rR", "--recursive") and any(_is_vital(w, place) for w in words):
        return "it deletes a root, the home folder or the workspace with all below"
    return ""


def _danger_in_chmod(words: Words, place: Place) -> str:
    if _has_option(words, "R", "--recursive") and any(_is_vital(w, place) for w in words):
        return "it changes rights of a root, the home folder or the workspace with all below"
    return ""


def _danger_in_dd(words: Words, place: Place) -> str:
    for word in words:
        target = normal_path(word.removeprefix("of=")) if word.startswith("of=/") else ""
        if target.startswith("/dev/") and target not in ("/dev/null", "/dev/stdout", "/dev/stderr"):
            return "it overwrites a device"
    return ""


def _danger_in_power(words: Words, place: Place) -> str:
    return "it stops the machine"


def _danger_in_systemctl(words: Words, place: Place) -> str:
    stops = {"poweroff", "reboot", "halt", "kexec", "emergency", "rescue", "0", "6"}
    return "it stops the machine" if stops & set(words) else ""


def _danger_in_kill(words: Words, place: Place) -> str:
    return "it kills every process" if "-1" in words[1:] else ""


def _danger_in_find(words: Words, place: Place) -> str:
    removes = "-delete" in words or any(_program(word) == "rm" for word in words)
    if removes and any(
        _is_vital(word, place, workspace=False) for word in words if "*" not in word
    ):
        return "it deletes files all over the system or the home folder"
    return ""


_CHECKS: dict[str, Callable[[Words, Place], str]] = {
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

_GIT_OPTIONS_WITH_VALUE = _names(
    "-C -c --git-dir --work-tree --namespace --exec-path --super-prefix --config-env"
)


def _danger_in_git(words: Words, place: Place, depth: int) -> str:
    position, settings = 0, []
    while position < len(words) and words[position].startswith("-"):
        if words[position] in _GIT_OPTIONS_WITH_VALUE:
            settings += words[position + 1 : position + 2]
            position += 1
        position += 1
    for setting in settings:
        name, _, value = setting.partition("=")
        if name.lower() == "clean.requireforce":
            return "it deletes files that git does not know"
        if name.lower().startswith("alias."):
            script = value[1:] if value.startswith("!") else f"git {value}"
            if reason := _danger_in_script(script, place, depth + 1):
                return reason
    return _danger_in_git_command(words[position:])


def _danger_in_git_command(argv: Words) -> str:
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
