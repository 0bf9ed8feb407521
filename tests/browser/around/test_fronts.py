"""Other front ends: Notebook 7, and two pages of JupyterLab with real-time collaboration."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.support.kernels.cells import scripted
from tests.support.pages.lab import Lab, NotebookPage, items_of

# Configurations beyond the main one.
pytestmark = [pytest.mark.long, pytest.mark.needs("labextension", "chromium")]

MAKE = "Call('shell', {'command': ['mkdir', 'made']})"
INSERT = "Call('notebook_insert_cell', {'source': 'inserted = 1'})"
SCRIPT = scripted(MAKE, INSERT, repr("It is **done**."))
ASKING = "%%agent --approval untrusted\nGo.\n"
MINE = "mine = 'typed meanwhile'"


@pytest.fixture
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    """Return a server of its own, whose arguments are the parameter."""
    with Lab(tmp_path / "other", **request.param) as lab:
        lab.write("a.ipynb", [SCRIPT, ASKING, ""])
        yield lab


@pytest.mark.needs("package notebook")
@pytest.mark.parametrize("other", [{"front": "notebook"}], indirect=True, ids=["notebook"])
def test_notebook_7_has_all_but_the_status_bar(
    other: Lab, browser: BrowserContext, spare: list[Page]
) -> None:
    page = NotebookPage(browser, other, "a.ipynb", spare=spare).open()
    page.run(0)
    page.wait_for_link()
    expect(page.cell(1).locator(".am-prompt")).to_be_visible()
    page.start(1)
    page.wait_for_question()
    expect(page.cell(1).locator(".am-foot")).to_contain_text("Waits for your answer")
    expect(page.page).to_have_title("(1) a")
    page.page.keyboard.press("Alt+Shift+Q")
    expect(page.questions.first).to_be_focused()
    page.page.keyboard.press("Alt+Shift+Y")

    page.page.keyboard.press("Alt+Shift+S")
    panel = page.page.locator(".am-panel")
    asked = panel.locator(".am-panel-row", has_text="inserted = 1")
    page.shoot("notebook_7")
    asked.get_by_role("button", name="Approve").click()
    page.wait_for_end(1)
    page.wait_for_text(1, "It is done.")
    expect(page.cell(2).locator(".am-mark")).to_contain_text("Made by the agent")
    expect(page.cell(1).locator(".am-review, .am-changes")).not_to_have_count(0)
    page.close()


@pytest.mark.needs("package jupyter_collaboration")
@pytest.mark.parametrize("other", [{"shared": True}], indirect=True, ids=["shared"])
def test_nothing_is_lost_where_two_work_on_one_document(
    other: Lab, browser: BrowserContext, spare: list[Page]
) -> None:
    page = NotebookPage(browser, other, "a.ipynb", spare=spare).open()
    page.run(0)
    page.wait_for_link()
    second = NotebookPage(browser, other, "a.ipynb", spare=spare).open()
    page.start(1)
    page.wait_for_question()
    second.cell(2).locator(".cm-content").click()
    second.page.keyboard.type(MINE)
    page.answer("Approve")
    page.wait_for_question()
    page.answer("Approve")
    page.wait_for_end(1)
    page.wait_for_text(1, "It is done.")
    second.wait_for_text(1, "It is done.")
    whole = [SCRIPT, ASKING, "inserted = 1", MINE]
    for each in (page, second):
        page.wait_until(lambda each=each: each.sources() == whole)
    page.wait_until(lambda: [cell.source for cell in other.read("a.ipynb").cells] == whole)

    def calls() -> list[tuple[str, str]]:
        items = items_of(other.read("a.ipynb").cells[1])
        return [(each["name"], each["status"]) for each in items if "status" in each]

    done = [("shell", "completed"), ("notebook_insert_cell", "completed")]
    page.wait_until(lambda: calls() == done)
    page.shoot("shared")
    second.shoot("shared_second")
    second.reload()
    second.wait_until(lambda: second.cell(1).inner_text() == page.cell(1).inner_text())
    page.close()
    second.close()
