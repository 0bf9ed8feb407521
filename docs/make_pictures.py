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
from tests.support.kernels.delegation import DELEGATING
from tests.support.mcp.world import things
from tests.support.pages.lab import Lab, NotebookPage, launch

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
PLOT = """import pandas as pd
rows = pd.read_csv("sales.csv")
months = rows.pivot(index="month", columns="region", values="sold")
months.plot.bar(stacked=True, figsize=(6, 2.4), rot=0, ylim=(0, 100));"""
SOLD = ((25, 27), (27, 28), (2, 29), (28, 29), (29, 31), (30, 33))
SALES = "".join(
    f"2024-{month:02},north,{north}\n2024-{month:02},south,{south}\n"
    for month, (north, south) in enumerate(SOLD, 1)
)


TESTS = "sleep 1; printf '\\033[1m3 items\\033[0m\\n\\033[32m3 passed\\033[0m in 0.4s\\n'"
NOTE = "Amounts are in euros since 2024, in dollars before."
KEEP = {"topic": "sales", "text": NOTE, "scope": "project"}
FREE = "%%agent --approval never --tools data coding\n"
# Of each guide the cell that its picture shows, and what the model does in it.
GUIDES = {
    "memory": (
        f"{FREE}Keep what the amounts are in.\n",
        (f"Call('remember', {KEEP!r})", repr("It is in the notes.")),
    ),
    "files": (
        f"{FREE}Where does the report read its file?\n",
        (
            "Call('grep_files', {'pattern': 'open', 'path': '.'})",
            "Call('read_file', {'path': 'report.py', 'start_line': 4, 'end_line': 6})",
            repr("In `total`, line 5 of `report.py`, and once more in `largest`."),
        ),
    ),
    "symbols": (
        f"{FREE}What is in report.py?\n",
        ("Call('symbols', {'path': 'report.py'})", repr("Three functions; `main` calls `total`.")),
    ),
    "commands": (
        f"{FREE}Run the tests.\n",
        (f"Call('exec_command', {{'cmd': {TESTS!r}}})", repr("All three tests pass.")),
    ),
    "results": (
        "%%agent --into totals --output list[int]\nThe sales of the first three months.\n",
        (repr('{"value": [52, 55, 31]}'),),
    ),
    "tools": (
        "%%agent\nWhat did the north sell?\n",
        ("Call('revenue', {'region': 'north'})", repr("The north sold for **420 euros**.")),
    ),
    "mcp": (
        "%%agent --approval never\nAre there notes about March?\n",
        ("Call('mcp__things__search', {'q': 'march', 'limit': 3})", repr("There are three.")),
    ),
    "conversations": ("%agent sessions", ()),
    "recordings": (
        "%%agent --name tape --replay sales.agent.jsonl\nWhich month dips?\n",
        (),
    ),
}
PATIENT = "echo training on 2,104 rows; sleep 600"
# What is taken while it happens.
LIVE = (
    "reviews = ['Lovely', 'Very good', 'I would buy it again']",
    "%%agent --map reviews --into scored --output bool\nIs this friendly? {{text}}\n",
    "scored",
    f"{FREE}Train the model.\n",
    DELEGATING,
    "%%agent --approval never\nLook through the files.\n",
)
RECORDED = "%%agent --record sales.agent.jsonl\nWhich month dips?\n"
OWN = '''
@tool(mutating=False)
def revenue(region: str) -> float:
    """Revenue of a region."""
    return {"north": 420.0}[region]
'''


def guide_cells() -> list[nbformat.NotebookNode]:
    """Return a notebook with a cell for each of `GUIDES`, below the one that sets the agent up."""
    steps = [repr("March dips."), *(step for _, steps in GUIDES.values() for step in steps)]
    steps += [*[repr('{"value": true}')] * 3, f"Call('exec_command', {{'cmd': {PATIENT!r}}})"]
    server = f"%config AgentMagics.mcp_servers = {{'things': {things()!r}}}\n"
    cells = [scripted(*steps) + OWN + server, RECORDED, *(source for source, _ in GUIDES.values())]
    return [nbformat.v4.new_code_cell(source.strip()) for source in (*cells, *LIVE)]


