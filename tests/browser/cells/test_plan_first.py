"""A plan is answered in JupyterLab by the keyboard, and read in the saved notebook."""

from collections.abc import Callable

from playwright.sync_api import expect

from tests.support.kernels.cells import scripted
from tests.support.pages.lab import WIDGET, NotebookPage, mimes_of

STEPS = ["Read `sales.csv`", "Plot <b>March</b> against February", "Write the report"]
PLAN = {"steps": STEPS, "explanation": "March dips; returns are the likely reason."}
CALL = f"Call('propose_plan', {PLAN!r})"


def test_a_plan_is_run_by_the_keyboard(notebook: Callable[..., NotebookPage]) -> None:
    page = notebook(
        [
            scripted(CALL, CALL, repr("I wait."), repr("The report is written.")),
            "%%agent --plan\nGo.\n",
        ]
    )
    page.run(0)
    page.start(1)
    form = page.wait_for_question()
    expect(form.get_by_role("radio")).to_have_count(3)
    expect(form).to_contain_text("Run this plan?")
    _check_order(page, 1)
    form.get_by_role("textbox").fill("Also February.")
    form.get_by_role("textbox").press("Enter")
    form = page.wait_for_question()
    _check_order(page, 2)
    form.get_by_role("radio").first.focus()
    page.page.keyboard.press("1")
    page.page.keyboard.press("Enter")
    page.wait_for_end(1)
    page.wait_for_text(1, "The report is written.")
    expect(page.questions).to_have_count(0)
    saved = page.save()
    assert all(WIDGET not in mimes for mimes in mimes_of(saved))
    markdown = "\n".join(str(output) for output in saved.cells[1].outputs)
    assert "Plan: Run it" in markdown and "Write the report" in markdown


def _check_order(page: NotebookPage, plans: int) -> None:
    """Check that each plan stands above what was asked about it."""
    for number in range(plans):
        expect(page.outputs(1).nth(2 * number)).to_contain_text("Plan · 0 of 3 done")
    expect(page.outputs(1).nth(2 * plans - 1)).to_contain_text("Run this plan?")
