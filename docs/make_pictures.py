"""Takes the pictures of the guides from a real JupyterLab in Chromium.

`make pictures` writes them into docs/images; it needs what the browser tests need. The model
follows a script, so no key is used.
"""

import hashlib
import os
import sys
import tempfile
from pathlib import Path

import nbformat
from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.kernels.cells import scripted
from tests.support.lab import Lab, NotebookPage, launch

IMAGES = Path(__file__).parent / "images"
FOLDERS = ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")
CELLS = (
    scripted(repr("Two stores are behind."), "Call('shell', {'command': ['mkdir', 'made']})"),
    "%%agent\nWhich stores are behind?\n",
    "rows = [3, '4']\nsum(rows)",
    "%%agent --approval untrusted\nMake a folder for the report.\n",
    "",
)


REPORT = """import csv


def total(path):
    with open(path) as file:
        return sum(float(row["amount"]) for row in csv.DictReader(file))


def largest(path):
    with open(path) as file:
        return max(float(row["amount"]) for row in csv.DictReader(file))


def main():
    print("Sales")
    print("=====")
    print()
    print(total("sales.csv"))


main()
"""
PATCH = """*** Begin Patch
*** Update File: report.py
@@
-def total(path):
+def total(path, region=None):
     with open(path) as file:
-        return sum(float(row["amount"]) for row in csv.DictReader(file))
+        rows = [row for row in csv.DictReader(file) if region in (None, row["region"])]
+        return sum(float(row["amount"]) for row in rows)
@@
     print()
-    print(total("sales.csv"))
+    print(total("sales.csv", "north"))
*** End Patch
"""
TABLE = """import pandas as pd
stores = ["Aachen", "Bonn", "Celle", "Dortmund", "Essen", "Fulda"]
sales, target = [41, 18, 77, 95, 12, 64], [50, 20, 60, 80, 30, 60]
pd.DataFrame({"store": stores, "sales": sales, "target": target})"""
PLOT = """import matplotlib.pyplot as plt
months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun"]
plt.figure(figsize=(6, 2.4))
plt.bar(months, [52, 55, 31, 57, 60, 63])
plt.title("Sales by month");"""


def own_cell(source: str, name: str) -> nbformat.NotebookNode:
    """Return a code cell with an id that a script can name."""
    return nbformat.v4.new_code_cell(source, id=name)


def edit_cells() -> list[nbformat.NotebookNode]:
    """Return a notebook in which an agent changes files and cells, draws and asks."""
    version = hashlib.sha256(b"limit = 10").hexdigest()[:8]
    edit = {"cell_id": "limit", "source": "limit = 20  # as agreed in June", "version": version}
    steps = (
        f"Call('apply_patch', {{'patch': {PATCH!r}}})",
        repr("`total` takes a region now, and the report shows the north."),
        "Call('notebook_read', {})",
        f"Call('notebook_edit_cell', {edit!r})",
        repr("The limit is 20 now."),
        f"Call('python', {{'code': {TABLE!r}}})",
        repr("Two stores are well below their **target**: Essen and Aachen."),
        f"Call('python', {{'code': {PLOT!r}}})",
        repr("March dips: **31** against about 55 in the months around it."),
        "Call('shell', {'command': ['git', 'push', 'origin', 'main']})",
    )
    free = "%%agent --approval never --tools data coding"
    prompts = {
        "patch": f"{free}\nLet total() take a region.\n",
        "diff": "%agent diff",
        "edit": "%%agent --approval never\nRaise the limit to 20.\n",
        "limit": "limit = 10",
        "table": f"{free}\nWhich stores are below their target?\n",
        "plot": f"{free}\nWhy is the first half of the year so weak? Plot it.\n",
        "ask": "%%agent --approval untrusted\nPublish the report.\n",
        "prompt": "",
    }
    script = nbformat.v4.new_code_cell("%matplotlib inline\n" + scripted(*steps))
    return [script, *(own_cell(source, name) for name, source in prompts.items())]


