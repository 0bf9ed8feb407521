"""Benchmarks name only what is there: most import late and run seldom, so nothing else tells."""

import ast
from importlib import import_module
from pathlib import Path

import agent_magics

PROGRAMS = sorted((Path(agent_magics.__file__).parent.parent / "benchmarks").rglob("*.py"))


def _imported(program: Path) -> list[tuple[str, str]]:
    """Return the names that a program imports from this package, each with its module."""
    return [
        (node.module, alias.name)
        for node in ast.walk(ast.parse(program.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("agent_magics")
        for alias in node.names
    ]


def test_what_benchmarks_import_is_there():
    names = {each for program in PROGRAMS for each in _imported(program)}
    assert len(names) > 20
    for module, name in names:
        if not hasattr(import_module(module), name):
            import_module(f"{module}.{name}")
