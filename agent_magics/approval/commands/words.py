"""Reads the words of commands: programs, and options in any of their spellings."""

import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

Words: TypeAlias = Sequence[str]

# Only root writes there. In /usr/local/bin others may: whoever has Homebrew, Debian's group staff.
SYSTEM_FOLDERS = ("/bin", "/usr/bin")

_FOLDER_BELOW = re.compile(r"(?![-/~])(?!(?:.*/)?\.\.(?:/|\Z)).+", re.DOTALL)
_ENTERS_BELOW = re.compile(rf"(?:-C|--directory=)(?:{_FOLDER_BELOW.pattern})", re.DOTALL)


def names(text: str) -> frozenset[str]:
    """Split a text at white space into a set of names."""
    return frozenset(text.split())


def program_of(word: str) -> str:
    """Return the program that a word names, without its folder."""
    return word.rpartition("/")[2]


def is_option(word: str, letters: str, long_names: Iterable[str]) -> bool:
    """Tell whether a word is one of these options, or may be.

    Args:
        word: any word of a command.
        letters: short options, which may stand anywhere in a cluster.
        long_names: long options with their dashes; abbreviations and values count, too.
    """
    if word.startswith("--"):
        name = word.partition("=")[0]
        return len(name) > 2 and any(full.startswith(name) for full in long_names)
    return word.startswith("-") and any(letter in word for letter in letters)


def options_in(word: str, options: tuple[str, ...]) -> list[str]:
    """Return those of `options` that `word` may be: abbreviated, with a value, or in a cluster."""
    name = word.partition("=")[0]
    if name.startswith("--"):
        # Go's options have one dash or two.
        return [o for o in options if len(name) > 2 and (o.startswith(name) or o == name[1:])]
    if not word.startswith("-"):
        return []
    return [
        each
        for each in options
        if name == each or (len(each) == 2 and each[0] == "-" and each[1] in word[1:])
    ]


def without_folders_below(words: Words) -> list[str]:
    """Return words without `-C FOLDER` for folders below: these are as open to commands as the
    makefile of the folder itself.
    """
    kept: list[str] = []
    for word in words:
        if kept and kept[-1] in ("-C", "--directory") and _FOLDER_BELOW.fullmatch(word):
            kept.pop()
        elif not _ENTERS_BELOW.fullmatch(word):
            kept.append(word)
    return kept
