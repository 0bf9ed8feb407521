"""Many calls in few lines: finished ones fold, failures stay, the newest is kept in sight."""

from collections.abc import Callable, Sequence

import pytest
from playwright.sync_api import Locator, expect

from tests.support.kernels.cells import scripted
from tests.support.pages.accessibility import faults
from tests.support.pages.lab import NotebookPage, items_of

Open = Callable[..., NotebookPage]

pytestmark = pytest.mark.needs("labextension")

AGENT = "%%agent --approval never --max-turns 100\nGo.\n"
DONE = repr("It is **done**.")
MOST_PIXELS = 900


def _listed(count: int, first: int = 1) -> str:
    """Calls, a step each; each is another one, since what goes round in circles is asked about."""
    calls = f"[Call('list_dir', {{'pattern': 'x' * n}})] for n in range({first}, {first + count})"
    return f"*[{calls}]"


def _shell(script: str) -> str:
    return f"Call('shell', {{'command': ['bash', '-c', {script!r}]}})"


def _groups(page: NotebookPage, number: int) -> Locator:
    return page.cell(number).locator("details.am-group")


def _below(page: NotebookPage, number: int) -> float:
    """Return by how many pixels the end of a cell is below what the page shows."""
    bottom = "cell => cell.getBoundingClientRect().bottom - innerHeight"
    return float(page.cell(number).evaluate(bottom))


def test_sixty_calls_are_a_few_lines_that_unfold(notebook: Open) -> None:
    page = notebook([scripted(_listed(30), _shell("exit 3"), _listed(29, 31), DONE), AGENT, ""])
    page.run(0)
    page.run(1)
    groups = _groups(page, 1)
    expect(groups.first).to_be_visible()
    page.wait_for_text(1, "It is done.")
    height = "area => area.getBoundingClientRect().height"
    page.wait_until(lambda: page.area(1).evaluate(height) <= MOST_PIXELS)
    failed = page.cell(1).locator("details.am-failed")
    expect(failed).to_have_count(1)
    expect(failed).to_have_attribute("open", "")
    expect(page.cards(1)).to_have_count(1)  # the others are drawn when somebody looks at them

    page.save()
    page.reload()
    expect(_groups(page, 1).first).to_be_visible()
    group = _groups(page, 1).first
    group.locator("> summary").focus()
    page.page.keyboard.press("Enter")
    inside = group.locator("details.am-card")
    expect(inside.first).to_be_visible()
    expect(inside.first.locator("> summary")).to_have_css("padding-left", "8px")  # of the bar
    inside.first.locator("> summary").focus()
    expect(inside.first).to_contain_text('"pattern": "x"')
    page.page.keyboard.press("Enter")
    expect(inside.first).not_to_have_attribute("open", "")
    cell = page.lab.read(page.name).cells[1]
    calls = [item for item in items_of(cell) if item["kind"] == "tool"]
    assert [call["status"] for call in calls].count("completed") == 59
    assert len(calls) == 60
    assert len(cell.outputs) == 4  # three of calls, and the answer


def test_what_was_unfolded_stays_so_while_more_calls_join(notebook: Open) -> None:
    calls = (_listed(3), _shell("seq 300"), _shell(": < gate"), _listed(2, 4))
    page = notebook([scripted(*calls, DONE), AGENT, ""])
    gate = page.make_gate()
    page.run(0)
    page.start(1)
    group = _groups(page, 1).first
    expect(group.locator("> summary")).to_contain_text("3 folders listed, 1 command")
    group.locator("> summary").click()
    cards = group.locator("details.am-card")
    expect(cards).to_have_count(4)
    cards.nth(3).locator("> summary").click()
    output = cards.nth(3).get_by_label("Output of shell")
    output.focus()
    expect(output).to_be_focused()
    output.evaluate("pre => pre.scrollTop = 900")
    gate.open()
    page.wait_for_end(1)
    expect(group.locator("> summary")).to_contain_text("5 folders listed, 2 commands")
    expect(group).to_have_attribute("open", "")
    expect(cards).to_have_count(7)
    expect(output).to_be_focused()
    assert output.evaluate("pre => pre.scrollTop") == 900


# What is still being drawn would be followed, and undo the turn of the wheel.
_SETTLED = """async cell => {
  for (let same = 0, last = NaN; same < 20; ) {
    await new Promise(requestAnimationFrame);
    const bottom = cell.getBoundingClientRect().bottom;
    same = bottom === last ? same + 1 : 0;
    last = bottom;
  }
}"""


