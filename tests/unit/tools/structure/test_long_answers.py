"""Answers of a server with very many parts: the event loop has its turn meanwhile."""

import asyncio
import gc
import json
import sys
import threading
import time

import pytest

from agent_magics import Agent, ScriptedModel
from agent_magics.engine.thread import shared_engine
from agent_magics.tools import STRUCTURE
from tests.support.language_servers.project import PROGRAM

FILES, USES = 40, 300  # 12,000, below the limit of a message wherever the tests run
LONGEST = 0.05  # seconds of the loop's thread, of one turn
TABLE = {"python": {"command": sys.executable, "args": [str(PROGRAM), "good"]}}


@pytest.fixture
def without_old_objects():
    """The collector of garbage looks at new objects only: how many old ones there are is chance."""
    gc.collect()
    gc.freeze()
    gc.enable()
    yield
    gc.disable()
    gc.unfreeze()
    gc.collect()
    gc.freeze()  # as before


async def _longest_turn(ended: threading.Event) -> float:
    """Return the longest time between two turns of this loop until something has ended."""
    longest, before = 0.0, time.thread_time()
    while not ended.is_set():
        await asyncio.sleep(0)
        now = time.thread_time()
        longest, before = max(longest, now - before), now
    return longest


@pytest.mark.soak
@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        (
            "references",
            {"name_path": "alpha"},
            f"is used in {FILES * USES:,} places of",
        ),
        ("diagnostics", {"paths": ["wrong{}.py"]}, f"200 of {FILES * USES:,} shown"),
    ],
)
def test_no_answer_holds_the_loop(tmp_path, without_old_objects, tool, arguments, said):
    (tmp_path / "a.py").write_text("def alpha():\n    pass\n\ndef beta():\n    pass\n")
    for number in range(3):
        (tmp_path / f"wrong{number}.py").write_text("wrong\n" * FILES * USES)
    for number in range(FILES):
        (tmp_path / f"m{number:02}.py").write_text("alpha\n" * (USES - (number == 0)))
    options = {"cwd": tmp_path, "approval": "never", "sandbox": "danger-full-access"}
    with Agent(ScriptedModel([]), list(STRUCTURE), language_servers=TABLE, **options) as agent:
        agent.call_sync("references", {"name_path": "beta"})
        longest = []
        for number in range(3):  # what else happens in a turn, such as a collection, is chance
            ended = threading.Event()
            watching = shared_engine().spawn(_longest_turn(ended))
            given = json.loads(json.dumps(arguments).replace("{}", str(number)))
            output = agent.call_sync(tool, given)
            ended.set()
            assert said in output.text
            longest.append(watching.result())
        assert min(longest) < LONGEST
