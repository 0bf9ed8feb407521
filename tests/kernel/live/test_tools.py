"""Live code that calls tools, values by reference, and what it changed in the variables."""

import json
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from tests.support.kernels.cells import AGENTS, WAITS_IN_C, outputs, scripted
from tests.support.kernels.driver import Kernel, Outcome

TOOLS = '''
%load_ext agent_magics
import asyncio
import pandas as pd
from agent_magics import tool

calls = []


@tool(mutating=False)
def sales(month: str, rows: int = 3) -> pd.DataFrame:
    """Sales of one month.

    Args:
        month: an ISO month.
        rows: how many.
    """
    calls.append(month)
    return pd.DataFrame({"month": [month] * rows, "amount": range(rows)})


@tool
def total(table: pd.DataFrame) -> int:
    """Add the amounts up."""
    calls.append(id(table))
    print("total is at work")
    return int(table.amount.sum())


@tool(mutating=False)
async def later(n: int) -> int:
    """Add one, later."""
    await asyncio.sleep(0)
    return n + 1


@tool(parallel=True, mutating=False)
def double(n: int) -> int:
    """Double, on a thread of the pool."""
    return 2 * n
'''
WAYS = pytest.mark.parametrize("wrapper", ["", "%%time\n"], ids=["awaiting", "blocking"])


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with Kernel(cwd=str(tmp_path_factory.mktemp("live"))) as kernel:
        assert kernel.run(TOOLS).status == "ok"
        yield kernel


def _run(
    kernel: Kernel,
    *codes: str,
    wrapper: str = "",
    approval: str = "never",
    answers: list[str] | None = None,
) -> Outcome:
    """Run an agent that runs `codes`, a call each."""
    calls = [f"Call('python', {{'code': {code!r}}})" for code in codes]
    assert kernel.run(scripted(*calls, repr("Done."))).status == "ok"
    cell = f"{wrapper}%%agent --approval {approval}\nGo.\n"
    return kernel.run(cell, allow_stdin=answers is not None, answers=answers)


def _told(kernel: Kernel, number: int = 0) -> str:
    return kernel.value(f"{outputs()}[{number}]")


# -- tools as functions --------------------------------------------------------------------------


@WAYS
def test_tools_are_plain_functions(kernel: Kernel, wrapper: str) -> None:
    kernel.run("calls.clear()\nopen('a.txt', 'w').write('one\\ntwo\\n')")
    code = (
        "frame = sales('2024-03', rows=4)\n"
        "print(type(frame).__name__, len(sales(month='2024-04')), double(21))\n"
        "print(await later(1), later(2), total(frame), calls[-1] == id(frame))\n"
        "print(repr(read_file('a.txt')), len(list_dir()) > 0)\n"
        "print(shell(['printf', 'hi']).stdout)"
    )
    outcome = _run(kernel, code, wrapper=wrapper)
    assert outcome.tool("python")["status"] == "completed", outcome.text
    told = _told(kernel).splitlines()
    assert told[0] == "DataFrame 3 42"
    assert told[1:4] == ["2 3 6 True", r"'one\ntwo\n' True", "hi"]
    assert "total is at work" in outcome.text
    names = [item["name"] for item in outcome.items_of("tool")]
    called = "python sales sales double later later total read_file list_dir shell"
    assert sorted(names) == sorted(called.split())


def test_calls_run_side_by_side(kernel: Kernel) -> None:
    _run(kernel, "print(await asyncio.gather(*(double.aio(n) for n in range(20))))")
    assert _told(kernel) == str([2 * n for n in range(20)])


def test_they_have_real_signatures_and_help(kernel: Kernel) -> None:
    code = (
        "import inspect\nhelp(sales)\nprint(inspect.signature(read_file).parameters['path'])\n"
        "try:\n    sales(moth='2024-03')\nexcept TypeError as error:\n    print(error)"
    )
    _run(kernel, code)
    told = _told(kernel)
    assert "sales(month: str, rows: int = 3) -> pandas" in told
    assert "month: an ISO month." in told
    assert "path: str" in told
    assert "missing a required argument: 'month'" in told


