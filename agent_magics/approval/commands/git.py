"""Recognises commands of git and rg that only read, given that a sandbox enforces it; and words by
which git runs another program.

Git's configuration can name programs for pagers, diffs, filters and status, which the command line
does not show. So these commands count as reading only in a sandbox that can write nothing, reach no
network and not read hidden files; without a sandbox they need approval.
"""

import re
from collections.abc import Callable

from agent_magics.approval.commands.words import (
    Words,
    is_option,
    names,
    options_in,
    without_folders_below,
)

# Options before a subcommand whose value is the next word.
OPTIONS_WITH_VALUE = names(
    "-C -c --git-dir --work-tree --namespace --exec-path --super-prefix --config-env "
    "--attr-source --shallow-file"
)

# Environment for git in a read-only sandbox: it does not refresh its index, and runs no program
# that a repository's configuration names for every command (git-config(1), GIT_CONFIG_COUNT).
READ_ONLY_ENVIRONMENT = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_COUNT": "4",
    "GIT_CONFIG_KEY_0": "core.fsmonitor",
    "GIT_CONFIG_VALUE_0": "false",
    "GIT_CONFIG_KEY_1": "core.hooksPath",
    "GIT_CONFIG_VALUE_1": "/dev/null",
    "GIT_CONFIG_KEY_2": "core.pager",
    "GIT_CONFIG_VALUE_2": "cat",
    "GIT_CONFIG_KEY_3": "log.follow",  # the names that a file had before
    "GIT_CONFIG_VALUE_3": "false",
}

_READING = frozenset(
    {
        *("status", "log", "diff", "show", "rev-parse", "ls-files", "ls-tree", "describe", "blame"),
        *("shortlog", "rev-list", "merge-base", "version"),
    }
)
# Options that write, run a program, open a page elsewhere or read file names from a file.
_FORBIDDEN = (
    *("--output", "--ext-diff", "--textconv", "--no-index", "--open-files-in-pager", "--paginate"),
    *("--show-signature", "--help", "--contents", "--ignore-revs-file", "--exclude-from"),
    *("--pathspec-from-file", "--recurse-submodules", "--exec-path", "--upload-pack", "--stdin"),
    *("--exclude-per-directory", "--git-path", "--resolve-git-dir", "--parseopt", "--sq-quote"),
)
_FORBIDDEN_LETTERS = {"diff": "O", "log": "O", "show": "O", "blame": "S", "ls-files": "X"}
_SIGNATURE = re.compile(r"%[-+ ]?G")  # runs gpg

# These change something when a name follows: only their listing options are allowed.
_LISTING: dict[str, re.Pattern[str]] = {
    "branch": re.compile(
        r"(-[arv]{1,3}|-vv|--(all|remotes|list|show-current|verbose|no-color|no-column"
        r"|merged|no-merged|ignore-case|sort=[\w:*.-]+|color=never))\Z"
    ),
    "tag": re.compile(r"(-l|--list|-n\d*|--no-column|--sort=[\w:*.-]+)\Z"),
    "remote": re.compile(r"(-v|--verbose)\Z"),
}


# Whether content may be read is judged by file name, but a history, a folder, an object id or a
# pattern covers files that the command line does not name, such as a .env committed years ago. So
# content is allowed only of files that are named one by one, otherwise only metadata.
_SAYS_NO_CONTENT = re.compile(
    r"-\d{1,6}|-[nis]|-n\d+|-z|--(oneline|graph|all|no-decorate|decorate(=\w+)?|reverse|merges"
    r"|no-merges|first-parent|abbrev-commit|date-order|topo-order|branches|tags|remotes|follow"
    r"|(max-count|skip|since|after|until|before|author|committer|grep|format|pretty|date"
    r"|diff-filter|abbrev)=.*|no-color|color=never|no-renames|cached|staged|quiet|exit-code"
    r"|stat(=.*)?|shortstat|numstat|summary|name-only|name-status|no-patch)",
    re.DOTALL,
)
# Options of output with content. Others may show more than the named files: --full-diff shows whole
# commits, --follow the file under the names that it had before, --all what no word names.
_OF_CONTENT = re.compile(
    r"-[pubwcm]|--(patch|unified=\d+|word-diff(=\w+)?|ignore-(all-space|space-change|blank-lines)"
    r"|cc|minimal|patience|histogram|function-context|patch-with-stat)|-U\d+|-W"
)
_SHOWS_MORE = frozenset({"--follow", "--all", "--branches", "--tags", "--remotes"})
_INSTEAD_OF_CONTENT = re.compile(
    r"-s|--(stat(=.*)?|shortstat|numstat|summary|name-only|name-status|no-patch)"
)
# no object ids: one may be that of a file
_REVISIONS = re.compile(r"((HEAD|@)[~^\d]*(\.{2,3}|\Z)){1,2}")
_STATUS_SHOWING_CONTENT = re.compile(r"-\w*v\w*|--v.*")
_ONE_FILE = re.compile(r"[\w@+=,-][\w./@+=,-]*")  # no wildcard, no pathspec syntax


