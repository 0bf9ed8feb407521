"""A run in the background survives its page, which leaves and comes back when it likes."""

import random
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.cells.test_map import SETUP
from tests.support.kernels.cells import scripted
from tests.support.pages.lab import NotebookPage, items_of

Open = Callable[..., NotebookPage]

# Each return of the page takes seconds, on a busy machine ten.
TIMES = [3, pytest.param(50, marks=pytest.mark.timeout(1800))]
STEP = '''
import asyncio

@tool(mutating=False)
async def step(n: int) -> str:
    """Wait for a sign."""
    await asyncio.to_thread(lambda: open(f"go{n}").read())
    return f"step {n} done"
'''


@pytest.mark.long
@pytest.mark.parametrize("times", TIMES)
def test_nothing_is_lost(notebook: Open, reopen: Open, times: int) -> None:
    chance = random.Random(times)
    calls = [f"Call('step', {{'n': {n}}})" for n in range(times)]
    asks = "Call('python', {'code': 'total = 6 * 7'})"
    cells = [scripted(*calls, asks, repr("All is done.")) + STEP, "%%agent --background\nGo.\n", ""]
    page = notebook(cells)
    gates = [page.make_gate(f"go{n}") for n in range(times)]
    page.run(0)
    page.run(1)
    name = page.name
    page.save()
    for n in range(times):
        when = chance.choice(["before", "away", "after"])
        if when == "before":
            gates[n].open()
        if chance.random() < 0.5:
            expect(page.cell(1).locator(".am-foot")).to_be_visible()
        page.close()
        if when == "away":
            gates[n].open()
        page = reopen(name)
        if when == "after":
            gates[n].open()
    page.answer("Approve")
    expect(page.cell(1)).to_contain_text("All is done.")
    expect(page.cell(1).locator(".am-foot, .agm-question")).to_have_count(0)
    found = items_of(page.save().cells[1])
    outputs = [str(item["output"]) for item in found if item.get("name") == "step"]
    assert outputs == [f"step {n} done" for n in range(times)]
    assert [item["status"] for item in found if item.get("name") == "python"] == ["completed"]


def test_what_ended_meanwhile_is_drawn_and_questions_wait(notebook: Open, reopen: Open) -> None:
    asks = "Call('python', {'code': 'total = 6 * 7'})"
    cells = [
        scripted("Call('step', {'n': 0})", asks, "Call('step', {'n': 1})", repr("Done.")) + STEP
    ]
    page = notebook([*cells, "%%agent --background\nGo.\n", ""])
    gates = [page.make_gate(f"go{n}") for n in range(2)]
    page.run(0)
    page.run(1)
    page.save()
    name = page.name
    page.close()
    gates[0].open()  # the question comes while nobody is there
    page = reopen(name)
    page.answer("Approve")
    expect(page.cell(1).locator(".am-foot")).to_contain_text("Runs step")
    page.close()
    gates[1].open()
    page = reopen(name)
    expect(page.cell(1)).to_contain_text("Done.")
    expect(page.cell(1).locator(".am-foot")).to_have_count(0)
    page.close()  # without a word about saving
    page = reopen(name)
    expect(page.cell(1)).to_contain_text("Done.")
    expect(page.cell(1).locator("details.am-group > summary")).to_contain_text("2 calls of step")


def test_a_map_that_ended_meanwhile_shows_its_outcome(notebook: Open, reopen: Open) -> None:
    slow = SETUP.replace("asyncio.sleep(0.2)", "asyncio.to_thread(lambda: open('go').read())")
    ask = "%%agent --map rows --background\nIs it? {{text}}\n"
    page = notebook([slow + "rows = ['a']\n", ask, ""])
    gate = page.make_gate("go")
    page.run(0)
    page.run(1)
    expect(page.cell(1).locator(".agm-card")).to_be_visible()
    page.save()
    name = page.name
    page.close()
    gate.open()
    page = reopen(name)
    expect(page.cell(1)).to_contain_text("1 of 1 rows have an answer")
    expect(page.cell(1)).not_to_contain_text("when this was saved")
