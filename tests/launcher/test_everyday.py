"""What people run every day works in the sandbox: one that gets in the way is switched off.

Each script runs without a sandbox first. One whose program is missing here is skipped, by name.
"""

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from agent_magics.exec.launcher_client import shared_launcher
from tests.support.attacks import campaign
from tests.support.attacks.campaign import MAIN, Configuration
from tests.support.needs import not_tested
from tests.support.sandbox.everyday_cases import CASES, Case

pytestmark = pytest.mark.timeout(300)

OLDEST = Configuration(1, "user", 1)  # of Landlock's versions
CONFIGURATIONS = [Configuration(0, "user"), *MAIN, OLDEST]


@cache  # to import a module takes up to a second, and many cases ask for the same
def is_there(needed: str, interpreter: str) -> bool:
    """Return whether the machine has a program, or the interpreter a module."""
    module = needed.removeprefix("py:")
    if module == needed:
        return shutil.which(needed) is not None
    command = [interpreter, "-c", f"import {module}"]
    return not subprocess.run(command, capture_output=True, cwd="/", check=False).returncode


def lacking(case: Case, interpreter: str) -> str:
    """Return what the machine lacks for a case, or ""."""
    return next((needed for needed in case.needs if not is_there(needed, interpreter)), "")


@cache
def outcomes(configuration: Configuration) -> dict[str, Any] | Exception:
    """Run all cases in a configuration, for the first test that asks; return how it failed."""
    names = [case.name for case in CASES if not missing(case, configuration)]
    try:
        return campaign.run_kernel(configuration, "sandbox.everyday_kernel", {"cases": names})
    except Exception as error:  # each test of it fails by this, and it is not run again
        return error


def missing(case: Case, configuration: Configuration) -> str:
    return lacking(case, campaign.interpreter_of(configuration.who))


def cases() -> list[object]:
    return [
        pytest.param(
            case,
            configuration,
            id=f"{configuration}-{case.name}",
            marks=pytest.mark.long if configuration == OLDEST else (),
        )
        for configuration in CONFIGURATIONS
        for case in CASES
    ]


@pytest.mark.parametrize(("case", "configuration"), cases())
def test_it_works(case, configuration):
    if reason := campaign.cannot_try(configuration):
        not_tested(str(configuration), reason)
    if program := missing(case, configuration):
        not_tested(f"program {program}", f"{configuration.who} finds none")
    told = outcomes(configuration)
    if isinstance(told, Exception):
        raise RuntimeError(f"{configuration} is broken") from told
    if "untested" in told:
        not_tested(str(configuration), told["untested"])
    outcome = told["outcomes"][case.name]
    assert outcome["in time"], outcome
    assert outcome["exit"] == 0, outcome
    assert re.fullmatch(case.says, outcome["output"].strip()), outcome
    for name, pattern in case.leaves.items():
        text = outcome["leaves"][name]
        assert text is not None and re.match(pattern, text), (name, text)


SEMAPHORE = """
import multiprocessing, os, re, time
from multiprocessing.resource_tracker import _resource_tracker as tracker
lock = multiprocessing.get_context("spawn").Lock()
at_work = False
while not at_work:  # it ignores signals once it is
    with open(f"/proc/{tracker._pid}/status") as file:
        at_work = int(re.search(r"SigIgn:\\s*(\\w+)", file.read())[1], 16) & 1 << 14
print(lock._semlock.name, flush=True)
if not os.fork():
    time.sleep(0.02)  # as a fork server does, it ends a moment after its program
os._exit(0)  # the lock itself removes nothing
"""


def test_what_cleans_up_behind_a_program_has_the_time_to(tmp_path):
    """Python's resource tracker outlives its program by a moment, to remove its semaphores."""
    process = shared_launcher().spawn(
        [sys.executable, "-c", SEMAPHORE], cwd=tmp_path, env=dict(os.environ)
    )
    assert process.wait(30)
    name = process.output.text("stdout").strip().removeprefix("/")
    assert name.startswith("mp-")
    assert not Path(f"/dev/shm/sem.{name}").exists()


def test_there_are_enough():
    assert len(CASES) >= 40