def test_the_newest_is_kept_in_sight_until_the_reader_scrolls(
    notebook: Open, looks: Sequence[str]
) -> None:
    waits = [_shell(f": < go{n}; exit 3") for n in (1, 2)]
    fails = "*[[Call('shell', {'command': ['bash', '-c', f'seq 9; exit {n}']})] for n in range(%s)]"
    script = scripted(fails % "3, 11", waits[0], fails % "11, 19", waits[1], DONE)
    page = notebook([script, AGENT, "", ""])
    gates = [page.make_gate(f"go{n}") for n in (1, 2)]
    page.run(0)
    page.start(1)
    foot = page.cell(1).locator(".am-foot")
    running = page.cell(1).locator(".agm-stream, details.am-running")
    expect(foot).to_contain_text("go1")
    expect(running.last).to_be_visible()
    page.wait_until(lambda: _below(page, 1) <= 1)
    follow = page.page.get_by_role("button", name="Follow")
    expect(follow).to_be_hidden()

    page.cell(1).evaluate(_SETTLED)
    page.page.mouse.move(600, 400)
    page.page.mouse.wheel(0, -900)
    expect(follow).to_be_visible()
    assert faults(page, "follow", looks=looks) == []
    top = page.cell(1).evaluate("cell => cell.getBoundingClientRect().top")
    gates[0].open()
    expect(foot).to_contain_text("go2")
    assert abs(page.cell(1).evaluate("cell => cell.getBoundingClientRect().top") - top) <= 2
    expect(follow).to_be_visible()
    follow.click()
    page.wait_until(lambda: _below(page, 1) <= 1)
    expect(follow).to_be_hidden()
    gates[1].open()
    page.wait_for_end(1)
    expect(page.cell(1)).to_contain_text("It is done.")
    page.wait_until(lambda: _below(page, 1) <= 1)
    expect(follow).to_be_hidden()


def test_who_scrolls_up_is_left_there_while_another_agent_is_at_work_too(notebook: Open) -> None:
    """The kernel tells of both by turns."""
    other = scripted(_shell(": < back1"), _shell(": < back2"), DONE, name="other")
    fails = [_shell(f"seq 9; exit {n}") for n in range(3, 11)]
    script = scripted(*fails, _shell(": < go1"), _shell(": < go2"), DONE)
    background = AGENT.replace("%%agent", "%%agent --background --name other")
    page = notebook([f"{other}{script}", background, AGENT, ""])
    gates = {name: page.make_gate(name) for name in ("back1", "back2", "go1", "go2")}
    page.run(0)
    page.run(1)
    page.start(2)
    feet = [page.cell(number).locator(".am-foot") for number in (1, 2)]
    expect(feet[0]).to_contain_text("back1")
    expect(feet[1]).to_contain_text("go1")
    page.wait_until(lambda: _below(page, 2) <= 1)
    page.cell(2).evaluate(_SETTLED)
    page.page.mouse.move(600, 400)
    page.page.mouse.wheel(0, -500)
    follow = page.page.get_by_role("button", name="Follow")
    expect(follow).to_be_visible()
    scrolled = "panel => panel.scrollTop"
    outer = page.page.locator(".jp-WindowedPanel-outer:visible")
    left_at = outer.evaluate(scrolled)
    for gate, foot, following in (("back1", feet[0], "back2"), ("go1", feet[1], "go2")):
        gates[gate].open()
        expect(foot).to_contain_text(following)
    page.cell(2).evaluate(_SETTLED)
    assert abs(outer.evaluate(scrolled) - left_at) <= 2
    expect(follow).to_be_visible()
    gates["back2"].open()
    gates["go2"].open()
    page.wait_for_end(2)
    expect(page.cell(1)).to_contain_text("It is done.")


def test_a_call_of_thirty_seconds_says_what_can_be_done(notebook: Open) -> None:
    sleep = "Call('shell', {'command': ['sleep', '600'], 'timeout_ms': 600_000})"
    page = notebook([scripted(sleep, DONE), AGENT, ""])
    page.run(0)
    page.start(1)
    foot = page.cell(1).locator(".am-foot")
    expect(foot).to_contain_text("Runs shell")
    expect(foot).not_to_contain_text("This may take long")
    # The clock jumps several times, since the kernel may tell of the call again after the first.
    page.page.evaluate(
        """let jumps = 0;
        const now = performance.now.bind(performance);
        performance.now = () => now() + 31000 * Math.min(++jumps, 6);"""
    )
    expect(foot.locator(".am-foot-slow")).to_contain_text("Stop ends the turn")
    foot.get_by_role("button", name="Stop").click()
    page.wait_for_end(1)
    page.page.evaluate("delete performance.now")  # so that the next test can have the page


def test_a_page_whose_clock_a_test_has_changed_is_loaded_anew(notebook: Open) -> None:
    """Others are used again, which takes half as long."""
    for change, seen in (("", None), ("performance.now = () => 7", 1), ("", None), ("", 1)):
        page = notebook([""], kernel=False)
        assert page.page.evaluate("performance.now()") != 7
        assert page.page.evaluate("[window.left, window.left = 1][0]") is seen
        page.page.evaluate(change or "0")
        page.leave()
