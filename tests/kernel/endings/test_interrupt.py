"""An interrupt ends the turn wherever it is, twice in a row; kernel and history stay whole.

What is interrupted would go on for an hour or for ever; how soon it ends, benchmarks/ measure.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.kernels.cells import (
    AGENTS,
    HISTORY_IS_VALID,
    SLOW_MODEL,
    WAITS_IN_C,
    scripted,
)
from tests.support.kernels.driver import ITEM, Kernel, Outcome

TOOLS = f'''{WAITS_IN_C}
import asyncio, sys
from functools import partial

tell = partial(print, file=sys.stdout)  # at once; live code prints into its call

@tool
async def waits() -> str:
    """Wait for what never comes."""
    print("at work", flush=True)
    await asyncio.Event().wait()

@tool
def counts() -> str:
    """Count for ever, in Python."""
    print("at work", flush=True)
    while True:
        sum(range(1000))

@tool
def sleeps() -> str:
    """Sleep in C."""
    wait_in_c()
'''


@dataclass
class Place:
    """Where the interrupt comes: what the model does, and how one sees that it is being done."""

    call: str
    sign: Callable[[dict[str, Any]], bool]
    options: str = "--approval never"
    calls: int = field(default=1)


def _printed(text: str) -> Callable[[dict[str, Any]], bool]:
    return lambda m: m["msg_type"] == "stream" and text in m["content"]["text"]


def _shown(text: str) -> Callable[[dict[str, Any]], bool]:
    return lambda m: text in str(m["content"].get("data", {}).get(ITEM, ""))


def _asked(message: dict[str, Any]) -> bool:
    return message["msg_type"] == "input_request"


PLACES = {
    "async tool": Place("Call('waits')", _printed("at work")),
    "sync tool": Place("Call('counts')", _printed("at work")),
    "sync tool in C": Place("Call('sleeps')", _printed("at work")),
    "live code": Place(
        "Call('python', {'code': 'tell(\"at work\", flush=True)\\nwhile True: pass'})",
        _printed("at work"),
    ),
    "live code in C": Place("Call('python', {'code': 'wait_in_c(tell)'})", _printed("at work")),
    "two calls": Place("[Call('sleeps'), Call('counts')]", _printed("at work"), calls=2),
    "input()": Place("Call('python', {'code': '1'})", _asked, options=""),
    "input() in live code": Place("Call('python', {'code': 'input()'})", _asked),
}


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with Kernel(cwd=str(tmp_path_factory.mktemp("interrupt"))) as kernel:
        yield kernel


class Stopper:
    """Interrupts once, when the sign is seen; again a moment later where asked to."""

    def __init__(self, kernel: Kernel, sign: Callable[[dict[str, Any]], bool], again: float = 0):
        self._kernel, self._sign, self._again = kernel, sign, again
        self.pressed = False

    def __call__(self, message: dict[str, Any]) -> None:
        if self.pressed or not self._sign(message):
            return
        self.pressed = True
        self._kernel.interrupt()
        if self._again:
            time.sleep(self._again)
            self._kernel.interrupt()


def _run_and_stop(kernel: Kernel, code: str, place: Place, again: float = 0) -> Outcome:
    stopper = Stopper(kernel, place.sign, again)
    outcome = kernel.run(code, notebook=True, allow_stdin=True, on_message=stopper)
    assert stopper.pressed, f"never got to the place: {outcome.text}"
    assert outcome.status == "error", outcome.text
    assert outcome.error == "KeyboardInterrupt", outcome.text
    return outcome


def _is_whole(kernel: Kernel, outcome: Outcome, items: int) -> None:
    assert kernel.alive
    assert outcome.text.count("Interrupted by the person.") == 1, "one message for one click"
    assert "Interrupted.\n" not in outcome.text, "nor another without a reason"
    assert len(outcome.outputs[-1]["text"].splitlines()) <= 3, "no page of our own frames"
    assert all(item.get("status") != "running" for item in outcome.items), outcome.items
    after = kernel.run("print('still' + ' here')")
    assert (after.status, after.text.strip()) == ("ok", "still here")
    assert kernel.run(HISTORY_IS_VALID).text.split() == [str(items), "valid"]
    assert kernel.value(f"{AGENTS}['default'].session.busy") == "False"
    assert kernel.value("_agent.status") == "aborted"


@pytest.mark.parametrize("again", [0, 0.05], ids=["once", "and again at once"])
@pytest.mark.parametrize("wrapper", ["", "%%time\n"], ids=["awaiting", "blocking"])
@pytest.mark.parametrize("name", PLACES)
def test_interrupt_during(kernel: Kernel, name: str, wrapper: str, again: float) -> None:
    place = PLACES[name]
    assert kernel.run(scripted(place.call, place.call) + TOOLS).status == "ok"
    for number in (1, 2):
        cell = f"{wrapper}%%agent {place.options}\nGo.\n"
        outcome = _run_and_stop(kernel, cell, place, again)
        _is_whole(kernel, outcome, number * (1 + 2 * place.calls))


@pytest.mark.parametrize("wrapper", ["", "%%time\n"], ids=["awaiting", "blocking"])
def test_interrupt_while_the_model_streams(kernel: Kernel, wrapper: str) -> None:
    assert kernel.run(scripted(repr("unused")) + SLOW_MODEL).status == "ok"
    assert kernel.run(f"{AGENTS}['default'] = Agent(SlowModel())").status == "ok"
    # A blocking cell shows whole blocks only where it is not watched; here it is.
    place = Place("", _shown("Well, "))
    for number in (1, 2):
        outcome = _run_and_stop(kernel, f"{wrapper}%%agent\nGo.\n", place)
        assert any("Well, " in item["text"] for item in outcome.items_of("text"))
        _is_whole(kernel, outcome, number)


@pytest.mark.parametrize("wrapper", ["", "%%time\n"], ids=["awaiting", "blocking"])
def test_interrupt_kills_a_command_and_its_children(
    kernel: Kernel, tmp_path: Path, wrapper: str
) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 100 & echo $$ $! > {pids}; echo st''arted; wait"
    call = f"Call('shell', {{'command': ['sh', '-c', {script!r}]}})"
    assert kernel.run(scripted(call, call) + TOOLS).status == "ok"
    place = Place(call, _shown("'output': 'started"))
    cell = f"{wrapper}%%agent --approval never --sandbox danger-full-access\nGo.\n"
    for number in (1, 2):
        outcome = _run_and_stop(kernel, cell, place)
        for pid in pids.read_text(encoding="utf-8").split():
            assert not _runs(int(pid)), f"process {pid} outlived the interrupt"
        _is_whole(kernel, outcome, number * 3)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


@pytest.mark.parametrize("wrapper", ["", "%%time\n"], ids=["awaiting", "blocking"])
@pytest.mark.parametrize(
    "cell",
    [
        "%%agent\nLook at {{wait_in_c()}}.\n",
        "%%agent\nLook at {{slow}}.\n",
        "%%agent --output wait_in_c()\nGo.\n",
        "%%agent --map wait_in_c()\nGo.\n",
        "%%agent --map [1] --engine wait_in_c()\nGo.\n",
    ],
    ids=["expression", "text of a value", "type", "rows", "engine"],
)
def test_an_interrupt_of_an_expression_ends_the_cell_and_asks_no_model(
    kernel: Kernel, cell: str, wrapper: str
) -> None:
    assert kernel.run(scripted(repr("Hello.")) + TOOLS).status == "ok"
    kernel.run("class Slow:\n    def __repr__(self):\n        wait_in_c()\n\nslow = Slow()\n")
    outcome = _run_and_stop(kernel, f"{wrapper}{cell}", Place("", _printed("at work")))
    assert outcome.outputs[-1]["text"].splitlines()[-1].endswith("Interrupted by the person.")
    assert len(outcome.outputs[-1]["text"].splitlines()) <= 3, "no page of our own frames"
    after = kernel.run("%%agent\nGo.\n")
    assert (after.status, after.text.strip()) == ("ok", "Hello."), "its one answer is there still"
    assert kernel.run(HISTORY_IS_VALID).text.split() == ["2", "valid"]


def test_an_interrupt_stops_run_all(kernel: Kernel) -> None:
    """Cells that were sent already are not run after an interrupted one."""
    assert kernel.run(scripted("Call('sleeps')") + TOOLS).status == "ok"
    queued: list[str] = []

    stop = Stopper(kernel, PLACES["sync tool in C"].sign)

    def act(message: dict[str, Any]) -> None:
        if not queued:  # as the cell begins, so that the kernel has it long before it is stopped
            queued.append(kernel.client.execute("ran_on = True"))
        stop(message)

    outcome = kernel.run("%%agent\nGo.\n", notebook=True, allow_stdin=True, on_message=act)
    assert stop.pressed
    assert outcome.error == "KeyboardInterrupt"
    assert kernel.value("'ran_on' in globals()") == "False"


def test_an_interrupt_between_cells_harms_nothing(kernel: Kernel) -> None:
    assert kernel.run(scripted(repr("Hello."))).status == "ok"
    assert kernel.run("%%agent\nGo.\n").status == "ok"
    for _ in range(20):
        kernel.interrupt()
        assert kernel.value("_agent.text") == "Hello."
    assert kernel.alive
