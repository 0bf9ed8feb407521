"""Derives the lasting grants that a command may be offered: the exact command, or a known prefix of
it.

A prefix allows any words after it. So one is offered only for a short list of commands whose
options and operands are known, and covers nothing else; for any other command the offer is the
exact command, and for programs that run their arguments or destroy data there is none. A rule that
a person writes by hand covers more: everything except options by which a program is known to run
another one.
"""

import re
from dataclasses import dataclass

from agent_magics.approval.commands.running import runs_another
from agent_magics.approval.commands.words import Words, names, program_of

_MOST_WORDS, _LONGEST_WORD = 8, 100

# Interpreters, wrappers and programs that execute their arguments or their input.
_RUNS_ARGUMENTS = names(
    "sh bash zsh dash ksh ash fish csh tcsh pwsh powershell cmd eval exec source . command builtin "
    "env sudo doas su run0 pkexec runuser setpriv nohup timeout nice ionice chrt taskset stdbuf "
    "time setsid unshare nsenter chroot xargs parallel watch flock script unbuffer expect strace "
    "ltrace gdb lldb valgrind busybox toybox ssh scp sftp rsync telnet nc ncat socat screen tmux "
    "at batch crontab systemd-run systemctl firejail bwrap proot fakeroot find fd awk gawk mawk "
    "nawk sed ed ex vi vim nvim emacs nano less more man tclsh wish lua luajit irb osascript "
    "jshell groovy scala ghci runghc erl elixir iex R Rscript julia octave dotnet mono java "
    "npx pnpx bunx uvx pipx nox tox pre-commit ansible ansible-playbook docker podman nerdctl "
    "kubectl helm vagrant terraform gh curl wget aria2c psql mysql sqlite3 redis-cli mongo mongosh"
)
_INTERPRETER = re.compile(r"(python|pypy|perl|ruby|node|nodejs|deno|bun|php|ipython|ts-node|tsx)")
# Programs of which any use with the same first words may be irreversible.
_DESTROYS = names(
    "rm rmdir shred dd mkfs mount umount chmod chown chgrp kill pkill killall shutdown reboot halt "
    "poweroff init telinit passwd useradd userdel usermod fdisk parted truncate"
)


@dataclass(frozen=True, slots=True)
class _Allowed:
    """The words that may follow a prefix.

    Attributes:
        options: options that take no further word; short ones may be clustered.
        valued: options with a value, after ``=`` or, if not among `options`, as the next word.
        operands: matches any other word.
    """

    options: frozenset[str]
    valued: frozenset[str] = frozenset()
    operands: re.Pattern[str] = re.compile(r"(?!)")


# a path below the current folder
_INSIDE = re.compile(r"(?![-/~:])(?!.*(?:^|/)\.\.(?:/|$))[^\0\n]+")
_REVISION = re.compile(r"(?![-/~:])(?!.*(?:^|/)\.\.(?:/|$))[\w@./^~{}+=-]+")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_GIT_SHOWN = names(
    "-p -u --patch -s --no-patch --stat --shortstat --numstat --summary --name-only --name-status "
    "--word-diff -w -b --ignore-all-space --ignore-space-change --no-color --no-renames -M -C -z "
    "--raw --minimal --patience --histogram --check --no-ext-diff --no-textconv "
    "-U --unified --color --abbrev"
)
_GIT_VALUES = names("-U --unified --diff-filter --color --abbrev --stat -S -G --diff-algorithm")
_GIT_LOG = names(
    "--oneline --graph --all --decorate --no-decorate --reverse --merges --no-merges --follow "
    "--first-parent --abbrev-commit --date-order --topo-order --branches --tags --remotes -i "
    "--format --pretty"
)
_GIT_LOG_VALUES = names(
    "-n --max-count --skip --since --after --until --before --author --committer --grep --format "
    "--pretty --date --decorate"
)
_KNOWN: dict[tuple[str, ...], _Allowed] = {
    ("git", "status"): _Allowed(
        names(
            "-s --short -b --branch -v --verbose --long --porcelain --show-stash --ignored -z "
            "--untracked-files -u"
        ),
        names("--porcelain --untracked-files --ignored -u"),
        _INSIDE,
    ),
    ("git", "log"): _Allowed(_GIT_SHOWN | _GIT_LOG, _GIT_VALUES | _GIT_LOG_VALUES, _REVISION),
    ("git", "show"): _Allowed(_GIT_SHOWN | _GIT_LOG, _GIT_VALUES | _GIT_LOG_VALUES, _REVISION),
    ("git", "diff"): _Allowed(
        _GIT_SHOWN | names("--cached --staged --quiet --exit-code"), _GIT_VALUES, _REVISION
    ),
    ("git", "add"): _Allowed(
        names("-A --all -u --update -v --verbose -n --dry-run -N --intent-to-add -f --force"),
        operands=_INSIDE,
    ),
    ("mkdir",): _Allowed(names("-p --parents -v --verbose"), names("-m --mode"), _INSIDE),
    ("touch",): _Allowed(names("-a -c -m --no-create"), operands=_INSIDE),
    ("ruff", "check"): _Allowed(
        names("--fix --diff --no-fix -q --quiet -v --verbose --statistics --no-cache --preview"),
        names("--select --ignore --extend-select --output-format --line-length --exclude"),
        _INSIDE,
    ),
    ("ruff", "format"): _Allowed(
        names("--check --diff -q --quiet -v --verbose --no-cache --preview"),
        names("--line-length --exclude"),
        _INSIDE,
    ),
    ("pip", "list"): _Allowed(
        names("-o --outdated -u --uptodate -e --editable -l --local --user --not-required"),
        names("--format"),
    ),
    ("pip", "show"): _Allowed(names("-f --files"), operands=_NAME),
}


