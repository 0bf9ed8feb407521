"""Which prefix of a command may be offered as "always", and what a prefix never covers.

A prefix says nothing of the words behind it. So none is offered for a program that runs whatever
its arguments say (interpreters, wrappers) or that destroys, and no prefix covers an option by which
an ordinary program runs another one, unless the rule itself spells that option out.
"""

import re
from collections.abc import Sequence

Words = Sequence[str]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MOST_WORDS, _LONGEST_WORD = 8, 100

# Interpreters, wrappers and programs that run what their arguments or their input say.
_RUNS_ARGUMENTS = _names(
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
# Programs whose every use with the same first words can be one that nobody can undo.
_DESTROYS = _names(
    "rm rmdir shred dd mkfs mount umount chmod chown chgrp kill pkill killall shutdown reboot halt "
    "poweroff init telinit passwd useradd userdel usermod fdisk parted truncate"
)
# Programs known by their subcommand, and the words that a prefix of them has.
_SUBCOMMANDS: dict[str, frozenset[str]] = {
    "git": _names(
        "status log diff show branch tag add commit fetch pull push checkout switch restore merge "
        "stash blame describe ls-files rev-parse remote cherry-pick revert mv init shortlog"
    ),
    "npm": _names("test install ci run-script run ls outdated audit start build view"),
    "yarn": _names("test install run build add lint start why"),
    "pnpm": _names("test install run build add lint start why ls"),
    "cargo": _names("build test check clippy fmt doc bench tree metadata fetch update run add"),
    "go": _names("build test vet fmt list mod doc version get"),
    "pip": _names("install list show freeze check download index"),
    "pip3": _names("install list show freeze check download index"),
    "uv": _names("sync lock add tree venv build"),
    "poetry": _names("install lock add show check build update"),
    "conda": _names("list info search install create"),
    "mamba": _names("list info search install create"),
    "make": frozenset(),  # every target
    "just": frozenset(),
    "mvn": _names("compile test package verify validate"),
    "gradle": _names("build test check assemble tasks"),
    "bundle": _names("install check list"),
    "apt": _names("list show search"),
    "apt-cache": _names("policy search show"),
    "brew": _names("list info search outdated"),
    "jupyter": _names("nbconvert kernelspec"),
    "dvc": _names("status diff pull push"),
}
_TAKES_NAME = _names("run run-script")  # npm run test: the name of the script belongs to it
# Programs of one purpose, which take files and settings.
_SINGLE = _names(
    "pytest ruff mypy pyright black isort flake8 pylint bandit coverage pyflakes tsc eslint "
    "prettier jest vitest mocha stylelint rustfmt gofmt clang-format clang-tidy cmake ctest ninja "
    "shellcheck shfmt yamllint markdownlint sphinx-build mkdocs nbqa pandoc cloc tokei hadolint "
    "ls cat head tail wc grep egrep fgrep rg tree du df file stat diff cmp sort uniq cut jq yq"
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9:._+-]*\Z")

# Options by which a program runs another one, as a name or a name with a value; abbreviations of
# long ones count. "git" stands for every subcommand.
_RUNNING_OPTIONS: dict[str, tuple[str, ...]] = {
    "git": (
        *("-c", "--config-env", "--exec-path", "--upload-pack", "--receive-pack", "--exec"),
        *("--ext-diff", "--textconv", "--open-files-in-pager", "-O", "--extcmd", "--tool"),
        *("--config", "--template", "--paginate", "-x", "-u", "--git-dir", "--work-tree"),
        *("--output", "--separate-git-dir", "--gpg-sign", "-S"),
    ),
    "tar": (
        *("--to-command", "--checkpoint-action", "--use-compress-program", "-I", "--rsh-command"),
        *("--info-script", "--new-volume-script", "-F"),
    ),
    "rg": ("--pre", "--hostname-bin", "--search-zip", "-z"),
    "sort": ("--compress-program", "-o", "--output", "-T"),
    "npm": ("--script-shell", "--node-options", "--prefix", "--globalconfig", "--userconfig"),
    "cargo": ("--config", "-Z"),
    "go": ("-exec", "-toolexec", "-vettool"),
    "pip": ("--python", "--global-option", "--config-settings", "--proxy"),
    "pip3": ("--python", "--global-option", "--config-settings", "--proxy"),
    "make": ("-f", "--file", "--makefile", "-C", "--directory", "--eval", "-E", "-I"),
    "pytest": ("-p", "-c", "--config-file", "--rootdir", "-o", "--override-ini", "--confcutdir"),
    "ctest": ("-S", "--script", "--build-makeprogram"),
    "ninja": ("-C", "-f"),
    "zip": ("-TT", "--unzip-command"),
    "tree": ("-o",),
    "diff": ("--paginate", "-l"),
    "pandoc": ("--filter", "-F", "--lua-filter", "-L", "--pdf-engine", "-d", "--defaults"),
}
# git's -u and -x mean other things in most subcommands than "run this".
_HARMLESS = {
    ("git", "push", "-u"),
    ("git", "push", "--set-upstream"),
    ("git", "add", "-u"),
    ("git", "commit", "-u"),
    ("git", "status", "-u"),
    ("git", "stash", "-u"),
    ("git", "diff", "-u"),
    ("git", "log", "-u"),
    ("git", "show", "-u"),
    ("git", "cherry-pick", "-x"),
    ("git", "commit", "-S"),
    ("git", "commit", "-c"),
    ("git", "log", "-S"),
    ("git", "diff", "-S"),
    ("git", "diff", "-c"),
    ("git", "log", "-c"),
    ("git", "switch", "-c"),
}


def propose_prefix(argv: Words, wanted: Words = ()) -> tuple[str, ...]:
    """Return the prefix that may be offered for "always", or () where none is safe and useful.

    Args:
        argv: one command, without a shell around it.
        wanted: the prefix that the model would like; taken if it is one and no wider than allowed.
    """
    if not argv or not all(map(_is_ordinary, argv[:_MOST_WORDS])):
        return ()
    if _is_never_offered(argv[0]):
        return ()
    computed = _computed(argv)
    wished = tuple(wanted)
    is_prefix = bool(wished) and tuple(argv[: len(wished)]) == wished
    if is_prefix and computed and len(wished) >= len(computed):
        computed = wished[:_MOST_WORDS]
    # A prefix would not cover such an option, or, where it spells it out, cover it for good.
    return () if runs_another(argv, 1) else computed


def _is_ordinary(word: str) -> bool:
    return 0 < len(word) <= _LONGEST_WORD and word.isprintable()


def _is_never_offered(word: str) -> bool:
    program = word.rpartition("/")[2]
    return (
        program in _RUNS_ARGUMENTS
        or program in _DESTROYS
        or bool(_INTERPRETER.match(program))
        or "=" in program
        or word != program  # a path, most of all into the workspace, says nothing of a purpose
    )


def _computed(argv: Words) -> tuple[str, ...]:
    program, following = argv[0], argv[1:2]
    if program in _SINGLE:
        return (program,)
    if program in _SUBCOMMANDS:
        known = _SUBCOMMANDS[program]
        if not following or not _NAME.match(following[0]):
            return ()
        if known and following[0] not in known:
            return ()
        if following[0] in _TAKES_NAME and program in ("npm", "yarn", "pnpm"):
            return tuple(argv[:3]) if len(argv) > 2 and _NAME.match(argv[2]) else ()
        return (program, following[0])
    # What it does is not known here: nothing wider than this very command.
    return tuple(argv) if 1 < len(argv) <= _MOST_WORDS else ()


def runs_another(argv: Words, start: int) -> bool:
    """Tell whether a word from `start` on is an option that makes the program run another one."""
    if not argv:
        return False
    program = argv[0].rpartition("/")[2]
    options = _RUNNING_OPTIONS.get(program, ())
    subcommand = next((word for word in argv[1:] if not word.startswith("-")), "")
    return any(
        (program, subcommand, option) not in _HARMLESS
        for word in argv[start:]
        for option in _options_in(word, options)
    )


def _options_in(word: str, options: tuple[str, ...]) -> list[str]:
    """Return those of `options` that `word` may be: abbreviated, with a value, or in a cluster."""
    name = word.partition("=")[0]
    if name.startswith("--"):
        return [each for each in options if len(name) > 2 and each.startswith(name)]
    if not word.startswith("-"):
        return []
    return [
        each
        for each in options
        if name == each or (len(each) == 2 and each[0] == "-" and each[1] in word[1:])
    ]
