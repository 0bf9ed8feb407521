"""A kernel is killed at random moments: its conversation goes on, valid, with what was shown."""

import json
import os
import random
import re
import signal
import time
from pathlib import Path

import pytest

from agent_magics import Agent, ScriptedModel, conversations
from agent_magics.engine.past.restoring import KERNEL_ENDED
from agent_magics.protocol.items import AssistantMessage
from tests.support.kernels.cells import AGENTS
from tests.support.kernels.driver import Kernel
from tests.support.turns import assert_valid, outputs

TURNS = 60
AT_WORK = f"""
%load_ext agent_magics
import asyncio
from agent_magics import Agent, Call, ScriptedModel, tool

@tool(mutating=False, parallel=True)
async def note(n: int) -> str:
    "Take a note."
    await asyncio.sleep(n % 3 / 200)
    return f"noted-{{n}}"

script = []
for n in range(0, 3 * {TURNS}, 3):
    calls = [Call("note", {{"n": n + more}}) for more in range(3)]
    script += [calls[:2], calls[2], f"said-{{n}}"]
agent = {AGENTS}["default"] = Agent(ScriptedModel(script), [note], approval="never")
"""
RUN = f"""
for turn in range({TURNS}):
    get_ipython().run_cell_magic("agent", "", f"prompt-{{turn}}")
"""


class Killed(Exception):
    """The kernel was killed, on purpose."""


def kill_at_work(place: Path, after: int, pause: float) -> str:
    """Kill a kernel some messages after it began to work; return all that it showed."""
    shown: list[str] = []
    with Kernel(cwd=str(place), anew=True) as kernel:
        assert kernel.run(AT_WORK).status == "ok"

        def look(message) -> None:
            shown.append(json.dumps(message["content"], default=str))
            if len(shown) == after:
                time.sleep(pause)
                os.kill(kernel.manager.provisioner.pid, signal.SIGKILL)
                raise Killed

        with pytest.raises(Killed):
            kernel.run(RUN, on_message=look)
        while kernel.client.iopub_channel.msg_ready():
            message = kernel.client.get_iopub_msg(timeout=0.1)
            shown.append(json.dumps(message["content"], default=str))
    return "\n".join(shown)


def go_on_after_a_kill(place: Path, seed: int) -> None:
    chance = random.Random(seed)
    shown = kill_at_work(place, chance.randrange(3, 120), chance.random() / 20)
    [recorded] = [each for each in conversations() if each.cwd == str(place)]
    with Agent.resume(recorded.id, ScriptedModel(["Here."])) as agent:
        assert_valid(agent)
        given = [output for _, output in outputs(agent)]
        assert set(re.findall(r"noted-\d+", shown)) <= set(given)
        assert {each for each in given if not each.startswith("noted-")} <= {KERNEL_ENDED}
        items = agent.session.conversation.history.items
        said = [item.text for item in items if isinstance(item, AssistantMessage)]
        # Words may be seen before the answer is whole; only whole ones are recorded.
        assert set(sorted(set(re.findall(r"said-\d+", shown)), key=shown.rfind)[:-1]) <= set(said)
        assert agent.run_sync("Are you there?").text == "Here."


@pytest.mark.soak
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 8))]
)
def test_it_goes_on_after_a_kill(seed, tmp_path):
    go_on_after_a_kill(tmp_path, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_it_goes_on_after_200_kills(seed, tmp_path):
    go_on_after_a_kill(tmp_path, seed)
