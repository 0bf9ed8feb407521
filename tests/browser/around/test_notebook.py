"""Agents reach the open notebook: they read, insert, edit, run and delete cells, undo included."""

import hashlib
from collections.abc import Callable

import nbformat
from playwright.sync_api import expect

from tests.support.kernels.cells import outputs, scripted
from tests.support.pages.lab import NotebookPage

Open = Callable[..., NotebookPage]


DONE = repr("It is done.")
AGENT = "%%agent\nGo.\n"


def _cell(source: str, name: str, **metadata: object) -> nbformat.NotebookNode:
    return nbformat.v4.new_code_cell(source, id=name, metadata=metadata)


def _version(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()[:8]


def _call(name: str, **arguments: object) -> str:
    return f"Call('notebook_{name}', {arguments!r})"


def _undo(page: NotebookPage) -> None:
    """Press Z in command mode, as a person takes a change of the notebook back."""
    page.page.keyboard.press("Escape")
    page.page.keyboard.press("z")


def test_cells_are_read_inserted_and_deleted_and_each_can_be_undone(notebook: Open) -> None:
    victim = "x = 1\nprint(x)"
    calls = (
        _call("read"),
        _call("insert_cell", source="total = 42", after="data"),
        _call("delete_cell", cell_id="victim", version=_version(victim)),
    )
    cells = [scripted(*calls, DONE), _cell(AGENT, "own"), _cell("data = 1", "data")]
    page = notebook([*cells, _cell(victim, "victim"), ""])
    page.run(0)
    page.start(1)
    question = page.wait_for_question()
    expect(question).to_contain_text("+total = 42")
    expect(question).to_contain_text("every change of the notebook that is open here")
    page.answer("Approve")
    question = page.questions.filter(has_text="-print(x)")
    expect(question).to_be_visible()
    page.answer("Approve")
    page.wait_for_end(1)
    read = page.value(f"{outputs()}[0]")
    assert "[3] code cell data" in read and "your own cell" in read
    page.wait_until(lambda: page.sources()[2:4] == ["data = 1", "total = 42"])
    page.wait_until(lambda: victim not in page.sources())
    _undo(page)
    page.wait_until(lambda: page.sources()[2:5] == ["data = 1", "total = 42", victim])
    _undo(page)
    page.wait_until(lambda: page.sources()[2:4] == ["data = 1", victim])


def test_a_cell_is_edited_and_run_where_it_stands(notebook: Open) -> None:
    before, after = "plot = 1", "print('drawn')\nimport matplotlib.pyplot as plt\nplt.plot([1, 2]);"
    calls = (
        _call("read"),
        _call("edit_cell", cell_id="plot", source=after, version=_version(before)),
        _call("run_cell", cell_id="plot", version=_version(after)),
        _call("read", cell_id="plot"),
    )
    cells = ["%matplotlib inline", _cell(AGENT, "own"), _cell(before, "plot")]
    page = notebook([scripted(*calls, DONE), *cells, ""])
    page.run(0)
    page.run(1)
    page.start(2)
    question = page.wait_for_question()
    expect(question).to_contain_text("+print('drawn')")
    expect(question.locator(".agm-removed")).to_have_text("-plot = 1")
    expect(question.locator(".agm-added")).to_have_count(3)
    page.answer("Approve")
    question = page.questions.filter(has_text="python wants to run")
    expect(question).to_be_visible()
    page.answer("Approve")
    page.wait_for_end(2)
    # Its outputs stand in that cell, and the model was given them.
    expect(page.outputs(3).first).to_have_text("drawn\n")
    expect(page.cell(3).locator("img")).to_have_count(1)
    ran = page.value(f"str({outputs()}[1:])")
    assert "drawn" in ran and "[Cell plot shows this.]" in ran
    assert ran.count("InputImage(") == 2  # by the run, and by reading the cell afterwards
    # Undo in the cell brings its text back.
    page.cell(3).locator(".jp-InputArea-editor").click()
    page.page.keyboard.press("Control+z")
    page.wait_until(lambda: before in page.sources())


def test_what_the_person_types_meanwhile_is_not_overwritten(notebook: Open) -> None:
    calls = (
        _call("edit_cell", cell_id="theirs", source="x = 2", version=_version("x = 1")),
        _call("edit_cell", cell_id="locked", source="x = 2", version=_version("y = 1")),
        _call("edit_cell", cell_id="own", source="x = 2", version=_version(AGENT)),
    )
    cells = [_cell("x = 1", "theirs"), _cell("y = 1", "locked", editable=False)]
    page = notebook([scripted(_call("read"), *calls, DONE), _cell(AGENT, "own"), *cells, ""])
    page.run(0)
    page.start(1)
    page.wait_for_question()
    page.cell(2).locator(".cm-content").click()
    page.page.keyboard.press("End")
    page.page.keyboard.type("  # mine")
    page.answer("Always for this session")
    page.wait_for_end(1)
    stale, locked, own = page.value(f"'|'.join({outputs()}[1:])").split("|")
    assert "has changed since" in stale and "x = 1  # mine" in stale
    assert "protected" in locked
    assert "the cell that you run in" in own
    page.wait_until(lambda: page.sources()[1:4] == [AGENT, "x = 1  # mine", "y = 1"])


def test_a_markdown_cell_of_an_agents_loads_nothing(notebook: Open) -> None:
    own = "![mine](http://127.0.0.1:9/mine.png)\n\nDone: 1."
    remote = "Seen: ![x](http://127.0.0.1:9/?d=SECRET) <img src='http://127.0.0.1:9/'>"
    edited = f"{own[:-2]}2.\n\n{remote}"
    calls = (
        _call("insert_cell", source=remote, kind="markdown"),
        _call("read"),
        _call("edit_cell", cell_id="words", source=edited, version=_version(own)),
    )
    words = nbformat.v4.new_markdown_cell(own, id="words")
    page = notebook([scripted(*calls, DONE), _cell(AGENT, "own"), words, ""])
    asked: list[str] = []
    page.page.on("request", lambda request: asked.append(request.url))
    page.run(0)
    page.start(1)
    page.wait_for_question()
    page.answer("Approve")
    expect(page.questions.filter(has_text="-Done: 1.")).to_be_visible()
    page.answer("Approve")
    page.wait_for_end(1)
    harmless = "Seen: &#33;[x](http://127.0.0.1:9/?d=SECRET) &lt;img src="
    page.wait_until(lambda: page.sources()[2].startswith(harmless))
    # What the person wrote stays as it is.
    changed = f"{own.split(chr(10))[0]}\n\nDone: 2.\n\n{harmless}"
    page.wait_until(lambda: page.sources()[3].startswith(changed))
    assert not [url for url in asked if "SECRET" in url]


def test_a_rewind_restores_cells_and_a_redo_brings_them_again(notebook: Open) -> None:
    old, new, victim, theirs = "a = 1\nprint(a)", "a = 2\nprint(a)", "b = 1", "c = 1"
    calls = (
        _call("read"),
        _call("insert_cell", source="total = 42", after="data"),
        _call("edit_cell", cell_id="data", source=new, version=_version(old)),
        _call("run_cell", cell_id="data", version=_version(new)),
        _call("delete_cell", cell_id="victim", version=_version(victim)),
        _call("edit_cell", cell_id="theirs", source="c = 2", version=_version(theirs)),
    )
    agent = "%%agent --approval never\nGo.\n"
    cells = [_cell(agent, "own"), _cell(old, "data"), _cell(victim, "victim")]
    back, redo = _cell("%agent rewind --yes", "back"), _cell("%agent redo", "redo")
    page = notebook([scripted(*calls, DONE), *cells, _cell(theirs, "theirs"), "", back, redo, ""])
    for number in (0, 2, 3):
        page.run(number)
    expect(page.outputs(2)).to_have_text("1")
    page.run(1)
    after = [agent, new, "total = 42", "c = 2"]
    page.wait_until(lambda: page.sources()[1:5] == after)
    expect(page.outputs(2)).to_have_text("2")
    page.cell(4).locator(".cm-content").click()
    page.page.keyboard.press("End")
    page.page.keyboard.type("  # mine")
    page.run(6)
    page.wait_until(lambda: page.sources()[1:5] == [agent, old, victim, "c = 2  # mine"])
    said = "Cells: b = 1 (back), a = 2 … (2 lines) (text), total = 42 (gone)."
    page.wait_for_text(6, said, "Left alone: the cell c = 2, since you have changed it.")
    expect(page.outputs(2)).to_have_text("1")
    page.run(7)
    page.wait_until(lambda: page.sources()[1:5] == [*after[:3], "c = 2  # mine"])
    page.wait_for_text(7, "Variables: a.", "b = 1 (gone)")
    expect(page.outputs(2)).to_have_text("2")
    assert page.value("a") == "2"