def _shows_only_named(command: str, arguments: Words, is_file: Callable[[str], bool]) -> bool:
    """Tell whether git prints contents only of files that its arguments name."""
    if command == "status":
        return not any(map(_STATUS_SHOWING_CONTENT.fullmatch, arguments))
    if command not in ("log", "show", "diff"):
        return True
    end = list(arguments).index("--") if "--" in arguments else len(arguments)
    options = [word for word in arguments[:end] if word.startswith("-")]
    operands = [word for word in arguments[:end] if not word.startswith("-")]
    others = [word for word in operands if not _REVISIONS.fullmatch(word)]
    if all(map(_SAYS_NO_CONTENT.fullmatch, options)):
        replaced = any(map(_INSTEAD_OF_CONTENT.fullmatch, options))
        if command == "log" or (replaced and (command == "diff" or not others)):
            return True
    if not all(map(_shows_named, options)):
        return False
    named = [word.removeprefix("HEAD:") for word in (*others, *arguments[end + 1 :])]
    return bool(named) and all(_ONE_FILE.fullmatch(name) and is_file(name) for name in named)


def _shows_named(option: str) -> bool:
    """Tell whether git with this option shows the named files' contents and no others."""
    known = _OF_CONTENT.fullmatch(option) or _SAYS_NO_CONTENT.fullmatch(option)
    return bool(known) and option not in _SHOWS_MORE


def place_of_subcommand(words: Words) -> int:
    """Return which word of a git command is its subcommand; the number of words if there is
    none.
    """
    at = 1
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in OPTIONS_WITH_VALUE else 1
    return min(at, len(words))


def git_only_reads(
    words: Words, is_readable: Callable[[str], bool], is_file: Callable[[str], bool]
) -> bool:
    """Tell whether git with these arguments only reads, in a read-only sandbox.

    Args:
        words: the words after ``git``.
        is_readable: tells whether the model may read what a word names.
        is_file: tells whether a word names a regular file, also relative to the top of the
            repository.
    """
    while words and words[0] in ("--no-pager", "--no-optional-locks", "--literal-pathspecs"):
        words = words[1:]
    if not words:
        return False
    command, arguments = words[0], words[1:]
    if command == "--version":
        return not arguments
    if command in _LISTING:
        return all(_LISTING[command].match(word) for word in arguments)
    if command == "stash":  # "show" would print contents
        return list(arguments) == ["list"]
    if command not in _READING:
        return False
    letters = _FORBIDDEN_LETTERS.get(command, "")
    if any(_SIGNATURE.search(word) or is_option(word, letters, _FORBIDDEN) for word in arguments):
        return False
    if not _shows_only_named(command, arguments, is_file):
        return False
    # In "HEAD:.env" and ":(top).env" the path follows one of these characters.
    named = (piece for word in arguments for piece in (word, *re.split(r"[:)!^=]", word)))
    return all(is_readable(piece) for piece in named)


# Options that run a program, decompress, read patterns from a file, or search what rg by default
# does not: hidden and ignored files and targets of links.
_RG_FORBIDDEN = (
    *("--pre", "--pre-glob", "--hostname-bin", "--search-zip", "--follow", "--file", "--hidden"),
    *("--unrestricted", "--glob", "--iglob", "--ignore-file", "--type-add", "--type-clear"),
    *("--hyperlink-format", "--generate", "--debug", "--trace"),
)
_RG_LETTERS = "zLfu.g"
# absolute, hidden, or in a parent folder
_ELSEWHERE = re.compile(r"(/|~|(.*/)?\.(?!/|\Z))", re.DOTALL)


