"""Guard rails: what live code does beyond the workspace is asked about; ordinary work is not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_magics.kernel.live.guard_events import Rails
from agent_magics.protocol.config import RunConfig
from tests.support.gates import Gate
from tests.support.kernels.cells import outputs, scripted
from tests.support.kernels.driver import Kernel, Outcome

OUTSIDE = "/agent-magics-is-not-here"


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A kernel whose folder for temporary files is not around its workspace."""
    folder = tmp_path_factory.mktemp("guarded")
    temporary = tmp_path_factory.mktemp("temporary")
    with Kernel(cwd=str(folder), env={"TMPDIR": str(temporary)}) as kernel:
        yield kernel


def _run(
    kernel: Kernel,
    *codes: str,
    answers: list[str] | None = None,
    wrapper: str = "",
    tools: str = "",
) -> Outcome:
    """Run an agent that runs `codes`; the first answer to each is that it may run at all."""
    calls = [f"Call('python', {{'code': {code!r}}})" for code in codes]
    assert kernel.run(tools + scripted(*calls, repr("Done."))).status == "ok"
    return kernel.run(f"{wrapper}%%agent\nGo.\n", allow_stdin=True, answers=answers or ["y"])


def _told(kernel: Kernel, number: int = 0) -> str:
    return kernel.value(f"{outputs()}[{number}]")


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("import subprocess\nsubprocess.run(['echo', 'a b'])", "starts echo 'a b': subprocess.run"),
        ("import os\nos.system('true')", "starts true: os.system('true')"),
        ("import os\npid = os.fork()", "starts a process: pid = os.fork()"),
        ("!true", "starts a process: "),
        ("import socket\nsocket.create_connection(('127.0.0.1', 9))", "connects to 127.0.0.1:9"),
        (f"open('{OUTSIDE}/a', 'w')", f"writes {OUTSIDE}/a (outside the workspace)"),
        (f"import os\nos.remove('{OUTSIDE}')", f"deletes {OUTSIDE} (outside the workspace)"),
        (f"import shutil\nshutil.rmtree('{OUTSIDE}')", f"deletes all of {OUTSIDE}"),
        ("import os\nos.makedirs('.git/hooks')", "makes the folder .git"),
    ],
)
def test_what_leaves_the_workspace_is_asked_about(kernel: Kernel, code: str, what: str) -> None:
    caught = f"try:\n    {code.replace(chr(10), chr(10) + '    ')}\n"
    caught += "except PermissionError as error:\n    print('told:', error)"
    if code.startswith("!"):
        caught = code
    outcome = _run(kernel, caught, answers=["y", "n not now"])
    assert len(outcome.prompts) == 2
    assert what in outcome.text
    told = _told(kernel)
    assert "the code " + what.partition(":")[0].partition(" (")[0] in told
    assert "which was not allowed: the person denied it and says: not now" in told


@pytest.mark.parametrize("word", ["kind", "w"])
def test_a_grant_for_all_python_covers_no_guard_rail(kernel: Kernel, word: str) -> None:
    codes = ["print(1)", "print(2)", "import os\nos.system('true')"]
    outcome = _run(kernel, *codes, answers=[word, "n"])
    assert len(outcome.prompts) == 2, "one about Python, one of the guard rail"
    assert [_told(kernel, number).strip() for number in (0, 1)] == ["1", "2"]
    assert "the code starts true, which was not allowed" in _told(kernel, 2)


@pytest.mark.parametrize("line", ["answer approve", "approvals trust", "tools trust 123456789abc"])
def test_what_gives_rights_is_refused_in_code_of_a_model(kernel: Kernel, line: str) -> None:
    _run(kernel, f"%agent {line}")
    assert f"%agent {' '.join(line.split()[:2])} gives rights" in _told(kernel)
    assert "gives rights" not in kernel.run(f"%agent {line}").text
    kernel.run("%agent approvals revoke all")


def test_a_cell_that_blocks_asks_too(kernel: Kernel) -> None:
    code = "import os\nprint(os.system('true'))"
    outcome = _run(kernel, code, answers=["y", "n"], wrapper="%%time\n")
    assert len(outcome.prompts) == 2
    assert "the code starts true, which was not allowed" in _told(kernel)


def test_a_yes_covers_the_kind_for_the_rest_of_the_run(kernel: Kernel) -> None:
    code = "import subprocess\nfor _ in range(3):\n    print(subprocess.run(['true']).returncode)"
    outcome = _run(kernel, code, code, answers=["y", "y", "y", "y"])
    assert len(outcome.prompts) == 4
    assert _told(kernel).startswith("0\n0\n0")
    outcome = _run(kernel, code, code, answers=["a", "a"])
    assert len(outcome.prompts) == 2, "always is for this very code, and what it does"
    assert _told(kernel, 1).startswith("0\n0\n0")


