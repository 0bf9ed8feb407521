"""The panel beside the notebooks, and the agents in JupyterLab's list of what runs."""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from urllib.error import URLError

from playwright.sync_api import Locator, expect

from tests.browser.around.test_around import ASKING, DONE, MAKE, execute
from tests.support.gates import GATE
from tests.support.kernels.cells import scripted
from tests.support.pages.accessibility import faults, unreachable
from tests.support.pages.lab import OPEN, Lab, NotebookPage

Open = Callable[..., NotebookPage]


HOSTILE = "<img src=x onerror=alert(1)> [x](javascript:alert(1))"


def panel(page: NotebookPage) -> Locator:
    """Show the panel."""
    execute(page, "agent-magics:panel")
    shown = page.page.locator(".am-panel")
    expect(shown).to_be_visible()
    return shown


def row(panel: Locator, section: str, words: str = "") -> Locator:
    """The rows of a section that have these words."""
    found = panel.locator("section", has=panel.page.get_by_role("heading", name=section))
    return found.locator(".am-panel-row", has_text=words)


def press(row: Locator, button: str) -> None:
    """Press a button of a row."""
    row.get_by_role("button", name=re.compile(f"^{button}")).click()


def test_a_question_is_answered_from_the_panel(notebook: Open) -> None:
    page = notebook([scripted(MAKE, MAKE, DONE), ASKING, ""])
    page.run(0)
    shown = panel(page)
    page.start(1)
    asked = row(shown, "Questions", "mkdir made")
    expect(asked.locator(".am-panel-arguments")).to_have_text('command: ["mkdir", "made"]')
    expect(row(shown, "Agents")).to_contain_text("Waits for your answer")
    asked.get_by_role("button", name="Deny").dblclick()  # the second one answers nothing
    expect(page.cell(1)).to_contain_text("the person denied it")
    page.wait_for_question()
    press(row(shown, "Questions"), "Approve")
    page.wait_for_end(1)
    page.wait_for_text(1, "It is done.", "approved by the person")
    expect(row(shown, "Questions")).to_have_count(0)
    expect(row(shown, "Agents")).to_contain_text("At rest")


def test_a_question_of_a_notebook_that_no_page_shows_is_answered(
    notebook: Open, reopen: Open, lab: Lab
) -> None:
    waits = f"Call('shell', {{'command': ['python3', '-c', {GATE!r}]}})"
    page = notebook(
        [
            scripted(waits, MAKE, DONE),
            "%%agent --background --approval untrusted\nGo.\n",
            "",
        ]
    )
    gate = page.make_gate()
    page.run(0)
    page.start(1)
    page.answer("Approve")
    lab.write("other.ipynb", ["1"])
    page.save()
    page.close()
    other = reopen("other.ipynb")
    shown = panel(other)
    expect(row(shown, "Agents", "in the background")).to_have_count(1)
    gate.open()
    asked = row(shown, "Questions", "mkdir made")
    expect(asked).to_have_count(1)
    press(asked, "Approve")
    expect(row(shown, "Agents")).to_contain_text("At rest")
    assert (lab.folder / page.name).with_name("made").is_dir()


def test_a_notebook_that_is_opened_while_the_panel_looks_has_its_line_and_its_widgets(
    notebook: Open, reopen: Open, lab: Lab
) -> None:
    """The panel has connected to its kernel before."""
    page = notebook([scripted(DONE, MAKE, DONE), ASKING, ""])
    page.run(0)
    page.run(1)
    page.save()
    page.close()
    lab.write("other.ipynb", ["1"])
    other = reopen("other.ipynb")
    shown = panel(other)
    expect(row(shown, "Agents")).to_contain_text("At rest")
    other.page.evaluate(OPEN, page.name)
    other.wait_for_link()
    cell = "() => void (window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1)"
    other.page.evaluate(cell)
    # Its end, which waits for the answer, is not waited for.
    other.page.evaluate("() => void window.jupyterapp.commands.execute('notebook:run-cell')")
    other.wait_for_question()
    expect(other.page.locator(".am-foot")).to_have_count(1)
    other.answer("Approve")
    expect(other.page.locator(".am-foot")).to_have_count(0)
    expect(row(shown, "Agents")).to_contain_text("At rest")
    assert (lab.folder / page.name).with_name("made").is_dir()


