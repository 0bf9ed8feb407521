"""A person at the page answers questions by click, and the turn goes the way they said."""

from collections.abc import Callable

from playwright.sync_api import expect

from tests.support.kernels.cells import outputs, scripted
from tests.support.pages.lab import WIDGET, NotebookPage, items_of, mimes_of

Open = Callable[..., NotebookPage]


PYTHON = "Call('python', {'code': 'total = 6 * 7\\ntotal'})"
DONE = repr("It is done.")
AGENT = "%%agent\nGo.\n"
ASKING = "%%agent --approval untrusted\nGo.\n"  # about commands in the sandbox, too
# A page whose extension is not connected (yet), while another has proven its way to the kernel.
UNHEARD = "addEventListener('agent-magics-question', e => e.stopImmediatePropagation(), true)"
# What is drawn above moves a card or a foot between the press and the release, once.
MOVED_ONCE = """addEventListener('mousedown', ({ target }) => {
  const drawn = document.createElement('div');
  drawn.style.height = '200px';
  target.closest('.agm-question, .am-foot').before(drawn);
}, { capture: true, once: true })"""


def test_approve_runs_the_code_and_leaves_only_plain_outputs(notebook: Open) -> None:
    page = notebook([scripted(PYTHON, DONE), AGENT, ""])
    page.run(0)
    page.start(1)
    question = page.wait_for_question()
    expect(question).to_contain_text("total = 6 * 7")
    page.answer("Approve")
    page.wait_for_end(1)
    expect(page.questions).to_have_count(0)
    expect(page.cards(1)).to_have_count(1)
    page.wait_for_text(1, "42", "It is done.")
    assert page.value("total") == "42"

    saved = page.save()
    assert [item["kind"] for item in items_of(saved.cells[1])] == ["tool", "text"]
    assert items_of(saved.cells[1])[0]["note"] == "approved by the person; added total"
    for mimes in mimes_of(saved):
        assert WIDGET not in mimes
    assert all({"text/markdown", "text/plain"} <= set(o.data) for o in saved.cells[1].outputs)


def test_deny_takes_the_words_to_the_model(notebook: Open) -> None:
    echo = "lambda request: 'I was told: ' + request.history.items[-1].output"
    page = notebook([scripted(PYTHON, echo), AGENT, ""])
    page.run(0)
    page.start(1)
    page.answer("Deny", "use the sum function")
    page.wait_for_end(1)
    expect(page.outputs(1).last).to_contain_text("I was told:")
    expect(page.outputs(1).last).to_contain_text("use the sum function")
    assert page.value("'total' in globals()") == "False"
    (call, _) = items_of(page.save().cells[1])
    assert call["status"] == "denied"


def test_always_asks_again_only_about_other_code(notebook: Open) -> None:
    other = "Call('python', {'code': 'total = 1'})"
    page = notebook([scripted(PYTHON, DONE, PYTHON, other, DONE), AGENT, AGENT, ""])
    page.run(0)
    page.start(1)
    page.answer("Always for this session")
    page.wait_for_end(1)
    page.start(2)
    question = page.wait_for_question()
    expect(question).to_contain_text("total = 1")
    expect(page.cards(2)).to_have_count(1)
    page.answer("Approve")
    page.wait_for_end(2)
    assert page.value("total") == "1"
    assert len(page.value(outputs()).split(", ")) == 3


def test_stop_ends_the_turn_and_run_all(notebook: Open) -> None:
    page = notebook([scripted(PYTHON, DONE), AGENT, "reached = True", ""])
    page.run_all()
    page.answer("Stop")
    page.wait_for_end(1)
    page.wait_for_text(
        1, "Warning: Stopped at the question about python.", "UsageError: The agent was stopped"
    )
    expect(page.questions).to_have_count(0)
    assert page.value("'reached' in globals()") == "False"


def test_two_questions_are_answered_in_any_order(notebook: Open) -> None:
    calls = [f"Call('shell', {{'command': ['mkdir', '{name}']}})" for name in ("one", "two")]
    page = notebook([scripted(f"[{', '.join(calls)}]", DONE), ASKING, ""])
    page.run(0)
    page.start(1)
    page.wait_for_question(1)
    expect(page.questions).to_have_count(2)
    expect(page.questions.nth(0)).to_contain_text("mkdir one")
    page.answer("Approve", number=1)
    expect(page.cards(1)).to_have_count(1)
    expect(page.questions).to_have_count(1)
    page.answer("Deny")
    page.wait_for_end(1)
    first, second, *_ = items_of(page.save().cells[1])
    assert (first["status"], second["status"]) == ("denied", "completed")
    here = (page.lab.folder / page.name).parent
    assert (here / "two").is_dir()
    assert not (here / "one").exists()


ADD = "Call('shell', {'command': ['git', 'add', 'x']})"


