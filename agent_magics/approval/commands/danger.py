"""Detects commands that destroy data irrecoverably; a best effort.

It looks into wrappers and scripts and can be fooled; what it misses needs approval like any other
command.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from agent_magics.approval.commands.destructive import (
    CHECKS,
    danger_in_git_command,
    folder_entered,
)
from agent_magics.approval.commands.git import OPTIONS_WITH_VALUE, place_of_subcommand
from agent_magics.approval.commands.place import (
    UNKNOWN_FOLDER,
    CommandPlace,
    Effort,
    TooLongToJudge,
)
from agent_magics.approval.commands.script import SHELLS, LooseLexer
from agent_magics.approval.commands.words import Words, names, program_of

_INTERPRETER = re.compile(r"(python[\d.]*|perl|ruby|node|php)\Z")
_DOWNLOADERS = names("curl wget aria2c fetch http https")
# Programs and shell keywords that run the command after them.
_WRAPPERS = names(
    "sudo doas su run0 pkexec env nohup timeout nice ionice stdbuf time setsid xargs parallel "
    "command exec builtin eval busybox strace ltrace chroot ssh watch flock unbuffer chrt "
    "taskset caffeinate systemd-run find trap function if then elif else while until do ! { coproc "
    "script setpriv unshare nsenter runuser sg gosu su-exec tini dumb-init fakeroot numactl "
    "prlimit setarch linux32 linux64 xvfb-run proxychains proxychains4 torsocks firejail bwrap "
    "eatmydata fd fdfind entr hyperfine uvx npx pnpx bunx"
)
# Programs that do so behind one of these words.
_RUNNERS = names(
    "uv conda mamba micromamba pixi poetry pipenv hatch pdm rye direnv mise asdf pyenv rbenv "
    "bundle npm pnpm yarn bun"
)
_RUN = names("run exec x dlx")
_ADDS_TARGETS = names("xargs parallel")
# The options by which xargs puts what it adds in the place of a text.
_REPLACES = re.compile(r"-[0oprtx]*I(.*)|-[0oprtx]*i(.+)|--replace=(.+)", re.DOTALL)
_DEEPEST = 6  # nesting depth of scripts
_MOST_FOLDERS = 16  # in which a script may be
_NEAR = 200  # characters of context around a match
_SCRIPT_LIKE = re.compile(r"[\s;&|()]")
_MAY_BE_SCRIPT = re.compile(r"[\s;&|()$`<>]")
_MODULE = re.compile(r"-[bBdEiIOPqRsSuvVx]*m(.*)", re.DOTALL)  # the option of Python
_TAKES_SCRIPT = re.compile(r"-[^\Wc]*+c\w*+")  # the option of a shell
_DOWNLOAD = re.compile(r"(?:[<$]\(|`)\s*(?:sudo\s+)?(?:curl|wget)\b")
_RUNNER = re.compile(r"(?:\b(?:ba|z|da|k|a|fi)?sh|\beval|\bsource|(?:^|\s)\.|\bpython[\d.]*)\s")
_COMMAND_END = re.compile(r"[;|&\n]")
_DISK_WRITE = re.compile(r">\|?\s*[\"']?/dev/(?:sd|hd|vd|xvd|nvme|mmcblk|disk|md|dm-|k?mem\b)")
_FUNCTION = re.compile(r"\([ \t]{0,20}\)\s{0,20}\{")
_NAME_END = re.compile(r"[\s(){};&|]")
_FORKING = re.compile(r"\bfork\s+while\s+fork\b|\bwhile\b[^\n]{0,40}\bfork\s*\(")


def danger_of(argv: Words, place: CommandPlace, depth: int = 0) -> str:
    """Return why `argv` is dangerous, or "".

    Raises:
        TooLongToJudge: it takes more steps than `place` has left.
    """
    if not argv or depth > _DEEPEST:
        return ""
    place.effort.spend(len(argv))
    program = program_of(argv[0])
    if any(_FORKING.search(word) for word in argv[1:]):
        return "a fork bomb"
    if program in SHELLS:
        return _danger_in_words(argv[1:], place, depth)
    if len(words_that_run(argv)) == 1:
        return _danger_from(argv, 0, place, depth)
    return _danger_in_any(argv, place, depth) or _danger_in_any(_replaced(argv), place, depth)


def _danger_in_any(argv: Words, place: CommandPlace, depth: int) -> str:
    """Judge words of which any may be the program: it is unknown which options take values."""
    for start in words_that_run(argv):
        if reason := _danger_from(argv, start, place, depth):
            return reason
    scripts = [word for word in argv[1:] if _SCRIPT_LIKE.search(word)]
    return _danger_in_words(scripts, place, depth)


def _replaced(argv: Words) -> Words:
    """Return the words with {} for the text of ``xargs -I TEXT``; none without such an option."""
    if not _ADDS_TARGETS.isdisjoint(map(program_of, argv)):
        for at, option in enumerate(map(_REPLACES.fullmatch, argv)):
            text = option and (option[option.lastindex or 1] or "".join(argv[at + 1 : at + 2]))
            if text:
                return [*argv[:at], *(each.replace(text, "{}") for each in argv[at + 1 :])]
    return []


def words_that_run(words: Words) -> Sequence[int]:
    """Return the positions at which the program of a simple command may be.

    It is unknown which options take values, so after a wrapper or an assignment it may be any word.
    """
    if not words:
        return ()
    program = program_of(words[0])
    if program in _WRAPPERS or "=" in words[0]:
        return range(len(words))
    behind = (at for at, word in enumerate(words, 1) if program in _RUNNERS and word in _RUN)
    return (0, *range(next(behind, len(words)), len(words)))


def loose_commands_of(argv: Words, effort: Effort) -> list[list[str]]:
    """Return the commands that shells and wrappers in `argv` seem to run.

    Raises:
        TooLongToJudge: it takes more steps than `effort` has left.
    """
    found: list[list[str]] = []
    waiting = [(word, 1) for word in _scripts_in(argv, effort)]
    while waiting:
        script, depth = waiting.pop()
        if depth > _DEEPEST:
            raise TooLongToJudge
        effort.spend(5 + len(script) // 8)
        lexer = LooseLexer(_without_ifs(script), effort)
        lexer.run()
        for _, words in lexer.commands:
            found.append(words)
            waiting += [(word, depth + 1) for word in _scripts_in(words, effort)]
        waiting += [(nested, depth + 1) for nested in lexer.nested]
    return found


def _scripts_in(words: Words, effort: Effort) -> list[str]:
    """Return what may be scripts that this command runs: words of it, and what others stand for."""
    own = [script for at in words_that_run(words) for script in _scripts_named(words, at, effort)]
    shell = next((at for at, word in enumerate(words) if program_of(word) in SHELLS), len(words))
    if shell == len(words) and len(words_that_run(words)) < 2:
        return own
    options = (at for at, word in enumerate(words) if at > shell and _TAKES_SCRIPT.fullmatch(word))
    option = next(options, len(words))
    rest = enumerate(words[1:], 1)
    return own + [word for at, word in rest if at > option or _MAY_BE_SCRIPT.search(word)]


def _scripts_named(words: Words, start: int, effort: Effort) -> list[str]:
    """Return as scripts what `python -m` at a word runs, or aliases that git is given stand for."""
    program = program_of(words[start])
    if program != "git" and not program.startswith(("python", "pypy")):
        return []
    effort.spend(len(words))
    if program == "git":
        return _aliases_in(words[start:])
    for at, word in enumerate(words[start + 1 :], start + 1):
        if module := _MODULE.fullmatch(word):
            return [shlex.join(filter(None, (module[1], *words[at + 1 :])))]
        if not word.startswith("-") and words[at - 1] not in ("-X", "-W"):
            break
    return []


def _aliases_in(words: Words) -> list[str]:
    """Return what git runs for each alias that its options define: `git -c alias.p=push p`."""
    at = place_of_subcommand(words)
    settings = [value for option, value in pairwise(words[:at]) if option in OPTIONS_WITH_VALUE]
    aliases = (each for each in settings if each.lower().startswith("alias."))
    found = (alias.partition("=")[2] for alias in aliases)
    rest = shlex.join(words[at + 1 :])
    return [f"{each[1:] if each[:1] == '!' else f'git {each}'} {rest}" for each in found]


def _without_ifs(script: str) -> str:
    return re.sub(r"\$\{IFS\}|\$IFS\b", " ", script)


def without_global_options(words: Words) -> list[str]:
    """Return a git command without the options before its subcommand; other commands unchanged."""
    if not words or program_of(words[0]) != "git":
        return list(words)
    return ["git", *words[place_of_subcommand(words) :]]


def _danger_from(argv: Words, start: int, place: CommandPlace, depth: int) -> str:
    """Return why the command that begins with word `start` is dangerous, or ""."""
    program = program_of(argv[start])
    if program.startswith("mkfs"):
        return "it formats a disk"
    if program != "git" and program not in CHECKS:
        return ""
    words = argv[start + 1 :]
    place.effort.spend(len(argv))
    if not _ADDS_TARGETS.isdisjoint(map(program_of, argv[:start])):
        words = [*words, "{}"]  # what it adds is not known
    if program == "git":
        return _danger_in_git(words, place, depth)
    return CHECKS[program](words, place)


def _danger_in_git(words: Words, place: CommandPlace, depth: int) -> str:
    argv = ["git", *words]
    at = place_of_subcommand(argv)
    if any(word.lower().startswith("clean.requireforce=") for word in argv[:at]):
        return "it deletes files that git does not know"
    return _danger_in_words(_aliases_in(argv), place, depth) or danger_in_git_command(argv[at:])


def _danger_in_words(words: Words, place: CommandPlace, depth: int) -> str:
    """Return why any of the words, read as a script, is dangerous, or ""."""
    return next(filter(None, (_danger_in_script(w, place, depth + 1) for w in words)), "")


def _danger_in_script(script: str, place: CommandPlace, depth: int) -> str:
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
    return _danger_in_commands(lexer, place, depth) or _danger_in_words(lexer.nested, place, depth)


def _danger_in_commands(lexer: LooseLexer, place: CommandPlace, depth: int) -> str:
    downloading, here = False, place  # `here`: the place if `cd` succeeded, as after &&
    around: list[CommandPlace] = []  # the subshells
    # The patterns of `case` end with one that closes no subshell.
    has_case = any("case" in words for _, words in lexer.commands)
    for number, (joined_by, words) in enumerate(lexer.commands):
        place.effort.spend(1)  # an empty command costs time, too
        for sign in "" if has_case else lexer.parentheses.get(number, ""):
            if sign == "(":
                around.append(place)
            elif around:
                place = around.pop()
        starts = words_that_run(words)
        downloading = downloading and joined_by == "|"
        if downloading and any(_runs_its_input(words, at) for at in starts):
            return "it runs what it downloads"
        downloading |= any(program_of(words[at]) in _DOWNLOADERS for at in starts)
        here = here if joined_by == "&&" else place
        if reason := danger_of(words, here, depth):
            return reason
        place, here = _places_after(words, place, here)
    return ""


def _places_after(
    words: Words, place: CommandPlace, here: CommandPlace
) -> tuple[CommandPlace, CommandPlace]:
    """Return the place after a command, and that if it succeeded."""
    target = folder_entered(words)
    if target is None:
        return place, here
    if target == "-":
        if place.has_moved:
            return place, place  # which has all folders so far
        target = UNKNOWN_FOLDER
    entered = target if len(place.folders) < _MOST_FOLDERS else UNKNOWN_FOLDER
    return place.after_cd(entered), replace(here, folders=tuple(sorted(here.paths_of(target))))


def _runs_its_input(words: Words, at: int) -> bool:
    """Tell whether the program at word `at` runs its standard input."""
    program = program_of(words[at])
    if program in SHELLS:
        return True
    return bool(_INTERPRETER.match(program)) and words[at + 1 : at + 2] in ([], ["-"])


def _runs_substituted_download(script: str, place: CommandPlace) -> bool:
    for match in _DOWNLOAD.finditer(script):
        place.effort.spend(12)
        before = script[max(0, match.start() - _NEAR) : match.start()]
        if _RUNNER.search(_COMMAND_END.split(before)[-1]):
            return True
    return False


def _has_fork_bomb(script: str, place: CommandPlace) -> bool:
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


# -- overlong command lines -----------------------------------------------------------------------

_MOST_SEARCHED = 100_000  # characters; about 15 ms in the worst case
# Each regex begins with a literal, which makes searching fast.
_OPTION = r"-[\w-]{1,30}\s{1,9}"
_RECURSIVE = rf"(?:{_OPTION}){{0,3}}-(?:\w{{0,9}}[rR]|-rec)"
_PLAIN_DANGERS = {
    "it deletes a root or the home folder with all below": re.compile(
        rf"rm\s{{1,9}}(?={_RECURSIVE})(?:{_OPTION}){{1,4}}"
        r"[\"']?(?:/\w{0,20}|~\w{0,20}|\$HOME|\${HOME})/?\*?[\"']?(?![\w/.-])"
    ),
    "it deletes folders with all below, and which is not known before it runs": re.compile(
        rf"rm\s{{1,9}}(?={_RECURSIVE})(?:{_OPTION}){{1,4}}[\"']?[$`]"
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
    """Return why a text that is too long to be parsed looks dangerous, or "".

    Quotes, folders and wrappers are not interpreted; the time is linear in the length.
    """
    text = text[:_MOST_SEARCHED]
    if ("curl" in text or "wget" in text) and _PIPED_TO_SHELL.search(text):
        return "it runs what it downloads"
    return next((why for why, regex in _PLAIN_DANGERS.items() if regex.search(text)), "")
