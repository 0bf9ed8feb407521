"""Takes the pictures of the guide to JupyterLab from a real JupyterLab in Chromium.

`python docs/make_pictures.py`, from the project's folder, writes them into docs/images; it needs
what the browser tests need. The model follows a script, so no key is used.
"""

import os
import sys
import tempfile
from pathlib import Path

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
            context.close()


if __name__ == "__main__":
    main()
