"""The bar of the active agent cell: it shows what the first line says, and writes it."""

import re
from collections.abc import Callable, Sequence

import nbformat
import pytest
from playwright.sync_api import expect

from tests.support.kernels.cells import scripted
from tests.support.pages.accessibility import faults
from tests.support.pages.lab import NotebookPage

Open = Callable[..., NotebookPage]

pytestmark = pytest.mark.needs("labextension")

PANEL = "window.jupyterapp.shell.currentWidget"
PROMPT = '%%agent  --into "my_x"  --approval=untrusted \nSay --approval on-request.\n'


def test_a_policy_and_a_model_are_chosen_by_keyboard_and_undone(
    notebook: Open, looks: Sequence[str]
) -> None:
    page = notebook([scripted(repr("Done.")), PROMPT, "x = 1", "%%agent\nGo."])
    page.run(0)
    page.wait_for_link()
    keyboard, bar = page.page.keyboard, page.page.locator(".am-bar")
    page.cell(2).locator(".cm-content").click()
    top = "node => node.getBoundingClientRect().top"
    before = page.cell(2).evaluate(top)
    expect(bar).to_have_count(0)
    page.cell(1).locator(".cm-content").click()
    policy, model = bar.get_by_label("Policy"), bar.get_by_label("Model")
    expect(policy).to_have_value("untrusted")
    assert page.cell(2).evaluate(top) == before
    expect(model.locator("option", has_text="gpt-5.5").first).to_be_attached()
    keyboard.press("Escape")
    for _ in range(20):
        if model.evaluate("node => node === document.activeElement"):
            break
        keyboard.press("Tab")
    expect(model).to_be_focused()
    keyboard.type("gpt-5.5")
    written = PROMPT.replace("%%agent", "%%agent --model gpt-5.5")
    page.wait_until(lambda: page.sources()[1] == written)
    keyboard.press("Tab")
    expect(policy).to_be_focused()
    keyboard.type("never")
    page.wait_until(lambda: page.sources()[1] == written.replace("=untrusted", "=never"))
    assert faults(page, "bar", looks=looks) == []
    page.page.set_viewport_size({"width": 320, "height": 900})
    assert faults(page, "bar_320", looks=looks) == []
    page.page.set_viewport_size({"width": 1100, "height": 900})
    page.cell(1).locator(".cm-content").click()
    keyboard.press("Control+z")
    page.wait_until(lambda: page.sources()[1] == written)
    expect(policy).to_have_value("untrusted")
    page.cell(3).locator(".cm-content").click()
    expect(page.cell(3).locator(".am-bar")).to_have_count(1)
    expect(bar).to_have_count(1)


def test_a_bar_stands_only_where_it_can_write(notebook: Open) -> None:
    fixed = nbformat.v4.new_code_cell("%%agent\nGo.", metadata={"editable": False})
    page = notebook(["%%agent\nGo.", fixed, ""])
    bar = page.page.locator(".am-bar")

    def enter(number: int) -> None:
        page.cell(number).locator(".cm-content").click()
        expect(page.cell(number)).to_have_class(re.compile("jp-mod-active"))

    # Without agent_magics in the kernel, and without a kernel, it offers the policies.
    page.page.evaluate(f"{PANEL}.sessionContext.shutdown()")
    enter(0)
    policy = bar.get_by_label("Policy")
    policy.select_option("never")
    page.wait_until(lambda: page.sources()[0] == "%%agent --approval never\nGo.")
    policy.focus()
    page.page.keyboard.press("Escape")
    expect(page.cell(0)).to_be_focused()

    enter(1)
    expect(bar).to_have_count(0)
    enter(0)
    expect(bar).to_have_count(1)
    page.page.evaluate(f"{PANEL}.context.model.readOnly = true")
    enter(2)
    enter(0)
    expect(bar).to_have_count(0)
    page.page.evaluate(f"{PANEL}.context.model.readOnly = false")
    enter(2)
    enter(0)
    expect(bar).to_have_count(1)

    page.page.evaluate("jupyterapp.commands.execute('settingeditor:open', {query: 'Agent Cells'})")
    page.page.locator("input[id$='_bar']").uncheck()
    expect(bar).to_have_count(0)
    expect(page.page.locator(".am-bars")).to_have_count(0)
    page.page.locator("input[id$='_bar']").check()
    expect(page.page.locator(".am-bars")).to_have_count(1)
