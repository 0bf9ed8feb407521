"""Tables that live code displays: drawn from their rows, sorted by keys, read by all."""

from collections.abc import Callable, Sequence

import pytest
from playwright.sync_api import expect

from tests.support.kernels.cells import scripted
from tests.support.pages.accessibility import faults, unreachable
from tests.support.pages.lab import NotebookPage, items_of

Open = Callable[..., NotebookPage]

pytestmark = pytest.mark.needs("labextension")

CODE = """import pandas as pd
df = pd.DataFrame({'city': ['Zug', None, 'Aarau'] * 400, 'n': range(1200), 'x': '<b>y</b>'})
df"""
SCRIPT = scripted(f"Call('python', {{'code': {CODE!r}}})", "lambda r: r.history.items[-1].output")


def test_a_table_is_drawn_sorted_and_saved(notebook: Open, looks: Sequence[str]) -> None:
    page = notebook([SCRIPT, "%%agent --approval never\nShow it.\n", ""])
    page.run(0)
    page.run(1)
    table = page.cell(1).locator(".am-table")
    expect(table.locator(".am-table-size")).to_have_text(
        "1,200 rows, 3 columns, the first 1,000 rows here"
    )
    expect(table.locator("tbody tr")).to_have_count(50)
    expect(table.locator("tbody tr").first).to_have_text("Zug0<b>y</b>")
    page.wait_for_text(1, "[1200 rows x 3 columns]")
    table.get_by_role("button", name="city").focus()
    page.page.keyboard.press("Enter")
    expect(table.locator("th").first).to_have_attribute("aria-sort", "ascending")
    expect(table.locator("tbody tr").first).to_have_text("Aarau2<b>y</b>")
    page.page.keyboard.press("Tab")
    page.page.keyboard.press("Enter")
    page.page.keyboard.press("Enter")
    expect(table.locator("tbody tr").first).to_have_text("Zug999<b>y</b>")
    table.get_by_role("button", name="Show 200 more rows").click()
    expect(table.locator("tbody tr")).to_have_count(250)
    assert faults(page, "table", looks=looks) == []
    assert unreachable(page) == []
    # The arrows scroll what has the focus, and Esc leads back.
    table.locator(".am-table-scroll").focus()
    page.page.keyboard.press("ArrowDown")
    scrolled = "table => table.scrollTop > 0"
    page.wait_until(lambda: table.locator(".am-table-scroll").evaluate(scrolled))
    page.page.keyboard.press("Escape")
    expect(page.cell(1)).to_be_focused()
    saved = page.save().cells[1]
    assert [item["kind"] for item in items_of(saved)][:2] == ["tool", "table"]
    markdown = saved.outputs[1].data["text/markdown"]
    assert markdown.startswith("*1,200 rows by 3 columns, the first of them:*\n\n| city | n | x |")
    assert "<b>" not in markdown
