"""What is left in the page and in the file: readable without a kernel, harmless, drawn well."""

import json
from collections.abc import Callable

import nbformat
from playwright.sync_api import expect

from agent_magics.render.blocks.display import VERSION
from agent_magics.render.mime import item_bundle
from tests.support.kernels.cells import AGENTS, scripted
from tests.support.pages.lab import ITEM, NotebookPage

Open = Callable[..., NotebookPage]


CODE = "Call('python', {'code': 'total = 6 * 7\\nprint(total)'})"
PLAN = (
    "Call('update_plan', {'steps': [{'id': '1', 'description': 'Look', 'status': 'completed'},"
    " {'id': '2', 'description': 'Tell', 'status': 'in_progress'}]})"
)
PATCH = (
    "Call('apply_patch', {'patch': '*** Begin Patch\\n*** Add File: made.py\\n+print(1)\\n"
    "*** End Patch'})"
)
FIGURE = (
    "Call('python', {'code': '%matplotlib inline\\nimport matplotlib.pyplot as plt\\n"
    "plt.plot([1, 2]);'})"
)
ANSWER = "The total is **42**.\n\n| what | value |\n| - | -: |\n| n | 42 |"


def test_the_saved_outputs_hold_nothing_that_changes_from_run_to_run(notebook: Open) -> None:
    # What the code added to the namespace is told, so each run begins without it.
    forget = "\nfor name in ('total', 'plt'):\n    globals().pop(name, None)"
    script = scripted(CODE, PLAN, FIGURE, repr(ANSWER)) + forget
    page = notebook([script, "%%agent --approval never\nGo.\n"])
    page.run(0)
    page.run(1)
    page.save()
    first = [dict(output.data) for output in page.lab.read(page.name).cells[1].outputs]
    page.run(0)
    page.run(1)
    second = [dict(output.data) for output in page.save().cells[1].outputs]
    assert json.dumps(first) == json.dumps(second)
    assert all(ITEM in data or "image/png" in data for data in first)


DIAGRAM = """```mermaid
flowchart TD
  A@{ img: "http://127.0.0.1:9/diagram.png", label: "x", w: 60, h: 60 }
```

So $x^2$ and $\\href{http://127.0.0.1:9/formula}{x}$."""


def test_neither_a_diagram_nor_a_formula_leads_elsewhere(notebook: Open) -> None:
    page = notebook([scripted(repr(DIAGRAM)), "%%agent\nGo.\n", ""])
    asked: list[str] = []
    page.page.on("request", lambda request: asked.append(request.url))
    page.run(0)
    page.run(1)
    item = page.outputs(1).first
    expect(item.locator("mjx-container")).to_have_count(1)
    expect(item.locator("code", has_text="href")).to_be_visible()
    expect(item.locator("pre", has_text="flowchart")).to_be_visible()
    expect(item.locator("a")).to_have_count(0)
    assert not [url for url in asked if ":9/" in url]


def test_a_notebook_names_its_conversation_wherever_it_is_moved(
    notebook: Open, reopen: Open
) -> None:
    page = notebook([scripted("'One.'"), "%%agent\nCount.\n", ""])
    page.run(0)
    page.run(1)
    page.wait_for_text(1, "One.")
    conversation = page.value(f"{AGENTS}['default'].session.conversation.id")
    saved = page.save()
    named = [output.metadata.get("agent_magics") for output in saved.cells[1].outputs]
    assert [each for each in named if each] == [named[0]] == [{"conversation": conversation}]
    page.leave()
    # Elsewhere the path in the index finds nothing; what the page reads in the metadata does.
    moved = f"moved_{page.name}"
    page.lab.write(moved, saved.cells)
    again = reopen(moved, anew=False)
    again.wait_for_kernel()
    again.run(0)
    again.wait_for_link()
    again.run(1)
    again.wait_for_text(1, "This notebook has an earlier conversation (Count., 1 turn)")
    again.wait_for_text(1, f"%agent resume {conversation[:8]} goes on with it.")


def test_outputs_that_were_cleared_and_saved_stay_away(notebook: Open, reopen: Open) -> None:
    page = notebook([scripted("'One.'", "'Two.'"), "%%agent\nCount.\n", "%%agent\nOn.\n", ""])
    page.run(0)
    for number, text in ((1, "One."), (2, "Two.")):
        page.run(number)
        page.wait_for_text(number, text)
    page.cell(1).locator(".jp-InputPrompt").click()
    page.page.evaluate("() => window.jupyterapp.commands.execute('notebook:clear-cell-output')")
    expect(page.outputs(1)).to_have_count(0)
    saved = page.save()
    assert not saved.cells[1].outputs and saved.cells[2].outputs
    kept = "get_ipython().magics_manager.registry['AgentMagics'].lab._ended"
    page.wait_until(lambda: page.value(f"len({kept})") == "1")
    page.close()
    # As it was before the run: only the kernel has the outputs of both.
    saved.cells[2].outputs.clear()
    page.lab.write(page.name, saved.cells)
    again = reopen(page.name)
    again.wait_for_text(2, "Two.")  # after all that the page was sent of the cell above
    expect(again.outputs(1)).to_have_count(0)


def test_formulas_are_set_when_they_are_seen(notebook: Open) -> None:
    """MathJax takes milliseconds for each: a thousand at once would hold the page for seconds."""
    text = "\n\n".join(f"{number}: $x^{{{number}}}$" for number in range(400))
    item = {"version": VERSION, "kind": "text", "text": text, "sources": []}
    output = nbformat.v4.new_output("display_data", data=item_bundle(item))
    page = notebook([nbformat.v4.new_code_cell("1", outputs=[output])], kernel=False)
    area = page.area(0)
    expect(area.get_by_text("0: ").first.locator("mjx-container")).to_have_count(1)
    # Also a page ahead of what is seen.
    expect(area.get_by_text("30: ").first.locator("mjx-container")).to_have_count(1)
    last = area.get_by_text("399: ")
    last.scroll_into_view_if_needed()
    expect(last.locator("mjx-container")).to_have_count(1)
    expect(area.get_by_text("200: ").locator("mjx-container")).to_have_count(0)