def test_what_is_printed_after_a_question_is_shown_while_the_code_runs(
    kernel: Kernel, tmp_path: Path
) -> None:
    """The code goes on only once its first line has been seen in the cell."""
    seen = Gate(tmp_path / "seen")
    code = (
        "import os\nos.system('true')\nprint('fir' + 'st', flush=True)\n"
        f"open({str(seen.path)!r}).read()\n"
        "print('last')"
    )
    call = f"Call('python', {{'code': {code!r}}})"
    assert kernel.run(scripted(call, repr("Done."))).status == "ok"
    kernel.run("%agent answer approve approve")

    def look(message: dict[str, Any]) -> None:
        if "first" in str(message["content"]):
            seen.open()

    outcome = kernel.run("%%agent\nGo.\n", notebook=True, allow_stdin=True, on_message=look)
    assert outcome.status == "ok", outcome.text
    assert _told(kernel).split()[:2] == ["first", "last"]


def test_stop_ends_the_turn_whatever_the_code_catches(kernel: Kernel) -> None:
    code = "import os\ntry:\n    os.system('true')\nexcept BaseException:\n    pass\nprint('on')"
    outcome = _run(kernel, code, answers=["y", "s"])
    assert outcome.status == "error"
    assert kernel.value("_agent.status") == "aborted"


def test_ordinary_work_is_not_asked_about(kernel: Kernel) -> None:
    kernel.run("import os\nos.makedirs('lib', exist_ok=True)\n%matplotlib inline")
    code = """
import asyncio, io, json, logging, pathlib, shutil, socket, sqlite3, subprocess, tempfile
import pandas as pd
import matplotlib.pyplot as plt
frame = pd.DataFrame({"a": [1, 2]})
frame.to_csv("a.csv")
pathlib.Path("sub/deeper").mkdir(parents=True, exist_ok=True)
for n in range(20):
    pathlib.Path(f"sub/{n}.txt").write_text("x")
shutil.move("sub/1.txt", "sub/deeper/1.txt")
shutil.rmtree("sub")
with tempfile.TemporaryDirectory() as folder:
    frame.to_pickle(f"{folder}/a.pickle")
with tempfile.NamedTemporaryFile() as file:
    file.write(b"x")
sqlite3.connect(":memory:").close()
sqlite3.connect("a.db").close()
plt.plot([1, 2])
plt.savefig("a.png")
plt.show()
pathlib.Path("lib/own.py").write_text("VALUE = 3\\n")
import sys; sys.path.insert(0, "lib")
import own
open("/dev/null", "w").close()
open("/etc/passwd").close()
socket.socketpair()[0].close()
left, right = socket.socketpair()
left.sendmsg([b"x"]), right.recv(1), left.close(), right.close()
await asyncio.sleep(0)
print(len(list_dir()) > 3, shell(["true"]).exit_code, own.VALUE)
"""
    outcome = _run(kernel, code)
    assert _told(kernel).count("True 0 3") == 1, _told(kernel)
    assert len(outcome.prompts) == 1


def test_a_database_that_an_address_names_is_judged_by_its_path(tmp_path: Path) -> None:
    rails = Rails(RunConfig(cwd=tmp_path))
    outside = rails.hit("sqlite3.connect", ("file:/etc/x%2Edb?mode=rwc",))
    assert outside is not None and "/etc" in outside.what
    assert rails.hit("sqlite3.connect", (f"file:{tmp_path}/x.db",)) is None
    assert rails.hit("sqlite3.connect", ("file::memory:?cache=shared",)) is None


OWN_TOOL = '''
import subprocess
from agent_magics import tool


@tool(mutating=False)
def starts() -> int:
    """Start something, as the person's own code may."""
    return subprocess.run(["true"]).returncode


def helper():
    return subprocess.run(["true"]).returncode
'''


def test_a_tool_of_the_persons_is_not_held_but_what_code_calls_by_hand_is(kernel: Kernel) -> None:
    outcome = _run(kernel, "print(starts())", tools=OWN_TOOL)
    assert len(outcome.prompts) == 1
    assert _told(kernel).startswith("0")
    outcome = _run(kernel, "print(helper())", answers=["y", "n"], tools=OWN_TOOL)
    assert "the code starts true, which was not allowed" in _told(kernel)


