"""Computes edits by symbol: replace, insert before or after, remove. It writes nothing.

Law: what is not part of the edit keeps every byte; a symbol replaced by its own text changes
nothing. A text for a symbol may have any indentation: it gets that of its place, but for the
inside of multi-line strings, whose value would change. Comments directly above a symbol, at its
indentation, belong to it: what is inserted goes above them, and removing takes them along. What
marks a cell or a region (`# %%`) is none of them.
"""

import ast
import io
import re
import tokenize
from collections.abc import Sequence

from agent_magics.protocol.errors import RespondToModel
from agent_magics.symbols.parsing import PYTHON
from agent_magics.symbols.python_syntax import parse_python
from agent_magics.symbols.text import SourceText
from agent_magics.symbols.tree_sitter import ends_in_comment, has_grammar, string_lines, tree_error
from agent_magics.symbols.types import Position, Range, Symbol, TextEdit
from agent_magics.text.line_ends import with_newlines

# Formatted strings are one token each before Python 3.12.
_FORMAT_START = getattr(tokenize, "FSTRING_START", -1)
_FORMAT_END = getattr(tokenize, "FSTRING_END", -1)
_DEFINITIONS = ("class", "function", "method", "property", "interface", "enum", "struct")
_BEGINS_DEFINITION = re.compile(r"\s*(@|async\s+def\b|def\b|class\b)")
_BEHIND = re.compile(r"[ \t]*+[;,]?[ \t]*+((#|//).*|/\*((?!\*/).)*\*/)?[ \t]*+$")
_HASHED = (*PYTHON, ".rb", ".sh", ".bash", ".r", ".jl")  # languages whose comments begin with #
# Comments that are about more than the symbol below: marks of cells and of folded regions.
_MARK = r"[ \t]*(%%|In ?\[|<codecell>|#?(end)?region\b)"
_HASH_COMMENT = re.compile(rf"[ \t]*#(?!!|.*coding[:=]|{_MARK})")  # the others are about the file
_COMMENT = re.compile(rf"[ \t]*(//(?!{_MARK})|#\[)")  # #[...] are Rust's attributes

# Comments, and attributes of Rust, over several lines: how one begins -> how it ends.
_LONG_COMMENTS = {"/*": "*/", "#[": "]"}


def replace_symbol(source: SourceText, symbol: Symbol, text: str) -> TextEdit:
    """Return the edit that puts `text` in a symbol's place; a comment behind it stays.

    Args:
        source: the file's text.
        symbol: a symbol of it.
        text: the new definition, with decorators; at any indentation. A comment that ends it
            replaces the one behind the symbol.

    Raises:
        RespondToModel: the text is empty, or its comment would hide other code of the line.
    """
    behind = _behind(source, symbol)
    if not _fills_lines(source, symbol):
        if behind.strip() and _ends_in_comment(text, symbol):
            raise RespondToModel(
                f"{symbol.name} shares its line with other code, which the comment at the end of "
                "text would hide; leave the comment out."
            )
        return TextEdit(symbol.range, _plain(text).strip())
    placed = _placed(text, source, symbol)
    if placed[-1] in ";," and behind.lstrip().startswith(placed[-1]):
        behind = behind.lstrip()[1:]
    is_there = placed.endswith(behind.strip() or behind)
    if not (is_there or _ends_in_comment(placed, symbol)):
        placed += behind
    first, last = _lines(symbol)
    whole = Range(Position(first, 0), Position(last, len(source.line(last))))
    return TextEdit(whole, placed)


def insert_at_symbol(source: SourceText, symbol: Symbol, text: str, *, after: bool) -> TextEdit:
    """Return the edit that puts `text` in front of a symbol, with its comments, or behind it.

    Args:
        source: the file's text.
        symbol: a symbol of it.
        text: a new definition; at any indentation.
        after: whether it goes behind the symbol.

    Raises:
        RespondToModel: the text is empty, or other code stands in the symbol's lines: what is put
            above or below these may not be where the symbol is, such as in a class of one line.
    """
    if not _fills_lines(source, symbol):
        raise RespondToModel(
            f"{symbol.name} shares its line with other code, so nothing is inserted beside it; "
            "edit the line."
        )
    placed = _placed(text, source, symbol)
    breaks = "\n" * (_gap(symbol, placed) + 1)
    if after:
        _, last = _lines(symbol)
        end = Position(last, len(source.line(last)))
        return TextEdit(Range(end, end), breaks + placed)
    start = Position(_first_comment(source, symbol), 0)
    return TextEdit(Range(start, start), placed + breaks)


