"""The foot of a running cell: what it says, and what is said there, whatever the kernel does."""

import re
from collections.abc import Callable, Sequence

from playwright.sync_api import Locator, expect

from tests.support.gates import GATE
from tests.support.kernels.cells import AGENTS, SLOW_MODEL, scripted
from tests.support.pages.accessibility import faults, taken_keys
from tests.support.pages.lab import NotebookPage, items_of

Open = Callable[..., NotebookPage]


# Holds the main thread until a file is there.
SPINS = "import os\nwhile not os.path.exists('go'):\n    pass"
SPIN = f"Call('python', {{'code': {SPINS!r}}})"
WAIT = f"Call('python', {{'code': {GATE!r}}})"
ASKING = "%%agent --approval untrusted\nGo.\n"
STORE = f"{AGENTS}['default'].session.conversation.store"
CELL = "%%agent --approval never\nGo.\n"


def foot(page: NotebookPage, cell: int) -> Locator:
    """The foot of a cell."""
    return page.cell(cell).locator(".am-foot")


def say(page: NotebookPage, cell: int, words: str, key: str = "Enter") -> None:
    """Type words into the foot's field and send them."""
    field = foot(page, cell).get_by_role("textbox")
    field.fill(words)
    field.press(key)


def said(page: NotebookPage, cell: int) -> list[str]:
    """What the saved cell tells that the person added."""
    texts = [str(item.get("text", "")) for item in items_of(page.save().cells[cell])]
    return [text.removeprefix("You added: ") for text in texts if text.startswith("You added")]


def test_words_reach_a_kernel_that_spins(notebook: Open, looks: Sequence[str]) -> None:
    turns = (SPIN, repr("Of March."), repr("Of April."))
    page = notebook([scripted(*turns), CELL, ""])
    page.run(0)
    page.start(1)
    expect(foot(page, 1)).to_contain_text("Runs python")
    say(page, 1, "Only March.")
    say(page, 1, "Never.", "Alt+Enter")
    say(page, 1, "And April?", "Alt+Enter")
    expect(foot(page, 1)).to_contain_text("Sent, read when the running calls end: Only March.")
    queued = foot(page, 1).locator(".am-foot-queued")
    expect(queued).to_have_text([re.compile("Never"), re.compile("And April")])
    assert faults(page, "foot", looks=looks) == []
    assert taken_keys(page) == []
    foot(page, 1).get_by_role("button", name="Remove: Never.").click()
    expect(queued).to_have_text([re.compile("And April")])
    (page.lab.folder / page.name).with_name("go").touch()
    page.wait_for_end(1)
    expect(foot(page, 1)).to_have_count(0)
    assert said(page, 1) == ["Only March.", "And April?"]
    assert "am-foot" not in str(page.lab.read(page.name))


def test_it_says_what_is_waited_for_and_stops(notebook: Open) -> None:
    setup = scripted() + SLOW_MODEL + f"\n{AGENTS}['default'] = Agent(SlowModel())\n"
    page = notebook([setup, "%%agent\nGo.\n", ""])
    page.run(0)
    page.start(1)
    expect(foot(page, 1)).to_contain_text("The model answers")
    expect(foot(page, 1).locator(".am-foot-time")).to_have_text(re.compile("[1-9] s"))
    field = foot(page, 1).get_by_role("textbox")
    field.press("Tab")  # the keyboard alone does
    page.page.keyboard.press("Enter")
    page.wait_for_end(1)
    expect(foot(page, 1)).to_have_count(0)
    page.wait_for_text(1, "Interrupted")


def test_the_notebook_is_saved_from_the_field(notebook: Open) -> None:
    setup = scripted() + SLOW_MODEL + f"\n{AGENTS}['default'] = Agent(SlowModel())\n"
    page = notebook([setup, "%%agent\nGo.\n", ""])
    page.run(0)
    page.start(1)
    field = foot(page, 1).get_by_role("textbox")
    field.fill("A draft")
    with page.page.expect_request(
        lambda request: request.method == "PUT" and ".ipynb" in request.url
    ):
        field.press("Control+s")
    expect(field).to_have_value("A draft")