def test_a_module_that_the_code_writes_does_not_speak_for_it(kernel: Kernel) -> None:
    code = "open('sly.py', 'w').write('import os; os.system(\"true\")')\nimport sly"
    outcome = _run(kernel, code, answers=["y", "n"])
    assert len(outcome.prompts) == 2
    assert "the code starts true, which was not allowed" in _told(kernel)


def test_a_task_of_the_codes_is_held_and_the_persons_are_not(kernel: Kernel) -> None:
    kernel.run(
        "import asyncio, os\nasync def mine():\n    await asyncio.sleep(0)\n"
        "    return os.system('true')"
    )
    kernel.run(
        "going = asyncio.Event()\nasync def theirs():\n    await going.wait()\n"
        "    return os.system('true')\nwaiting = asyncio.create_task(theirs())"
    )
    outcome = _run(
        kernel,
        "going.set()\nprint('theirs', await asyncio.wait_for(waiting, 30))\n"
        "print(await asyncio.create_task(mine()))",
        answers=["y", "n"],
    )
    assert _told(kernel).startswith("theirs 0")
    assert "the code starts true, which was not allowed" in _told(kernel)
    assert len(outcome.prompts) == 2


def test_a_folder_that_is_gone_does_not_stop_whole_paths(kernel: Kernel) -> None:
    code = "import os\nhome = os.getcwd()\nos.mkdir('gone')\nos.chdir('gone')\n"
    code += "os.rmdir(home + '/gone')\ntry:\n    print(open(home + '/kept.txt', 'w').write('x'))\n"
    _run(kernel, code + "finally:\n    os.chdir(home)")
    assert _told(kernel).startswith("1\n")


def test_a_task_that_outlives_its_turn_asks_nobody_and_holds_up_nothing(kernel: Kernel) -> None:
    kernel.run("import asyncio, os\ngate = asyncio.Event()")
    late = "async def late():\n    await gate.wait()\n    return os.system('true')\n"
    _run(kernel, late + "left = asyncio.create_task(late())")
    outcome = _run(kernel, "gate.set()\nawait asyncio.wait([left])\nprint(repr(left.exception()))")
    assert len(outcome.prompts) == 1, "for the code of this turn"
    assert "starts true, which was not allowed: the turn that started this" in _told(kernel)


def test_never_runs_and_records_it(kernel: Kernel) -> None:
    call = "Call('python', {'code': \"import os\\nprint(os.system('true'))\"})"
    assert kernel.run(scripted(call, repr("Done."))).status == "ok"
    kernel.run("%%agent --approval never\nGo.\n")
    assert _told(kernel).startswith("0")
    decided = (
        "[(e.decision, e.target) for e in _agent.events if type(e).__name__ == 'ApprovalDecided']"
    )
    assert "('run', \"starts true: print(os.system('true'))\")" in kernel.value(decided)


def test_where_nobody_can_be_asked_it_is_denied(kernel: Kernel) -> None:
    call = "Call('python', {'code': \"import os\\nos.system('true')\"})"
    assert kernel.run(scripted(call, repr("Done."))).status == "ok"
    kernel.run("%agent answer approve")
    kernel.run("%%agent\nGo.\n")
    assert "which was not allowed: nobody can be asked in this run" in _told(kernel)


def test_there_is_one_hook_and_cells_are_not_held(kernel: Kernel, tmp_path: Path) -> None:
    _run(kernel, "1")
    hook = "id(__import__('sys')._agent_magics_guard)"
    before = kernel.value(hook)
    kernel.run("%reload_ext agent_magics")
    _run(kernel, "2")
    assert kernel.value(hook) == before
    there = tmp_path / "by-hand.txt"
    outcome = kernel.run(f"open({str(there)!r}, 'w').write('x')\nimport os\nos.system('true')")
    assert outcome.status == "ok"
    assert there.read_text() == "x"


def test_an_interrupt_at_the_question_ends_the_cell_and_takes_the_rails_away(
    kernel: Kernel,
) -> None:
    call = "Call('python', {'code': \"import os\\nos.system('true')\"})"
    assert kernel.run(scripted(call, repr("Done."))).status == "ok"

    asked = 0

    def look(message: dict[str, Any]) -> None:
        nonlocal asked
        asked += message["msg_type"] == "input_request"
        if asked == 2 and message["msg_type"] == "input_request":
            kernel.interrupt()

    outcome = kernel.run(
        "%%agent\nGo.\n", allow_stdin=True, notebook=True, answers=["y"], on_message=look
    )
    assert (outcome.status, outcome.error, asked) == ("error", "KeyboardInterrupt", 2)
    assert kernel.value("_agent.status") == "aborted"
    assert kernel.value("__import__('sys')._agent_magics_guard.running") == "set()"
