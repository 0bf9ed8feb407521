"""``%%agent --plan`` in a kernel: the plan is answered, and run as a turn of its own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.kernels.cells import HISTORY_IS_VALID, TOOLS, scripted
from tests.support.kernels.driver import Kernel

STEPS = ["Read sales.csv", "Write report.txt"]
PLAN = f"Call('propose_plan', {{'steps': {STEPS!r}}})"
WRITE = "Call('write_file', {'path': 'report.txt', 'content': 'done'})"
CELL = "%%agent --plan\nReport on the sales.\n"
TO_THE_END = """import asyncio
for task in asyncio.all_tasks():
    if task.get_name().startswith("background agent"):
        await task
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plans")


@pytest.fixture(scope="module")
def kernel(place: Path) -> Iterator[Kernel]:
    with Kernel(cwd=str(place)) as kernel:
        yield kernel


def prepare(kernel: Kernel, place: Path, *turns: str) -> None:
    (place / "report.txt").unlink(missing_ok=True)
    cell = "%reload_ext agent_magics\n" + scripted(*turns)
    cell += "%config AgentMagics.tools = ['data', 'write_file']\n"
    assert kernel.run(cell).status == "ok"


@pytest.mark.parametrize("wrapper", ["", "%%time\n"], ids=["awaiting", "blocking"])
def test_run_it_is_a_turn_under_the_policy(kernel: Kernel, place: Path, wrapper: str) -> None:
    # What the first turn tries is refused; the same call is run by the second one.
    prepare(kernel, place, WRITE, PLAN, "'Planned.'", WRITE, "'Reported.'")
    outcome = kernel.run(wrapper + CELL, answers=["1"], allow_stdin=True)
    assert outcome.status == "ok", outcome.text
    assert (place / "report.txt").read_text() == "done"
    assert kernel.value("_agent.text") == "Reported."
    shown = "".join(str(output) for output in outcome.outputs)
    assert "1. Run it" in shown and "3. Drop" in shown
    assert shown.index("Write report.txt") < shown.index("Reported.")


@pytest.mark.parametrize("wrapper", ["", "%%time\n"], ids=["awaiting", "blocking"])
def test_an_interrupt_of_a_plan_that_runs_binds_what_it_did(
    kernel: Kernel, place: Path, wrapper: str
) -> None:
    prepare(kernel, place, PLAN, "'Planned.'", WRITE, "Call('waits')")
    assert kernel.run(TOOLS).status == "ok"

    def press(message: dict[str, Any]) -> None:
        if "at work" in str(message["content"].get("text", "")):
            kernel.interrupt()

    cell = wrapper + CELL.replace("--plan", "--plan --into answer")
    kernel.run("answer = 'mine'")
    outcome = kernel.run(cell, answers=["1"], allow_stdin=True, on_message=press)
    assert outcome.error == "KeyboardInterrupt", outcome.text
    assert (place / "report.txt").read_text() == "done"
    assert kernel.value("answer, _agent.status") == "mine aborted"
    assert "write_file" in kernel.value("[call.name for call in _agent.calls]")
    assert kernel.run(HISTORY_IS_VALID).text.split()[1] == "valid"


def test_dropped_or_unattended_nothing_is_run(kernel: Kernel, place: Path) -> None:
    for options in (
        {"answers": ["3"], "allow_stdin": True},
        {"answers": ["!"], "allow_stdin": True},
        {"notebook": True},
    ):
        prepare(kernel, place, PLAN, "'Planned.'", WRITE, "'Reported.'")
        outcome = kernel.run(CELL, **options)
        assert outcome.status == "ok", outcome.text
        assert kernel.value("_agent.text") == "Planned."
        assert not (place / "report.txt").exists()


@pytest.mark.parametrize("background", ["", " --background"], ids=["waited for", "background"])
@pytest.mark.parametrize(("choice", "bound"), [("Run it", "Reported."), ("Drop", "mine")])
def test_only_a_plan_that_is_run_binds_an_answer(
    kernel: Kernel, place: Path, choice: str, bound: str, background: str
) -> None:
    def click(message: dict[str, Any]) -> None:
        state = message["content"].get("data", {}).get("state", {})
        if message["msg_type"] == "comm_open" and "question_id" in state:
            answer = {"type": "answer", "id": state["question_id"], "decision": "approve"}
            answer["content"] = {"plan": choice}
            kernel.send_to_widget(message["content"]["comm_id"], answer)

    prepare(kernel, place, PLAN, "'Planned.'", "'Reported.'")
    kernel.run("answer = 'mine'")
    for cell in (CELL.replace("--plan", f"--plan --into answer{background}"), TO_THE_END):
        kernel.run(cell, on_message=click, on_other=click, allow_stdin=True, notebook=True)
    assert kernel.value("answer") == bound
