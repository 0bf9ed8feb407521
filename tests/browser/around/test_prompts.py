"""Prompts in the editor: prose with code in it, and completion of what they mention."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, expect

from tests.support.gates import GATE
from tests.support.kernels.cells import scripted
from tests.support.pages.lab import NotebookPage

Open = Callable[..., NotebookPage]

pytestmark = pytest.mark.needs("labextension")

PROSE = "text/x-markdown"
PROMPT = """%%agent --approval never --into "answer" --output list[int]
Don't be *shy*: what is in {{sales[sales > 1]}} for $5?
"""
VARIABLES = "sales = [1, 2, 3]\nsalary = 'x' * 10"
# JupyterLab's own completion would hold up the list until the kernel is free, or its limit.
ONLY_OURS = """async () => {
  const plugin = jupyterapp.pluginRegistry._plugins.get('@jupyterlab/completer-extension:manager');
  const manager = await jupyterapp.resolveRequiredService(plugin.provides);
  manager.activateProvider(['agent-magics:prompts']);
}"""


def language(page: NotebookPage, number: int) -> str:
    """The language of a cell's editor."""
    widgets = "window.jupyterapp.shell.currentWidget.content.widgets"
    mime: str = page.page.evaluate(f"() => {widgets}[{number}].model.mimeType")
    return mime


def completions(page: NotebookPage) -> Locator:
    """The completions that are on offer."""
    return page.page.locator(".jp-Completer:not(.lm-mod-hidden) .jp-Completer-match")


def write(page: NotebookPage, number: int, text: str) -> None:
    """Put text at the end of a cell, at once: typed, it would filter and sort an early list."""
    page.cell(number).locator(".jp-InputArea-editor").click()
    page.page.keyboard.press("Control+End")
    page.page.keyboard.insert_text(text)


# Of each line whether its last sign stands right (1) or left of its first.
ENDS = """lines => lines.map(line => {
  const texts = document.createTreeWalker(line, NodeFilter.SHOW_TEXT), range = new Range();
  const first = texts.nextNode();
  let last = first;
  for (let text; (text = texts.nextNode()); ) last = text;
  range.setStart(first, 0), range.setEnd(first, 1);
  const begin = range.getBoundingClientRect().left;
  range.setStart(last, last.length - 1), range.setEnd(last, last.length);
  return Math.sign(range.getBoundingClientRect().left - begin);
})"""


def test_a_prompt_is_shown_as_prose_and_a_cell_goes_back(notebook: Open) -> None:
    page = notebook([PROMPT, "x = 1", "%%agent\nاكتب التقرير.\nWrite it."])  # noqa: RUF001
    usual = language(page, 1)
    page.wait_until(lambda: language(page, 0) == PROSE)
    code = page.cell(0).locator(".am-prompt-code:not(.am-prompt-expression)")
    words = ["%%agent", "--approval", "never", "--into", '"answer"', "--output", "list[int]"]
    page.wait_until(lambda: "".join(code.all_inner_texts()) == "".join(words))
    # To Markdown a type is a link.
    lines = "all => all.every(each => getComputedStyle(each).textDecorationLine === 'none')"
    page.wait_until(lambda: page.cell(0).locator(".cm-line").first.locator("*").evaluate_all(lines))
    expression = page.cell(0).locator(".am-prompt-expression")
    page.wait_until(lambda: "".join(expression.all_inner_texts()) == "{{sales[sales > 1]}}")
    expect(page.cell(0).locator(".cm-content")).to_have_css("white-space", "break-spaces")
    # Each line runs as its words do: its last sign stands at its end.
    page.wait_until(lambda: page.cell(2).locator(".cm-line").evaluate_all(ENDS) == [1, -1, 1])
    write(page, 1, "\ny")
    page.page.keyboard.press("Control+Home")
    page.page.keyboard.type("%%agent\n")
    page.wait_until(lambda: language(page, 1) == PROSE)
    for _ in range(3):
        page.page.keyboard.press("Backspace")
    page.wait_until(lambda: language(page, 1) == usual)
    expect(page.cell(1).locator(".am-prompt, .am-prompt-code")).to_have_count(0)