def test_a_failing_call_raises_and_the_traceback_has_only_the_code(kernel: Kernel) -> None:
    code = (
        "try:\n    sales('2024-03', rows='many')\nexcept RuntimeError as error:\n    print(error)\n"
        "read_file('missing.txt')"
    )
    _run(kernel, code)
    told = _told(kernel)
    assert "rows: expected an integer, got 'many' (string)" in told
    assert "line 5 of the code" in told
    assert "ToolFailedError: There is no missing.txt" in told
    assert "live_tools.py" not in told


def test_a_persons_variable_is_never_replaced(kernel: Kernel) -> None:
    kernel.run("double_before, list_dir = double, 'mine'")
    _run(kernel, "print(list_dir)\nread_file = 'of the code'")
    assert _told(kernel).startswith("mine")
    assert kernel.value("list_dir, read_file, double is double_before, 'shell' in globals()") == (
        "mine of the code True False"
    )
    kernel.run("del list_dir, read_file")


def test_the_persons_own_calls_run_directly(kernel: Kernel) -> None:
    outcome = kernel.run("total(sales('2024-05'))")
    assert not outcome.items
    assert outcome.outputs[-1]["data"]["text/plain"] == "3"


def test_events_name_the_call_that_made_them(kernel: Kernel) -> None:
    _run(kernel, "double(4)")
    seen = "[(e.name, e.parent_call_id) for e in _agent.events if type(e).__name__ == {!r}]"
    events = kernel.value(seen.format("ToolCallCompleted"))
    assert events == "[('double', 'call_1'), ('python', None)]", events


@WAYS
def test_an_approval_is_asked_while_the_code_holds_the_thread(kernel: Kernel, wrapper: str) -> None:
    code = (
        "table = sales('2024-03')\nprint(total(table))\nprint(await total(table))\n"
        "try:\n    total(table)\nexcept RuntimeError as error:\n    print(error)"
    )
    outcome = _run(
        kernel, code, wrapper=wrapper, approval="untrusted", answers=["y", "y", "y", "n too often"]
    )
    assert len(outcome.prompts) == 4
    told = _told(kernel)
    assert "the person denied it and says: too often" in told
    assert "wants to run" not in told, "questions are for the person"
    assert outcome.text.count("The agent wants to run total") == 3
    statuses = [item["status"] for item in outcome.items_of("tool") if item["name"] == "total"]
    assert statuses == ["completed", "completed", "denied"]


@WAYS
def test_stop_at_such_a_question_ends_the_turn(kernel: Kernel, wrapper: str) -> None:
    code = "try:\n    total(sales('2024-03'))\nexcept Exception:\n    pass\nafterwards = 1"
    outcome = _run(kernel, code, wrapper=wrapper, approval="untrusted", answers=["y", "s"])
    assert outcome.status == "error"
    assert "Stopped at the question about total" in outcome.text
    assert kernel.value("'afterwards' in globals()") == "False"


def test_policy_answers_where_nobody_can(kernel: Kernel) -> None:
    kernel.run("%agent answer approve")
    outcome = _run(kernel, "total(sales('2024-03'))", approval="untrusted")
    assert outcome.status == "ok"
    assert "nobody can be asked in this run" in _told(kernel)


@WAYS
def test_an_interrupt_ends_a_call_that_the_code_waits_for(kernel: Kernel, wrapper: str) -> None:
    pressed = []

    def press(message: dict) -> None:
        if "at work" in json.dumps(message["content"]) and not pressed:
            pressed.append(True)
            kernel.interrupt()

    kernel.run(
        f"{WAITS_IN_C}\n"
        "@tool(mutating=False)\n"
        "def waits() -> None:\n"
        '    """Wait for ever."""\n'
        "    wait_in_c()\n"
    )
    code = "try:\n    waits()\nexcept Exception:\n    pass\nafterwards = 1"
    calls = f"Call('python', {{'code': {code!r}}})"
    kernel.run(scripted(calls, repr("Done.")))
    outcome = kernel.run(f"{wrapper}%%agent --approval never\nGo.\n", on_message=press)
    assert (outcome.status, outcome.error) == ("error", "KeyboardInterrupt")
    assert kernel.value("'afterwards' in globals()") == "False"
    assert kernel.run("%%agent --approval never\nGo on.\n").status == "ok"
    kernel.run("del waits")


