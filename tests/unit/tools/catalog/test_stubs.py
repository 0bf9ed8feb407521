"""Tools as code sees them: a line each, with what a caller has to know."""

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from agent_magics import tool
from agent_magics.dispatch.context import ToolContext
from agent_magics.protocol.tools import ConfiguredToolSpec
from agent_magics.tools import python, read_file, shell
from agent_magics.tools.catalog.stubs import call_signature, list_stubs, stub_of, with_stubs


def plain(a: int, b: str = "x", *, flag: bool = False) -> list[int]: ...


def with_context(path: Path, ctx: ToolContext, mode: Literal["r", "w"] = "r") -> "Path | None": ...


def bare(a, b=None, **rest): ...


def many(a: int, b: int, c: int, d: int, e: int, f: int, g: int = 1) -> None: ...


def long_default(a: str = "x" * 100, b: Annotated[int, "words"] = 1) -> dict[str, Any]: ...


@pytest.mark.parametrize(
    ("fn", "stub"),
    [
        (plain, "f(a: int, b: str = 'x', *, flag: bool = False) -> list[int]"),
        (with_context, "f(path: Path, mode: Literal['r', 'w'] = 'r') -> Path | None"),
        (bare, "f(a, b = None, **rest)"),
        (many, "f(a: int, b: int, c: int, d: int, e: int, f: int, ...) -> None"),
        (long_default, "f(a: str = ..., b: Annotated[int, 'words'] = 1) -> dict[str, Any]"),
        (shell, "f(...) -> CommandResult"),
    ],
)
def test_stub(fn, stub):
    assert stub_of("f", fn) == stub


def test_the_context_is_no_parameter_of_a_caller():
    assert list(call_signature(with_context).parameters) == ["path", "mode"]


def test_names_that_are_no_python_names_are_left_out():
    assert list_stubs([("a-b", plain), ("c", bare)]) == "c(a, b = None, **rest)"


def test_only_python_is_told_and_not_of_itself():
    @tool
    def own(x: int) -> int:
        """Own."""

    specs = [ConfiguredToolSpec(each.spec, True) for each in (read_file, python, own)]
    functions = {"read_file": read_file, "python": python, "own": own}
    first, told, last = with_stubs(specs, functions)
    assert (first, last) == (specs[0], specs[2])
    assert told.spec.description.startswith(python.spec.description)
    assert told.spec.description.endswith("\nown(x: int) -> int")
    assert "\npython(" not in told.spec.description
    assert told.spec.parameters == python.spec.parameters
    assert with_stubs(specs[1:2], {"python": python}) == (specs[1],)
