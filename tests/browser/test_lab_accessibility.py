"""What we draw can be read by all: axe-core finds nothing serious in it, in either theme."""

import re
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import expect

from tests.browser.test_lab_saved import CODE, FIGURE, PATCH, PLAN
from tests.support.kernels.cells import scripted
from tests.support.lab import ITEM, Lab, NotebookPage

Open = Callable[..., NotebookPage]

pytestmark = pytest.mark.needs("labextension")

THEMES = pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
AXE = Path(__file__).parents[2] / "labextension/node_modules/axe-core/axe.min.js"
OURS = [".am-item", ".am-mark", ".agm-question", ".agm-live"]
FOUND = """async ours => {
  // JupyterLab's body has no height, so that axe would take all in it for hidden.
  document.body.style.overflow = 'visible';
  const include = ours.filter(one => document.querySelector(one)).map(one => [one]);
  const { passes, violations } = await axe.run({ include });
  const serious = violations.filter(({ impact }) => ['critical', 'serious'].includes(impact));
  const looked = passes.some(({ id }) => id === 'color-contrast');
  return [looked, serious.map(({ id, nodes }) => [id, ...nodes.map(({ html }) => html)])];
}"""

CODES = [*range(30, 38), *range(90, 98), "38;5;16", "38;5;231", "38;5;46", "38;5;21"]
COLOURS = "printf 'begun " + " ".join(rf"\e[{code}mcolour" for code in CODES) + r"\n'"


def shell(script: str) -> str:
    return f"Call('shell', {{'command': ['bash', '-c', {script!r}]}})"


PYTHON = """@wraps(f)
class A(B):
    'Says.'
    def f(self, x: int = 1) -> None:  # a comment
        return print("s", 2.5, None is x, f"{x!r}", [i for i in x if not i])
"""
ANSWER = f"""It is **42**, by `f`.

| what | value |
| - | -: |
| n | 42 |

```python
{PYTHON}```

> So $p < 0.01$ ![](data:image/gif;base64,R0lGODlhAQABAAAAACw=), [more](https://example.org).
"""
TOOL = {
    "kind": "tool",
    "name": "shell",
    "title": "ls",
    "arguments": "{}",
    "language": "bash",
    "output": "a",
    "exit_code": None,
    "note": "approved by the person",
    "diff": "",
}
DONE = {**TOOL, "status": "completed"}
DIFF = "--- a/x\n+++ b/x\nSLOW_MODEL -1 +1 SLOW_MODEL\n-old\n+new\n"
FILE = {"path": "x", "change": "changed", "added": 1, "removed": 1, "note": "by a command"}
STEPS = [
    {"id": status, "description": status, "status": status}
    for status in ("completed", "in_progress", "pending")
]
ITEMS = [
    {"kind": "text", "text": ANSWER, "sources": [{"title": "Page", "url": "https://example.org"}]},
    {"kind": "reasoning", "text": "It *may* be so.", "left_out": 3},
    *({"kind": "notice", "level": level, "text": "`x`."} for level in ("info", "warning", "error")),
    *({**TOOL, "status": status} for status in ("running", "completed", "failed", "denied")),
    {**TOOL, "kind": "patch", "status": "completed", "diff": DIFF},
    {"kind": "group", "title": "1 command, 1 search", "items": [{**DONE, "version": 1}] * 2},
    {"kind": "changes", "files": [FILE], "diff": DIFF, "runs": ["x runs"], "notes": ["So."]},
    {"kind": "plan", "explanation": "Why.", "steps": STEPS},
    {"kind": "usage", "input_tokens": 9, "output_tokens": 9, "requests": 2, "cost": "$1"},
    {"kind": "picture", "alt": "A picture that is not there"},
    {"kind": "of another version"},
]


