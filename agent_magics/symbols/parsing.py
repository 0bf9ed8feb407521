"""Symbols without a language server: Python's own parser, and tree-sitter's for other languages.

Law: a file is parsed and never imported; none of its code runs.
"""

import os
from collections import deque
from pathlib import Path

from agent_magics.protocol.errors import RespondToModel
from agent_magics.symbols.python_syntax import NotPython, parse_python, python_symbols
from agent_magics.symbols.text import SourceText
from agent_magics.symbols.tree_sitter import GRAMMARS, has_grammar, tree_error, tree_symbols
from agent_magics.symbols.types import Symbol

PYTHON = (".py", ".pyi", ".pyw")
_MOST_LOOKED_AT = 2_000  # entries of folders, which takes a millisecond or two


def can_parse(path: str | Path) -> bool:
    """Return whether the symbols of a file of this name are found without a server."""
    suffix = os.path.splitext(path)[1].lower()
    return suffix in PYTHON or has_grammar(suffix)


def parse_symbols(path: Path, text: str, shown: str) -> tuple[Symbol, ...]:
    """Return the symbols of a text as a tree, in its order.

    Python that does not parse is read by tree-sitter, where that is installed.

    Args:
        path: the file, whose ending tells the language; one of which `can_parse` is true.
        text: its text, without a byte order mark.
        shown: its name for messages.

    Raises:
        RespondToModel: it cannot be parsed; the sentence names the line.
    """
    source = SourceText(text)
    if path.suffix.lower() not in PYTHON:
        return tree_symbols(path, source)
    try:
        return python_symbols(path, source, shown)
    except RespondToModel:
        if not has_grammar(path.suffix.lower()):
            raise
    return tree_symbols(path, source)


def syntax_error(path: Path, text: str) -> str:
    """Return what is wrong in a text of a language that can be parsed, with its line; else ""."""
    suffix = path.suffix.lower()
    if suffix in PYTHON:
        try:
            parse_python(text, path.name)
        except NotPython as error:
            return error.why
    elif has_grammar(suffix) and (line := tree_error(suffix, text)) is not None:
        return f"line {line + 1}"
    return ""


def holds_source(folder: Path) -> bool:
    """Return whether a folder holds source code, as far as its first 2,000 entries show."""
    endings = (*PYTHON, *GRAMMARS)
    waiting, seen = deque([str(folder)]), 0
    while waiting:
        try:
            with os.scandir(waiting.popleft()) as entries:
                for entry in entries:
                    seen += 1
                    if entry.name.lower().endswith(endings):
                        return True
                    if seen >= _MOST_LOOKED_AT:
                        return False
                    if entry.name[0] != "." and entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:
            continue
    return False
