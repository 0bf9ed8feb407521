"""Scratch code gets copies of the notebook's variables, and nothing of it reaches the kernel."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.support.kernels.cells import outputs, scripted
from tests.support.kernels.driver import Kernel, Outcome

pytestmark = pytest.mark.needs("tier 1")


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with Kernel(cwd=str(tmp_path_factory.mktemp("scratch"))) as kernel:
        assert (
            kernel.run(
                "import pandas as pd\nsales = pd.DataFrame({'n': [1, 2, 3]})\nlimit = 2\n"
                "class Mine:\n    pass\nmine = Mine()"
            ).status
            == "ok"
        )
        yield kernel


def _run(kernel: Kernel, *calls: dict[str, Any]) -> Outcome:
    script = [f"Call('python', {call!r})" for call in calls]
    assert kernel.run(scripted(*script, repr("Done."))).status == "ok"
    outcome = kernel.run("%%agent\nGo.\n", allow_stdin=True, notebook=True)
    assert outcome.status == "ok", outcome.text
    assert outcome.prompts == []
    return outcome


def _told(kernel: Kernel, number: int = 0) -> str:
    return kernel.value(f"{outputs()}[{number}]")


def test_variables_are_copied_and_the_notebooks_stay_as_they_are(kernel: Kernel) -> None:
    before = kernel.value("sorted(name for name in globals() if name[0] != '_')")
    code = "sales['n'] *= limit\nextra = 1\nprint(int(sales.n.sum()))"
    outcome = _run(
        kernel,
        {"code": code, "where": "scratch", "values": ["sales", "limit"]},
        {"code": "print(extra, len(sales))", "where": "scratch"},
    )
    assert _told(kernel) == "12"
    assert _told(kernel, 1) == "1 3"
    assert [item["status"] for item in outcome.items_of("tool")] == ["completed", "completed"]
    assert kernel.value("int(sales.n.sum())") == "6"
    # What sets the script up has bound a few names.
    after = kernel.value("sorted(name for name in globals() if name[0] != '_')")
    assert set(eval(after)) - set(eval(before)) <= {"Agent", "Call", "ScriptedModel", "tool"}


def test_what_only_the_notebook_knows_is_named(kernel: Kernel) -> None:
    _run(kernel, {"code": "print('ran')", "where": "scratch", "values": ["mine", "limit"]})
    told = _told(kernel)
    assert "The code was not run, since these values cannot be read in scratch: mine (" in told
    _run(kernel, {"code": "1", "where": "scratch", "values": ["sales.n"]})
    assert "there is no variable sales.n; give names" in _told(kernel)


def test_its_code_is_shown_and_taken_along_marked(kernel: Kernel, tmp_path: Path) -> None:
    kernel.run("%agent reset")
    _run(
        kernel,
        {"code": "print(len(sales))", "where": "scratch", "values": ["sales", "limit"]},
        {"code": "%%time\n1", "where": "scratch"},
    )
    note = "*In scratch, with copies of `sales`, `limit`:*"
    shown = kernel.run("%agent history --code").outputs[0]["data"]["text/markdown"]
    assert f"{note}\n\n```python\nprint(len(sales))\n```" in shown
    path = tmp_path / "taken.ipynb"
    assert "2 cells written" in kernel.run(f"%agent export {path}").text
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [(cell.cell_type, cell.source) for cell in notebook.cells]
    assert cells == [
        ("markdown", note),
        ("code", "print(len(sales))"),
        ("markdown", "*In scratch:*"),
        ("code", "%%time\n1"),
    ]
    assert notebook.cells[1].metadata.tags == ["scratch"]


def test_the_setting_chooses_the_place(kernel: Kernel) -> None:
    assert "live: in this kernel" in kernel.run("%agent doctor").text
    kernel.run("%config AgentMagics.python = 'scratch'")
    assert "scratch: beside this kernel" in kernel.run("%agent doctor").text
    _run(kernel, {"code": "print('sales' in globals())"}, {"code": "limit", "where": "live"})
    assert _told(kernel) == "False"
    assert "is switched off here" in _told(kernel, 1)
    kernel.run("%config AgentMagics.python = 'live'")