def look_at(page: NotebookPage, theme: str) -> list[list[str]]:
    """Return what axe-core finds in our elements with a theme."""
    change = f"window.jupyterapp.commands.execute('apputils:change-theme', {{theme: '{theme}'}})"
    page.page.evaluate(f"async () => {{ await {change} }}")
    page.page.wait_for_selector(f"body[data-jp-theme-name='{theme}']", state="attached")
    page.page.wait_for_selector("#jupyterlab-splash", state="detached")  # it would cover all
    page.page.evaluate(AXE.read_text(encoding="utf-8"))
    looked_at_colours, found = page.page.evaluate(FOUND, OURS)
    assert looked_at_colours
    return found


# What is wider than its place: it would be cut, or need scrolling in two directions. Tables may,
# and titles of folded calls, which are whole when unfolded.
WIDE = """ours => [...document.querySelectorAll(ours)].flatMap(own => {
  const { right } = own.closest('.jp-Notebook').getBoundingClientRect();
  return [own, ...own.querySelectorAll('*:not(table *, summary .am-title)')].filter(part =>
    part.getBoundingClientRect().right > right + 1 ||
    (part.scrollWidth > part.clientWidth + 1 && getComputedStyle(part).overflowX !== 'visible' &&
      part.querySelector('table') === null)
  ).map(part => part.outerHTML.slice(0, 200));
})"""


@THEMES
def test_nothing_serious_stands_in_any_saved_item(lab: Lab, reopen: Open, theme: str) -> None:
    outputs = [
        nbformat.v4.new_output("display_data", data={ITEM: {"version": 1, **item}})
        for item in ITEMS
    ]
    lab.write(f"items/{theme}.ipynb", [nbformat.v4.new_code_cell("", outputs=outputs)])
    page = reopen(f"items/{theme}.ipynb")
    expect(page.cell(0).locator(".am-item")).to_have_count(len(outputs))
    page.page.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true })")
    expect(page.cell(0).locator(".am-group .am-card")).to_have_count(2)
    assert look_at(page, theme) == []
    # A screen of 1,280 pixels at 400 %.
    page.page.set_viewport_size({"width": 320, "height": 900})
    page.page.wait_for_function("document.querySelector('.am-item').clientWidth < 280")
    assert page.page.evaluate(WIDE, ", ".join(OURS)) == []
    assert look_at(page, theme) == []
    page.shoot(f"items_320_{theme}")


@THEMES
def test_nothing_serious_stands_in_a_turn(notebook: Open, theme: str) -> None:
    fails = shell(f"{COLOURS}; exit 3")
    script = scripted(f"['I look.', {CODE}]", PLAN, FIGURE, PATCH, fails, repr(ANSWER))
    unasked = "%%agent --approval never --sandbox danger-full-access --tools data coding\nGo.\n"
    asking = "%%agent --approval untrusted\nGo.\n"
    asks = scripted(shell("rm -rf build"), shell(f"{COLOURS}; sleep 60"), repr("Done."))
    page = notebook([script, unasked, asks, asking, ""])
    page.run(0)
    page.run(1)
    assert look_at(page, theme) == []
    code = page.cell(1).locator(".am-code pre code").first
    expect(code).to_have_css("background-color", "rgba(0, 0, 0, 0)")
    picture = page.cell(1).locator("img.am-picture")
    expect(picture).to_have_attribute("alt", re.compile("^Picture from python: %matplotlib inline"))
    page.wait_until(lambda: picture.evaluate("picture => picture.naturalWidth > 100"))

    page.run(2)
    page.start(3)
    page.wait_for_question()
    assert look_at(page, theme) == []
    page.page.set_viewport_size({"width": 320, "height": 900})
    page.page.wait_for_function("document.querySelector('.agm-question').clientWidth < 280")
    assert page.page.evaluate(WIDE, ", ".join([*OURS, ".am-foot", ".am-mark"])) == []
    assert look_at(page, theme) == []
    page.questions.first.scroll_into_view_if_needed()
    page.shoot(f"question_320_{theme}")
    page.page.set_viewport_size({"width": 1100, "height": 900})
    page.answer("Deny")
    page.answer("Approve")
    expect(page.cell(3).locator(".agm-stream")).to_contain_text("begun")
    assert look_at(page, theme) == []
    page.interrupt()
    page.wait_for_end(3)
