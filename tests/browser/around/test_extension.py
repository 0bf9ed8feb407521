"""The extension's line to the kernel: clicks while it is busy, pages loaded anew, page tools."""

from collections.abc import Callable

from playwright.sync_api import expect

from tests.support.kernels.cells import outputs, scripted
from tests.support.pages.lab import WIDGET, NotebookPage, items_of

Open = Callable[..., NotebookPage]


DONE = repr("It is done.")
AGENT = "%%agent\nGo.\n"
LAB = "get_ipython().magics_manager.registry['AgentMagics'].lab"
# Code that holds the main thread, and calls a tool about which the person is asked.
CODE = "made = []\nmade.append(shell(['mkdir', 'made']))\nprint('made', len(made))"
NESTED = f"Call('python', {{'code': {CODE!r}}})"


def test_a_click_answers_while_live_code_holds_the_main_thread(notebook: Open) -> None:
    agent = "%%agent --approval untrusted\nGo.\n"
    page = notebook([scripted(NESTED, DONE), agent, "%agent doctor", ""])
    page.run(0)
    page.start(1)
    page.answer("Approve")
    question = page.questions.filter(has_text="mkdir made")
    expect(question.get_by_role("button", name="Approve", exact=True)).to_be_enabled()
    expect(page.page.locator(".jp-Stdin-input")).to_have_count(0)
    question.get_by_role("button", name="Approve", exact=True).click()
    page.wait_for_end(1)
    expect(page.questions).to_have_count(0)
    cell = page.save().cells[1]
    assert "made 1" in items_of(cell)[0]["output"]  # folded: both calls are done
    assert all(WIDGET not in output.data for output in cell.outputs)
    page.run(2)
    page.wait_for_text(2, "also while code runs", "by a subshell")


def test_a_page_that_is_loaded_anew_draws_on(notebook: Open) -> None:
    code = "Call('python', {'code': 'total = 6 * 7\\ntotal'})"
    more = "Call('list_dir', {'path': '.'})"
    page = notebook([scripted(f"['I look.', {more}]", code, DONE), AGENT, ""])
    page.run(0)
    page.start(1)
    page.wait_for_question()
    page.reload()  # what was drawn until now was not saved
    page.wait_for_question()
    expect(page.outputs(1).first).to_have_text("I look.")
    page.answer("Approve")
    expect(page.outputs(1).last).to_contain_text("It is done.")
    expect(page.questions).to_have_count(0)
    assert page.value("total") == "42"  # so the cell has ended, and all of it has come
    saved = page.save()
    kinds = [item["kind"] for item in items_of(saved.cells[1])]
    assert kinds == ["text", "tool", "tool", "text"]
    assert all(WIDGET not in output.data for output in saved.cells[1].outputs)


# What another extension does that requires the token; the page's plugin registry gives it.
REGISTER = """
() => {
  const app = window.jupyterapp;
  const token = app.pluginRegistry._plugins.get('agent-magics:link').provides;
  return app.resolveRequiredService(token).then(agents => {
    window.seen = [];
    window.offered = agents.registerTool({
      name: 'pick_point',
      description: 'Let the person pick a point of the chart.',
      inputSchema: {
        type: 'object',
        properties: { chart: { type: 'string' } },
        required: ['chart']
      }
    }, async call => {
      window.seen.push(call.arguments.chart);
      if (call.arguments.chart === 'none') { throw new Error('no such chart'); }
      return { x: 3, y: 4, path: call.path };
    });
  });
}
"""


def test_another_extension_offers_a_tool_to_the_model(notebook: Open) -> None:
    calls = [f"Call('pick_point', {{'chart': {chart!r}}})" for chart in ("sales", "none")]
    offered = "lambda request: str('pick_point' in [t.spec.name for t in request.tools])"
    page = notebook([scripted(*calls, DONE, offered), "%%agent --approval never\nGo.\n", AGENT, ""])
    page.run(0)
    page.page.evaluate(REGISTER)  # perhaps while the page is still connecting
    page.wait_until(lambda: page.value(f"'pick_point' in {LAB}.tools()") == "True")
    page.run(1)
    page.wait_until(lambda: page.page.evaluate("window.seen") == ["sales", "none"])
    answers = page.value(f"str({outputs()})")
    assert '"x":3,"y":4' in answers and "no such chart" in answers
    page.page.evaluate("window.offered.dispose()")
    page.wait_until(lambda: page.value(f"{LAB}.tools()") == "{}")
    page.run(2)
    expect(page.outputs(2).last).to_have_text("False")