def test_what_a_prompt_mentions_is_completed_also_while_the_kernel_works(notebook: Open) -> None:
    script = scripted("lambda request: request.prompt")
    page = notebook([script, VARIABLES, GATE, "%%agent\nSum ", ""])
    gate = page.make_gate()
    gate.path.with_name("sales.csv").write_text("a\n1\n", encoding="utf-8")
    page.run(0)
    page.run(1)
    page.wait_for_link()
    write(page, 3, "@sal")
    expect(completions(page)).to_have_text(["@{{salary}}", "@{{sales}}", "@sales.csv"])
    page.page.keyboard.press("ArrowDown")
    page.page.keyboard.press("Enter")
    page.wait_until(lambda: page.sources()[3] == "%%agent\nSum {{sales}}")
    page.start(2)
    page.page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=busy]")
    page.page.evaluate(ONLY_OURS)
    write(page, 3, " of @sales.")
    expect(completions(page)).to_have_text(["@sales.csv"])
    page.page.keyboard.press("Enter")
    gate.open()
    page.wait_for_end(2)
    page.run(3)
    page.wait_for_text(3, "Sum [1,2,3] of sales.csv")


# A picture and files as the browser hands them over.
PASTE = """([node, kind, files]) => {
  const data = new DataTransfer();
  for (const [name, type, size] of files) {
    const canvas = document.createElement('canvas');
    const url = canvas.toDataURL(type === 'image/png' ? type : 'image/png');
    const bytes = Uint8Array.from(atob(url.split(',')[1]), letter => letter.charCodeAt(0));
    const content = type === 'image/png' ? bytes : new Uint8Array(size);
    data.items.add(new File([content], name, { type }));
  }
  const place = node.getBoundingClientRect();
  const event = kind === 'paste'
    ? new ClipboardEvent(kind, { clipboardData: data, bubbles: true, cancelable: true })
    : new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true,
        clientX: place.right - 5, clientY: place.bottom - 5 });
  node.dispatchEvent(event);
}"""


def give(page: NotebookPage, number: int, kind: str, *files: tuple[str, str, int]) -> None:
    """Paste or drop files (name, type, bytes) into a cell."""
    editor = page.cell(number).locator(".cm-content")
    page.page.evaluate(PASTE, [editor.element_handle(), kind, [list(file) for file in files]])


def test_pasted_and_dropped_files_are_saved_and_reach_the_model(notebook: Open) -> None:
    seen = "lambda request: str([type(part).__name__ for part in request.history.items[0].content])"
    page = notebook([scripted(seen), "%%agent\nLook: ", "x = 1", ""])
    folder = (page.lab.folder / page.name).parent
    write(page, 1, "")
    give(page, 1, "paste", ("image.png", "image/png", 0))
    told = page.page.locator(".Toastify__toast")
    expect(told).to_contain_text("image.png was not saved, since agent_magics is not loaded")
    page.run(0)
    page.wait_for_link()
    write(page, 1, "")
    give(page, 1, "paste", ("image.png", "image/png", 0))
    page.wait_until(lambda: page.sources()[1] == "%%agent\nLook: ![](pasted/image.png)")
    give(page, 1, "drop", ("my data.csv", "text/csv", 600_000))
    page.wait_until(lambda: page.sources()[1].endswith(") pasted/my-data.csv"))
    assert (folder / "pasted/my-data.csv").stat().st_size == 600_000
    give(page, 1, "drop", ("film.mov", "video/quicktime", 21 << 20))
    expect(told.filter(has_text="film.mov has 21 MiB, and files of up to")).to_be_visible()
    page.run(1)
    page.wait_for_text(1, "['InputText', 'InputImage']")
    give(page, 2, "paste", ("other.png", "image/png", 0))  # Python takes none
    give(page, 1, "paste", ("last.png", "image/png", 0))
    page.wait_until(lambda: "![](pasted/last.png)" in page.sources()[1])
    page.wait_until(lambda: page.sources()[2] == "x = 1")
    files = sorted(file.name for file in (folder / "pasted").iterdir())
    assert files == ["image.png", "last.png", "my-data.csv"]
