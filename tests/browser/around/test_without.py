"""The page with and without an extension: what a front end shows that lacks ours, or widgets.

Those that lack one come last, and by what they lack, since JupyterLab is loaded anew for each
change; no other file comes after this one.
"""

import re
from collections.abc import Callable

import nbformat
import pytest
from playwright.sync_api import expect

from agent_magics.render.blocks.display import VERSION
from agent_magics.render.mime import item_bundle
from tests.browser.saved.test_saved import ANSWER, CODE, FIGURE, PATCH, PLAN
from tests.support.kernels.cells import scripted
from tests.support.pages.lab import NotebookPage, items_of

Open = Callable[..., NotebookPage]

AGENT = "%%agent\nGo.\n"
RIGHT = re.compile("right$")

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


CALL = {
    "version": VERSION,
    "kind": "tool",
    "name": "shell",
    "title": "ls",
    "arguments": "{}",
    "language": "bash",
    "output": "a",
    "status": "completed",
    "exit_code": 0,
    "note": "",
    "diff": "",
}
GROUP = {"version": VERSION, "kind": "group", "title": "2 commands", "items": [CALL, CALL]}


@pytest.mark.parametrize("lacking", ["agent-magics"], ids=["without"])
def test_calls_unfold(notebook: Open, lacking: str) -> None:
    output = nbformat.v4.new_output("display_data", data=item_bundle(GROUP))
    cell = nbformat.v4.new_code_cell("", outputs=[output])
    page = notebook([cell], without=lacking, kernel=False)
    folds = page.cell(0).locator("details", has=page.page.locator("summary"))
    expect(folds.first).to_be_visible()
    expect(folds.first.locator("strong").first).not_to_be_visible()
    folds.first.locator("> summary").click()
    expect(folds.first.locator("strong").first).to_be_visible()


@pytest.mark.parametrize("lacking", ["@jupyter-widgets/jupyterlab-manager"], ids=["without"])
def test_a_question_is_answered_by_typing(notebook: Open, lacking: str) -> None:
    limited = "from agent_magics.kernel.questions import ways\nways.DRAWN_LIMIT = 3.0\n"
    cells = [limited + scripted(CODE, repr(ANSWER)), AGENT, ""]
    page = notebook(cells, without=lacking)
    page.run(0)
    page.start(1)
    page.cell(1).locator(".jp-Stdin-input").fill("y")
    page.page.keyboard.press("Enter")
    page.wait_for_end(1)
    expect(page.cards(1)).to_have_count(1)
    assert page.value("total") == "42"


@pytest.mark.parametrize("lacking", ["agent-magics:link"], ids=["without"])
def test_a_question_outlives_a_reload(notebook: Open, lacking: str) -> None:
    cells = [scripted(CODE, repr("It is done.")), AGENT, "%agent show", ""]
    page = notebook(cells, without=lacking)
    page.run(0)
    page.start(1)
    page.wait_for_question()
    page.save()
    page.reload()
    page.answer("Approve")
    # JupyterLab itself gives what comes after a reload to no cell; %agent show gives it to this.
    assert page.value("total") == "42"
    page.run(2)
    expect(page.cards(2)).to_have_count(1)
    expect(page.outputs(2).last).to_contain_text("It is done.")