def may_be_offered(argv: Words) -> bool:
    """Tell whether a lasting grant for exactly this command, without a shell, may be offered."""
    ordinary = bool(argv) and len(argv) <= _MOST_WORDS and all(map(_is_ordinary, argv))
    return ordinary and not _is_never_offered(argv[0]) and not runs_another(argv, 1)


def propose_prefix(argv: Words, wanted: Words = ()) -> tuple[str, ...]:
    """Return the prefix that may be offered for "always" besides the exact command, or ().

    Args:
        argv: one command, without a shell.
        wanted: the prefix that the model proposes; used if it is a prefix and not wider than
            allowed.
    """
    if not may_be_offered(argv) or not covers_rest(argv, 1):
        return ()
    proposed = tuple(wanted)
    is_prefix = bool(proposed) and tuple(argv[: len(proposed)]) == proposed
    prefix = _prefix_of(argv)
    return proposed if is_prefix and len(proposed) >= len(prefix) else prefix


def covers_rest(argv: Words, start: int) -> bool | None:
    """Tell whether the words from `start` on are known options and operands.

    Returns:
        None where the command is not on the list.
    """
    prefix = _prefix_of(argv)
    if not prefix:
        return None
    known, words = _KNOWN[prefix], argv[max(start, len(prefix)) :]
    at, only_operands = 0, False
    while at < len(words):
        word = words[at]
        name, equals, value = word.partition("=")
        if only_operands or not word.startswith("-"):
            if not known.operands.fullmatch(word):
                return False
        elif word == "--":
            only_operands = True
        elif name in known.valued and (equals or name not in known.options):
            at += not equals
            if _RUNS_GPG.search(value or "".join(words[at : at + 1])):
                return False
        elif not _is_option(word, known):
            return False
        at += 1
    return True


_RUNS_GPG = re.compile(r"%[-+ ]?G")  # placeholder in git's formats
_COUNT = re.compile(r"-\d{1,6}")


def _is_option(word: str, known: _Allowed) -> bool:
    if word in known.options or (_COUNT.fullmatch(word) and "-n" in known.valued):
        return True
    if word.startswith("--"):
        return False
    with_value = word[:2] in known.valued and word[2:].isalnum()  # -U3
    return with_value or all(f"-{letter}" in known.options for letter in word[1:])


def _prefix_of(argv: Words) -> tuple[str, ...]:
    """Return the prefix under which the list has a command, or ()."""
    return next((tuple(argv[:n]) for n in (1, 2) if tuple(argv[:n]) in _KNOWN), ())


def _is_ordinary(word: str) -> bool:
    return 0 < len(word) <= _LONGEST_WORD and word.isprintable()


def _is_never_offered(word: str) -> bool:
    program = program_of(word)
    return (
        program in _RUNS_ARGUMENTS
        or program in _DESTROYS
        or bool(_INTERPRETER.match(program))
        or "=" in program
        or word != program  # a path may name any program, above all in the workspace
    )
