"""What takes too long is stopped, wherever it holds the kernel, and what it said is kept."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.kernels.cells import HISTORY_IS_VALID, outputs, scripted
from tests.support.kernels.driver import ITEM, Kernel

TOOLS = '''
import asyncio, time
from agent_magics import tool

@tool(timeout=0.5)
def counts() -> str:
    """Count for ever, in Python."""
    while True:
        sum(range(1000))

@tool(timeout=0.5)
def sleeps() -> str:
    """Sleep in C."""
    time.sleep(3600)

@tool(timeout=0.5)
async def waits() -> str:
    """Wait for what never comes."""
    await asyncio.Event().wait()
'''
# Each prints a word first; the person's own variables stay, and the shell is as it was.
CODE = {
    "a loop": "while True: pass",
    "a sleep": "import time; time.sleep(3600)",
    "an await": "import asyncio; await asyncio.sleep(3600)",
    "a lock": "import threading; a = threading.Lock(); a.acquire(); a.acquire()",
    "a read": "import os; r, w = os.pipe(); os.read(r, 1)",
    "a generator": "list(iter(int, 1))[:0] if False else [None for _ in iter(int, 1)]",
    "errors caught": "while True:\n    try:\n        while True: pass\n    except Exception: pass",
    "its stop caught once": "try:\n    while 1: pass\nexcept BaseException: pass\nwhile 1: pass",
    "a function of its own": "def f():\n    while True: f2()\ndef f2(): pass\nf()",
}


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with Kernel(cwd=str(tmp_path_factory.mktemp("deadlines"))) as kernel:
        assert kernel.run("%load_ext agent_magics\n" + TOOLS).status == "ok"
        yield kernel


def told(kernel: Kernel, call: str, *, wrapper: str = "") -> str:
    """Make one call in a cell where nobody can be asked; return what the model was told."""
    assert kernel.run(scripted(call, repr("Done."))).status == "ok"
    outcome = kernel.run(f"{wrapper}%%agent --approval never\nGo.\n", allow_stdin=False)
    assert outcome.status == "ok", outcome.text
    assert kernel.value("1 + 1") == "2"
    assert kernel.run(HISTORY_IS_VALID).text.rstrip().endswith("valid")
    return str(kernel.value(f"{outputs()}[0]"))


@pytest.mark.parametrize(
    ("case", "wrapper"),
    [(case, "") for case in CODE]
    + [(case, "%%time\n") for case in CODE if case != "an await"],  # which cannot run there
)
def test_live_code_is_stopped_and_its_output_kept(kernel: Kernel, case: str, wrapper: str) -> None:
    code = f"print('begun')\n{CODE[case]}\n"
    for seconds in (0.7, 10):  # a busy machine may not have begun it by then
        call = f"Call('python', {{'code': {code!r}, 'timeout_ms': {seconds * 1000:.0f}}})"
        said = told(kernel, call, wrapper=wrapper)
        if said.startswith("begun\n"):
            break
    assert said.startswith(f"begun\nStopped: it took longer than {seconds} s (timeout_ms)."), said


@pytest.mark.parametrize("wrapper", ["", "%%time\n"], ids=["awaiting", "blocking"])
@pytest.mark.parametrize("name", ["counts", "sleeps", "waits"])
def test_a_persons_tool_is_stopped(kernel: Kernel, name: str, wrapper: str) -> None:
    said = told(kernel, f"Call({name!r}, {{}})", wrapper=wrapper)
    assert said == f"{name} was stopped: it took longer than 0.5 s."


def test_code_that_cannot_be_stopped_is_said(kernel: Kernel) -> None:
    """Python raises between two instructions, and this is one; it returns after a while."""
    kernel.run("begun = False")
    work = "begun = True; hashlib.pbkdf2_hmac('sha256', b'a', b'b', 20_000_000)"
    code = f"import hashlib; {work}"
    said = told(kernel, f"Call('python', {{'code': {code!r}, 'timeout_ms': 700}})")
    assert kernel.value("begun") == "True"
    assert "It was told to stop and goes on, in code that Python cannot interrupt" in said


@pytest.mark.parametrize("milliseconds", [0, -1, 3_600_001])
def test_a_limit_that_is_none_is_refused(kernel: Kernel, milliseconds: int) -> None:
    call = f"Call('python', {{'code': '1', 'timeout_ms': {milliseconds}}})"
    assert told(kernel, call) == f"timeout_ms={milliseconds} is not from 1 to 3600000."


def test_persons_tools_have_a_limit_of_their_own_accord(kernel: Kernel) -> None:
    cell = "def f() -> str:\n    '''F.'''\nlimit = tool(f).tool_options.timeout"
    assert kernel.run(cell).status == "ok"
    assert kernel.value("limit") == "600.0"


def test_the_time_is_counted_while_code_runs(kernel: Kernel) -> None:
    kernel.run("from agent_magics.dispatch.stages import attempt\nattempt.COUNT_INTERVAL = 1")
    code = "import asyncio; await asyncio.sleep(3600)"
    call = f"Call('python', {{'code': {code!r}, 'timeout_ms': 2500}})"
    kernel.run(scripted(call, repr("Done.")))
    titles = []

    def look(message: dict[str, Any]) -> None:
        if message["msg_type"] == "update_display_data":
            titles.append(message["content"]["data"].get(ITEM, {}).get("title"))

    cell = "%%agent --approval never\nGo.\n"
    outcome = kernel.run(cell, notebook=True, allow_stdin=True, on_message=look)
    kernel.run("attempt.COUNT_INTERVAL = 10")
    # At the second look, where the machine was too busy for the first.
    assert {f"{code} ({seconds} s of 2.5 s)" for seconds in (1, 2)} & set(titles)
    assert outcome.tool("python")["title"] == code
