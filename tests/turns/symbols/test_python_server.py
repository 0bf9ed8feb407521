"""The symbol tools with basedpyright: notebooks, changes of files in any order, new errors."""

import json

import pytest

from agent_magics import Agent, ScriptedModel
from agent_magics.tools import STRUCTURE

pytestmark = pytest.mark.timeout(300)

CELLS = [
    "%matplotlib inline\nfrom goods import price\n\n\ndef total(of):\n    return price(of)",
    "%%agent\nprice(1)",
    "'ü𝕏'; total(price(2))",
]


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def agent(work):
    options = {"cwd": work, "approval": "never", "sandbox": "danger-full-access"}
    with Agent(ScriptedModel([]), [*STRUCTURE, "write_file", "shell"], **options) as agent:
        yield agent


def told(agent, tool, **arguments):
    output = agent.call_sync(tool, arguments)
    assert output.success, output.text
    return output.text


def write_notebook(path, cells):
    made = [
        {"cell_type": "code", "id": f"c{n}", "source": text, "metadata": {}, "outputs": []}
        for n, text in enumerate(cells)
    ]
    path.write_text(json.dumps({"cells": made, "nbformat": 4, "nbformat_minor": 5}), "utf-8")


@pytest.fixture
def shop(work):
    (work / "goods.py").write_text("def price(of):\n    return of\n\n\nx = price(3)\n")
    (work / "other.ipynb").write_text("{}")
    write_notebook(work / "nb.ipynb", CELLS)
    yield work
    for name in ("goods.py", "other.ipynb", "nb.ipynb"):
        (work / name).unlink()


@pytest.mark.soak
def test_notebooks_use_and_call_what_files_define(agent, shop):
    assert told(agent, "references", name_path="price").split("\n") == [
        "goods.py:1-2 price is used in 4 places of 2 files:",
        "goods.py:5: x = price(3)",
        "nb.ipynb:cell 1 (c0):2: from goods import price",
        "nb.ipynb:cell 1 (c0):6: return price(of)",
        "nb.ipynb:cell 3 (c2):1: 'ü𝕏'; total(price(2))",
    ]
    calls = told(agent, "call_graph", name_path="price", depth=2)
    assert "  nb.ipynb:cell 1 (c0):5 total (called in cell 1 (c0):6)" in calls.split("\n")
    assert "  nb.ipynb:cell 1 (c0):1 (module) nb.ipynb (called in cell 3 (c2):1)" in calls
    calls = told(agent, "call_graph", name_path="total", path="nb.ipynb", direction="callees")
    assert calls.endswith("\n  goods.py:1 price (called in cell 1 (c0):6)")


def test_what_a_notebook_defines_is_found_in_it_as_it_now_is(agent, shop):
    arguments = {"name_path": "total", "path": "nb.ipynb"}
    assert "1 place of 1 file:\nnb.ipynb:cell 3 (c2):1: " in told(agent, "references", **arguments)
    assert "(of)" in told(agent, "definition", name="total", path="nb.ipynb")
    write_notebook(shop / "nb.ipynb", ["total = 1", *CELLS[:1], "total(1)\ntotal(2)"])
    found = told(agent, "references", name_path="total[2]", path="nb.ipynb")
    assert found.endswith("nb.ipynb:cell 3 (c2):1: total(1)\nnb.ipynb:cell 3 (c2):2: total(2)")


def test_a_rename_names_what_notebooks_still_call_it(agent, shop):
    before = (shop / "nb.ipynb").read_bytes()
    found = told(agent, "edit_symbol", name_path="price", action="rename", text="cost")
    assert "Renamed price to cost in 2 places of 1 file." in found
    assert "still has the old name: nb.ipynb cell 1 (c0):2; nb.ipynb cell 1 (c0):6" in found
    assert (shop / "nb.ipynb").read_bytes() == before


def test_that_not_all_notebooks_were_looked_into_is_told(agent, shop, monkeypatch):
    arguments = {"name_path": "price"}
    rename = {**arguments, "action": "rename", "text": "cost"}
    for most, is_told in ((1, True), (2, False)):
        monkeypatch.setattr("agent_magics.tools.structure.notebooks.MOST_NOTEBOOKS", most)
        note = f"Only {most} of the notebooks with this name were looked into."
        assert (note in told(agent, "references", **arguments)) is is_told
        assert (note in told(agent, "call_graph", **arguments)) is is_told
        assert (note in told(agent, "edit_symbol", **rename)) is is_told
        told(agent, "edit_symbol", **rename | {"name_path": "cost", "text": "price"})


@pytest.mark.soak
def test_an_edit_names_its_new_errors_alone_and_at_most_twenty(agent, work, monkeypatch):
    monkeypatch.setattr("agent_magics.symbols.servers.edit_checks.BEFORE_LIMIT", 60.0)
    monkeypatch.setattr("agent_magics.symbols.servers.edit_checks.AFTER_LIMIT", 60.0)
    path = work / "late.py"
    path.write_text("old = nothing\n")
    told(agent, "diagnostics", paths=["late.py"])
    text = "import os\n1\nold = nothing\nnew: int = 'x'\n"
    found = told(agent, "write_file", path="late.py", content=text).partition("Errors since")
    assert found[2].startswith(" this edit:\nlate.py:4:12: Type")
    assert found[2].count("late.py:") == 1  # neither warnings nor what was wrong before
    found = told(agent, "write_file", path="late.py", content=text + "gone()\n" * 30)
    assert found.count("late.py:") == 20 and found.rstrip().endswith("(10 more)")
    path.unlink()
