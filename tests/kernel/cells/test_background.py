"""``--background``: the cell ends at once, others run meanwhile, its outputs come later."""

import queue
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.kernels.cells import AGENTS, GATE, SLOW_MODEL, outputs, scripted
from tests.support.kernels.driver import ITEM, LIMIT, Kernel

HISTORY = f"{AGENTS}['default'].session.conversation.history.items"
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
    deadline = time.monotonic() + LIMIT
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
    kernel.run("globals().pop('answer', None), globals().pop('_agent', None)")
    cell = kernel.run(CELL, notebook=notebook, allow_stdin=notebook)
    assert cell.status == "ok"
    assert "It opened." not in str(cell.items)
    assert ("is not saved" in cell.text) is not notebook, "nbconvert would lose the output"
    assert kernel.value(f"{AGENTS}['default'].session.busy") == "True"
    kernel.client.execute("gate.set()")
    answer = _wait_for(kernel, _says("It opened."))
    assert answer["parent_header"]["msg_id"] == cell.messages[0]["parent_header"]["msg_id"], (
        "the output belongs to the cell that started the run"
    )
    # The run ends after its words are drawn.
    kernel.run("import asyncio\nwhile 'answer' not in globals(): await asyncio.sleep(0.01)")
    assert kernel.value("answer, _agent.status") == "It opened. completed"
    assert kernel.value(outputs()) == "['the gate is open']"


MODEL_CODE = (
    "print('of the model')\nmade = 1\nbegun.set()\nawait opened.wait()\nprint('at the end')"
)
UNTIL = "import asyncio\nwhile {}: await asyncio.sleep(0.01)"
BUSY = f"{AGENTS}['default'].session.busy"


def test_cells_of_the_person_are_theirs_while_code_of_the_model_awaits(kernel: Kernel) -> None:
    _prepare(kernel, f"Call('python', {{'code': {MODEL_CODE!r}}})", repr("Done."))
    assert (
        kernel.run(
            "import asyncio, pandas\nbegun, opened = asyncio.Event(), asyncio.Event()"
        ).status
        == "ok"
    )
    assert kernel.run(CELL.replace("--into", "--approval never --into")).status == "ok"
    while kernel.value("begun.is_set()") != "True":  # a cell that waits would overlap
        pass
    mine = kernel.run("mine = 5\nprint('mine')\npandas.DataFrame({'a': [1]})")
    failed = kernel.run("1 / 0")
    kernel.client.execute("opened.set()")
    kernel.run(UNTIL.format(BUSY))
    printed = [each["text"] for each in mine.outputs if each.get("name") == "stdout"]
    assert printed == ["mine\n"] and "text/html" in str(mine.outputs)
    assert "agent-magics" not in str(mine.outputs)
    assert "ZeroDivisionError" in str(failed.outputs)
    (told,) = eval(kernel.value(outputs()))
    assert told.splitlines()[:2] == ["of the model", "at the end"]
    assert "added made" in told and "mine" not in told and "Zero" not in told
    assert kernel.run("%agent undo --namespace").status == "ok"
    assert kernel.value("mine, 'made' in globals()") == "5 False"


@pytest.mark.parametrize("rows", ["5", "[1] * 3"])
def test_a_map_that_cannot_begin_says_so_in_its_cell(kernel: Kernel, rows: str) -> None:
    _prepare(kernel)
    cell = kernel.run(f'%%agent --map "{rows}" --background\nIs {{{{x}}}} it?\n', notebook=True)
    if "'level': 'error'" not in str(cell.items):
        message = _wait_for(kernel, _says("'level': 'error'"))
        assert message["parent_header"]["msg_id"] == cell.messages[0]["parent_header"]["msg_id"]
    assert cell.status == "ok"


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


