"""Whoever is killed with -9, in whatever order and at whatever moment: no command survives."""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.sandbox import PROGRAMS
from tests.support.sandbox.launcher_client import (
    children_of,
    family_of,
    marked,
    wait_until_ended,
    watch,
)

STAND_IN = PROGRAMS / "kernel_stand_in.py"
FEW, ROUNDS = 5, 50
LONG = [pytest.param(number, marks=pytest.mark.long) for number in range(FEW, ROUNDS)]
ROLES = ("kernel", "launcher", "supervisors")
# Every order of any of the three; and the guardian with one other, since it stands for two deaths.
PLANS = [
    *(plan for size in (1, 2, 3) for plan in itertools.permutations(ROLES, size)),
    ("guardian",),
    *(("guardian", role) for role in ROLES),
    *((role, "guardian") for role in ROLES),
]


class Kernel:
    """A stand-in kernel, its launcher and its commands.

    Attributes:
        everybody: descriptors of all processes that have to end with it.
    """

    def __init__(self, marker: str, *options: str):
        self.marker = marker
        self._process = subprocess.Popen(
            [sys.executable, str(STAND_IN), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(STAND_IN.parents[3])},
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        # Not in its arguments: it is not among those that have to end.
        self._process.stdin.write(f"{marker}\n".encode())
        self._process.stdin.close()
        self._lines = self._process.stdout
        self._people = json.loads(self._lines.readline())
        self.everybody = watch({*family_of(self._people["guardian"]), *marked(marker)})

    def wait_for_commands(self, count: int) -> None:
        """Wait until it has run so many short commands more."""
        for _ in range(count):
            assert self._lines.readline() == b".\n"

    def supervisors(self) -> list[int]:
        return children_of(self._people["launcher"])

    def kill(self, role: str) -> None:
        if role == "kernel":
            self._process.kill()
        elif role == "supervisors":
            kill_all(self.supervisors())
        else:
            kill_all([self._people[role]])

    def kill_one_supervisor(self, number: int) -> None:
        """Kill the supervisor of the command with this number."""
        status = Path(f"/proc/{self._people['commands'][number]}/stat").read_text("utf-8")
        kill_all([int(status.rpartition(")")[2].split()[1])])

    def kill_copy(self) -> None:
        kill_all([self._people["copy"]])

    def close(self) -> None:
        self._process.kill()
        self._process.wait(timeout=20)
        self._lines.close()


def kill_all(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def wait_until_none_is_marked(marker: str) -> None:
    # One that was born while the others were killed is found by its mark, and has to end as well.
    while found := marked(marker):
        wait_until_ended(watch(set(found)))


@pytest.fixture
def marker() -> Iterator[str]:
    # Digits, to be a part of a number; no other test run has the same.
    marker = f"{os.getpid()}{random.randrange(10**9):09d}"
    yield marker
    kill_all(marked(marker))  # those of a test that has failed


def test_the_marks_are_found_while_nobody_is_killed(marker):
    """The positive control: what the other tests look for is there."""
    kernel = Kernel(marker)
    kernel.wait_for_commands(3)
    for number in range(6):
        assert marked(f"{marker}{number}"), number
    assert len(kernel.everybody) > 20
    kernel.close()
    wait_until_none_is_marked(marker)
    wait_until_ended(kernel.everybody)


@pytest.mark.parametrize("round_number", [*range(FEW), *LONG])
def test_no_survivor(marker, round_number):
    chance = random.Random(round_number)
    plan = PLANS[round_number % len(PLANS)]
    kernel = Kernel(marker)
    kernel.wait_for_commands(chance.randrange(5))
    for role in plan:
        for _ in range(chance.choice((0, 0, 100, 3000))):
            os.sched_yield()
        kernel.kill(role)
    if plan == ("supervisors",):
        kernel.wait_for_commands(2)
        kernel.kill("kernel")
    wait_until_ended(kernel.everybody)
    wait_until_none_is_marked(marker)
    kernel.close()


@pytest.mark.parametrize("role", ["kernel", "launcher", "supervisors", "guardian"])
@pytest.mark.parametrize("tier", [1, 2])
def test_no_survivor_of_the_confined(marker, tier, role):
    kernel = Kernel(marker, f"tier{tier}")
    kernel.wait_for_commands(1)
    kernel.kill(role)
    if role == "supervisors":
        kernel.wait_for_commands(1)
        kernel.kill("kernel")
    wait_until_ended(kernel.everybody)
    wait_until_none_is_marked(marker)
    kernel.close()


def test_a_killed_supervisor_costs_its_own_command_only(marker):
    kernel = Kernel(marker)
    for victim in range(5):
        kernel.kill_one_supervisor(victim)
        wait_until_none_is_marked(f"{marker}{victim}")
        kernel.wait_for_commands(1)
        for other in range(victim + 1, 6):
            assert marked(f"{marker}{other}")
    kernel.close()
    wait_until_ended(kernel.everybody)


def test_a_copy_of_the_kernel_does_not_keep_its_commands_alive(marker):
    kernel = Kernel(marker, "fork")
    kernel.wait_for_commands(2)
    kernel.kill("kernel")
    wait_until_ended(kernel.everybody)
    kernel.kill_copy()
    kernel.close()
    wait_until_none_is_marked(marker)
