"""The card of a map: its progress, buttons that pause, go on and stop; the question of its cost."""

import pytest
from playwright.sync_api import expect

from tests.support.kernels.cells import AGENTS
from tests.support.pages.accessibility import faults, taken_keys, unreachable

SETUP = f"""
%load_ext agent_magics
import asyncio

from agent_magics import Agent
from agent_magics.models.base import ItemDone, ResponseDone
from agent_magics.protocol.items import AssistantMessage, Usage

class Slow:
    source, name = "slow", "gpt-5.5"

    async def stream(self, request):
        await asyncio.sleep(0.2)
        yield ItemDone(AssistantMessage("yes"))
        yield ResponseDone(Usage(100, 20))

    async def close(self):
        pass

{AGENTS}["default"] = Agent(Slow())
rows = [f"row {{number}}" for number in range(100_000)] + [None]
"""


def test_a_map_is_paused_goes_on_and_is_stopped(notebook, looks):
    page = notebook([SETUP, "%%agent --map rows --into done --ask-above 1e6\nIs it? {{text}}\n"])
    page.run(0)
    cell = page.start(1)
    card = cell.locator(".agm-card")
    card.get_by_text("requests at once").wait_for()

    # By the keyboard alone: a button that was pressed keeps the focus under its new name.
    card.get_by_role("button", name="Pause").press("Enter")
    expect(card.get_by_role("button", name="Go on")).to_be_focused()
    expect(card).to_contain_text("rows, paused, ")
    expect(card).not_to_contain_text("a second")
    assert faults(page, "map", looks=looks) == []
    assert unreachable(page) == []
    assert taken_keys(page) == []
    card.get_by_role("button", name="Go on").press("Enter")
    expect(card.get_by_role("button", name="Pause")).to_be_focused()
    page.page.keyboard.press("Tab")
    expect(card.get_by_role("button", name="Stop")).to_be_focused()
    page.page.keyboard.press("Enter")
    page.wait_for_end(1)
    page.wait_for_text(1, "It ended early: you stopped it.")
    expect(card).to_have_count(0)
    assert int(page.value("len(done)")) == 100_001


@pytest.mark.parametrize(
    "call",
    ["agent.map_sync(", pytest.param("await agent.map(", marks=pytest.mark.long)],
    ids=["blocks", "awaits"],
)
def test_a_plain_call_has_the_card_too(notebook, call):
    page = notebook(
        [
            f"{SETUP}agent = {AGENTS}['default']\n",
            f"done = {call}'Is it? {{{{text}}}}', rows, ask_above=None)\n",
        ]
    )
    page.run(0)
    cell = page.start(1)
    card = cell.locator(".agm-card")
    card.get_by_role("button", name="Pause").click()
    card.get_by_role("button", name="Go on").click()
    card.get_by_role("button", name="Stop").click()
    page.wait_for_end(1)
    page.wait_for_text(1, "It ended early: you stopped it.")
    expect(card).to_have_count(0)
    assert int(page.value("len(done.frame)")) == 100_001


@pytest.mark.parametrize(
    ("button", "answered"), [("Go on", 100), ("Sample only", 50)], ids=["all", "sample"]
)
def test_the_cost_is_a_question_with_buttons_of_its_own(notebook, button, answered):
    ask = "rows = rows[:100]"
    magic = "%%agent --map rows --into done --ask-above 0.01\nIs it? {{text}}\n"
    page = notebook([SETUP + ask, magic])
    page.run(0)
    cell = page.start(1)
    question = page.wait_for_question()
    expect(question.get_by_role("button")).to_have_text(["Go on", "Sample only", "Stop"])
    expect(question).to_contain_text("100 rows will cost about")
    expect(question).not_to_contain_text("wants to run")
    card = cell.locator(".agm-card")
    expect(card).to_contain_text("paused")
    expect(card.get_by_role("button")).to_have_count(0)  # the question has its own
    page.answer(button)
    page.wait_for_end(1)
    expect(cell).to_contain_text(f"{answered} of 100 rows have an answer")
