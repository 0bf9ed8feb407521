"""Reads the corpus of command lines."""

import shlex
from pathlib import Path

_FILE = Path(__file__).parents[2] / "unit" / "approval" / "commands" / "command_corpus.txt"


def corpus(section: str) -> list[list[str]]:
    """Return the command lines of a section, as lists of words."""
    found: list[list[str]] = []
    current = ""
    for line in _FILE.read_text(encoding="utf-8").splitlines():
        # In the file every line of a section is a command; "[ -f a ]" would be one, too.
        if line in ("[safe]", "[confined]", "[unsafe]"):
            current = line[1:-1]
        elif line and current == section:
            found.append(shlex.split(line))
    return found