def test_words_close_a_question_and_drafts_are_kept(notebook: Open) -> None:
    page = notebook(
        [scripted("Call('python', {'code': '1'})", repr("As you say.")), "%%agent\nGo.\n"]
    )
    page.run(0)
    page.start(1)
    page.wait_for_question()
    expect(foot(page, 1)).to_contain_text("Waits for your answer: python")
    say(page, 1, "No code, please.")
    page.wait_for_end(1)
    expect(page.questions).to_have_count(0)
    assert said(page, 1) == ["No code, please."]


def test_a_page_that_is_loaded_anew_has_it_again(notebook: Open) -> None:
    page = notebook([scripted(WAIT, repr("Done."), repr("Of April.")), CELL, ""])
    gate = page.make_gate()
    page.run(0)
    page.start(1)
    expect(foot(page, 1)).to_contain_text("Runs python")
    say(page, 1, "And April?", "Alt+Enter")
    expect(foot(page, 1).locator("li")).to_have_count(1)
    page.page.keyboard.press("Escape")  # out of the field, whose keys are its own
    page.save()
    page.reload()
    expect(foot(page, 1).locator("li")).to_have_text([re.compile("And April")])
    gate.open()
    expect(foot(page, 1)).to_have_count(0)
    page.wait_for_text(1, "You added: And April?")


def test_words_that_come_too_late_are_given_back(notebook: Open, looks: Sequence[str]) -> None:
    page = notebook([scripted(WAIT, repr("Done."), repr("Again.")), CELL, ""])
    gate = page.make_gate()
    page.run(0)
    page.start(1)
    expect(foot(page, 1)).to_contain_text("Runs python")
    foot(page, 1).get_by_role("textbox").fill("Half a th")
    gate.open()
    page.wait_for_end(1)
    left = "Not sent, since the agent has ended its turn: Half a th"
    expect(foot(page, 1)).to_contain_text(left)
    assert faults(page, "left", looks=looks) == []
    page.run(1)  # another turn in the same cell leaves them there
    page.wait_for_text(1, "Again.")
    expect(foot(page, 1)).to_contain_text(left)
    foot(page, 1).get_by_role("button", name="Put away").click()
    expect(foot(page, 1)).to_have_count(0)


def test_one_bar_answers_several_questions_but_no_dangerous_one(notebook: Open) -> None:
    touches = [f"Call('shell', {{'command': ['touch', '{name}']}})" for name in "abc"]
    danger = "Call('shell', {'command': ['git', 'reset', '--hard']})"
    page = notebook([scripted(f"[{', '.join([*touches, danger])}]", repr("Done.")), ASKING, ""])
    page.run(0)
    page.start(1)
    page.wait_for_question(3)
    expect(foot(page, 1)).to_contain_text("4 questions are open, 1 of them dangerous")
    foot(page, 1).get_by_role("button", name="Approve all 3").click()
    expect(page.cards(1).locator("text=ran")).to_have_count(3)
    expect(page.page.locator(".agm-question:not([data-answered])")).to_have_count(1)
    page.answer("Deny")
    page.wait_for_end(1)
    folder = (page.lab.folder / page.name).parent
    assert [(folder / name).exists() for name in "abc"] == [True] * 3
    decisions = f"{STORE}.grants"
    assert page.value(decisions) == "()"


def test_python_is_allowed_for_the_cell(notebook: Open) -> None:
    calls = [f"Call('python', {{'code': 'total = {n}'}})" for n in range(3)]
    page = notebook([scripted(*calls, repr("Done.")), "%%agent\nGo.\n", ""])
    page.run(0)
    page.start(1)
    question = page.wait_for_question()
    expect(question).to_contain_text("all Python in this kernel; leaving the workspace")
    page.answer("All such in this cell")
    page.wait_for_end(1)
    assert page.value("total") == "2"
