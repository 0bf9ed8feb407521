"""No widget is saved, and what a file shows as open is settled where its kernel is gone."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.cells.test_map import SETUP
from tests.browser.saved.test_endings import AGENT, DONE, INDICATOR, LONG, PYTHON
from tests.support.kernels.cells import scripted
from tests.support.pages.lab import WIDGET, NotebookPage, mimes_of

Open = Callable[..., NotebookPage]

MAP = "%%agent --map rows --into done --ask-above 1e6\nIs it? {{text}}\n"
ASKED = "Question: may python run total = 6 * 7? Not answered when this was saved."
# What is run, what shows that it is open, and what a file says of it without its kernel.
OPEN_CELLS = {
    "question": (scripted(PYTHON, DONE), AGENT, ".agm-question", ASKED),
    "command": (scripted(LONG, DONE), AGENT, ".agm-stream", "the kernel ended"),
    "map": (SETUP, MAP, ".agm-card", "Rows are being asked. Not finished when this was saved."),
}


@pytest.mark.parametrize("what", OPEN_CELLS)
def test_what_was_saved_open_is_settled_where_it_is_opened(
    notebook: Open, reopen: Open, what: str
) -> None:
    setup, cell, shown, said = OPEN_CELLS[what]
    page = notebook([setup, cell, ""])
    page.run(0)
    page.start(1)
    expect(page.cell(1).locator(shown)).to_be_visible()
    assert all(WIDGET not in mimes for mimes in mimes_of(page.save()))
    expect(page.cell(1).locator(shown)).to_be_visible()  # here it is open as before
    # Once in a JupyterLab that is loaded anew, else in the one in which it was closed.
    page.leave()
    page.lab.shut_down_kernels()
    again = reopen(page.name, anew=what == "question")
    again.wait_for_text(1, said)
    expect(again.area(1)).not_to_contain_text("Error displaying widget")
    expect(again.cell(1).locator("button.agm-button, .am-running")).to_have_count(0)


def test_the_card_of_a_map_is_there_again_after_a_reload(notebook: Open) -> None:
    page = notebook([SETUP, MAP, ""])
    page.run(0)
    page.start(1)
    expect(page.cell(1).locator(".agm-card")).to_be_visible()
    page.save()
    page.reload()
    page.cell(1).locator(".agm-card").get_by_role("button", name="Stop").click()
    page.wait_for_text(1, "It ended early: you stopped it.")


@pytest.mark.parametrize("keys", ["c v", "d d z", pytest.param("x v", marks=pytest.mark.long)])
def test_a_copy_of_a_running_cell_has_words_alone(notebook: Open, keys: str) -> None:
    page = notebook([scripted(PYTHON, DONE), AGENT, ""])
    page.run(0)
    page.start(1)
    page.wait_for_question()
    page.cell(1).locator(".jp-InputPrompt").click()
    *away, back = keys.split()
    for key in away:
        page.page.keyboard.press(key)
    if keys != "c v":  # in one breath it would be a cell that was moved, with its question
        expect(page.page.locator(".am-status-item")).to_be_empty()
    page.page.keyboard.press(back)
    asked = page.page.locator(".jp-Cell-outputArea", has_text="may python run total = 6 * 7?")
    expect(asked).to_contain_text("Not answered: the cell was copied.")
    if keys == "c v":
        page.answer("Deny")
    expect(page.questions).to_have_count(0)
    page.page.wait_for_selector(f"{INDICATOR}[data-status=idle]")


def test_a_cell_that_becomes_prose_leaves_no_question_behind(notebook: Open) -> None:
    page = notebook([scripted(PYTHON, DONE), AGENT, ""])
    page.run(0)
    page.start(1)
    page.wait_for_question()
    page.cell(1).locator(".jp-InputPrompt").click()
    page.page.keyboard.press("m")
    page.page.wait_for_selector(f"{INDICATOR}[data-status=idle]")
    expect(page.questions).to_have_count(0)
