"""A thousand commands leave nothing behind: no descriptor, no process, no memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import agent_magics
from tests.support.sandbox import PROGRAMS

pytestmark = pytest.mark.long
COUNT = 1000
MOST_GROWTH = 2048  # KiB between the hundredth command and the last: less than 3 KiB a command

SOAK = PROGRAMS / "soak.py"


@pytest.fixture(scope="module")
def told():
    done = subprocess.run(
        [sys.executable, str(SOAK), str(COUNT)],
        capture_output=True,
        text=True,
        timeout=200,
        env={
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": str(Path(agent_magics.__file__).parents[1]),
        },
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.timeout(240)
def test_every_command_ends(told):
    assert told["wrong"] == 0


def test_nothing_stays_open_or_running(told):
    counted = {name for name in told["late"] if "memory" not in name}
    # The supervisor of the last command may be on its way out.
    may_be_more = {"launcher children": 1}
    grown = {
        name
        for name in counted
        if told["late"][name] > told["early"][name] + may_be_more.get(name, 0)
    }
    assert not grown, (told["early"], told["late"])


@pytest.mark.needs("root")
def test_the_launcher_keeps_no_descriptor(told):
    assert told["late"]["launcher descriptors"] <= told["early"]["launcher descriptors"]


@pytest.mark.parametrize("who", ["kernel", "launcher"])
def test_memory_does_not_grow(told, who):
    growth = told["late"][f"{who} memory"] - told["early"][f"{who} memory"]
    assert growth < MOST_GROWTH, told
