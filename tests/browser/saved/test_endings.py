"""A kernel, a cell or a question that ends leaves no dead button, no lost focus and no trap."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.support.kernels.cells import scripted
from tests.support.pages.lab import WIDGET, NotebookPage, items_of, mimes_of

Open = Callable[..., NotebookPage]


PYTHON = "Call('python', {'code': 'total = 6 * 7'})"
LONG = "Call('shell', {'command': ['bash', '-c', 'echo begun; sleep 1; echo on; sleep 60']})"
DONE = repr("It is done.")
AGENT = "%%agent\nGo.\n"
ASKING = "%%agent --approval untrusted\nGo.\n"  # about commands in the sandbox, too
INDICATOR = ".jp-Notebook-ExecutionIndicator"
FOCUSED = "() => document.activeElement.closest('.jp-Notebook') !== null"


def restart(page: NotebookPage) -> None:
    page.page.evaluate("() => { window.jupyterapp.commands.execute('notebook:restart-kernel') }")
    page.page.locator(".jp-Dialog").get_by_role("button", name="Confirm Kernel Restart").click()
    page.page.wait_for_selector(f"{INDICATOR}[data-status=idle]")


def active_cell(page: NotebookPage) -> int:
    path = "window.jupyterapp.shell.currentWidget.content"
    return page.page.evaluate(f"() => {path}.activeCellIndex")


def test_a_restart_settles_an_open_question(notebook: Open) -> None:
    page = notebook([scripted(f"['I look.', {PYTHON}]", DONE), AGENT, ""])
    page.run(0)
    page.start(1)
    page.wait_for_question()
    restart(page)
    expect(page.questions).to_have_count(0)
    page.wait_for_text(1, "may python run total = 6 * 7? Not answered: the kernel ended.")
    saved = page.save()
    assert all(WIDGET not in mimes for mimes in mimes_of(saved))
    assert "the kernel ended" in saved.cells[1].outputs[-1].data["text/markdown"]
    page.run(0)  # by now all that the old kernel still said has come
    expect(page.cell(1).locator(".am-foot")).to_have_count(0)
    expect(page.page.locator(".am-status-item:visible")).to_have_count(0)


def test_a_restart_settles_a_running_command(notebook: Open) -> None:
    page = notebook([scripted(LONG, DONE), AGENT, ""])
    page.run(0)
    page.start(1)
    expect(page.cell(1).locator(".agm-stream")).to_contain_text("begun\non")
    page.cell(1).locator(".am-foot").get_by_role("textbox").fill("Half a th")
    restart(page)
    expect(page.cards(1)).to_contain_text("the kernel ended")
    expect(page.cell(1).locator(".am-foot")).to_contain_text("Half a th")
    (call,) = items_of(page.save().cells[1])
    assert (call["status"], call["note"]) == ("failed", "the kernel ended")
    assert call["output"] == "begun\non\n"  # all that the page has shown
    assert all(WIDGET not in mimes for mimes in mimes_of(page.lab.read(page.name)))


@pytest.mark.parametrize("how", ["keyboard", pytest.param("click", marks=pytest.mark.long)])
def test_after_an_answer_the_person_is_where_they_were(notebook: Open, how: str) -> None:
    page = notebook([scripted(PYTHON, DONE), AGENT, "reached = True", ""])
    page.run(0)
    page.start(1)
    button = page.wait_for_question().get_by_role("button", name="Approve", exact=True)
    page.wait_until(lambda: active_cell(page) == 2)
    if how == "click":
        button.click()
    else:
        button.press("Enter")
    page.wait_for_end(1)
    expect(page.questions).to_have_count(0)
    page.page.wait_for_function(FOCUSED)
    page.page.keyboard.press("Shift+Enter")
    page.wait_for_end(2)
    assert page.value("reached") == "True"


def test_the_next_question_gets_the_focus(notebook: Open) -> None:
    calls = [f"Call('shell', {{'command': ['mkdir', '{name}']}})" for name in ("one", "two")]
    page = notebook([scripted(f"[{', '.join(calls)}]", DONE), ASKING, ""])
    page.run(0)
    page.start(1)
    page.wait_for_question(1)
    page.answer("Deny")
    expect(page.questions).to_have_count(1)
    expect(page.questions).to_contain_text("mkdir two")
    page.page.wait_for_function("() => document.activeElement.closest('.agm-question') !== null")
    page.answer("Deny")
    page.wait_for_end(1)


def test_a_deleted_cell_leaves_no_question_that_nobody_can_answer(notebook: Open) -> None:
    page = notebook([scripted(PYTHON, DONE), AGENT, "free = True", ""])
    page.run(0)
    page.start(1)
    page.wait_for_question()
    page.cell(1).locator(".jp-InputPrompt").click()
    page.page.keyboard.press("d")
    page.page.keyboard.press("d")
    expect(page.questions).to_have_count(0)
    page.wait_until_passed()  # a cell that is run before the turn has been stopped is not run
    page.run(1)
    assert page.value("free") == "True"


def test_a_second_window_shows_the_question_and_answers_it(notebook: Open, reopen: Open) -> None:
    first = notebook([scripted(PYTHON, DONE), AGENT, ""])
    first.run(0)
    second = reopen(first.name)
    second.page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")
    first.start(1)
    first.wait_for_question()
    second.answer("Approve")
    first.wait_for_end(1)
    expect(second.cards(1)).to_have_count(1)
    assert first.value("total") == "42"


def test_a_dangerous_command_looks_like_one(notebook: Open) -> None:
    change = "Call('shell', {'command': ['chmod', '-R', 'u+rwx', '.']})"
    page = notebook([scripted(change, DONE), ASKING, ""])
    page.run(0)
    page.start(1)
    question = page.wait_for_question()
    expect(question).to_contain_text("Dangerous: shell wants to run")
    question.focus()
    question.press("Enter")
    page.wait_for_end(1)
    assert items_of(page.save().cells[1])[0]["status"] == "denied"


def test_on_a_narrow_page_the_lasting_answers_can_be_read(notebook: Open) -> None:
    page = notebook([scripted(PYTHON, DONE), AGENT, ""])
    page.page.set_viewport_size({"width": 600, "height": 900})
    page.run(0)
    page.start(1)
    question = page.wait_for_question()
    widths = "all => all.map(words => words.getBoundingClientRect().width)"
    covers = question.locator(".agm-covers")
    page.wait_until(lambda: min(covers.evaluate_all(widths), default=0) > 150)
    page.answer("Deny")
    page.wait_for_end(1)
