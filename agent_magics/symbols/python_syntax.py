"""Finds the symbols of Python source with the interpreter's own parser, which runs none of it."""

import ast
import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from agent_magics.protocol.errors import RespondToModel, short_message
from agent_magics.symbols.text import SourceText, one_line
from agent_magics.symbols.types import Symbol

_Def: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_HEAD = re.compile(r"(?:async[\s\\]+)?(?:def|class)[\s\\]+(\w+)")
_LONGEST_DETAIL = 200  # characters
_MOST_TRIES = 5
_PROPERTIES = ("property", "cached_property", "setter", "deleter", "getter")


class NotPython(RespondToModel):
    """A text is no Python of this version; `why` tells the line and what is wrong there."""

    def __init__(self, shown: str, why: str) -> None:
        super().__init__(f"{shown} is no Python that can be parsed ({why}); use read_file.")
        self.why = why


def parse_python(text: str, shown: str) -> ast.Module:
    """Parse Python source.

    Args:
        text: the source.
        shown: the file's name for the error.

    Raises:
        NotPython: it is not Python of this version; the sentence names the line.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as "\\d" in a string
            return _tree_of(text)
    except SyntaxError as error:
        why = f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError, SystemError) as error:
        why = short_message(error)  # a NUL; nesting beyond the parser
    raise NotPython(shown, why)


def _tree_of(text: str) -> ast.Module:
    """Parse a text; again where Python 3.11 failed as another thread parsed too (gh-106905)."""
    for _ in range(_MOST_TRIES - 1):
        with suppress(SystemError):
            return ast.parse(text)
    return ast.parse(text)


def python_symbols(path: Path, source: SourceText, shown: str) -> tuple[Symbol, ...]:
    """Return the symbols of Python source as a tree, in the order of the text.

    These are classes, functions, and the variables of modules and classes; of a variable that is
    assigned several times, the first time.

    Raises:
        RespondToModel: it is not Python of this version.
    """
    return _SyntaxTreeReader(path, source).read(parse_python(source.text, shown).body, "", "module")


class _SyntaxTreeReader:
    """Makes symbols of syntax trees of one text."""

    def __init__(self, path: Path, source: SourceText) -> None:
        self._path, self._source = path, source

    def read(self, body: Iterable[ast.stmt], container: str, scope: str) -> tuple[Symbol, ...]:
        """Return the symbols of statements; `scope` is "module", "class" or "function"."""
        found: list[Symbol] = []
        variables: set[str] = set()
        for statement in _flat(body):
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.append(self._definition(statement, container, scope))
            elif scope != "function":
                for name in _assigned(statement):
                    if name.id not in variables:
                        variables.add(name.id)
                        found.append(self._variable(name, statement, container, scope))
        return tuple(found)

    def _definition(self, node: _Def, container: str, scope: str) -> Symbol:
        source = self._source
        start, end = self._start(node), self._end(node)
        first = start
        if node.decorator_list:  # the tree has no place for the sign in front
            first = source.text.rindex("@", 0, self._start(node.decorator_list[0]))
        head = _HEAD.match(source.text, start)
        selection = head.span(1) if head else (start, start)
        is_class = isinstance(node, ast.ClassDef)
        within = f"{container}/{node.name}" if container else node.name
        return Symbol(
            node.name,
            "class" if is_class else _kind_of_function(node, scope),
            self._path,
            source.range(first, end),
            source.range(*selection),
            self.read(node.body, within, "class" if is_class else "function"),
            self._detail(node, selection[1]),
            container,
        )

    def _variable(self, name: ast.Name, statement: ast.stmt, container: str, scope: str) -> Symbol:
        kind = "constant" if name.id.isupper() else "field" if scope == "class" else "variable"
        detail = ""
        if isinstance(statement, ast.AnnAssign):
            annotation = statement.annotation
            detail = f": {self._part(self._start(annotation), self._end(annotation))}"
        whole = self._source.range(self._start(statement), self._end(statement))
        place = self._source.range(self._start(name), self._end(name))
        return Symbol(name.id, kind, self._path, whole, place, (), detail, container)

    def _detail(self, node: _Def, after_name: int) -> str:
        """Return the header behind the name: parameters and what is returned, or the bases."""
        parts: list[ast.expr | ast.arg | ast.keyword]
        returns: ast.expr | None = None
        if isinstance(node, ast.ClassDef):
            parts = [*node.bases, *node.keywords]
            if not parts:
                return ""
        else:
            given, returns = node.args, node.returns
            stars = [each for each in (given.vararg, given.kwarg) if each is not None]
            defaults = [each for each in given.kw_defaults if each is not None]
            parts = [*given.posonlyargs, *given.args, *given.kwonlyargs, *stars]
            parts += [*given.defaults, *defaults]
        last = max((self._end(part) for part in parts), default=after_name)
        end = self._source.text.find(")", last) + 1
        if returns is not None:
            end = self._end(returns)
        return self._part(after_name, end)

    def _part(self, start: int, end: int) -> str:
        joined = one_line(self._source.text[start:end], _LONGEST_DETAIL)
        return joined.replace("( ", "(").replace(" )", ")")

    def _start(self, node: ast.stmt | ast.expr) -> int:
        return self._source.offset_of_bytes(node.lineno - 1, node.col_offset)

    def _end(self, node: ast.stmt | ast.expr | ast.arg | ast.keyword) -> int:
        line, column = node.end_lineno or 1, node.end_col_offset or 0
        return self._source.offset_of_bytes(line - 1, column)


def _kind_of_function(node: _Def, scope: str) -> str:
    if scope != "class":
        return "function"
    for each in node.decorator_list:
        name = each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "")
        if name in _PROPERTIES:
            return "property"
    return "method"


def _flat(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, with those in the branches of `if`, `try`, `with` and loops."""
    waiting = [*body][::-1]
    while waiting:  # no recursion: a chain of a thousand `elif` is as deep
        statement = waiting.pop()
        yield statement
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        inner: list[ast.stmt] = []
        for name in ("body", "handlers", "cases", "orelse", "finalbody"):
            for part in getattr(statement, name, ()):
                inner += [part] if isinstance(part, ast.stmt) else part.body  # of an `except`
        waiting += reversed(inner)


def _assigned(statement: ast.stmt) -> Iterator[ast.Name]:
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    else:
        alias = getattr(statement, "name", None)  # `type X = ...`, of Python 3.12
        targets = [alias] if isinstance(alias, ast.Name) else []
    for node in chain.from_iterable(map(ast.walk, targets)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node
