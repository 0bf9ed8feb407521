"""Sub-agents in a kernel: ``%agent agents`` lists and stops them; a page's Stop reaches them."""

from collections.abc import Iterator

import pytest

from tests.support.kernels.cells import AGENTS
from tests.support.kernels.delegation import CHILDREN, DELEGATING, SHARING
from tests.support.kernels.driver import Kernel

CELL = "%%agent --approval never\nGo.\n"
WAIT = f"{CHILDREN}['explore-1'].session.engine.spawn(_ended()).result(60)"
ENDED = f"""
import asyncio


async def _ended():
    await asyncio.wait([{CHILDREN}["explore-1"].ended])
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with Kernel(cwd=str(tmp_path_factory.mktemp("delegates"))) as kernel:
        kernel.run("%load_ext agent_magics")
        yield kernel


def _begin(kernel: Kernel) -> None:
    assert kernel.run(DELEGATING).status == "ok"
    assert kernel.run(CELL).status == "ok"
    kernel.run(ENDED)


def _text(kernel: Kernel, line: str) -> str:
    return "\n".join(str(item["text"]) for item in kernel.run(line).items)


def test_a_sub_agent_is_listed_and_stopped(kernel: Kernel) -> None:
    _begin(kernel)
    listed = _text(kernel, "%agent agents")
    assert "`explore-1`" in listed and "`Look around.`" in listed and "running" in listed
    assert "1 at work, 4 at a time" in listed
    assert "`worker`" in listed
    assert "`explore-1` is stopped." in _text(kernel, "%agent agents stop explore-1")
    kernel.run(WAIT)
    assert "stopped (stopped by the person)" in _text(kernel, "%agent agents")


def test_what_is_not_at_work_is_not_stopped(kernel: Kernel) -> None:
    _begin(kernel)
    answer = kernel.run("%agent agents stop nobody")
    assert "No sub-agent 'nobody' is at work" in str(answer)
    kernel.run("%agent agents stop explore-1")
    kernel.run(WAIT)


def test_a_page_stops_it_by_its_record_alone(kernel: Kernel) -> None:
    _begin(kernel)
    lab = "get_ipython().magics_manager.registry['AgentMagics'].lab"
    for which in ("'explore-1-not'", f"{CHILDREN}['explore-1'].id"):
        assert kernel.value(f"{lab}.answers['stop_agent']({{'id': {which}}})") == "{}"
    kernel.run(WAIT)
    assert kernel.value(f"{CHILDREN}['explore-1'].problem") == "stopped by the person"


def test_trust_of_agent_files(kernel: Kernel) -> None:
    kernel.run(
        "from pathlib import Path\n"
        "folder = Path('.agent_magics/agents')\n"
        "folder.mkdir(parents=True, exist_ok=True)\n"
        "written = (folder / 'reviewer.md').write_text("
        "'---\\nname: reviewer\\ndescription: reads a change\\n---\\nLook.\\n')"
    )
    _begin(kernel)
    assert "you have not trusted them" in _text(kernel, "%agent agents")
    shown = _text(kernel, "%agent agents trust")
    digest = shown.split("%agent agents trust ")[-1].split("`")[0].strip()
    assert "are used from the next sub-agent on" in _text(kernel, f"%agent agents trust {digest}")
    assert "`reviewer`" in _text(kernel, "%agent agents")
    kernel.run("%agent agents stop explore-1")
    kernel.run(WAIT)


WRITING = f"""
%load_ext agent_magics
from agent_magics import Agent, Call, ScriptedModel


def answer(request):
    mine = child if "You are the sub-agent" in request.instructions else parent
    return mine.pop(0)


def write(name):
    patch = f"*** Begin Patch\\n*** Add File: {{name}}\\n+x\\n*** End Patch"
    return Call("apply_patch", {{"patch": patch}})


spawn = Call("spawn_agent", {{"task": "Write.", "agent_type": "worker"}})
parent = [write("mine.txt"), spawn, Call("wait", {{"timeout_ms": 60000}}), "Done."]
child = [write("its.txt"), "Written."]
{AGENTS}["default"] = Agent(ScriptedModel([answer] * 9), ["coding"])
"""


def test_its_changes_are_undone_by_its_name(kernel: Kernel) -> None:
    there = "sorted(str(path) for path in __import__('pathlib').Path().glob('*[es].txt'))"
    assert kernel.run(WRITING).status == "ok"
    assert kernel.run(CELL).status == "ok"
    assert kernel.value(there) == "['its.txt', 'mine.txt']"
    unknown = kernel.run("%agent undo worker-2")
    assert "Sub-agents that changed files: worker-1." in unknown.text
    said = str(kernel.run("%agent undo worker-1").messages)
    assert "Undone what worker-1 changed in" in said and "its.txt" in said
    assert kernel.value(there) == "['mine.txt']"
    assert "No change of files by a sub-agent" in kernel.run("%agent undo worker-1").text
    assert kernel.run("%agent undo").status == "ok"
    assert kernel.value(there) == "[]"


@pytest.mark.parametrize("wrapper", ["", "%%time\n"], ids=["awaiting", "blocking"])
def test_one_that_got_the_kernel_works_with_the_persons_variables(
    kernel: Kernel, wrapper: str
) -> None:
    assert kernel.run(SHARING).status == "ok"
    outcome = kernel.run(f"{wrapper}%%agent\nGo.\n", allow_stdin=True, answers=["y"] * 4)
    assert outcome.status == "ok", outcome.text
    assert len(outcome.prompts) == 4  # the grant, two pieces of code, and a guard rail
    assert kernel.value("(total, rows, text.strip(), child, parent)") == (
        "(9, [1, 2], 'Hello.', [], [])"
    )
