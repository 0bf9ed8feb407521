"""The commands of git and rg that only read, where a sandbox holds them to it.

Configurations name programs for pagers, diffs, filters and status, and nothing in a command line
tells of them. So these are promised to only read only where whatever runs can write nothing, reach
no network and not read what is hidden; without a sandbox they are asked about.
"""

import re
from collections.abc import Callable, Sequence

Words = Sequence[str]

# What git is told in a read-only sandbox: not to refresh its index, and to run nothing that a
# repository's configuration names for every command (git-config(1), GIT_CONFIG_COUNT).
READ_ONLY_ENVIRONMENT = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_COUNT": "3",
    "GIT_CONFIG_KEY_0": "core.fsmonitor",
    "GIT_CONFIG_VALUE_0": "false",
    "GIT_CONFIG_KEY_1": "core.hooksPath",
    "GIT_CONFIG_VALUE_1": "/dev/null",
    "GIT_CONFIG_KEY_2": "core.pager",
    "GIT_CONFIG_VALUE_2": "cat",
}

_READING = frozenset(
    {
        *("status", "log", "diff", "show", "rev-parse", "ls-files", "ls-tree", "describe", "blame"),
        *("shortlog", "rev-list", "merge-base", "version"),
    }
)
# Options that write, run a program, show a page elsewhere or take file names out of a file.
_FORBIDDEN = (
    *("--output", "--ext-diff", "--textconv", "--no-index", "--open-files-in-pager", "--paginate"),
    *("--show-signature", "--help", "--contents", "--ignore-revs-file", "--exclude-from"),
    *("--pathspec-from-file", "--recurse-submodules", "--exec-path", "--upload-pack", "--stdin"),
    *("--exclude-per-directory", "--git-path", "--resolve-git-dir", "--parseopt", "--sq-quote"),
)
_FORBIDDEN_LETTERS = {"diff": "O", "log": "O", "show": "O", "blame": "S", "ls-files": "X"}
_SIGNATURE = re.compile(r"%G")  # runs gpg

# These make or change something as soon as a name follows: only what lists is let through.
_LISTING: dict[str, re.Pattern[str]] = {
    "branch": re.compile(
        r"(-[arv]{1,3}|-vv|--(all|remotes|list|show-current|verbose|no-color|no-column"
        r"|merged|no-merged|ignore-case|sort=[\w:*.-]+|color=never))\Z"
    ),
    "tag": re.compile(r"(-l|--list|-n\d*|--no-column|--sort=[\w:*.-]+)\Z"),
    "remote": re.compile(r"(-v|--verbose)\Z"),
}


def git_only_reads(words: Words, is_readable: Callable[[str], bool]) -> bool:
    """Tell whether git with these arguments only reads, in a read-only sandbox.

    Args:
        words: what follows ``git``.
        is_readable: tells of a word whether the model may read what it names.
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
    if command == "stash":
        return list(arguments) == ["list"]
    if command not in _READING:
        return False
    letters = _FORBIDDEN_LETTERS.get(command, "")
    if any(_is_forbidden(word, letters) for word in arguments):
        return False
    # "HEAD:.env", ":(top).env": what may be a path stands behind one of these.
    named = (piece for word in arguments for piece in (word, *re.split(r"[:)!^=]", word)))
    return all(is_readable(piece) for piece in named)


def _is_forbidden(word: str, letters: str) -> bool:
    if _SIGNATURE.search(word):
        return True
    if word.startswith("--"):
        name = word.partition("=")[0]
        return len(name) > 2 and any(full.startswith(name) for full in _FORBIDDEN)
    return word.startswith("-") and any(letter in word for letter in letters)


# Options that run a program, unpack, take patterns out of a file, or look where rg by itself does
# not: into hidden and ignored files and behind links.
_RG_FORBIDDEN = (
    *("--pre", "--pre-glob", "--hostname-bin", "--search-zip", "--follow", "--file", "--hidden"),
    *("--unrestricted", "--glob", "--iglob", "--ignore-file", "--type-add", "--type-clear"),
    *("--hyperlink-format", "--generate", "--debug", "--trace"),
)
_RG_LETTERS = "zLfu.g"
_ELSEWHERE = re.compile(r"(/|~|(.*/)?\.(?!/|\Z))", re.DOTALL)  # absolute, hidden, or above


def rg_only_reads(words: Words) -> bool:
    """Tell whether rg with these arguments only reads, below the folder where it runs.

    Which words are patterns and which are paths is not told apart.
    """
    for word in words:
        if word.startswith("--"):
            name = word.partition("=")[0]
            # rg takes no abbreviations; they are left out all the same.
            is_forbidden = any(full.startswith(name) for full in _RG_FORBIDDEN)
            if name.startswith("--no-ignore") or (len(name) > 2 and is_forbidden):
                return False
        elif word.startswith("-"):
            if any(letter in word for letter in _RG_LETTERS):
                return False
        elif _ELSEWHERE.match(word):
            return False
    return True
