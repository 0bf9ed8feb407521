"""Tells which words of a command make its program run another one, or write where it was not told.

It knows the options and scripts of common programs; a rule that a person writes by hand does not
cover these. What interpreters, `docker`, `make` and `ssh` run is not held back: a rule for them is
one for that. Options by which `make` and `ssh` read other files or start a program of their own
are: `make -f x`, `make -C ../x`, `ssh -o ProxyCommand=x`.
"""

import re

from agent_magics.approval.commands.filters import may_run_in_awk, may_run_in_sed, without_values
from agent_magics.approval.commands.git import git_runs_another
from agent_magics.approval.commands.script import is_shell
from agent_magics.approval.commands.words import (
    Words,
    names,
    options_in,
    program_of,
    without_folders_below,
)

_TARS = ("tar", "gtar", "bsdtar")
_SEDS = ("sed", "gsed")
_AWKS = ("awk", "gawk", "mawk", "nawk")
_EDITORS = ("vi", "vim", "nvim", "view", "ex", "vimdiff", "vim.basic", "vim.tiny", "rvim", "gvim")
_COMPILERS = ("cc", "gcc", "c++", "g++", "clang", "clang++", "gfortran")
_CONNECTING = ("nc", "ncat", "netcat")
_SQLITES = ("sqlite3", "duckdb")
_MYSQLS = ("mysql", "mariadb")

