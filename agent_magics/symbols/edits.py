"""Computes edits by symbol: replace, insert before or after, remove. It writes nothing.

Law: what is not part of the edit keeps every byte; a symbol replaced by its own text changes
nothing. A text for a symbol may have any indentation: it gets that of its place, but for the
inside of multi-line strings, whose value would change.
"""

import ast
import re
from collections.abc import Sequence

from agent_magics.protocol.errors import RespondToModel
from agent_magics.symbols.parsing import PYTHON
from agent_magics.symbols.provider import Position, Range, Symbol, TextEdit
from agent_magics.symbols.python_syntax import parse_python
from agent_magics.symbols.text import SourceText

_DEFINITIONS = ("class", "function", "method", "property", "interface", "enum", "struct")
_BEGINS_DEFINITION = re.compile(r"\s*(@|async\s+def\b|def\b|class\b)")
_BEHIND = re.compile(r"[ \t]*([;,]?[ \t]*(#|//).*|[;,]?)$")
_COMMENT = re.compile(r"[ \t]*(#(?!!)|//)")


def replace_symbol(source: SourceText, symbol: Symbol, text: str) -> TextEdit:
    """Return the edit that puts `text` in a symbol's place.

    Args:
        source: the file's text.
        symbol: a symbol of it.
        text: the new definition, with decorators; at any indentation.
    """
    if not _fills_lines(source, symbol):
        return TextEdit(symbol.range, _plain(text).strip())
    first, last = _lines(symbol)
    whole = Range(Position(first, 0), Position(last, len(source.line(last))))
    return TextEdit(whole, _placed(text, source, symbol))


def insert_at_symbol(source: SourceText, symbol: Symbol, text: str, *, after: bool) -> TextEdit:
    """Return the edit that puts `text` in front of a symbol, with its comments, or behind it.

    Args:
        source: the file's text.
        symbol: a symbol of it.
        text: a new definition; at any indentation.
        after: whether it goes behind the symbol.
    """
    first, last = _lines(symbol)
    placed = _placed(text, source, symbol)
    breaks = "\n" * (_gap(symbol, placed) + 1)
    if after:
        end = Position(last, len(source.line(last)))
        return TextEdit(Range(end, end), breaks + placed)
    indent = _indent_of(source.line(first))
    while first and _COMMENT.match(above := source.line(first - 1)) and _indent_of(above) == indent:
        first -= 1
    start = Position(first, 0)
    return TextEdit(Range(start, start), placed + breaks)


def remove_symbol(source: SourceText, symbol: Symbol) -> TextEdit:
    """Return the edit that removes a symbol, and the blank lines that stood around it alone.

    Raises:
        RespondToModel: other code stands in its lines.
    """
    if not _fills_lines(source, symbol):
        raise RespondToModel(
            f"{symbol.name} shares its line with other code, so it is not removed; edit the line."
        )
    first, last = _lines(symbol)
    above, below = first, last + 1
    while above > 0 and not source.line(above - 1).strip():
        above -= 1
    while below < source.line_count and not source.line(below).strip():
        below += 1
    at_end = below >= source.line_count
    gap = 0 if above == 0 or at_end else max(first - above, below - last - 1)
    if above > 0 and source.line(above - 1).rstrip().endswith((":", "{")):
        gap = min(gap, first - above)
    if at_end:  # the break behind the line above is the file's last
        end = source.position(len(source.text))
        is_ended = source.text.endswith("\n")
        start = Position(above - 1, len(source.line(above - 1))) if above else Position(0, 0)
        edit = TextEdit(Range(start, end), "\n" if is_ended and above else "")
    else:
        edit = TextEdit(Range(Position(above, 0), Position(below, 0)), "\n" * gap)
    return _with_pass(source, symbol, edit)


def _with_pass(source: SourceText, symbol: Symbol, edit: TextEdit) -> TextEdit:
    """Return the edit, with `pass` where a Python block would be left without a statement."""
    if symbol.path.suffix.lower() not in PYTHON or not _parses(source.text):
        return edit
    if _parses(apply_edits(source, [edit])):
        return edit
    first, last = _lines(symbol)
    whole = Range(Position(first, 0), Position(last, len(source.line(last))))
    filled = TextEdit(whole, f"{_indent_of(source.line(first))}pass")
    return filled if _parses(apply_edits(source, [filled])) else edit


