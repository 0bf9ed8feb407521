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
    grown = {name for name in told["late"] if "memory" not in name and grew(told, name)}
    assert not grown, (told["early"], told["late"])


@pytest.mark.needs("root")
def test_the_launcher_keeps_no_descriptor(told):
    assert not grew(told, "launcher descriptors"), (told["early"], told["late"])


@pytest.mark.parametrize("who", ["kernel", "launcher"])
def test_memory_does_not_grow(told, who):
    growth = told["late"][f"{who} memory"] - told["early"][f"{who} memory"]
    assert growth < MOST_GROWTH, told


def grew(told, name):
    """Return whether a figure grew by more than the supervisors that come and go.

    The last command's may be on its way out, and the next one's, at the end of a socket, is there.
    """
    may_be_more = 2 if name in ("launcher children", "launcher descriptors") else 0
    return told["late"][name] > told["early"][name] + may_be_more