def rg_only_reads(words: Words) -> bool:
    """Tell whether rg with these arguments only reads, below the folder where it runs.

    Patterns and paths are treated alike.
    """
    # rg does not accept abbreviations of options; they are rejected anyway.
    return not any(
        word.startswith("--no-ignore")
        or is_option(word, _RG_LETTERS, _RG_FORBIDDEN)
        or (not word.startswith("-") and _ELSEWHERE.match(word))
        for word in words
    )


# -- programs that git runs ------------------------------------------------------------------------

# Options by which git runs another program, with any subcommand; abbreviations of long ones count.
_RUNNING_OPTIONS = (
    *("-c", "--config-env", "--exec-path", "--upload-pack", "--receive-pack", "--exec"),
    *("--ext-diff", "--textconv", "--open-files-in-pager", "-O", "--extcmd", "--tool"),
    *("--config", "--template", "--paginate", "-x", "-u", "--git-dir", "--work-tree"),
    *("--output", "--separate-git-dir", "--gpg-sign", "-S"),
    *("--sendmail-cmd", "--to-cmd", "--cc-cmd", "--smtp-server"),
    *("--access-hook", "--httpd", "--unsafe-paths"),
)
# Those that do not, behind these subcommands.
_HARMLESS = {
    "add": ("-u",),
    "branch": ("-u",),
    "cherry-pick": ("-x",),
    "clean": ("-x",),
    "commit": ("-u", "-S", "-c"),
    "diff": ("-u", "-S", "-c", "--cc-cmd"),  # which --cc would be short for
    "grep": ("-c",),
    "log": ("-u", "-S", "-c", "--cc-cmd"),
    "ls-files": ("-u",),
    "push": ("-u",),
    "restore": ("-S",),
    "show": ("-u", "-c", "--cc-cmd"),
    "stash": ("-u",),
    "status": ("-u",),
    "switch": ("-c",),
}
# What does, behind these alone.
_MORE = {"difftool": ("-t",), "mergetool": ("-t",), "push": ("--repo",)}
# A push runs the hooks of a repository on this machine.
_REPOSITORY_ELSEWHERE = re.compile(r"/|~|\.\.(?:/|\Z)|file:")
_MESSAGE = re.compile(r"(-\w*?m).+", re.DOTALL)  # in one word with its option
_READING_CONFIG = names("--get --get-all --get-regexp --list -l get list")
_RUNNING_WORDS = re.compile(
    r"ext::|(?:merge-index|checkout-index|remote-ext)\Z|--(?:setup|authors-prog)\b"
    r"|--(?:tree|index|parent|msg|commit|env|tag-name)-filter\b"
)
# Subcommands that run what follows a word of theirs.
_RUNNING_SUBCOMMANDS = re.compile(r"(?:bisect|submodule|hook)")


def git_runs_another(argv: Words, start: int) -> bool:
    """Tell whether a word from `start` on makes git run another program, now or later."""
    if any(map(_RUNNING_WORDS.match, argv[start:])):
        return True
    at = place_of_subcommand(argv)
    # The configuration of a repository elsewhere, or of a folder taken for one, names programs.
    above = without_folders_below(argv[start:at])
    if any(options_in(word, (*_RUNNING_OPTIONS, "-C", "--bare")) for word in above):
        return True
    subcommand, below = "".join(argv[at : at + 1]), argv[max(start, at + 1) :]
    if subcommand == "config" and start <= at and _sets_programs(below):
        return True
    if _RUNNING_SUBCOMMANDS.match(subcommand) and any(word in ("run", "foreach") for word in below):
        return True
    if subcommand in ("push", "remote") and any(map(_REPOSITORY_ELSEWHERE.match, below)):
        return True
    harmless = _HARMLESS.get(subcommand, ())
    options = (*_RUNNING_OPTIONS, *_MORE.get(subcommand, ()))
    if subcommand in ("commit", "merge", "tag", "stash", "notes"):
        below = [_MESSAGE.sub(r"\1", word) for word in below]
    return any(option not in harmless for word in below for option in options_in(word, options))


def _sets_programs(words: Words) -> bool:
    """Tell whether `git config` with these words may set the name of a program."""
    words = [word for word in words if word not in ("--global", "--local")]
    if words and words[0] in _READING_CONFIG:
        return False
    is_name = bool(words) and words[0] in ("user.name", "user.email")
    return not is_name or any(word.startswith("-") for word in words[1:])