def shoot(page: NotebookPage, name: str, *cells: int, below: int = 0) -> None:
    """Take a picture of cells that follow each other, and of some pixels below them."""
    page.cell(cells[0]).scroll_into_view_if_needed()
    boxes = [page.cell(number).bounding_box() for number in cells]
    assert all(boxes)
    x, y = boxes[0]["x"], boxes[0]["y"]
    bottom = boxes[-1]["y"] + boxes[-1]["height"]
    clip = {"x": x, "y": y, "width": boxes[0]["width"], "height": bottom - y + below}
    page.page.screenshot(path=IMAGES / f"{name}.png", clip=clip)


def take_cells(page: NotebookPage) -> None:
    """Take the pictures of what stands in cells."""
    page.page.set_viewport_size({"width": 1000, "height": 3800})
    page.run(0)
    page.wait_for_link()
    page.run(1)
    page.cell(1).locator(".am-review button", has_text="Keep all").wait_for()
    shoot(page, "review", 1)
    page.run(2)
    page.cell(2).locator("table").first.wait_for()
    shoot(page, "diff", 2)
    page.run(3)
    page.cell(4).locator(".am-mark summary").click()
    page.cell(4).locator(".am-mark pre").wait_for()
    shoot(page, "cell_mark", 3, 4)
    page.run(5)
    page.cell(5).locator(".am-table-sort").nth(1).click()
    shoot(page, "table", 5)
    page.run(6)
    page.cell(6).locator("img.am-picture").wait_for()
    shoot(page, "first_cell", 6)
    page.start(7)
    page.wait_for_question()
    shoot(page, "approval", 7)
    page.answer("Deny")
    page.cell(8).locator(".cm-content").click()
    page.page.keyboard.type("%%agent --model gpt-5.5\nCompare {{months}} with those in @rep")
    page.page.locator(".jp-Completer .jp-Completer-item").first.wait_for()
    shoot(page, "prompt", 8, below=140)


def execute(page: NotebookPage, command: str, arguments: str = "{}") -> None:
    """Run a command of JupyterLab."""
    page.page.evaluate(f"window.jupyterapp.commands.execute('{command}', {arguments})")


def take(page: NotebookPage) -> None:
    """Take the pictures of one page."""
    for number in (0, 1, 2):
        page.run(number)
    page.cell(2).locator(".jp-InputArea-editor").click()
    page.page.locator("[data-command='agent-magics:fix-error']:visible").wait_for()
    page.page.screenshot(path=IMAGES / "failed_cell.png")
    execute(page, "agent-magics:panel")
    page.start(3)
    page.wait_for_question()
    page.page.locator(".am-panel .am-panel-arguments").wait_for()
    page.page.locator(".am-panel button:enabled", has_text="Approve").wait_for()
    page.page.screenshot(path=IMAGES / "panel.png")
    execute(page, "settingeditor:open", "{query: 'Agents'}")
    page.page.locator("input[id$='_max_turns']").wait_for()
    page.page.screenshot(path=IMAGES / "settings_editor.png")


def main() -> None:
    """Start the server and the browser, and take the pictures."""
    with tempfile.TemporaryDirectory() as home:
        for name in FOLDERS:
            os.environ[name] = str(Path(home, name))
            Path(home, name).mkdir()
        with Lab(Path(home, "lab")) as lab, sync_playwright() as playwright:
            context = launch(playwright, Path(home, "profile"))
            lab.write("report/sales.ipynb", CELLS)
            take(NotebookPage(context, lab, "report/sales.ipynb").open())
            lab.write("report/edit.ipynb", edit_cells())
            (lab.folder / "report/report.py").write_text(REPORT, encoding="utf-8")
            take_cells(NotebookPage(context, lab, "report/edit.ipynb").open())
            context.close()


if __name__ == "__main__":
    main()
