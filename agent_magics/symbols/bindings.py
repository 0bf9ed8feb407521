"""Finds the names that a module, class or function of Python binds, in any of the ways there are.

`python_syntax` lists what is defined; this also tells what is imported, caught, or set on `self`.
"""

import ast
from collections.abc import Iterable, Iterator

from agent_magics.symbols.python_syntax import parse_python

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_NAMED = (*_DEFINITIONS, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)


def bound_names(text: str, container: str, shown: str) -> set[str]:
    """Return the names that a scope of Python source binds.

    Args:
        text: the source.
        container: the name path of a class or function; "" for the module, which has also what
            functions declare `global`. Of a class, attributes that its methods set are such names.
        shown: the file's name for the error.

    Raises:
        NotPython: it is not Python of this version.
    """
    tree = parse_python(text, shown)
    scopes: list[ast.AST] = [tree]
    for name in filter(None, container.split("/")):
        inside = (node for scope in scopes for node in _nodes(scope))
        scopes = [each for each in inside if isinstance(each, _DEFINITIONS) and each.name == name]
    found = {name for scope in scopes for node in _nodes(scope) for name in _bound_by(node)}
    if not container:
        declared = (each.names for each in ast.walk(tree) if isinstance(each, ast.Global))
        return found.union(*declared)
    classes = (each for each in scopes if isinstance(each, ast.ClassDef))
    return found.union(*map(_attributes, classes))


def _nodes(scope: ast.AST) -> Iterable[ast.AST]:
    """Return the nodes of a scope, without what is inside the scopes in it."""
    found = list(ast.iter_child_nodes(scope))
    for node in found:  # which grows meanwhile
        if isinstance(node, ast.comprehension):  # its targets are its own
            found += [node.iter, *node.ifs]
        elif not isinstance(node, (*_DEFINITIONS, ast.Lambda)):
            found += ast.iter_child_nodes(node)
    return found


def _bound_by(node: ast.AST) -> Iterator[str]:
    name: str | None = None
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        name = node.id
    elif isinstance(node, ast.alias):
        name = node.asname or node.name.partition(".")[0]
    elif isinstance(node, ast.arg):
        name = node.arg
    elif isinstance(node, ast.MatchMapping):
        name = node.rest
    elif isinstance(node, _NAMED):
        name = node.name
    if name:
        yield name


def _attributes(of: ast.ClassDef) -> Iterator[str]:
    """Yield what the methods of a class set on their first parameter."""
    for method in _nodes(of):
        if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = [each.arg for each in (*method.args.posonlyargs, *method.args.args)][:1]
            for node in ast.walk(method):
                if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store):
                    continue
                if getattr(node.value, "id", "") in first:
                    yield node.attr