def test_from_another_thread_a_call_is_refused_with_the_way_out(kernel: Kernel) -> None:
    code = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor() as pool:\n    print(pool.submit(double, 2).exception())"
    )
    _run(kernel, code)
    assert "main thread only; await asyncio.gather(double.aio(...)" in _told(kernel)


def test_a_function_kept_for_later_says_that_its_run_is_over(kernel: Kernel) -> None:
    _run(kernel, "kept = double")
    outcome = kernel.run("kept(1)")
    assert outcome.error == "ToolFailedError"
    assert "belonged to a run of code that has ended" in outcome.text


def test_the_model_reads_how_the_tools_are_called(kernel: Kernel) -> None:
    _run(kernel, "1")
    specs = f"{AGENTS}['default'].turn_config(tools=['data', sales, total]).specs"
    text = kernel.value(f"[s.spec.description for s in {specs} if s.spec.name == 'python'][0]")
    assert "\nsales(month: str, rows: int = 3) -> DataFrame\ntotal(table: DataFrame) -> int" in text
    assert "\npython(" not in text


# -- values by reference -------------------------------------------------------------------------


def test_a_result_goes_from_tool_to_tool_and_into_code_by_reference(kernel: Kernel) -> None:
    kernel.run("calls.clear()")
    calls = (
        "Call('sales', {'month': '2024-03', 'rows': 1000})",
        "Call('total', {'table': '@r1'})",
        "Call('python', {'code': 'calls[-1] == id(_r1)'})",
        "Call('total', {'table': '@r7'})",
    )
    kernel.run(scripted(*calls, repr("Done.")))
    outcome = kernel.run("%%agent --approval never\nGo.\n")
    told = kernel.value(f"'|'.join(map(str, {outputs()}))").split("|")
    assert "[@r1: pandas.DataFrame, 1,000 rows x 2 columns (month str, amount int64)" in told[0]
    assert "_r1 in python code" in told[0]
    assert [each.strip() for each in told[1:3]] == ["499500", "True"]
    assert told[3] == "There is no @r7 in this conversation; there are: @r1."
    assert "@r1:" not in outcome.tool("sales")["output"], "people have no use for that line"
    assert kernel.value("len(_r1), calls[-1] == id(_r1)") == "1000 True"


def test_the_last_expression_of_code_is_kept_too(kernel: Kernel) -> None:
    _run(kernel, "frame = sales('2024-03')\nframe", "_r1 is frame", "'a text'")
    assert "[@r1: pandas.DataFrame, 3 rows x 2 columns" in _told(kernel)
    assert _told(kernel, 1) == "True"
    assert _told(kernel, 2) == "'a text'"


def test_a_long_output_is_kept_whole(kernel: Kernel) -> None:
    _run(kernel, "for n in range(5000):\n    print('line', n)", "print(_r1.count('line'))")
    assert "[@r1: the whole text, " in _told(kernel)
    assert _told(kernel, 1) == "5000"


# -- what changed, and back ----------------------------------------------------------------------


@WAYS
def test_changes_are_told_and_put_back(kernel: Kernel, wrapper: str) -> None:
    kernel.run("table, items, gone, count = sales('2024-03'), [1, 2], 'still there', 5")
    code = "table['new'] = 1\nitems.append(3)\ndel gone\ncount += 1\nfresh = 1\ncount"
    outcome = _run(kernel, code, wrapper=wrapper)
    assert _told(kernel).endswith(
        "[Variables: added fresh; changed table, items, count; deleted gone.]"
    )
    note = "added fresh; changed table, items, count; deleted gone"
    assert outcome.tool("python")["note"] == note
    assert note in outcome.text
    event = "[(e.added, e.deleted) for e in _agent.events if type(e).__name__ == {!r}]"
    assert kernel.value(event.format("NamespaceChanged")) == "[(('fresh',), ('gone',))]"
    back = kernel.run("%agent undo --namespace")
    assert "Put back: `fresh`, `table`, `items`, `count`, `gone`." in back.text
    state = "list(table.columns), items, gone, count, 'fresh' in globals()"
    assert kernel.value(state) == "['month', 'amount'] [1, 2] still there 5 False"