def take_guides(page: NotebookPage) -> None:
    """Take the pictures of guides that show one cell each."""
    page.page.set_viewport_size({"width": 1000, "height": 3800})
    page.run(0)
    page.wait_for_link()
    page.run(1)
    shoot(page, "project", 1)
    for number, name in enumerate(GUIDES, 2):
        page.run(number)
        page.outputs(number).last.wait_for()
        shoot(page, name, number)
    first = 2 + len(GUIDES)
    for number in range(first, first + 3):
        page.run(number)
    page.outputs(first + 2).last.wait_for()
    shoot(page, "map", first + 1, first + 2)
    cell = page.start(first + 3)
    cell.get_by_text("training on").last.wait_for()
    field = cell.locator(".am-foot .am-field")
    field.fill("Only the rows of 2024")
    field.press("Enter")
    field.fill("Then plot the result")
    field.press("Alt+Enter")
    cell.locator(".am-foot-queued").wait_for()
    shoot(page, "steering", first + 3)
    cell.locator(".am-foot").get_by_role("button", name="Stop", exact=True).click()
    page.wait_for_end(first + 3)
    for number in (first + 4, first + 5):
        page.run(number)
    page.cell(first + 5).get_by_role("button", name="Stop: explore-1").wait_for()
    shoot(page, "delegation", first + 5)


def own_cell(source: str, name: str) -> nbformat.NotebookNode:
    """Return a code cell with an id that a script can name."""
    return nbformat.v4.new_code_cell(source.strip(), id=name)


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
        repr("March dips in the **north** alone: 2 sold, against about 27 in other months."),
        "Call('shell', {'command': ['git', 'push', 'origin', 'main']})",
    )
    free = "%%agent --approval never --tools data coding"
    prompts = {
        "patch": f"{free}\nLet total() take a region.\n",
        "diff": "%agent diff",
        "edit": "%%agent --approval never\nRaise the limit to 20.\n",
        "limit": "limit = 10",
        "table": f"{free}\nWhich stores are below their target?\n",
        "plot": "%%agent\nLoad sales.csv, find out why March dips, and plot it.\n",
        "ask": "%%agent --approval untrusted\nPublish the report.\n",
        "prompt": "",
    }
    script = nbformat.v4.new_code_cell(
        "%matplotlib inline\n" + scripted(*steps) + "%config AgentMagics.approval = 'never'"
    )
    return [script, *(own_cell(source, name) for name, source in prompts.items())]


def shoot(page: NotebookPage, name: str, *cells: int, below: int = 0) -> None:
    """Take a picture of cells that follow each other, and of some pixels below them."""
    page.cell(cells[0]).scroll_into_view_if_needed()
    boxes = [page.cell(number).bounding_box() for number in cells]
    assert all(boxes)
    typed = page.page.locator(".jp-Stdin-input").count()
    assert not typed, f"{name}: the machine is busy, so the page was taken for one without buttons"
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
    page.page.locator(".am-panel button[aria-disabled=false]", has_text="Approve").wait_for()
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
            lab.write("report/sales.ipynb", [source.strip() for source in CELLS])
            take(NotebookPage(context, lab, "report/sales.ipynb").open())
            lab.write("report/edit.ipynb", edit_cells())
            (lab.folder / "report/report.py").write_text(REPORT, encoding="utf-8")
            rows = f"month,region,sold\n{SALES}"
            (lab.folder / "report/sales.csv").write_text(rows, encoding="utf-8")
            take_cells(NotebookPage(context, lab, "report/edit.ipynb").open())
            lab.write("report/guides.ipynb", guide_cells())
            (lab.folder / "report/AGENTS.md").write_text("Sums are in euros.\n", encoding="utf-8")
            take_guides(NotebookPage(context, lab, "report/guides.ipynb").open())
            context.close()


if __name__ == "__main__":
    main()
