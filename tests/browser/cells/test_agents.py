"""The row of a sub-agent: live after the cell's end, stopped by mouse or keyboard."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.support.kernels.delegation import CHILDREN, DELEGATING, SHARING
from tests.support.pages.lab import NotebookPage, items_of

Open = Callable[..., NotebookPage]


CELL = "%%agent --approval never\nGo.\n"
ENDED = f"{CHILDREN}['explore-1'].problem"


@pytest.mark.parametrize("how", ["keyboard", pytest.param("mouse", marks=pytest.mark.long)])
def test_a_sub_agent_is_stopped_from_its_row(notebook: Open, how: str) -> None:
    page = notebook([DELEGATING, CELL, ""])
    page.run(0)
    page.run(1)  # the sub-agent works on after the end of the cell
    stop = page.cell(1).get_by_role("button", name="Stop: explore-1")
    row = page.cards(1).filter(has_text="Look around.").last
    expect(row).to_contain_text("hang")
    expect(page.page.locator(".am-status-item")).to_have_text("1 agent at work")
    if how == "mouse":
        stop.click()
    else:
        row.locator("summary").focus()
        for _ in range(4):  # past the output, which the keyboard scrolls
            page.page.keyboard.press("Tab")
            if stop.evaluate("each => each === document.activeElement"):
                break
        expect(stop).to_be_focused()
        page.page.keyboard.press("Enter")
    expect(row).to_have_class(re.compile("am-failed"))
    expect(stop).to_have_count(0)
    expect(page.page.locator(".am-status-item")).to_be_hidden()
    assert page.value(ENDED) == "stopped by the person"
    [item] = [each for each in items_of(page.save().cells[1]) if each.get("name") == "explore-1"]
    assert item["note"] == "stopped" and "stop" not in item


def test_the_focus_stays_on_the_button_while_the_row_is_drawn_anew(notebook: Open) -> None:
    page = notebook([DELEGATING, CELL, ""])
    page.run(0)
    page.run(1)
    stop = page.cell(1).get_by_role("button", name="Stop: explore-1")
    stop.focus()
    old = stop.element_handle()
    tell = f"{CHILDREN}['explore-1'].session.engine.post({CHILDREN}['explore-1'].tell)"
    page.page.evaluate(
        """code => {
          const { session } = window.jupyterapp.shell.currentWidget.sessionContext;
          session.kernel.requestExecute({ code });
        }""",
        tell,
    )
    page.wait_until(lambda: not old.evaluate("each => each.isConnected"))
    expect(stop).to_be_focused()
    stop.press("Enter")
    expect(stop).to_have_count(0)


def test_its_questions_are_drawn_and_answered_in_the_cell_of_its_parent(notebook: Open) -> None:
    page = notebook([SHARING, "%%agent\nGo.\n"])
    page.run(0)
    page.start(1)
    shown = ("give a sub-agent your kernel", "worker-1 asks: it runs", "worker-1 asks: it runs")
    for text in (*shown, "worker-1 asks: the code"):
        expect(page.questions).to_contain_text(text)
        page.answer("Approve")
    page.wait_for_end(1)
    assert page.value("total") == "9"

    def notes() -> list[str]:
        items = items_of(page.save().cells[1])
        return [item["text"] for item in items if item["kind"] == "notice"]

    approved = re.compile(r"default/worker-1 asks: .*\(approved by the person\)", re.DOTALL)
    # The page may be saved between the answer of the last and what it shows of it.
    page.wait_until(lambda: [bool(approved.fullmatch(note)) for note in notes()] == [True] * 3)
