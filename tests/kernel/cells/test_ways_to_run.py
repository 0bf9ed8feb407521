"""Every way to run a cell ends well, with live code, a sync tool and an async tool in the turn."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import run

import nbformat
import pexpect
import pytest

from tests.support.gates import Gate
from tests.support.kernels.cells import TOOLS, outputs, scripted
from tests.support.kernels.driver import ITEM, LIMIT, Kernel, Outcome

AGENT = "%%agent --approval never\nUse the tools.\n"
CALLS = (
    "[Call('python', {'code': 'seen = 6 * 7\\nseen'}), Call('plain', {'n': 1}),"
    " Call('awaited', {'n': 1})]"
)
ANSWER = "The answer is 42."
TURN = (CALLS, repr(ANSWER))
GIVEN = "['42\\n[Variables: changed seen.]', 'plain 2', 'awaited 3']"


def _ipy(folder: Path) -> str:
    (folder / "x.ipy").write_text(AGENT, encoding="utf-8")
    return "%run x.ipy"


def _ipynb(folder: Path) -> str:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(AGENT)])
    nbformat.write(notebook, folder / "x.ipynb")
    return "%run x.ipynb"


WAYS: dict[str, Callable[[Path], str]] = {
    "top level": lambda folder: AGENT,
    "%%time": lambda folder: "%%time\n" + AGENT,
    "%%timeit": lambda folder: "%%timeit -n1 -r1\n" + AGENT,
    "ip.run_cell": lambda folder: f"get_ipython().run_cell({AGENT!r})",
    "run_cell_magic": lambda folder: (
        "get_ipython().run_cell_magic('agent', '--approval never', 'Use the tools.')"
    ),
    "%run x.ipy": _ipy,
    "%run x.ipynb": _ipynb,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ways")


@pytest.fixture(scope="module")
def kernel(folder: Path) -> Iterator[Kernel]:
    with Kernel(cwd=str(folder)) as kernel:
        yield kernel


def _prepare(kernel: Kernel, *turns: str) -> None:
    assert kernel.run(scripted(*(turns or TURN)) + TOOLS).status == "ok"
    kernel.run("_agent = seen = None")


def _ended_well(kernel: Kernel, outcome: Outcome) -> None:
    assert outcome.status == "ok", outcome.text
    assert ANSWER in [item["text"] for item in outcome.items_of("text")]
    _all_tools_ran(kernel)


def _all_tools_ran(kernel: Kernel) -> None:
    assert kernel.value("_agent.status") == "completed"
    assert kernel.value(outputs()) == GIVEN
    assert kernel.value("seen") == "42"


@pytest.mark.parametrize("notebook", [False, True], ids=["nobody", "notebook"])
@pytest.mark.parametrize("way", WAYS)
def test_way(kernel: Kernel, folder: Path, way: str, notebook: bool) -> None:
    _prepare(kernel)
    code = WAYS[way](folder)
    _ended_well(kernel, kernel.run(code, notebook=notebook, allow_stdin=notebook))


def test_capture_keeps_the_outputs(kernel: Kernel) -> None:
    _prepare(kernel)
    outcome = kernel.run("%%capture out\n" + AGENT)
    assert outcome.status == "ok", outcome.text
    assert outcome.items == []
    kept = kernel.value(f"[o.data[{ITEM!r}].get('text') for o in out.outputs]")
    assert ANSWER in kept
    _all_tools_ran(kernel)


def test_autoawait_off(kernel: Kernel) -> None:
    _prepare(kernel)
    kernel.run("%autoawait False")
    try:
        outcome = kernel.run(AGENT)
    finally:
        kernel.run("%autoawait True")
    _ended_well(kernel, outcome)


def test_rerun(kernel: Kernel) -> None:
    _prepare(kernel, *TURN, *TURN)
    assert kernel.run(AGENT).status == "ok"
    outcome = kernel.run("%rerun")
    assert outcome.status == "ok", outcome.text
    assert ANSWER in [item["text"] for item in outcome.items_of("text")]
    assert kernel.value(f"len({outputs()})") == "6"


def test_a_loop_of_cells_never_finds_the_agent_at_work(kernel: Kernel) -> None:
    _prepare(kernel, *(repr(f"answer {n}") for n in range(30)))
    cell = "%%agent --approval never\nNext.\n"
    code = (
        f"for n in range(30):\n    result = get_ipython().run_cell({cell!r})\n"
        "    assert result.success, n\n"
    )
    assert kernel.run(code).status == "ok"
    assert kernel.value("_agent.text") == "answer 29"


@pytest.mark.parametrize("way", ["top level", "%%time"])
def test_the_persons_lock_is_usable_in_an_async_tool(kernel: Kernel, way: str) -> None:
    """An async tool runs on the cell's loop where the cell awaits: it may use what lives there."""
    _prepare(kernel, "Call('guarded')", repr("Done."))
    tool = (
        "import asyncio\nlock = asyncio.Lock()\nloop = asyncio.get_running_loop()\n"
        "@tool\nasync def guarded() -> bool:\n    '''Take the lock.'''\n"
        "    async with lock:\n        return asyncio.get_running_loop() is loop\n"
    )
    assert kernel.run(tool).status == "ok"
    cell = "%%agent\nGo.\n"
    assert kernel.run(cell if way == "top level" else "%%time\n" + cell).status == "ok"
    # A blocking cell cannot lend its loop: the coroutine runs, but on another one.
    assert kernel.value(outputs()) == ("['true']" if way == "top level" else "['false']")