def test_always_for_this_project_says_what_it_covers_and_writes_it_down(notebook: Open) -> None:
    page = notebook([scripted(ADD, DONE, ADD, DONE), ASKING, ASKING, ""])
    page.run(0)
    page.start(1)
    question = page.wait_for_question()
    covers = question.locator(".agm-scope", has_text="Always for this project")
    expect(covers).to_contain_text("git add …")
    expect(covers).to_contain_text("written to .agent_magics/rules.toml")
    page.answer("Always for this project")
    page.wait_for_end(1)
    page.run(2)
    expect(page.questions).to_have_count(0)
    rules = (page.lab.folder / page.name).parent / ".agent_magics" / "rules.toml"
    assert 'pattern = ["git", "add"]' in rules.read_text(encoding="utf-8")


def test_the_command_is_changed_at_the_page(notebook: Open) -> None:
    page = notebook([scripted("Call('shell', {'command': ['mkdir', 'one']})", DONE), ASKING, ""])
    page.run(0)
    page.start(1)
    question = page.wait_for_question()
    editor = question.get_by_role("textbox", name="What is to be run instead")
    expect(editor).to_be_hidden()
    question.get_by_role("button", name="Change…").click()
    expect(editor).to_be_focused()
    expect(editor).to_have_value("mkdir one")
    approve = question.get_by_role("button", name="Approve", exact=True)
    expect(approve).to_be_enabled()
    editor.fill("mkdir two")
    # It would run the command above, not what stands beside it; so would a lasting answer.
    for name in ("Approve", "Always in this cell"):
        expect(question.get_by_role("button", name=name, exact=True)).to_be_disabled()
    expect(question.get_by_role("button", name="Deny", exact=True)).to_be_enabled()
    editor.press("Escape")
    expect(editor).to_be_hidden()
    expect(approve).to_be_enabled()
    question.get_by_role("button", name="Change…").press("Enter")
    expect(editor).to_have_value("mkdir two")
    expect(approve).to_be_disabled()
    editor.press("Control+Enter")
    page.wait_for_end(1)
    here = (page.lab.folder / page.name).parent
    assert (here / "two").is_dir()
    assert not (here / "one").exists()
    assert "The person changed the command to: mkdir two" in page.value(outputs())


def test_a_question_is_answered_by_keyboard_alone(notebook: Open) -> None:
    page = notebook([scripted(PYTHON, DONE), AGENT, ""])
    page.run(0)
    page.start(1)
    question = page.wait_for_question()
    approve = question.get_by_role("button", name="Approve", exact=True)
    approve.focus()
    seen = []
    for _ in range(12):
        seen.append(page.page.evaluate("document.activeElement.textContent"))
        page.page.keyboard.press("Tab")
    for label in ("Approve", "Change…", "Deny", "Stop", "Always in this cell"):
        assert label in seen, label
    approve.focus()
    page.page.keyboard.press("Enter")
    page.wait_for_end(1)
    assert page.value("total") == "42"


def test_a_click_that_no_extension_takes_goes_by_the_widgets_own_way(notebook: Open) -> None:
    page = notebook([scripted(PYTHON, DONE), AGENT, ""])
    page.run(0)
    page.wait_for_link()
    page.page.evaluate(UNHEARD)
    page.start(1)
    page.answer("Approve")
    page.wait_for_end(1)
    assert page.value("total") == "42"


def test_a_press_counts_where_its_button_moves_and_not_where_the_pointer_does(
    notebook: Open,
) -> None:
    page = notebook([scripted(PYTHON, DONE), AGENT, ""])
    page.run(0)
    page.start(1)
    question = page.wait_for_question()
    question.get_by_role("button", name="Approve", exact=True).hover()
    page.page.mouse.down()
    page.page.mouse.move(2, 2)
    page.page.mouse.up()
    page.page.evaluate(MOVED_ONCE)
    expect(question).not_to_have_attribute("data-answered", "true")
    page.answer("Approve")
    page.wait_for_end(1)
    assert page.value("total") == "42"


def test_stop_at_the_foot_counts_where_outputs_move_it(notebook: Open) -> None:
    page = notebook([scripted(PYTHON, DONE), AGENT, ""])
    page.run(0)
    page.start(1)
    page.wait_for_question()
    page.page.evaluate(MOVED_ONCE)
    page.cell(1).locator(".am-foot-stop").click()
    page.wait_for_end(1)
    assert page.value("'total' in globals()") == "False"


def test_of_a_long_command_the_end_is_in_sight(notebook: Open) -> None:
    code = "x = 1\\n" * 300 + "evil = 666"
    page = notebook([scripted(f"Call('python', {{'code': '{code}'}})", DONE), AGENT, ""])
    page.run(0)
    page.start(1)
    question = page.wait_for_question()
    ending = question.locator(".agm-ending")
    expect(ending).to_contain_text("evil = 666")
    ending.scroll_into_view_if_needed()
    expect(ending).to_be_in_viewport(ratio=1)
    height = "question => question.getBoundingClientRect().height"
    page.wait_until(lambda: question.evaluate(height) < 900)  # it fits the window
    page.answer("Deny")
    page.wait_for_end(1)
