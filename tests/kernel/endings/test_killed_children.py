"""A kernel that is killed leaves no process of its sub-agents: no command, daemon or scratch."""

import os
import signal
from pathlib import Path

import pytest

from tests.support.kernels.cells import AGENTS
from tests.support.kernels.driver import Kernel

# Each process says that it is there, and keeps the pipe open until it has ended.
COMMAND = """\
exec 3> alive; echo command >&3
setsid sh -c 'trap "" TERM HUP INT; echo daemon >&3; sleep 3600; sleep 3600' &
exec sleep 3600"""
CODE = """\
import subprocess, time
alive = open("alive", "w")
subprocess.Popen(["sh", "-c", "echo started; exec sleep 3600"], stdout=alive)
print("scratch", file=alive, flush=True)
time.sleep(3600)"""
AT_WORK = {"command", "daemon", "scratch", "started"}
DELEGATING = f"""
%load_ext agent_magics
from agent_magics import Agent, Call, ScriptedModel

WORK = {{
    "worker-1": Call("shell", {{"command": ["bash", "-c", {COMMAND!r}]}}),
    "worker-2": Call("python", {{"code": {CODE!r}, "where": "scratch"}}),
}}


def answer(request):
    spawn = Call("spawn_agent", {{"task": "Work.", "agent_type": "worker"}})
    found = [call for name, call in WORK.items() if f"/{{name}}." in request.instructions]
    return found[0] if found else [spawn, spawn, Call("wait", {{"timeout_ms": 3600000}})]


{AGENTS}["default"] = Agent(ScriptedModel([answer] * 9), approval="never")
"""


@pytest.mark.needs("tier 1")
def test_nothing_is_left_of_a_killed_kernels_sub_agents(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "alive")
    with Kernel(cwd=str(tmp_path), anew=True) as kernel:
        kernel.run(DELEGATING)
        kernel.client.execute("%%agent\nGo.\n")
        with (tmp_path / "alive").open(encoding="ascii") as alive:  # once one of them is there
            begun = set[str]()
            while begun != AT_WORK:
                begun.add(next(alive).strip())
            os.kill(kernel.manager.provisioner.pid, signal.SIGKILL)
            assert alive.read() == ""  # comes to its end with the last of them
