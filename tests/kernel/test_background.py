"""``--background``: the cell ends at once, others run meanwhile, its outputs come later."""

import queue
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kernel_driver import ITEM, Kernel
from scripts import AGENTS, SLOW_MODEL, outputs, scripted

GATE = '''
import asyncio

gate = asyncio.Event()

@tool
async def wait_for_gate() -> str:
    """Wait until another cell opens the gate."""
    await gate.wait()
    return "the gate is open"
'''
CELL = "%%agent --background --into answer\nGo.\n"


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with Kernel(cwd=str(tmp_path_factory.mktemp("background"))) as kernel:
        yield kernel


def _prepare(kernel: Kernel, *turns: str) -> None:
    outcome = kernel.run("%reload_ext agent_magics\n" + scripted(*turns) + GATE)
    assert outcome.status == "ok", outcome.text


def _wait_for(kernel: Kernel, found: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the first message that is looked for; other cells' messages pass by."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            message = kernel.client.get_iopub_msg(timeout=0.2)
        except queue.Empty:
            continue
        if found(message):
            return message
    raise TimeoutError("the message never came")


def _says(text: str) -> Callable[[dict[str, Any]], bool]:
    return lambda m: text in str(m["content"].get("data", {}).get(ITEM, ""))


@pytest.mark.parametrize("notebook", [False, True], ids=["nobody", "notebook"])
def test_cells_run_meanwhile(kernel: Kernel, notebook: bool) -> None:
    _prepare(kernel, "Call('wait_for_gate')", repr("It opened."))
    cell = kernel.run(CELL, notebook=notebook, allow_stdin=notebook)
    assert cell.status == "ok"
    assert "It opened." not in str(cell.items)
    assert kernel.value(f"{AGENTS}['default'].session.busy") == "True"
    kernel.client.execute("gate.set()")
    answer = _wait_for(kernel, _says("It opened."))
    assert answer["parent_header"]["msg_id"] == cell.messages[0]["parent_header"]["msg_id"], (
        "the output belongs to the cell that started the run"
    )
    assert kernel.value("answer, _agent.status") == "It opened. completed"
    assert kernel.value(outputs()) == "['the gate is open']"


def test_stop(kernel: Kernel) -> None:
    assert kernel.run("%reload_ext agent_magics\n" + scripted() + SLOW_MODEL).status == "ok"
    kernel.run(f"{AGENTS}['default'] = Agent(SlowModel())")
    cell = kernel.run("%%agent --background\nGo.\n", notebook=True, allow_stdin=True)
    assert cell.status == "ok"
    if "Well, " not in str(cell.items):
        _wait_for(kernel, _says("Well, "))
    kernel.client.execute("%agent stop")
    stopped = _wait_for(kernel, _says("Interrupted"))
    assert stopped["parent_header"]["msg_id"] == cell.messages[0]["parent_header"]["msg_id"]
    assert kernel.value(f"{AGENTS}['default'].session.busy") == "False"
    assert kernel.run("%agent stop").status == "error", "there is nothing left to stop"


def test_the_agent_is_at_work(kernel: Kernel) -> None:
    _prepare(kernel, "Call('wait_for_gate')", repr("It opened."))
    assert kernel.run(CELL).status == "ok"
    second = kernel.run("%%agent\nMe too.\n")
    assert second.status == "error"
    assert "at work" in second.text
    assert "%agent stop" in second.text
    kernel.client.execute("gate.set()")
    _wait_for(kernel, _says("It opened."))


def test_an_interrupt_of_another_cell_does_not_stop_it(kernel: Kernel) -> None:
    _prepare(kernel, "Call('wait_for_gate')", repr("It opened."))
    assert kernel.run(CELL).status == "ok"

    def interrupt(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream":
            kernel.interrupt()

    other = kernel.run("print('x', flush=True)\nwhile True: pass", on_message=interrupt)
    assert other.error == "KeyboardInterrupt"
    assert kernel.value(f"{AGENTS}['default'].session.busy") == "True"
    kernel.client.execute("gate.set()")
    _wait_for(kernel, _says("It opened."))


@pytest.mark.parametrize(
    "code",
    [
        f"get_ipython().run_cell({CELL!r})",
        "%%time\n" + CELL,
    ],
)
def test_a_nested_cell_cannot_go_on_in_the_background(kernel: Kernel, code: str) -> None:
    _prepare(kernel, repr("Never asked."))
    outcome = kernel.run(code)
    assert "--background needs a cell of its own" in outcome.text
    assert kernel.value(f"{AGENTS}['default'].session.busy") == "False"
