"""What a turn changed is reviewed in its cell: each change is kept or reverted, by mouse, keys."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.test_lab_accessibility import look_at
from tests.browser.test_lab_endings import restart
from tests.support.kernels.cells import scripted
from tests.support.lab import NotebookPage

Open = Callable[..., NotebookPage]

pytestmark = pytest.mark.needs("labextension")

AGENT = "%%agent --approval never --sandbox danger-full-access\nGo.\n"
LINES = "".join(f"line {number}\n" for number in range(40))
EDITS = "; ".join(f"sed -i 's/^line {n}$/changed {n}/' a.txt" for n in (5, 20, 35))
CHANGE = f"Call('shell', {{'command': ['bash', '-c', {f'{EDITS}; echo new > b.txt'!r}]}})"


def test_changes_are_kept_and_reverted_in_the_cell(notebook: Open) -> None:
    page = notebook([scripted(CHANGE, repr("Done.")), AGENT, ""])
    file = (page.lab.folder / page.name).with_name("a.txt")
    file.write_text(LINES)
    page.run(0)
    page.run(1)
    review = page.cell(1).locator(".am-review")
    expect(review.locator("> summary")).to_have_text("Review · 4 changes")
    expect(page.cell(1).get_by_text("Diff", exact=True)).to_be_hidden()
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        assert look_at(page, theme) == []
    page.shoot("review")

    # By the keyboard alone: each answer leads to the next change.
    review.get_by_role("button", name="Keep: change 1 of 4, a.txt").focus()
    page.page.keyboard.press("Enter")
    expect(review.locator("> summary")).to_have_text("Review · 4 changes · 1 kept")
    keep = review.get_by_role("button", name="Keep: change 2 of 4, a.txt")
    expect(keep).to_be_focused()
    page.page.keyboard.press("Tab")
    page.page.keyboard.press("Enter")
    expect(review.locator("> summary")).to_have_text("Review · 4 changes · 1 kept · 1 reverted")
    now = LINES.replace("line 5\n", "changed 5\n").replace("line 35\n", "changed 35\n")
    assert file.read_text() == now

    # What the person has written since stays, and is named.
    mine = now.replace("changed 35", "mine 35")
    file.write_text(mine)
    review.get_by_role("button", name="Revert: change 3 of 4, a.txt").click()
    expect(review.get_by_role("status")).to_contain_text("“changed 35” is not in a.txt any more")
    assert file.read_text() == mine
    page.page.set_viewport_size({"width": 600, "height": 900})
    page.shoot("review_600")
    page.page.set_viewport_size({"width": 1100, "height": 900})

    # A reloaded page asks again; nothing of it is in the document.
    page.save()
    assert "reverted" not in (page.lab.folder / page.name).read_text()
    page.reload()
    expect(review.locator("> summary")).to_have_text("Review · 4 changes · 1 kept · 1 reverted")
    review.get_by_role("button", name="Keep all").click()
    expect(review).not_to_have_attribute("open", "")
    expect(review.locator("> summary")).to_have_text("Review · 4 changes · 3 kept · 1 reverted")
    page.shoot("review_settled")

    review.locator("> summary").click()
    review.get_by_role("button", name="Undo all").click()
    expect(review.get_by_role("status")).to_contain_text("Nothing was undone")
    file.write_text(now)
    review.get_by_role("button", name="Undo all").click()
    expect(review.locator("> summary")).to_contain_text("undone")
    assert file.read_text() == LINES
    assert not file.with_name("b.txt").exists()

    restart(page)
    expect(review).to_have_count(0)
    expect(page.cell(1).get_by_text("Diff", exact=True)).to_be_visible()
