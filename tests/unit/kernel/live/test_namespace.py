"""What stands in a prompt for `{{expression}}`."""

import ast
from typing import Any

import pytest

from agent_magics import tool
from agent_magics.kernel.live.namespace import interpolate, own_tools
from agent_magics.kernel.live.tools import AwaitedTools


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("None", "None"),
        ("{}.get('a')", "None"),
        ("[None]", "[null]"),
        ("''", ""),
        ("'  a  '", "  a  "),
        ("False", "false"),
    ],
)
def test_a_value_reads_as_itself_and_not_as_what_a_tool_has_done(
    expression: str, text: str
) -> None:
    assert interpolate(f"<{{{{{expression}}}}}>", {}) == f"<{text}>"


def test_own_tools_are_found_beside_what_is_no_name() -> None:
    @tool
    def mine() -> str:
        """Do nothing."""
        return ""

    namespace: dict[Any, Any] = {5: mine, "_mine": mine}
    assert own_tools(namespace) == []
    assert own_tools({**namespace, "mine": mine}) == [mine]


@pytest.mark.parametrize(
    ("code", "rewritten"),
    [
        ("await wait(1)", True),
        ("from asyncio import wait\nawait wait([1])", False),
        ("async def wait(x): pass\nawait wait(1)", False),
        ("wait = other\nawait wait(1)", False),
        ("async def main():\n    await wait(1)", True),
    ],
)
def test_an_awaited_name_is_a_tool_unless_the_code_binds_it(code, rewritten, monkeypatch):
    monkeypatch.setattr("agent_magics.kernel.live.tools.is_of_person", lambda: False)
    tree = AwaitedTools(frozenset({"wait"})).visit(ast.parse(code))
    assert (".aio(" in ast.unparse(tree)) is rewritten


def test_a_cell_of_the_person_is_not_rewritten():
    tree = AwaitedTools(frozenset({"wait"})).visit(ast.parse("await wait(1)"))
    assert ast.unparse(tree) == "await wait(1)"
