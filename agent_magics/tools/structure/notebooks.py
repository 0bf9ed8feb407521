"""Notebooks as source files: the open one as it stands in the page, others as they are saved.

A notebook is one document of its code cells. Magics are left out: cells of other languages and of
agents as wholes, lines with a magic or a command as blank statements of the same lines.
"""

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.pool import run_on_thread
from agent_magics.files.beneath import real_path
from agent_magics.files.paths import open_notebook, resolve_path, shown_path
from agent_magics.protocol.errors import RespondToModel
from agent_magics.symbols.parsing import PYTHON, parse_symbols
from agent_magics.symbols.python_syntax import NotPython, parse_python
from agent_magics.symbols.text import one_line
from agent_magics.symbols.types import Diagnostic, Position, Range, Symbol
from agent_magics.tools.notebook.cells import MOST_CELLS, document_of
from agent_magics.tools.structure.sources import (
    SECONDS_BESIDE,
    CodeCell,
    SourceFile,
    folder_of,
    read_source,
    scan,
    until_stopped,
)

# Magics whose cells hold Python of the notebook.
_PYTHON_CELL = re.compile(r"\s*%%(time|timeit|capture|prun)\b")
_MAGIC = re.compile(
    r"([ \t]*+)(?:([\w., \t]++=)[ \t]*+)?"
    r"(?:[%!?,;/](?:\\\n|[^\n])*+|[\w.*\[\]-]++\?++[ \t]*+(?=\n|\Z))"
)
# A string, a comment, a sign behind a backslash, a bracket, the end of a line, or other signs.
_PIECE = re.compile(
    r"(\"\"\"|''')(?:\\.|(?!\1).)*(?:\1)?|\"(?:\\.|[^\"\\\n])*+\"?|'(?:\\.|[^'\\\n])*+'?"
    r"|#[^\n]*+|\\.?|[()\[\]{}\n]|[^\"'#\\()\[\]{}\n]++",
    re.DOTALL,
)
_DEPTH = dict.fromkeys("([{", 1) | dict.fromkeys(")]}", -1)
# The first line of each notebook's code: what IPython defines there, of any type.
_GIVEN = "display = get_ipython = In = Out = _ = __ = ___ = eval('')"
_AWAITS = re.compile(r"await\b|async\s+(for|with)\b")
_UNUSED = ("reportUnusedExpression", "pointless-statement", "expression-not-assigned", "B018")
_MOST_READ = 2_000  # cells
MOST_NOTEBOOKS = 50  # in which one name is sought


class Notebooks(dict[Path, SourceFile]):
    """Notebooks by path.

    Attributes:
        note: a sentence that says that there may be more; "" where these are all.
    """

    note = ""


def is_notebook(path: str) -> bool:
    """Return whether a path argument names a notebook."""
    return str(path).lower().endswith(".ipynb")  # a Path in a call by hand


async def read_notebook(path: str, ctx: ToolContext | None) -> SourceFile:
    """Read the notebook at a path argument; the open one as it stands in the page.

    Raises:
        RespondToModel: it may not be read, or is no notebook.
    """
    opened = await read_open_notebook(ctx)
    if opened is not None and opened.path == resolve_path(path, folder_of(ctx)):
        return opened
    found: SourceFile = await run_on_thread(lambda: _of_json(read_source(path, ctx)))
    return found


async def read_open_notebook(ctx: ToolContext | None) -> SourceFile | None:
    """Read the notebook that is open in the page; None where none is, or it may not be read."""
    path = open_notebook()
    try:
        document = document_of(ctx)
        if ctx is None or path is None or not document.is_open:
            return None
        cells: list[Mapping[str, Any]] = []
        while len(cells) < _MOST_READ:
            wish = {"start": len(cells), "limit": MOST_CELLS, "cell": ""}
            found = await document.request(ctx.turn_id, "read", **wish)
            cells += found["cells"]
            if not found["cells"] or len(cells) >= found["total"]:
                break
    except RespondToModel:
        return None
    parts = ((c["index"] + 1, c["id"], c["source"]) for c in cells if c["type"] == "code")
    real = Path(real_path(path))
    return _as_source(real, shown_path(real, folder_of(ctx)), parts)


async def notebooks_with(name: str, definer: SourceFile, ctx: ToolContext | None) -> Notebooks:
    """Return the notebooks of the workspace in whose code a name stands, at most `MOST_NOTEBOOKS`.

    The open one is read as it stands in the page.

    Args:
        name: the name.
        definer: the file that defines it; where it is a notebook, it is one of them.
        ctx: the call.
    """
    if definer.code_path.suffix not in PYTHON:
        return Notebooks()

    def saved() -> Iterator[SourceFile]:
        # A file may have other letters as escapes.
        needle = name if name.isascii() else ""
        for file in scan(".", ctx, needle, is_notebook, SECONDS_BESIDE):
            with suppress(RespondToModel):
                yield _of_json(file)

    opened = await read_open_notebook(ctx)
    known = [each for each in (opened, definer if definer.cells else None) if each is not None]
    found = Notebooks({each.path: each for each in known})
    others = (each for each in saved() if each.path not in found and name in each.text)
    more, stopped = await run_on_thread(until_stopped, islice(others, MOST_NOTEBOOKS))
    found.update((each.path, each) for each in more)
    if stopped:
        found.note = f"Notebooks were sought for {SECONDS_BESIDE:.0f} s: there may be more."
    elif len(found) >= MOST_NOTEBOOKS:
        found.note = f"Only {MOST_NOTEBOOKS} of the notebooks with this name were looked into."
    return found