def test_a_run_that_fails_is_put_back_too(kernel: Kernel) -> None:
    kernel.run("items = [1]")
    _run(kernel, "items.append(2)\n1 / 0")
    assert "[Variables: changed items.]" in _told(kernel)
    kernel.run("items_now = items\nitems = 'of the person'")
    said = kernel.run("%agent undo --namespace").text
    assert said.strip() == "- Left alone: `items`, since it has been assigned again since."
    assert kernel.value("items") == "of the person"


def test_undo_says_what_it_can_do(kernel: Kernel) -> None:
    assert "No turn of this conversation changed files" in kernel.run("%agent undo").text
    assert "--namespace restores variables" in kernel.run("%agent undo some thing").text
    while kernel.run("%agent undo --namespace").status == "ok":
        pass
    assert "No change of the variables is left" in kernel.run("%agent undo --namespace").text


# -- the code itself -----------------------------------------------------------------------------


def test_the_code_is_shown_and_taken_along(kernel: Kernel, tmp_path: Path) -> None:
    _run(kernel, "x = 1\nprint('```')", "x + 1", "y = x\r\ny")
    shown = kernel.run("%agent history --code").outputs[0]["data"]["text/markdown"]
    assert "````python\nx = 1\nprint('```')\n````" in shown
    assert "```python\nx + 1\n```" in shown
    assert kernel.run("%agent export").outputs[0]["data"]["text/markdown"] == shown
    path = tmp_path / "taken.ipynb"
    assert "3 cells written" in kernel.run(f"%agent export {path}").text
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    sources = ["x = 1\nprint('```')", "x + 1", "y = x\ny"]
    assert [cell.source for cell in notebook.cells] == sources
    again = kernel.run(f"%agent export {path}")
    assert again.status == "error"
    assert "exists and is left as it is" in again.text
    assert "has to end in .ipynb" in kernel.run("%agent export code.py").text
    assert "cannot be written" in kernel.run(f"%agent export {tmp_path}/none/x.ipynb").text


def test_what_is_shown_is_what_was_approved(kernel: Kernel) -> None:
    kernel.run("%agent reset")
    _run(kernel, "value = 'of the model'", approval="on-request", answers=["e", "value = 'mine'"])
    shown = kernel.run("%agent history --code").text
    assert "mine" in shown
    assert "of the model" not in shown
    kernel.run(scripted(repr("Done.")))
    assert "No code has run" in kernel.run("%agent history --code").text


def test_inspect_variables_sees_the_notebook(kernel: Kernel) -> None:
    kernel.run("table = sales('2024-03')")
    kernel.run(scripted("Call('inspect_variables', {'pattern': 'table'})", repr("Done.")))
    kernel.run("%%agent --approval untrusted\nGo.\n")
    assert _told(kernel).startswith("table: pandas.DataFrame, 3 rows x 2 columns (month str, ")


def test_by_hand_the_front_end_completes_and_explains_them(kernel: Kernel) -> None:
    kernel.run("from agent_magics.tools import read_file, shell")
    assert "read_file" in kernel.complete("read_f")
    assert any(name.strip("=") == "start_line" for name in kernel.complete("read_file(start_l"))
    assert any(name.strip("=") == "month" for name in kernel.complete("sales(mon"))
    shown = kernel.inspect("sales")
    assert "sales(month: str, rows: int = 3)" in shown
    assert "month: an ISO month." in shown
    assert "timeout_ms: int = 30000" in kernel.inspect("shell").replace("_000", "000")
    kernel.run("del read_file, shell")
