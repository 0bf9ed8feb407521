"""What we draw can be read by all: axe-core finds nothing in it, in any theme."""

import json
import re
from collections.abc import Callable, Sequence

import nbformat
import pytest
from playwright.sync_api import expect

from tests.browser.saved.test_saved import CODE, FIGURE, PATCH, PLAN
from tests.support.kernels.cells import scripted
from tests.support.pages.accessibility import OURS, faults, taken_keys, unreachable
from tests.support.pages.lab import ITEM, NotebookPage

Open = Callable[..., NotebookPage]

pytestmark = pytest.mark.needs("labextension")

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
SCRIPT = "python report.py --year 2024; " * 9
DONE = {**TOOL, "status": "completed"}
DIFF = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n"
FILE = {"path": "x", "change": "changed", "added": 1, "removed": 1, "note": "by a command"}
ARABIC = "النتيجة 42 في الملف `a.py`، وهذا نص طويل بما يكفي ليلتف على أكثر من سطر واحد في الصفحة."
JAPANESE = "結果は42です。" * 12
STEPS = [
    {"id": status, "description": status, "status": status}
    for status in ("completed", "in_progress", "pending")
]
ITEMS = [
    {"kind": "text", "text": ANSWER, "sources": [{"title": "Page", "url": "https://example.org"}]},
    {"kind": "reasoning", "text": "It *may* be so.", "left_out": 3},
    *({"kind": "notice", "level": level, "text": "`x`."} for level in ("info", "warning", "error")),
    *({**TOOL, "status": status} for status in ("running", "completed", "failed", "denied")),
    {**TOOL, "status": "running", "stop": "a sub-agent"},
    {**DONE, "title": SCRIPT, "arguments": json.dumps({"cmd": SCRIPT})},
    {**TOOL, "kind": "patch", "status": "completed", "diff": DIFF},
    {"kind": "group", "title": "1 command, 1 search", "items": [{**DONE, "version": 1}] * 2},
    {"kind": "changes", "files": [FILE], "diff": DIFF, "runs": ["x runs"], "notes": ["So."]},
    {"kind": "plan", "explanation": "Why.", "steps": STEPS},
    {"kind": "usage", "input_tokens": 9, "output_tokens": 9, "requests": 2, "cost": "$1"},
    {"kind": "picture", "alt": "A picture that is not there"},
    {"kind": "text", "text": f"{ARABIC}\n\n- {ARABIC}\n\n{JAPANESE}"},
    {"kind": "notice", "level": "info", "text": ARABIC},
    {"kind": "plan", "explanation": ARABIC, "steps": [{**STEPS[0], "description": JAPANESE}]},
    {**DONE, "title": ARABIC, "output": f"{ARABIC}\n{JAPANESE}"},
    {"kind": "of another version"},
]


# What is wider than its place: it would be cut, or need scrolling in two directions. Tables may,
# and titles of folded calls, which are whole when unfolded.
WIDE = """ours => [...document.querySelectorAll(`.jp-Notebook ${ours}`)].flatMap(own => {
  const { right } = own.closest('.jp-Notebook').getBoundingClientRect();
  return [own, ...own.querySelectorAll('*:not(table *, summary .am-title)')].filter(part =>
    part.getBoundingClientRect().right > right + 1 ||
    (part.scrollWidth > part.clientWidth + 1 && getComputedStyle(part).overflowX !== 'visible' &&
      part.querySelector('table') === null)
  ).map(part => part.outerHTML.slice(0, 200));
})"""


def test_nothing_is_wrong_with_any_saved_item(notebook: Open, looks: Sequence[str]) -> None:
    outputs = [
        nbformat.v4.new_output("display_data", data={ITEM: {"version": 1, **item}})
        for item in ITEMS
    ]
    page = notebook([nbformat.v4.new_code_cell("", outputs=outputs)], kernel=False)
    expect(page.cell(0).locator(".am-item")).to_have_count(len(outputs))
    # As on a page whose kernel hears it, so that the row of a sub-agent has its button.
    page.page.evaluate("document.querySelector('.jp-NotebookPanel').classList.add('am-linked')")
    page.page.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true })")
    expect(page.cell(0).locator(".am-group .am-card")).to_have_count(2)
    # Each paragraph runs as its own words do.
    paragraphs = ".am-text p, .am-text li, .am-notice > span, .am-plan-why"
    arabic = page.cell(0).locator(paragraphs, has_text=ARABIC[:7])
    expect(arabic).to_have_count(4)
    for number in range(4):
        expect(arabic.nth(number)).to_have_css("direction", "rtl")
    japanese = page.cell(0).locator(".am-text p", has_text=JAPANESE)
    expect(japanese).to_have_css("direction", "ltr")
    assert faults(page, "items", looks=looks) == []
    assert unreachable(page) == []
    # A screen of 1,280 pixels at 400 %.
    page.page.set_viewport_size({"width": 320, "height": 900})
    page.page.wait_for_function("document.querySelector('.am-item').clientWidth < 280")
    assert page.page.evaluate(WIDE, f":is({', '.join(OURS)})") == []
    assert faults(page, "items_320", looks=looks) == []


def test_nothing_is_wrong_with_a_turn(notebook: Open, looks: Sequence[str]) -> None:
    fails = shell(f"{COLOURS}; exit 3")
    script = scripted(f"['I look.', {CODE}]", PLAN, FIGURE, PATCH, fails, repr(ANSWER))
    unasked = "%%agent --approval never --sandbox danger-full-access --tools data coding\nGo.\n"
    asking = "%%agent --approval untrusted\nGo.\n"
    asks = scripted(shell("rm -rf build"), shell(f"{COLOURS}; sleep 60"), repr("Done."))
    page = notebook([script, unasked, asks, asking, ""])
    page.run(0)
    page.run(1)
    assert faults(page, looks=looks) == []
    code = page.cell(1).locator(".am-code pre code").first
    expect(code).to_have_css("background-color", "rgba(0, 0, 0, 0)")
    picture = page.cell(1).locator("img.am-picture")
    expect(picture).to_have_attribute("alt", re.compile("^Picture from python: %matplotlib inline"))
    page.wait_until(lambda: picture.evaluate("picture => picture.naturalWidth > 100"))

    page.run(2)
    page.start(3)
    page.wait_for_question()
    assert faults(page, "question", looks=looks) == []
    assert unreachable(page) == []
    assert taken_keys(page) == []
    page.page.set_viewport_size({"width": 320, "height": 900})
    page.page.wait_for_function("document.querySelector('.agm-question').clientWidth < 280")
    assert page.page.evaluate(WIDE, f":is({', '.join(OURS)})") == []
    page.questions.first.scroll_into_view_if_needed()
    assert faults(page, "question_320", looks=looks) == []
    page.page.set_viewport_size({"width": 1100, "height": 900})
    page.answer("Deny")
    page.answer("Approve")
    expect(page.cell(3).locator(".agm-stream")).to_contain_text("begun")
    assert faults(page, "stream", looks=looks) == []
    page.interrupt()
    page.wait_for_end(3)