def texts_of(notebooks: Mapping[Path, SourceFile]) -> dict[Path, str]:
    """Return the code of notebooks, for a language server."""
    return {path: file.text for path, file in notebooks.items()}


def _of_json(file: SourceFile) -> SourceFile:
    """Return a notebook, given as the text of its file, as its code.

    Raises:
        RespondToModel: it is no notebook, or one of another language.
    """
    try:
        notebook = json.loads(file.text)
        about = notebook.get("metadata", {}).get("language_info", {})
        language = one_line(str(about.get("name", "python")), 20)
        parts = [
            (number, str(cell.get("id", "")), "".join(cell["source"]))
            for number, cell in enumerate(notebook["cells"], 1)
            if cell["cell_type"] == "code"
        ]
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise RespondToModel(f"{file.shown} is no notebook that can be read.") from None
    if language.lower() not in ("python", "ipython"):
        raise RespondToModel(f"{file.shown} is a notebook of {language}, and only Python is read.")
    return _as_source(file.path, file.shown, parts)


def _as_source(path: Path, shown: str, parts: Iterable[tuple[int, str, str]]) -> SourceFile:
    """Return a notebook's code cells, given as (number, id, text), as a source file."""
    cells: list[CodeCell] = []
    first = 1
    for number, name, text in parts:
        code = _without_magics(text.replace("\r\n", "\n"))
        cells.append(CodeCell(f"cell {number} ({name})" if name else f"cell {number}", first, code))
        first += code.count("\n") + 1
    return SourceFile(path, shown, _code_of(cell.text for cell in cells), tuple(cells))


def _code_of(cells: Iterable[str]) -> str:
    return "\n".join((_GIVEN, *cells))


def _without_magics(text: str) -> str:
    """Return a cell's Python with blank statements for magics, in the same lines."""
    if text.lstrip().startswith("%%"):
        if not _PYTHON_CELL.match(text):
            return "\n" * text.count("\n")
        text = re.sub(r"^%%(capture +([a-zA-Z]\w*))?.*", _captured, text.lstrip(), count=1)
    try:
        parse_python(text, "a cell")
    except NotPython:
        return _blanked(text)
    return text


def _blanked(text: str) -> str:
    """Blank the magics of a cell, which begin where no string, bracket or line goes on."""
    made: list[str] = []
    at, depth, is_start = 0, 0, True
    while piece := (_MAGIC.match(text, at) if is_start else None) or _PIECE.match(text, at):
        made.append(_blank(piece) if piece.re is _MAGIC else piece[0])
        at = piece.end()
        depth = max(depth + _DEPTH.get(made[-1], 0), 0)
        is_start = made[-1] == "\n" and not depth
    return "".join(made)


def _captured(match: re.Match[str]) -> str:
    return f"{match[2]} = get_ipython()" if match[2] else ""


def _blank(match: re.Match[str]) -> str:
    indent, target, lines = match[1], match[2], match[0].count("\n")
    return (f"{indent}{target} get_ipython()" if target else f"{indent}pass") + "\n" * lines


def notebook_symbols(file: SourceFile) -> tuple[Symbol, ...]:
    """Return the symbols of a notebook's cells; a cell that does not parse has none."""
    found: list[Symbol] = []
    for cell in file.cells:
        try:
            symbols = parse_symbols(file.path.with_suffix(".py"), cell.text, cell.label)
        except RespondToModel:
            continue
        found += _shifted(symbols, cell.first, file.path)
    return tuple(found)


def _shifted(symbols: Iterable[Symbol], lines: int, path: Path) -> Iterator[Symbol]:
    for each in symbols:
        yield replace(
            each,
            path=path,
            range=each.range.moved(lines),
            selection=each.selection.moved(lines),
            children=tuple(_shifted(each.children, lines, path)),
        )


# -- what is wrong in it --------------------------------------------------------------------------


def without_broken(file: SourceFile) -> tuple[str, list[Diagnostic]]:
    """Return a notebook's code with blank lines for cells that do not parse, and what is wrong.

    In one text with the others they would hide what follows them.
    """
    texts, wrong = [], []
    for cell in file.cells:
        text = cell.text
        try:
            parse_python(text, cell.label)
        except NotPython as error:
            start = Position(cell.first, 0)
            why = f"the cell does not parse: {error.why}"
            wrong.append(Diagnostic(file.path, Range(start, start), "error", why))
            text = "\n" * text.count("\n")
        texts.append(text)
    return _code_of(texts), wrong


def is_mistake(found: Diagnostic, file: SourceFile) -> bool:
    """Return whether a report about a notebook's code holds in a cell too.

    It does not where a cell may do what a file may not: await outside of functions, and end with
    an expression whose value is shown.
    """
    line = found.range.start.line
    if not line:
        return False
    cell = [each for each in file.cells if each.first <= line][-1]
    tree = parse_python(cell.text, cell.label)
    number = line - cell.first + 1
    if found.code in _UNUSED:
        return number < tree.body[-1].lineno
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    around = (
        each for each in ast.walk(tree) if isinstance(each, functions) and each.lineno <= number
    )
    if any(number <= (each.end_lineno or 0) for each in around):
        return True
    return not _AWAITS.match(file.source.line(line)[found.range.start.character :])
