"""Renames and references by a real language server: a package's tests stay green."""

import json
import random
import subprocess
import sys

import pytest

from agent_magics import Agent, ScriptedModel
from agent_magics.protocol.events import ApprovalRequested, ToolCallUpdated
from agent_magics.symbols.parsing import parse_symbols
from agent_magics.tools import STRUCTURE

pytestmark = [pytest.mark.timeout(300), pytest.mark.soak]

PACKAGE = {
    "shop/__init__.py": "from shop.goods import Basket, Item\n\n__all__ = ['Basket', 'Item']\n",
    "shop/goods.py": '''\
"""Goods, and a basket of them."""

from dataclasses import dataclass, field
from typing import overload

RATE = 0.25
größter = 3


def rounded(value: float, digits: int = 2) -> float:
    return round(value, digits)


@dataclass
class Item:
    title: str
    price: float

    @property
    def taxed(self) -> float:
        """The price with tax."""
        return rounded(self.price * (1 + RATE))


@dataclass
class Basket:
    items: list[Item] = field(default_factory=list)

    def add(self, item: Item) -> "Basket":
        self.items.append(item)
        return self

    def total(self) -> float:
        def one(item: Item) -> float:
            return item.taxed

        return rounded(sum(map(one, self.items)))

    def largest(self) -> list[Item]:
        return sorted(self.items, key=lambda each: each.price)[-größter:]


@overload
def twice(value: int) -> int: ...
@overload
def twice(value: str) -> str: ...
def twice(value):
    return value * 2
''',
    "shop/report.py": """\
from shop import goods
from shop.goods import Basket, twice as double


class Report(dict):
    def lines(self, basket: Basket) -> list[str]:
        return [f"{item.title}: {goods.rounded(item.taxed)} «é»" for item in basket.items]


def write(basket: Basket) -> str:
    return double("\\n").join(Report().lines(basket))
""",
    "test_shop.py": """\
import unittest

from shop import Basket, Item
from shop.goods import größter, twice
from shop.report import write


class TestShop(unittest.TestCase):
    def setUp(self):
        self.basket = Basket().add(Item("Tea", 4.0)).add(Item("Cup", 8.0))

    def test_total(self):
        self.assertEqual(self.basket.total(), 15.0)
        self.assertEqual(len(self.basket.largest()), min(2, größter))

    def test_report(self):
        self.assertEqual(write(self.basket), "Tea: 5.0 «é»\\n\\nCup: 10.0 «é»")
        self.assertEqual(twice(4), 8)


if __name__ == "__main__":
    unittest.main()
""",
}


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "work"
    for name, text in PACKAGE.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8", newline="\r\n" if "report" in name else "\n")
    return folder


@pytest.fixture
def agent(work):
    options = {"cwd": work, "approval": "never", "sandbox": "danger-full-access"}
    with Agent(ScriptedModel([]), list(STRUCTURE), **options) as agent:
        yield agent


def is_green(work) -> bool:
    command = [sys.executable, "-B", "test_shop.py"]
    return subprocess.run(command, cwd=work, capture_output=True).returncode == 0


def names(work):
    """Return (path, name path) of all symbols of the package that are told apart by name."""
    found = []

    def walk(path, symbols, above):
        for each in symbols:
            name = f"{above}{each.name}"
            if sum(other.name == each.name for other in symbols) == 1:
                if not each.name.startswith("__"):
                    found.append((path, name))
                walk(path, each.children, f"{name}/")

    for path in sorted(work.rglob("shop/*.py")):
        tree = parse_symbols(path, path.read_text("utf-8"), path.name)
        walk(path.relative_to(work), tree, "")
    return found


def told(agent, tool, **arguments):
    output = agent.call_sync(tool, arguments)
    assert output.success, output.text
    return output.text


def test_renaming_leaves_the_tests_green(agent, work):
    assert is_green(work)
    before = {p: p.read_bytes() for p in work.rglob("*.py")}
    drawn = names(work)
    random.Random(18).shuffle(drawn)
    for number, (path, name) in enumerate(drawn):
        new = f"ernannt_{number}"
        old = name.rpartition("/")[2]
        told(agent, "edit_symbol", name_path=name, path=str(path), action="rename", text=new)
        assert new in (work / path).read_text("utf-8"), name
        assert is_green(work), f"{name} of {path}"
        found = name.rpartition("/")[0]
        back = f"{found}/{new}" if found else new
        told(agent, "edit_symbol", name_path=back, path=str(path), action="rename", text=old)
        assert {p: p.read_bytes() for p in work.rglob("*.py")} == before, f"{name} and back"
    assert len(drawn) >= 15


def test_a_rename_that_one_file_refuses_changes_none(agent, work):
    before = {p: p.read_bytes() for p in work.rglob("*.py")}
    (work / "shop" / "report.py").chmod(0o444)  # which policy "never" refuses to write
    arguments = {"name_path": "rounded", "path": "shop", "action": "rename", "text": "rund"}
    output = agent.call_sync("edit_symbol", arguments)
    assert not output.success and "read-only" in output.text
    assert {p: p.read_bytes() for p in work.rglob("*.py")} == before