def remove_symbol(source: SourceText, symbol: Symbol) -> TextEdit:
    """Return the edit that removes a symbol with its comments, and the blank lines around it alone.

    Raises:
        RespondToModel: other code stands in its lines.
    """
    if not _fills_lines(source, symbol):
        raise RespondToModel(
            f"{symbol.name} shares its line with other code, so it is not removed; edit the line."
        )
    first, last = _first_comment(source, symbol), _lines(symbol)[1]
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
    """Return the edit, with `pass` where a Python block would be left without a statement.

    Raises:
        RespondToModel: the rest of the file would not parse, as behind a comma that joins two
            declarations.
    """
    suffix = symbol.path.suffix.lower()
    if not _is_code(source.text, suffix) or _is_code(apply_edits(source, [edit]), suffix):
        return edit
    first, last = _first_comment(source, symbol), _lines(symbol)[1]
    whole = Range(Position(first, 0), Position(last, len(source.line(last))))
    filled = TextEdit(whole, f"{_indent_of(source.line(first))}pass")
    if suffix in PYTHON and _is_code(apply_edits(source, [filled]), suffix):
        return filled
    raise RespondToModel(
        f"Without {symbol.name}, the code around it would not parse, so it is not removed; edit "
        "its lines."
    )


def apply_edits(source: SourceText, edits: Sequence[TextEdit]) -> str:
    """Return the text after edits, which do not overlap."""
    parts, at = list[str](), 0
    for edit in sorted(edits):
        parts += (source.text[at : source.offset(edit.range.start)], edit.text)
        at = source.offset(edit.range.end)
    return "".join((*parts, source.text[at:]))


# -- lines and blank lines ------------------------------------------------------------------------


def _lines(symbol: Symbol) -> tuple[int, int]:
    """Return the first and last line of a symbol, from 0."""
    first, end = symbol.range.start.line, symbol.range.end
    is_behind = end.character == 0 and end.line > first
    return first, end.line - is_behind


def _fills_lines(source: SourceText, symbol: Symbol) -> bool:
    """Return whether nothing but spaces and a comment stands beside a symbol in its lines."""
    start = symbol.range.start
    before = source.line(start.line)[: start.character]
    if start.line and source.line(start.line - 1).endswith("\\"):
        return False  # the line above is part of this one
    return not before.strip() and _BEHIND.match(_behind(source, symbol)) is not None


def _behind(source: SourceText, symbol: Symbol) -> str:
    """Return what stands behind a symbol in its last line."""
    end = symbol.range.end
    return source.line(end.line)[end.character :] if end.line == _lines(symbol)[1] else ""


def _first_comment(source: SourceText, symbol: Symbol) -> int:
    """Return the first line of the comments directly above a symbol, else its own first line."""
    first, suffix = symbol.range.start.line, symbol.path.suffix.lower()
    indent = _indent_of(source.line(first))
    inside: set[int] | None = None
    while first:
        above = _comment_above(source, first, suffix)
        if above == first or _indent_of(source.line(above)) != indent:
            return first
        inside = _lines_in_strings(source.text, suffix) if inside is None else inside
        if not inside.isdisjoint(range(above, first)):
            return first  # what looks like a comment is the end of a text
        first = above
    return first


def _lines_in_strings(text: str, suffix: str) -> set[int]:
    """Return the lines of a file, from 0, that begin inside a string, where that can be told."""
    if suffix in PYTHON:
        return _in_strings(text)[0]
    return string_lines(suffix, text) if has_grammar(suffix) else set()


def _comment_above(source: SourceText, first: int, suffix: str) -> int:
    """Return the first line of the comment that ends above line `first`; `first` for none."""
    above = first - 1
    last = source.line(above).strip()
    opening = next((o for o, end in _LONG_COMMENTS.items() if last.endswith(end)), "")
    if suffix in _HASHED or not opening or last.startswith("#["):
        pattern = _HASH_COMMENT if suffix in _HASHED else _COMMENT
        return above if pattern.match(source.line(above)) else first
    while above and opening not in source.line(above):
        above -= 1
    block = "\n".join(source.line(number) for number in range(above, first)).strip()
    end = _LONG_COMMENTS[opening]
    is_one = end == "]" or block.index(end) == len(block) - len(end)
    return above if block.startswith(opening) and is_one else first