def test_two_notebooks_of_one_page_that_share_a_kernel_have_each_a_line(
    notebook: Open, lab: Lab
) -> None:
    """JupyterLab gives comms to the first one alone."""
    page = notebook([scripted(DONE), ""])
    page.run(0)
    page.wait_for_link()
    context = "window.jupyterapp.shell.currentWidget.sessionContext"
    kernel = page.page.evaluate(f"() => {context}.session.kernel.id")
    lab.write("second.ipynb", ["%%agent\nGo.\n"])
    page.page.evaluate(OPEN, "second.ipynb")
    change = f"id => {context}.ready.then(() => {context}.changeKernel({{id}})).then(() => null)"
    page.page.evaluate(change, kernel)
    expect(page.page.locator(".jp-NotebookPanel.am-linked")).to_have_count(2)
    shown = panel(page)
    expect(row(shown, "Agents", "second.ipynb")).to_have_count(1)
    execute(page, "notebook:run-cell")
    expect(page.page.locator(".jp-Notebook:visible")).to_contain_text("It is done.")
    page.leave()
    with suppress(URLError):  # with the session of one the kernel of the other has gone
        lab.shut_down_kernels()


def test_conversations_are_found_renamed_pinned_forked_and_resumed(notebook: Open) -> None:
    page = notebook([scripted(DONE, DONE), "%%agent\nCount the olives.\n", "%agent reset", ""])
    page.run(0)
    page.run(1)
    shown = panel(page)
    olives = row(shown, "Conversations", "Count the olives.")
    press(row(shown, "Agents", "default"), "Fork")
    expect(row(shown, "Agents", "default-2")).to_have_count(1)
    page.run(2)
    shown.get_by_role("searchbox").fill("no such words")
    expect(olives).to_have_count(0)
    shown.get_by_role("searchbox").fill("count olives")
    olives = olives.filter(has_not_text="open:")
    expect(olives).to_have_count(1)
    press(olives, "Rename")
    field = shown.get_by_role("textbox", name="Name of the conversation")
    expect(field).to_be_focused()
    field.fill(f"Olives {HOSTILE}?")
    field.press("Enter")
    shown.get_by_role("searchbox").fill("olives onerror")
    named = row(shown, "Conversations", f"Olives {HOSTILE}?")
    expect(named).to_have_count(1)
    expect(named.locator("img, a")).to_have_count(0)
    press(named, "Pin")
    expect(named).to_contain_text("pinned")
    press(named, "Resume")
    expect(shown.locator(".am-panel-told").first).to_contain_text("Resumed")
    expect(named).to_contain_text("open: default")
    shown.get_by_role("searchbox").fill("")


def test_the_list_of_what_runs_has_the_agents_at_work(notebook: Open) -> None:
    page = notebook([scripted(MAKE, DONE), ASKING, ""])
    page.run(0)
    page.start(1)
    page.wait_for_question()
    page.page.locator(".lm-TabBar-tab[data-id='jp-running-sessions']").click()
    item = page.page.locator("#jp-running-sessions .jp-RunningSessions-item", has_text="Waits")
    expect(item).to_contain_text("0.ipynb")
    item.hover()
    item.locator("[title='Stop']").click()
    page.wait_for_end(1)
    page.wait_for_text(1, "Interrupted")


def test_nothing_is_wrong_with_the_panel(notebook: Open, looks: Sequence[str]) -> None:
    page = notebook(
        [
            scripted(DONE, "Call('shell', {'command': ['rm', '-rf', 'build']})", DONE),
            "%%agent\nSay that it is done.\n",
            ASKING,
            "",
        ]
    )
    page.run(0)
    page.run(1)
    shown = panel(page)
    page.start(2)
    expect(row(shown, "Questions")).to_have_count(1)
    expect(row(shown, "Conversations", "Say that")).not_to_have_count(0)
    assert faults(page, "panel", looks=looks) == []
    assert unreachable(page) == []
    page.answer("Deny")
    page.wait_for_end(2)


def test_the_panel_is_whole_at_320_pixels_and_by_keyboard(notebook: Open) -> None:
    page = notebook([scripted(MAKE, DONE), ASKING, ""])
    page.run(0)
    shown = panel(page)
    page.start(1)
    expect(row(shown, "Questions")).to_have_count(1)
    page.page.set_viewport_size({"width": 320, "height": 640})
    overflows = "panel => panel.scrollWidth - panel.clientWidth"
    page.wait_until(lambda: shown.evaluate(overflows) <= 0)
    expect(row(shown, "Questions").get_by_role("button", name="Approve")).to_be_enabled()
    execute(page, "agent-magics:panel")
    expect(shown.locator("button").first).to_be_focused()
    page.page.keyboard.press("Enter")
    page.wait_for_end(1)
    expect(row(shown, "Questions")).to_have_count(0)
    page.page.wait_for_function("document.activeElement.closest('.am-panel') !== null")
    page.page.set_viewport_size({"width": 1100, "height": 900})
    page.wait_for_text(1, "It is done.")