def apply_edits(source: SourceText, edits: Sequence[TextEdit]) -> str:
    """Return the text after edits, which do not overlap."""
    text = source.text
    for edit in sorted(edits, reverse=True):
        start, end = source.offset(edit.range.start), source.offset(edit.range.end)
        text = text[:start] + edit.text + text[end:]
    return text


# -- lines and blank lines ------------------------------------------------------------------------


def _lines(symbol: Symbol) -> tuple[int, int]:
    """Return the first and last line of a symbol, from 0."""
    first, end = symbol.range.start.line, symbol.range.end
    is_behind = end.character == 0 and end.line > first
    return first, end.line - is_behind


def _fills_lines(source: SourceText, symbol: Symbol) -> bool:
    """Return whether nothing but spaces and a comment stands beside a symbol in its lines."""
    first, last = _lines(symbol)
    before = source.line(first)[: symbol.range.start.character]
    end = symbol.range.end
    behind = source.line(last)[end.character :] if end.line == last else ""
    return not before.strip() and _BEHIND.match(behind) is not None


def _gap(symbol: Symbol, placed: str) -> int:
    """Return how many blank lines stand between a symbol and a text beside it."""
    is_definition = symbol.kind in _DEFINITIONS or _BEGINS_DEFINITION.match(placed)
    if not is_definition and "\n" not in placed:
        return 0
    is_python = symbol.path.suffix.lower() in PYTHON
    return 2 if is_python and not placed[:1].isspace() else 1


def _indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


# -- indentation ----------------------------------------------------------------------------------


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").strip("\n")


def _placed(text: str, source: SourceText, symbol: Symbol) -> str:
    """Return a text with the indentation of a symbol's place.

    Raises:
        RespondToModel: the text is empty.
    """
    lines = _plain(text).split("\n")
    if not text.strip():
        raise RespondToModel("text is empty; give the code, or use the action remove.")
    wanted, given = _indent_of(source.line(symbol.range.start.line)), _indent_of(lines[0])
    if wanted == given:
        return "\n".join(lines)
    is_python = symbol.path.suffix.lower() in PYTHON
    if not given and _is_placed_but_for_first(lines, wanted, is_python):
        return "\n".join([wanted + lines[0], *lines[1:]])
    inside = _string_lines(lines, given) if is_python else set[int]()
    return "\n".join(
        line if number in inside or not line.strip() else wanted + line.removeprefix(given)
        for number, line in enumerate(lines)
    )


def _is_placed_but_for_first(lines: Sequence[str], wanted: str, is_python: bool) -> bool:
    """Return whether only the first line lacks the indentation of its place.

    A text cut out of a file from the symbol's first letter is so.
    """
    inside = _string_lines(lines, "") if is_python else set[int]()
    rest = [line for n, line in enumerate(lines) if n and n not in inside and line.strip()]
    if not rest:
        return False
    least = min(len(_indent_of(line)) for line in rest)
    if least != len(wanted):
        return least > len(wanted)
    if not is_python:  # a closing bracket stands below the first letter
        return bool(_indent_of(rest[-1]))
    return not _parses("\n".join(lines))


def _string_lines(lines: Sequence[str], given: str) -> set[int]:
    """Return the lines, from 0, that begin inside a string other than a docstring."""
    try:
        shifted = "\n".join(line.removeprefix(given) for line in lines)
        tree = parse_python(shifted, "text")
    except RespondToModel:
        return set()
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        if isinstance(node.body[0], ast.Expr)
    }
    found: set[int] = set()
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
        if (is_text or isinstance(node, ast.JoinedStr)) and id(node) not in docstrings:
            found.update(range(node.lineno, node.end_lineno or node.lineno))  # type: ignore[attr-defined]
    return found


def _parses(text: str) -> bool:
    try:
        parse_python(text, "text")
    except RespondToModel:
        return False
    return True
