"""What a turn changed is reviewed in its cell: each change is kept or reverted, by mouse, keys."""

import hashlib
from collections.abc import Callable, Sequence

import nbformat
import pytest
from playwright.sync_api import expect

from tests.browser.saved.test_endings import restart
from tests.support.kernels.cells import scripted
from tests.support.pages.accessibility import faults, taken_keys, unreachable
from tests.support.pages.lab import NotebookPage

Open = Callable[..., NotebookPage]

pytestmark = pytest.mark.needs("labextension")

AGENT = "%%agent --approval never --sandbox danger-full-access\nGo.\n"
LINES = "".join(f"line {number}\n" for number in range(40))
EDITS = "; ".join(f"sed -i 's/^line {n}$/changed {n}/' a.txt" for n in (5, 20, 35))
CHANGE = f"Call('shell', {{'command': ['bash', '-c', {f'{EDITS}; echo new > b.txt'!r}]}})"


def test_changes_are_kept_and_reverted_in_the_cell(notebook: Open, looks: Sequence[str]) -> None:
    page = notebook([scripted(CHANGE, repr("Done.")), AGENT, ""])
    file = (page.lab.folder / page.name).with_name("a.txt")
    file.write_text(LINES)
    page.run(0)
    page.run(1)
    review = page.cell(1).locator(".am-review")
    expect(review.locator("> summary")).to_have_text("Review · 4 changes")
    expect(page.cell(1).get_by_text("Diff", exact=True)).to_be_hidden()
    assert faults(page, "review", looks=looks) == []
    assert unreachable(page) == []
    assert taken_keys(page) == []

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


def test_cells_that_the_agent_made_or_changed_are_marked_kept_and_reverted(
    notebook: Open, looks: Sequence[str]
) -> None:
    old, new = "a = 1\nb = 2", "a = 1\nb = 3\nc = 4"
    version = hashlib.sha256(old.encode()).hexdigest()[:8]
    calls = [
        "Call('notebook_read', {})",
        "Call('notebook_insert_cell', {'source': 'made = 1', 'after': 'own'})",
        *(
            f"Call('notebook_edit_cell', {{'cell_id': {name!r}, 'source': {new!r}, "
            f"'version': {version!r}}})"
            for name in ("one", "two", "three")
        ),
    ]
    named = [nbformat.v4.new_code_cell(old, id=name) for name in ("one", "two", "three")]
    own = nbformat.v4.new_code_cell("%%agent --approval never\nGo.\n", id="own")
    page = notebook([scripted(*calls, repr("Done.")), own, *named])
    page.run(0)
    page.wait_for_link()
    page.run(1)
    marks = page.page.locator(".am-mark")
    expect(marks).to_have_count(4)
    expect(page.cell(2).locator(".am-mark summary")).to_contain_text("Made by the agent · +1")
    mark = page.cell(3).locator(".am-mark")
    mark.locator("summary").click()
    expect(mark.locator("pre")).to_contain_text("-b = 2")
    assert faults(page, "marks", looks=looks) == []
    assert taken_keys(page) == []

    # The person has typed in one of them since: it stays.
    page.cell(4).locator(".cm-content").click()
    page.page.keyboard.press("Control+End")
    page.page.keyboard.type(" # mine")
    page.cell(4).get_by_role("button", name="Revert").click()
    expect(page.cell(4).get_by_role("status")).to_have_text(
        "Nothing was reverted, since you have changed it."
    )
    page.wait_until(lambda: page.sources()[4] == f"{new} # mine")

    page.save()
    page.reload()  # the marks come again
    expect(marks).to_have_count(4)
    page.cell(3).get_by_role("button", name="Keep: Changed by the agent, a = 1").focus()
    page.page.keyboard.press("Enter")
    expect(marks).to_have_count(3)
    page.cell(5).get_by_role("button", name="Revert").click()
    expect(marks).to_have_count(2)
    page.cell(2).get_by_role("button", name="Revert").click()
    expect(marks).to_have_count(1)
    page.wait_until(lambda: page.sources()[2:] == [new, f"{new} # mine", old])
    restart(page)
    expect(marks).to_have_count(0)


def test_what_is_drawn_at_a_cell_comes_along_when_it_is_moved(notebook: Open) -> None:
    """JupyterLab draws a cell that is moved anew."""
    insert = "Call('notebook_insert_cell', {'source': 'made = 1'})"
    cells = ["%%agent --approval never\nGo.\n", "below = 1"]
    page = notebook([scripted(insert, repr("Done.")), *cells])
    page.run(0)
    page.wait_for_link()
    page.run(1)
    marks = page.page.locator(".am-mark")
    expect(page.cell(2).locator(".am-mark")).to_have_count(1)

    def move(number: int, way: str) -> None:
        page.cell(number).locator(".jp-InputPrompt").click()
        page.page.evaluate(f"() => window.jupyterapp.commands.execute('notebook:move-cell-{way}')")

    move(2, "down")
    page.wait_until(lambda: page.sources()[2:] == ["below = 1", "made = 1"])
    expect(page.cell(3).locator(".am-mark")).to_have_count(1)
    expect(marks).to_have_count(1)
    move(1, "up")
    page.wait_until(lambda: page.sources()[0] == cells[0])
    expect(page.cell(0).locator(".am-bar")).to_have_count(1)
    page.cell(3).get_by_role("button", name="Keep").click()
    expect(marks).to_have_count(0)