def test_a_rename_takes_overrides_along_and_names_what_the_server_does_not_know(agent, work):
    (work / "shop" / "cards.py").write_text(
        "from unittest.mock import patch\n\nfrom shop.report import Report\n\n\n"
        "class Card(Report):\n    def lines(self, basket):\n        return []\n\n\n"
        "def show(any, basket):\n    any.lines(basket)\n    Card().lines(basket)\n"
        "    with patch('shop.report.Report.lines'), patch.object(Report, 'lines'):\n"
        "        open('x').lines = basket\n"
        "    return getattr(any, 'lines'), 'of shop.report.Report.lines'\n"
    )
    arguments = {"name_path": "Report/lines", "path": "shop/report.py", "text": "rows"}
    text = told(agent, "edit_symbol", action="rename", **arguments)
    assert "what lines is in shop/cards.py:12,15,16: edit" in text
    found = (work / "shop" / "cards.py").read_text()
    assert "def rows(" in found and "Card().rows(" in found and "any.lines(" in found
    assert "patch('shop.report.Report.rows'), patch.object(Report, 'rows')" in found


def test_what_a_rename_leaves_is_shown_before_its_question(work):
    class Watching:
        def on_event(self, event):
            if isinstance(event, (ToolCallUpdated, ApprovalRequested)):
                seen.append(event)

    seen = []
    (work / "shop" / "cards.py").write_text("def show(any):\n    any.lines()\n")
    arguments = {"name_path": "Report/lines", "path": "shop/report.py", "text": "rows"}
    options = {"approval": "untrusted", "on_question": lambda question: "deny"}
    with Agent(
        ScriptedModel([]), list(STRUCTURE), cwd=work, hooks=[Watching()], **options
    ) as agent:
        assert not agent.call_sync("edit_symbol", {"action": "rename", **arguments}).success
    told, asked = seen
    assert "what lines is in shop/cards.py:2: edit" in told.title
    assert "+    def rows(" in asked.arguments


def test_a_rename_changes_texts_that_name_the_module(agent, work):
    (work / "shop" / "more.py").write_text(
        "import shop.report\nfrom unittest.mock import patch\n\nfrom shop.report import Report\n\n"
        "a = patch('shop.report.Report'), patch('shop.more.Report.lines'), 'shop.none.Report'\n"
        'b = getattr(shop.report, "Report"), getattr(shop, "Report", Report)\n'
    )
    arguments = {"name_path": "Report", "path": "shop/report.py", "text": "Table"}
    text = told(agent, "edit_symbol", action="rename", **arguments)
    found = (work / "shop" / "more.py").read_text().split("\n")
    assert found[5] == (
        "a = patch('shop.report.Table'), patch('shop.more.Table.lines'), 'shop.none.Report'"
    )
    assert found[6] == 'b = getattr(shop.report, "Table"), getattr(shop, "Report", Table)'
    assert "what Report is in shop/more.py:6,7: edit" in text


CELLS = {
    "%matplotlib inline\nfiles = !ls\nfiles[0].strip()": (),
    "async def f(x: int) -> int:\n    return x\n\nawait f(1)\n1 + 1\nf": (
        "5: warning: Expression",
    ),
    "def h():\n    await f(2)\n\nawait f('a')": ('2: error: "await" allowed', "4: error: Argument"),
    "broken (((": ("1: error: the cell does not parse: line 1: '(' was never closed",),
    "display(_, __, In[1], Out)\nget_ipython().magic('x')\nh": (),
    "%%capture held\nprint(1)": (),
    "held.show()\nmissing": ('2: error: "missing" is not defined',),
    "%%agent\nDo not parse ((": (),
}


def test_errors_of_a_notebook_are_those_of_its_cells(agent, work):
    cells = [
        {"cell_type": "code", "id": f"c{number}", "source": text, "metadata": {}}
        for number, text in enumerate(CELLS, 1)
    ]
    (work / "nb.ipynb").write_text(json.dumps({"cells": cells}))
    (work / "none.ipynb").write_text(json.dumps({"cells": []}))
    lines = told(agent, "diagnostics", paths=["nb.ipynb"]).split("\n")
    wanted = [
        f"nb.ipynb:cell {n} (c{n}):{e}" for n, each in enumerate(CELLS.values(), 1) for e in each
    ]
    assert [line[: len(each)] for line, each in zip(lines, wanted, strict=True)] == wanted
    assert told(agent, "diagnostics", paths=["none.ipynb"]).startswith("No errors")
    assert "f is used in 4 places" in told(agent, "references", name_path="f", path="nb.ipynb")


def test_who_uses_and_calls_what(agent):
    uses = told(agent, "references", name_path="rounded")
    assert "shop/report.py:7: return [f" in uses and "shop/goods.py:22:" in uses
    calls = told(agent, "call_graph", name_path="Item/taxed", path="shop/goods.py")
    assert "Item/taxed" in calls
    calls = told(agent, "call_graph", name_path="write", direction="callees")
    assert "lines" in calls
    place = told(agent, "definition", name="taxed", path="shop/report.py", line=7)
    assert "shop/goods.py:20: def taxed(self) -> float:" in place and "float" in place
    assert told(agent, "diagnostics", paths=["shop/goods.py"]).startswith("No errors")