def test_a_second_cell_is_queued_and_runs_in_order(kernel: Kernel) -> None:
    _prepare(kernel, "Call('wait_for_gate')", repr("It opened."), repr("Second."), repr("Third."))
    assert kernel.run(CELL).status == "ok"
    second = kernel.run(CELL.replace("Go.", "Me too."), notebook=True, allow_stdin=True)
    assert second.status == "ok"
    assert "Queued" in second.text
    blocked = kernel.run("get_ipython().run_cell('%%agent\\nNever.\\n')")
    assert "at work" in blocked.text
    kernel.client.execute("gate.set()")
    third = kernel.run("%%agent\nAnd me.\n", notebook=True, allow_stdin=True)
    assert third.items_of("text")[-1]["text"] == "Third."
    asked = f"[i.content for i in {HISTORY} if type(i).__name__ == 'UserMessage']"
    assert kernel.value(asked) == "['Go.', 'Me too.', 'And me.']"
    assert kernel.value("answer") == "Second."


def test_a_new_conversation_waits_for_the_end_of_the_one_before(kernel: Kernel) -> None:
    _prepare(kernel, "Call('wait_for_gate')", repr("It opened."), repr("Anew."))
    assert kernel.run(CELL).status == "ok"
    second = "%%agent --new --background --into anew\nMe too.\n"
    assert "Queued" in kernel.run(second, notebook=True, allow_stdin=True).text
    assert kernel.value(f"len({HISTORY}) > 0, {BUSY}") == "True True"
    kernel.run("gate.set()")
    kernel.run(UNTIL.format("'anew' not in globals()"))
    assert kernel.value("answer, anew") == "It opened. Anew."
    assert kernel.value(f"{HISTORY}[0].content") == "Me too."


def test_a_cell_that_waits_can_be_interrupted(kernel: Kernel) -> None:
    _prepare(kernel, "Call('wait_for_gate')", repr("It opened."), repr("Next."))
    assert kernel.run(CELL).status == "ok"

    def interrupt(message: dict[str, Any]) -> None:
        if "Queued" in str(message["content"]):
            kernel.interrupt()

    waiting = kernel.run("%%agent\nNever.\n", notebook=True, allow_stdin=True, on_message=interrupt)
    assert waiting.error == "KeyboardInterrupt"
    assert kernel.value(f"{AGENTS}['default'].session.busy") == "True"
    kernel.client.execute("gate.set()")
    assert "Next." in kernel.run("%%agent\nNow.\n").text


def test_stop_all(kernel: Kernel) -> None:
    _prepare(kernel, "Call('wait_for_gate')", repr("Never."))
    for _ in range(3):
        assert kernel.run(CELL).status == "ok"
    assert kernel.run("await reached.wait()").status == "ok"
    kernel.run("%agent stop --all")
    assert kernel.run("%%agent\nGo on.\n").status == "ok"
    asked = f"[i.content for i in {HISTORY} if type(i).__name__ == 'UserMessage']"
    assert kernel.value(asked) == "['Go.', 'Go on.']"


def test_words_from_another_cell_are_heard(kernel: Kernel) -> None:
    _prepare(kernel, "Call('wait_for_gate')", repr("Of March."), repr("And of April."))
    idle = kernel.run("%agent steer Only March.")
    assert (idle.status, "is not at work on a prompt" in idle.text) == ("error", True)
    cell = kernel.run(CELL, notebook=True, allow_stdin=True)
    assert kernel.run("await reached.wait()").status == "ok"
    assert "Runs wait_for_gate" in kernel.run("%agent status").text
    assert kernel.run("%agent steer Only March.").status == "ok"
    assert kernel.run('%agent queue "And April?"').text == "1. `And April?`"
    assert kernel.run("%agent queue Never").text.endswith("2. `Never`")
    assert kernel.run("%agent queue --drop 2").text == "1. `And April?`"
    kernel.client.execute("gate.set()")
    added = _wait_for(kernel, _says("You added: Only March."))
    assert added["parent_header"]["msg_id"] == cell.messages[0]["parent_header"]["msg_id"]
    _wait_for(kernel, _says("You added: And April?"))
    _wait_for(kernel, _says("And of April."))
    said = f"[i.content for i in {HISTORY} if type(i).__name__ == 'UserMessage']"
    assert kernel.value(said) == "['Go.', 'Only March.', 'And April?']"


def test_a_failure_in_the_background_is_shown(kernel: Kernel) -> None:
    _prepare(kernel, "Call('wait_for_gate')")  # the script has no more
    kernel.run(CELL, notebook=True, allow_stdin=True)
    kernel.client.execute("gate.set()")
    _wait_for(kernel, _says("script"))


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
