"""What stands around a cell: status bar, title of the tab, notifications, commands, shortcuts."""

import re
from collections.abc import Callable

from playwright.sync_api import Locator, expect

from tests.support.gates import GATE
from tests.support.kernels.cells import scripted
from tests.support.pages.lab import NotebookPage

Open = Callable[..., NotebookPage]


DONE = repr("It is done.")
MAKE = "Call('shell', {'command': ['mkdir', 'made']})"
ASKING = "%%agent --approval untrusted\nGo.\n"
FAILING = "total = '{{1 + 1}}'\ntotal + 1"


def execute(page: NotebookPage, command: str) -> None:
    """Run a command of JupyterLab, as its palette does."""
    page.page.evaluate("name => window.jupyterapp.commands.execute(name)", command)


def status(page: NotebookPage) -> Locator:
    """The item of the status bar."""
    return page.page.locator(".am-status-item")


def test_a_waiting_question_is_told_around_the_cell(notebook: Open) -> None:
    page = notebook([scripted(MAKE, DONE), ASKING, ""])
    page.run(0)
    expect(status(page)).to_be_hidden()
    page.start(1)
    page.wait_for_question()
    expect(status(page)).to_have_text("1 agent at work · 1 question waits for you")
    expect(page.page).to_have_title(re.compile(r"^\(1\) "))
    page.cell(2).locator(".jp-InputArea-editor").click()
    status(page).click()
    expect(page.questions).to_be_focused()
    page.page.keyboard.press("Alt+Shift+Y")
    page.wait_for_end(1)
    expect(status(page)).to_be_hidden()
    expect(page.page).to_have_title(re.compile(r"^(?!\(1\))"))
    page.wait_for_text(1, "It is done.")


def test_a_question_in_a_hidden_notebook_is_told_and_shown(notebook: Open) -> None:
    waits = f"Call('python', {{'code': {GATE!r}}})"
    page = notebook([scripted(waits, MAKE, DONE), "%%agent --approval untrusted\nGo.\n", ""])
    gate = page.make_gate()
    page.run(0)
    page.start(1)
    page.answer("Approve")
    execute(page, "launcher:create")
    expect(page.cell(1)).to_be_hidden()
    gate.open()
    notice = page.page.locator(".Toastify__toast", has_text="waits for your answer")
    notice.get_by_role("button", name="Show").click()
    expect(page.questions.last).to_be_focused()
    page.page.keyboard.press("Alt+Shift+N")
    page.wait_for_end(1)
    page.wait_for_text(1, "It is done.")


def test_nothing_is_answered_that_has_not_the_focus(notebook: Open) -> None:
    page = notebook([scripted(MAKE, DONE), ASKING, ""])
    page.run(0)
    page.start(1)
    page.wait_for_question()
    page.cell(2).locator(".jp-InputArea-editor").click()
    page.page.keyboard.press("Alt+Shift+Y")
    expect(page.questions).to_be_focused()
    expect(page.page.locator(".agm-question[data-answered]")).to_have_count(0)
    page.page.keyboard.press("Alt+Shift+X")  # Stop
    page.wait_for_end(1)
    page.wait_for_text(1, "Interrupted")


def test_an_error_becomes_a_prompt_in_which_nothing_is_evaluated(notebook: Open) -> None:
    seen = "lambda request: request.prompt"
    page = notebook([scripted(seen), FAILING, ""])
    page.run(0)
    page.wait_for_link()
    page.start(1)
    expect(page.cell(1)).to_contain_text("TypeError")
    button = page.page.locator("[data-command='agent-magics:fix-error']:visible")
    expect(button).to_have_count(0)
    page.cell(1).locator(".jp-InputArea-editor").click()
    button.click()
    expect(page.page.locator(".jp-CodeCell")).to_have_count(4)
    page.wait_until(lambda: page.sources()[2].endswith("- `total`: {{total}}\n"))
    page.wait_until(lambda: page.sources()[2].startswith("%%agent\nThis cell failed."))
    page.page.keyboard.press("Shift+Enter")
    page.wait_for_end(2)
    answer = page.cell(2).locator(".jp-OutputArea")
    expect(answer).to_contain_text("{{1 + 1}}")
    expect(answer).to_contain_text("can only concatenate str")


def test_cells_are_made_by_commands(notebook: Open) -> None:
    page = notebook([scripted(DONE), "Say that it is done.", ""])
    page.run(0)
    page.cell(1).locator(".jp-InputArea-editor").click()
    execute(page, "agent-magics:to-prompt")
    page.page.keyboard.press("Escape")
    page.page.keyboard.press("Alt+Shift+A")
    expect(page.cell(2).locator(".cm-content")).to_be_focused()
    page.page.keyboard.insert_text("And this?")
    prompts = ["%%agent\nSay that it is done.", "%%agent\nAnd this?"]
    page.wait_until(lambda: page.sources()[1:3] == prompts)
    page.run(1)
    page.wait_for_text(1, "It is done.")


def test_the_palette_lists_them(notebook: Open) -> None:
    page = notebook([""])
    page.page.keyboard.press("Control+Shift+C")
    items = page.page.locator(".lm-CommandPalette-item:not(.lm-mod-disabled)")
    expect(items.first).to_be_visible()
    page.page.keyboard.type("agent cell")
    expect(items.first).to_contain_text("New Agent Cell")
    page.page.keyboard.press("Enter")
    page.wait_until(lambda: page.sources() == ["", "%%agent\n"])


def test_a_setting_of_the_editor_holds_from_the_next_cell(notebook: Open) -> None:
    page = notebook([scripted(DONE), "%agent settings", ""])
    page.run(0)
    page.page.evaluate(
        "window.jupyterapp.commands.execute('settingeditor:open', {query: 'Agents'})"
    )
    field = page.page.locator("input[id$='_max_turns']")
    field.fill("7")
    field.blur()
    saved = page.lab.settings_file("agent-magics/settings")
    page.wait_until(lambda: saved.exists() and '"max_turns": 7' in saved.read_text("utf-8"))
    execute(page, "application:close")
    page.run(1)
    row = page.cell(1).locator("tr", has_text="max_turns")
    expect(row).to_contain_text("7")
    expect(row).to_contain_text("JupyterLab")
    saved.unlink()


def test_a_kernel_without_agent_magics_is_told_and_loads_it(notebook: Open) -> None:
    page = notebook(["%%agent\nHi.", ""])
    page.run(0)
    page.page.get_by_role("button", name="Add a Cell That Loads It").click()
    page.wait_for_link()
    page.wait_until(lambda: page.sources() == ["%load_ext agent_magics", "%%agent\nHi.", ""])