AWAITING = "Call('python', {'code': 'import asyncio\\nawait asyncio.sleep(0.001)\\nprint(7)'})"


def test_model_code_may_await_in_an_awaiting_cell(kernel: Kernel) -> None:
    _prepare(kernel, AWAITING, repr("Done."))
    assert kernel.run(AGENT).status == "ok"
    assert kernel.value(outputs()).startswith("['7\\n")


def test_model_code_that_awaits_is_refused_in_a_blocking_cell(kernel: Kernel) -> None:
    _prepare(kernel, AWAITING, repr("Done."))
    assert kernel.run("%%time\n" + AGENT).status == "ok"
    told = kernel.value(outputs())
    assert "top-level await cannot run in it; write the code without await" in told
    after = kernel.run("print('still here')\n1 + 1")
    assert after.text.split() == ["still", "here", "2"]


# -- without a notebook ----------------------------------------------------------------------------

IPYTHON = [
    sys.executable,
    "-m",
    "IPython",
    "--no-banner",
    "--simple-prompt",
    "--no-confirm-exit",
    "--colors=nocolor",
    "--ext=agent_magics",
]


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "IPYTHONDIR": str(folder / "ipython"), "TERM": "dumb", "COLUMNS": "200"}


def _set_up_file(folder: Path, *turns: str) -> str:
    (folder / "set_up.ipy").write_text(scripted(*turns) + TOOLS, encoding="utf-8")
    return "--InteractiveShellApp.exec_files=['set_up.ipy']"


def test_terminal_script(tmp_path: Path) -> None:
    _ipy(tmp_path)
    ended = run(
        [*IPYTHON, _set_up_file(tmp_path, *TURN), "x.ipy"],
        cwd=tmp_path,
        env=_environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert ended.returncode == 0, ended.stderr
    assert ANSWER in ended.stdout
    assert "plain 2" in ended.stdout
    assert "awaited 3" in ended.stdout


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., pexpect.spawn]]:
    started: list[pexpect.spawn] = []

    def start(*turns: str) -> pexpect.spawn:
        command = [*IPYTHON, _set_up_file(tmp_path, *turns)]
        child = pexpect.spawn(
            command[0],
            command[1:],
            cwd=str(tmp_path),
            env=_environment(tmp_path),
            encoding="utf-8",
            timeout=LIMIT,
        )
        started.append(child)
        child.expect(r"In \[1\]: ")
        return child

    yield start
    for child in started:
        child.close(force=True)


def _type_cell(child: pexpect.spawn, *lines: str) -> None:
    for line in (*lines, "", ""):
        child.sendline(line)


def test_terminal_by_hand(terminal: Callable[..., pexpect.spawn]) -> None:
    child = terminal(*TURN)
    _type_cell(child, "%%agent --approval never", "Use the tools.")
    child.expect(ANSWER)
    child.expect(r"In \[2\]: ")
    child.sendline("print(_agent.status.upper())")
    child.expect("COMPLETED")


def test_a_terminal_tells_what_a_call_does_while_it_does_it(
    terminal: Callable[..., pexpect.spawn], tmp_path: Path
) -> None:
    script = "echo begun; : < gate; printf over"
    table = "| a | b |\n|---|---|\n| 1 | 2 |"
    gate = Gate(tmp_path / "gate")
    child = terminal(f"Call('shell', {{'command': ['bash', '-c', {script!r}]}})", repr(table))
    _type_cell(child, "%%agent --approval never --sandbox danger-full-access", "Use the tools.")
    child.expect("… running shell: ")
    child.expect("begun\r\n")
    gate.open()
    child.expect("over\r\n")
    child.expect(r"\[shell\] echo begun; .* \(ran, exit code 0\)\r\n")
    child.expect("a  b\r\n─  ─\r\n1  2\r\n")
    assert "begun" not in child.before
    child.expect(r"In \[2\]: ")


def test_a_terminal_refuses_what_would_stand_still_at_its_prompt(
    terminal: Callable[..., pexpect.spawn],
) -> None:
    child = terminal(*TURN)
    _type_cell(child, "%%agent --background", "Use the tools.")
    child.expect("UsageError: --background needs a cell .* also in a terminal")
    child.expect(r"In \[2\]: ")


def test_terminal_asks_in_the_terminal(terminal: Callable[..., pexpect.spawn]) -> None:
    child = terminal(*TURN)
    _type_cell(child, "%%agent", "Use the tools.")
    child.expect(r"Run it\?.*: ")
    child.sendline("y")
    child.expect(ANSWER)


def test_terminal_interrupt_stops_the_turn(terminal: Callable[..., pexpect.spawn]) -> None:
    child = terminal("Call('waits')", "Call('waits')", repr("Done."))
    for number in (1, 2):
        _type_cell(child, "%%agent", "Wait.")
        child.expect("at work")
        child.sendintr()
        child.expect("KeyboardInterrupt")
        child.expect(rf"In \[{2 * number}\]: ")
        child.sendline("%agent status")
        child.expect(r"At work +no")
        child.expect(rf"In \[{2 * number + 1}\]: ")
    _type_cell(child, "%%agent", "Go on.")
    child.expect("Done.")
