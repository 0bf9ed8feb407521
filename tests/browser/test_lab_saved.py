"""What is left in the page and in the file: readable without a kernel, harmless, drawn well."""

import json
import re
from collections.abc import Callable

import nbformat
import pytest
from playwright.sync_api import expect

from agent_magics.render.blocks.display import VERSION
from agent_magics.render.mime import item_bundle
from tests.support.kernels.cells import AGENTS, scripted
from tests.support.lab import ITEM, NotebookPage, items_of

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
RIGHT = re.compile("right$")
ANSWER = "The total is **42**.\n\n| what | value |\n| - | -: |\n| n | 42 |"

# Whatever of it came through would set `window.pwned`, ask the network for `pwned`, or be found.
ATTACK = """Look:

<script>window.pwned = 1</script>
<img src="x" onerror="window.pwned = 2">
<button data-commandlinker-command="notebook:run-all-cells" class="evil">Approve</button>
<div class="evil" style="position:fixed;inset:0;background:red">over all</div>
<iframe class="evil" srcdoc="<script>parent.pwned = 3</script>"></iframe>
<style>.agm-question { display: none }</style>
<svg class="evil" onload="window.pwned = 4"></svg>
[a link](javascript:window.pwned=5) and [another](<java&#115;cript:window.pwned=6>)
![remote](http://127.0.0.1:9/pwned.png)
![there][ref]

[ref]: http://127.0.0.1:9/pwned-too.png

`</code><img src=x onerror=window.pwned=7>`

```html
</code></pre><img src="x" onerror="window.pwned = 8">
```
"""


EVIL = (
    ".evil, script, style, iframe, [onerror], [onload], [data-commandlinker-command], "
    "a[href^='javascript' i], img[src^='http']"
)


def _finished(notebook: Open) -> NotebookPage:
    script = scripted(f"['I look.', {CODE}]", PLAN, FIGURE, PATCH, repr(ANSWER))
    page = notebook([script, "%%agent --approval never --tools data coding\nGo.\n", ""])
    page.run(0)
    page.run(1)
    page.save()
    return page


@pytest.mark.parametrize("extension", ["with", "without"])
def test_a_saved_notebook_is_read_without_a_kernel(
    notebook: Open, reopen: Open, extension: str
) -> None:
    page = _finished(notebook)
    page.close()
    page.lab.shut_down_kernels()
    again = reopen(page.name, without="" if extension == "with" else "agent-magics")
    expect(again.outputs(1).last).to_contain_text("made.py")
    expect(again.outputs(1).nth(-2)).to_contain_text("The total is 42.")
    words, number = again.cell(1).locator("td").all()
    expect(number).to_have_css("text-align", RIGHT)
    expect(words).not_to_have_css("text-align", RIGHT)
    again.wait_for_text(1, "I look.", "print(total)", "42", "Look", "Tell", "+print(1)", "value")
    expect(again.cell(1).locator("img")).to_have_count(1)
    expect(again.cards(1)).to_have_count(3 if extension == "with" else 0)
    expect(again.area(1)).not_to_contain_text("Error")


# What a model writes, and how many formulas stand in it.
FORMULAS = [
    ("costs $5 and $7", 0),
    ("US$5\nand US$7, from $1,000 to $2,000", 0),
    ("`$a$` and ($5-$7)", 0),
    (r"so $$\left\|x\right\| \le 1,\, y$$ there", 1),
    ("found $p < 0.01$ and $q > 0.05$", 2),
    (r"$\{1, 2\}$ and $a\;b\%$", 2),
    ("$$\n\\begin{aligned}\na &= b \\\\\n&= c\n\\end{aligned}\n$$", 1),
    ("- $x_1 * y_1$\n- $x_2$, for $5", 2),
    ("| a | b |\n|-|-|\n| $\\|x\\|$ | $5 and $6 |", 1),
]


@pytest.mark.parametrize("extension", ["with", "without"])
def test_formulas_are_set_and_prices_are_not(notebook: Open, extension: str) -> None:
    cells = []
    for text, _ in FORMULAS:
        data = item_bundle({"version": VERSION, "kind": "text", "text": text})
        output = nbformat.v4.new_output("display_data", data=data)
        cells.append(nbformat.v4.new_code_cell("", outputs=[output]))
    page = notebook(cells, without="" if extension == "with" else "agent-magics", kernel=False)
    formulas = [page.area(number).locator("mjx-container") for number in range(len(FORMULAS))]
    for number, (text, count) in enumerate(FORMULAS):
        if "$5" in text:
            page.wait_for_text(number, "$")
        expect(formulas[number]).to_have_count(count)
    for number, (text, count) in enumerate(FORMULAS):  # now all are drawn
        expect(formulas[number]).to_have_count(count)
        expect(page.area(number).locator("mjx-merror")).to_have_count(0)
        if "$5" not in text:
            expect(page.area(number)).not_to_contain_text("$", use_inner_text=True)


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


@pytest.mark.parametrize("extension", ["with", "without"])
def test_hostile_text_does_nothing(notebook: Open, extension: str) -> None:
    code = f"print({ATTACK!r})\nfrom IPython.display import HTML\nHTML({ATTACK!r})"
    call = f"Call('python', {{'code': {code!r}}})"
    step = f"{{'id': '1', 'description': {ATTACK!r}, 'status': 'pending'}}"
    plan = f"Call('update_plan', {{'steps': [{step}]}})"
    asked = f"Call('shell', {{'command': ['rm', '-rf', {ATTACK!r}]}})"
    turn = f"[{ATTACK!r}, {call}]", plan, asked, repr(ATTACK)
    # (Under "on-request" the command would run in the sandbox, unasked.)
    cells = [scripted(*turn), "%%agent --approval untrusted\nGo.\n", ""]
    page = notebook(cells, without="" if extension == "with" else "agent-magics")
    asked_for: list[str] = []
    page.page.on("request", lambda request: asked_for.append(request.url))
    page.run(0)
    page.start(1)
    page.answer("Approve")
    question = page.questions.filter(has_text="rm -rf")
    expect(question.get_by_role("button", name="Deny", exact=True)).to_be_visible()
    _is_harmless(page, asked_for)
    question.get_by_role("button", name="Deny", exact=True).click()
    page.wait_for_end(1)
    expect(page.outputs(1).last).to_contain_text("Look:")
    _is_harmless(page, asked_for)
    assert len(items_of(page.save().cells[1])) == 5


def _is_harmless(page: NotebookPage, asked_for: list[str]) -> None:
    area = page.cell(1).locator(".jp-Cell-outputArea")
    # Looked at once: what is not there now would do harm in the moment in which it is.
    assert area.evaluate("(area, evil) => area.querySelectorAll(evil).length", EVIL) == 0
    for link in area.locator("a").all():
        link.click(no_wait_after=True, modifiers=["Alt"])
    assert page.page.evaluate("window.pwned") is None
    assert [url for url in asked_for if "pwned" in url] == []


def test_a_front_end_without_widgets_is_asked_by_typing(notebook: Open) -> None:
    cells = [scripted(CODE, repr(ANSWER)), "%%agent\nGo.\n", ""]
    page = notebook(cells, without="@jupyter-widgets/jupyterlab-manager")
    page.run(0)
    page.start(1)
    page.cell(1).locator(".jp-Stdin-input").fill("y")
    page.page.keyboard.press("Enter")
    page.wait_for_end(1)
    expect(page.cards(1)).to_have_count(1)
    assert page.value("total") == "42"


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