# Options by which a program runs another one; abbreviations of long ones count.
_RUNNING_OPTIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        _TARS,
        (
            *("--to-command", "--checkpoint-action", "--use-compress-program", "-I", "-F"),
            *("--info-script", "--new-volume-script", "--rsh-command", "--rmt-command"),
            *("--files-from", "-T"),  # a line of the list may be an option
            *("--absolute-names", "--absolute-paths", "-P", "--insecure"),  # it says where to write
            *("--multi-volume", "-M"),  # asks for the next one, and starts a shell there
        ),
    ),
    "find": (
        *("-exec", "-execdir", "-ok", "-okdir", "-fprint", "-fprint0", "-fprintf", "-fls"),
        "-files0-from",
    ),
    **dict.fromkeys(("fd", "fdfind"), ("-x", "--exec", "-X", "--exec-batch")),
    "rsync": ("-e", "--rsh", "--rsync-path", "-M", "--remote-option"),
    **dict.fromkeys(_SEDS, ("-f", "--file")),
    **dict.fromkeys(
        _AWKS, ("-f", "--file", "-E", "--exec", "-i", "--include", "-l", "--load", "-W")
    ),
    "env": ("-S", "--split-string"),
    "ssh": ("-F", "-I", "-S", "-E"),
    **dict.fromkeys(("scp", "sftp"), ("-F", "-S", "-D", "-b")),
    "curl": ("-K", "--config", "--engine"),
    "wget": ("-e", "--execute", "--use-askpass", "--config"),
    "man": (
        *("-r", "--prompt", "-P", "--pager", "-H", "--html", "-X", "--gxditview"),
        *("-C", "--config-file"),
    ),
    "less": ("-k", "--lesskey-file", "--lesskey-src", "--lesskey-content", "-o", "-O"),
    **dict.fromkeys(
        _EDITORS,
        ("-c", "--cmd", "-S", "-s", "-u", "-U", "-w", "-W", "-l", "--remote-expr", "--remote-send"),
    ),
    "split": ("--filter",),
    **dict.fromkeys(("bat", "batcat"), ("--pager",)),
    "fzf": ("--preview", "--bind"),
    **dict.fromkeys(
        ("tex", "latex", "pdflatex", "xelatex", "lualatex"), ("-shell-escape", "-enable-write18")
    ),
    "rg": ("--pre", "--hostname-bin", "--search-zip", "-z"),
    "sort": ("--compress-program", "-o", "--output", "-T"),
    "cargo": ("--config", "-Z"),
    "go": ("-exec", "-toolexec", "-vettool", "-C"),
    **dict.fromkeys(
        ("pip", "pip3"),
        ("--python", "--global-option", "--config-settings", "--proxy", "--editor"),
    ),
    "make": ("-f", "--file", "--makefile", "-C", "--directory", "--eval", "-E", "-I"),
    "pytest": (
        *("-p", "-c", "--config-file", "--rootdir", "-o", "--override-ini", "--confcutdir"),
        "-W",
    ),
    "ctest": ("-S", "--script", "--build-makeprogram"),
    "ninja": ("-C", "-f"),
    "zip": ("-TT", "--unzip-command"),
    "tree": ("-o", "-R"),
    "diff": ("--paginate", "-l"),
    **dict.fromkeys(_CONNECTING, ("-e", "-c", "--exec", "--sh-exec", "--lua-exec")),
    "cpio": ("--rsh-command", "-i", "--extract", "-F", "--file"),
    "unzip": ("-:",),
    "hg": (
        *("--config", "-R", "--repository", "--cwd", "-e", "--ssh", "--remotecmd", "--tool"),
        *("-c", "--command"),
    ),
    "svn": ("--diff-cmd", "--diff3-cmd", "--editor-cmd", "--config-dir", "--config-option"),
    "mypy": ("--python-executable", "--install-types"),
    "pylint": ("--init-hook", "--load-plugins"),
    **dict.fromkeys(("ag", "ack", "delta"), ("--pager", "--ackrc")),
    **dict.fromkeys(_SQLITES, ("-cmd", "-init")),
    "psql": ("-f", "--file", "-o", "--output", "-L", "--log-file"),
    **dict.fromkeys(
        _MYSQLS,
        ("--pager", "--tee", "--init-command", "--plugin-dir", "--plugin_dir", "--defaults-file"),
    ),
    "pandoc": (
        *("--filter", "-F", "--lua-filter", "-L", "--pdf-engine", "-d", "--defaults"),
        *("--pdf-engine-opt", "--data-dir"),
    ),
}
# Programs whose option -C names the folder in which they work.
_ENTERING = ("make", "ninja")
# What stands at the beginning of other words by which a program runs another one.
_OPTION_OF_SSH = re.compile(
    r"(?:-\w*?o)?[\s\"]*+(?:\w*(?:command|provider)|xauthlocation|include|smartcarddevice)[\s\"=]",
    re.I,
)
# A line's number, the end and a plain search begin no command.
_COMMAND_OF_PAGER = re.compile(r"\+(?!(?:\d*[GgFp]?|/[ -#%-~]*)\Z)|-[^+$]+[+$]", re.DOTALL)
_COMMAND_OF_EDITOR = re.compile(r"\+(?!(?:\d*|\$)\Z)", re.DOTALL)
_COMMAND_OF_COMPILER = re.compile(
    r"@|-B|--?specs|-wrapper|-f(?:pass-)?plugin|-load|-X(?:clang|linker)|--(?:ld-path|config)"
    r"|-Wl,.*(?:plugin|@)"
)
# Its own commands but for those that only print, and functions that load or write a file.
_COMMAND_OF_SQLITE = re.compile(
    r"\s*\.(?![./]|(?:tables|schema|fullschema|databases|indexes|dump|headers|mode|quit)\b)"
    r"|--?(?-i:A)"
    r"|.*\b(?:load_extension|edit|writefile)\b",
    re.DOTALL | re.IGNORECASE,
)
_COMMAND_OF_PSQL = re.compile(
    r".*(?:`|\\(?!d|x|z|t|q|\?|l(?!o)|conninfo|echo)|\bprogram\b)", re.DOTALL | re.I
)
_COMMAND_OF_MYSQL = re.compile(
    r".*(?:\\[!PT.]|\b(?:system|pager|tee|source|outfile|dumpfile)\b)", re.DOTALL | re.I
)
_RUNNING_WORDS = {
    # In the flags of its linker, and what `go env -w` sets.
    "go": re.compile(r".*-ext(?:ld|ar|ldflags)\b|-w\Z", re.DOTALL),
    "cargo": re.compile(r"(?:-C|--codegen=)?linker="),
    "make": re.compile(
        r"(?:\.?SHELL(?:FLAGS)?|MAKE|MAKEFILES|\w*MAKEFLAGS)\s*+[:?+!]*+="
        r"|\w+\s*+!=|.*\$[({]\s*+shell\b",
        re.DOTALL,
    ),
    # Its options have one dash or two, and are set without any.
    "npm": re.compile(
        r"-*(?:script-shell|node-options|prefix|globalconfig|userconfig|call)\b|-c|(?:exec|explore)\Z"
    ),
    "pytest": re.compile(r"@|--pdbcls"),
    "pandoc": re.compile(r".*\.lua\b|lua\Z", re.DOTALL),
    "zip": re.compile(r"-(?!-).*TT"),
    **dict.fromkeys(("strace", "ltrace"), re.compile(r"-\w*o\s*+\||--output=\s*+\|")),
    **dict.fromkeys(_TARS, re.compile(r"[^/:]*:")),  # an archive of another machine
    **dict.fromkeys(("ssh", "scp", "sftp"), _OPTION_OF_SSH),
    **dict.fromkeys(_COMPILERS, _COMMAND_OF_COMPILER),
    "gh": re.compile(r"(?:alias|config|extensions?|ext|--)\Z"),
    **dict.fromkeys(_SQLITES, _COMMAND_OF_SQLITE),
    "psql": _COMMAND_OF_PSQL,
    **dict.fromkeys(_MYSQLS, _COMMAND_OF_MYSQL),
    **dict.fromkeys(("less", "more"), _COMMAND_OF_PAGER),
    **dict.fromkeys(_EDITORS, _COMMAND_OF_EDITOR),
}
_RUNNING = {"git", *_RUNNING_OPTIONS, *_RUNNING_WORDS}
# Programs that run the command after their options: a rule must name its program, too.
_RUNS_OPERANDS = names(
    "env xargs parallel watch time nice ionice timeout nohup stdbuf setsid chrt taskset unbuffer "
    "command exec builtin eval strace ltrace"
)
# They join the words behind the command to a script, or add words that nobody has seen.
_JOINING, _ADDING = names("watch parallel eval"), names("xargs parallel")
_PLAIN_WORD = re.compile(r"[\w./:=@%+,-]*")
_NO_PROGRAM = re.compile(r"-.*|\w+=.*|[\d.]+[smhd]?", re.DOTALL)
_PROGRAM = re.compile(r"[A-Za-z./][^=]*", re.DOTALL)

