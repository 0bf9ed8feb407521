"""The model's questions are answered at the page, by the keyboard alone."""

import json
from collections.abc import Callable

from playwright.sync_api import expect

from tests.support.kernels.cells import outputs, scripted
from tests.support.pages.lab import WIDGET, NotebookPage, mimes_of

QUESTIONS = [
    {
        "id": "format",
        "header": "Export",
        "question": "Which file format shall the table have?",
        "options": [
            {"label": "CSV", "description": "<b>Read</b> by everything; types are lost."},
            {"label": "Parquet", "description": "Small and typed."},
        ],
        "free_text": True,
    },
    {
        "id": "months",
        "question": "Which months?",
        "options": [{"label": "January"}, {"label": "February"}, {"label": "March"}],
        "multi": True,
        "free_text": False,
    },
    {"id": "name", "question": "What is the file to be called?"},
]
CALL = f"Call('request_user_input', {{'questions': {QUESTIONS!r}}})"
GO = "%%agent\nGo.\n"


def test_questions_are_answered_by_the_keyboard(notebook: Callable[..., NotebookPage]) -> None:
    page = notebook([scripted(CALL, repr("Done.")), GO, ""])
    page.run(0)
    page.start(1)
    form = page.wait_for_question()
    expect(form).to_contain_text("The agent asks:")
    expect(form.get_by_role("radio")).to_have_count(2)
    expect(form.locator("b")).to_have_count(0)
    expect(form.get_by_role("button")).to_have_text(["Send", "Decline", "Stop"])

    keys = page.page.keyboard
    first = form.get_by_role("radio").first
    keys.press("Alt+Shift+S")
    show = page.page.locator(".am-panel").get_by_role("button", name="Show").first
    expect(show).to_be_visible()
    keys.press("Alt+Shift+S")
    expect(show).to_be_focused()
    keys.press("Enter")
    expect(form).to_be_focused()
    keys.press("Alt+Shift+S")
    keys.press("Escape")
    expect(page.page.locator(".jp-Notebook :focus")).to_have_count(1)
    keys.press("Alt+Shift+Q")
    expect(form).to_be_focused()
    keys.press("Tab")
    expect(first).to_be_focused()
    keys.press("Enter")  # nothing is chosen yet, which is told beside each question
    expect(form.locator(".agm-problem")).to_have_text(
        ["this is required", "choose at least 1", "this is required"]
    )
    keys.press("1")
    expect(first).to_be_checked()
    keys.press("Tab")
    keys.type("JSON lines")
    expect(first).not_to_be_checked()
    keys.press("Tab")
    keys.press("3")
    keys.press("1")
    for _ in range(3):
        keys.press("Tab")
    keys.type("sales")
    keys.press("Enter")
    page.wait_for_end(1)
    answer = json.loads(json.loads(page.value(f"__import__('json').dumps({outputs()})"))[0])
    assert answer == {"format": "JSON lines", "months": ["January", "March"], "name": "sales"}
    expect(page.questions).to_have_count(0)
    saved = page.save()
    assert all(WIDGET not in mimes for mimes in mimes_of(saved))
    markdown = "\n".join(str(output) for output in saved.cells[1].outputs)
    assert "A: January, March" in markdown