def _ends_in_comment(text: str, symbol: Symbol) -> bool:
    """Return whether a comment stands in the last line of a definition."""
    plain, suffix = _plain(text).rstrip(), symbol.path.suffix.lower()
    last = plain.rpartition("\n")[2]
    if suffix in PYTHON:
        comments = [each for each in _tokens(plain) if each.type == tokenize.COMMENT]
        return bool(comments) and comments[-1].line.strip() == last.strip()
    if has_grammar(suffix):
        return ends_in_comment(suffix, plain)
    return re.search(r"//|\*/$", last) is not None


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
    return with_newlines(text).strip("\n")


def _placed(text: str, source: SourceText, symbol: Symbol) -> str:
    """Return a text with the indentation of a symbol's place.

    Raises:
        RespondToModel: the text is empty.
    """
    plain = _plain(text)
    lines = plain.split("\n")
    if not text.strip():
        raise RespondToModel("text is empty; give the code, or use the action remove.")
    wanted, given = _indent_of(source.line(symbol.range.start.line)), _indent_of(lines[0])
    if wanted == given:
        return plain
    suffix, inside, kept = symbol.path.suffix.lower(), set[int](), set[int]()
    if suffix in PYTHON:  # a method with a decorator is Python only where it belongs
        inside, kept = _in_strings(plain if given or _parses(plain) else wanted + plain)
    elif has_grammar(suffix):
        inside = kept = string_lines(suffix, plain)
    rest = [line for n, line in enumerate(lines) if n and n not in inside and line.strip()]
    if not given and _is_cut_out(plain, rest, wanted, is_python=suffix in PYTHON):
        return wanted + plain
    return "\n".join(
        line if number in kept or not line.strip() else wanted + line.removeprefix(given)
        for number, line in enumerate(lines)
    )


def _is_cut_out(text: str, rest: Sequence[str], wanted: str, *, is_python: bool) -> bool:
    """Return whether only the first line lacks the indentation of its place.

    A text cut out of a file from the symbol's first letter is so; `rest` are its other lines.
    """
    if not rest or not all(line.startswith(wanted) for line in rest):
        return False
    if not is_python:
        return True
    level = [line.strip() for line in rest if _indent_of(line) == wanted]
    # A closing bracket stands below the first letter; any other line is inside the definition.
    return all(line[0] in ")]}" for line in level) or not _parses(text)


def _in_strings(text: str) -> tuple[set[int], set[int]]:
    """Return the lines of Python, from 0, that begin inside a string, and those but docstrings'."""
    above = "if 1:\n" if text[:1].isspace() else ""
    whole = above + text
    try:
        tree = parse_python(whole, "text")
    except RespondToModel:
        return set(), set()
    docstrings = {
        (node.body[0].lineno, node.body[0].end_lineno)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        if isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)
    }
    found, documentation = set[int](), set[int]()
    open_at: list[int] = []  # the lines where formatted strings begin that have not ended
    for each in _tokens(whole):
        first, last = each.start[0], each.end[0]
        if each.type == _FORMAT_START:
            open_at.append(first)
        elif each.type == _FORMAT_END:
            found.update(range(open_at.pop(), last))
        elif each.type == tokenize.STRING:
            found.update(range(first, last))
            if (first, last) in docstrings:
                documentation.update(range(first, last))
    inside = {number - bool(above) for number in found}
    return inside, inside - {number - bool(above) for number in documentation}


def _tokens(text: str) -> list[tokenize.TokenInfo]:
    """Return the tokens of a Python text; none where it has no right ones."""
    try:
        return list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return []


def _is_code(text: str, suffix: str) -> bool:
    """Return whether a file's text is known to parse."""
    if suffix in PYTHON:
        return _parses(text)
    return has_grammar(suffix) and tree_error(suffix, text) is None


def _parses(text: str) -> bool:
    try:
        parse_python(text, "text")
    except RespondToModel:
        return False
    return True