_VERSION = re.compile(r"-[\d.]+\Z")  # of gcc-12


def runs_another(argv: Words, start: int) -> bool:
    """Tell whether a word from `start` on is an option that makes the program run another one."""
    if not argv:
        return False
    program, rest = _VERSION.sub("", program_of(argv[0])), argv[start:]
    if program == "git":
        return git_runs_another(argv, start)
    if program in _RUNS_OPERANDS and _runs_operands(argv, start):
        return True
    if program in _SEDS and may_run_in_sed(argv, start):
        return True
    if program in _AWKS:
        argv, start = without_values(argv, start)
        rest = argv[start:]
        if may_run_in_awk(argv, start):
            return True
    if program in _TARS and start < 2 <= len(argv):
        rest = [f"-{argv[1].removeprefix('-')}", *argv[2:]]  # `tar cIf` is `tar -cIf`
    running = _RUNNING_WORDS.get(program)
    if running and any(map(running.match, rest)):
        return True
    if program in _ENTERING:
        rest = without_folders_below(rest)
    return any(options_in(word, _RUNNING_OPTIONS.get(program, ())) for word in rest)


def _runs_operands(argv: Words, start: int) -> bool:
    """Tell whether words from `start` on choose the program that a wrapper runs, or one of its
    own.
    """
    # Any may be the program: it is unknown which options take values.
    named = [at for at, word in enumerate(argv[1:start], 1) if _PROGRAM.fullmatch(word)]
    if not named:
        return not all(map(_NO_PROGRAM.fullmatch, argv[start:]))
    wrapper, programs = program_of(argv[0]), [program_of(argv[at]) for at in named]
    if wrapper in _JOINING and not all(map(_PLAIN_WORD.fullmatch, argv[start:])):
        return True
    if wrapper in _ADDING and not _RUNNING.isdisjoint(programs):
        return True
    has_options = any(word.startswith(("-", "+")) for word in argv[start:])
    return any(
        (is_shell(argv[at]) and has_options) or runs_another(argv[at:], start - at) for at in named
    )
