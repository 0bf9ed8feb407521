"""Prompts in the editor: prose with code in it, and completion of what they mention."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, expect

from tests.support.kernels.cells import scripted
from tests.support.lab import NotebookPage

Open = Callable[..., NotebookPage]

# A page of JupyterLab takes ten seconds to open on a busy machine.
pytestmark = [pytest.mark.timeout(120), pytest.mark.needs("labextension")]

PROSE = "text/x-markdown"
PROMPT = """%%agent --approval never --into "answer"
Don't be *shy*: what is in {{sales[sales > 1]}} for $5?
"""
VARIABLES = "import os\nsales = [1, 2, 3]\nsalary = 'x' * 10"
WAITS = "while not os.path.exists('go'):\n    __import__('time').sleep(0.01)"


def language(page: NotebookPage, number: int) -> str:
    """The language of a cell's editor."""
    widgets = "window.jupyterapp.shell.currentWidget.content.widgets"
    mime: str = page.page.evaluate(f"() => {widgets}[{number}].model.mimeType")
    return mime


def completions(page: NotebookPage) -> Locator:
    """The completions that are on offer."""
    return page.page.locator(".jp-Completer:not(.lm-mod-hidden) .jp-Completer-match")


def write(page: NotebookPage, number: int, text: str) -> None:
    """Put the cursor at the end of a cell, and type."""
    page.cell(number).locator(".jp-InputArea-editor").click()
    page.page.keyboard.press("Control+End")
    page.page.keyboard.type(text)


def test_a_prompt_is_shown_as_prose_and_a_cell_goes_back(notebook: Open) -> None:
    page = notebook([PROMPT, "x = 1"])
    usual = language(page, 1)
    page.wait_until(lambda: language(page, 0) == PROSE)
    code = page.cell(0).locator(".am-prompt-code:not(.am-prompt-expression)")
    expect(code).to_have_text(["%%agent", "--approval", "never", "--into", '"answer"'])
    expression = page.cell(0).locator(".am-prompt-expression")
    page.wait_until(lambda: "".join(expression.all_inner_texts()) == "{{sales[sales > 1]}}")
    expect(page.cell(0).locator(".cm-content")).to_have_css("white-space", "break-spaces")
    write(page, 1, "\ny")
    page.page.keyboard.press("Control+Home")
    page.page.keyboard.type("%%agent\n")
    page.wait_until(lambda: language(page, 1) == PROSE)
    for _ in range(3):
        page.page.keyboard.press("Backspace")
    page.wait_until(lambda: language(page, 1) == usual)
    expect(page.cell(1).locator(".am-prompt, .am-prompt-code")).to_have_count(0)


def test_what_a_prompt_mentions_is_completed_also_while_the_kernel_works(notebook: Open) -> None:
    script = scripted("lambda request: request.prompt")
    page = notebook([script, VARIABLES, WAITS, "%%agent\nSum ", ""])
    folder = (page.lab.folder / page.name).parent
    (folder / "sales.csv").write_text("a\n1\n", encoding="utf-8")
    page.run(0)
    page.run(1)
    write(page, 3, "@sal")
    expect(completions(page)).to_have_text(["@{{salary}}", "@{{sales}}", "@sales.csv"])
    page.page.keyboard.press("ArrowDown")
    page.page.keyboard.press("Enter")
    assert page.sources()[3] == "%%agent\nSum {{sales}}"
    page.start(2)
    page.page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=busy]")
    write(page, 3, " of @sales.")
    expect(completions(page)).to_have_text(["@sales.csv"])
    page.page.keyboard.press("Enter")
    (folder / "go").touch()
    page.wait_for_end(2)
    page.run(3)
    assert "Sum [1,2,3] of sales.csv" in page.text(3)
