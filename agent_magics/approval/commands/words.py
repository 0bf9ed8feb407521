"""Reads the words of commands: programs, and options in any of their spellings."""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

Words: TypeAlias = Sequence[str]

# Only root writes there. In /usr/local/bin others may: whoever has Homebrew, Debian's group staff.
SYSTEM_FOLDERS = ("/bin", "/usr/bin")


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
