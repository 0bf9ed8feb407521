"""The openai package is imported when it is needed, and leaves the process as it was."""

import subprocess
import sys

import pytest

PROGRAM = """
import gc
from agent_magics.models.sdk import load_openai
gc.{before}()
collected = []
gc.callbacks.append(lambda phase, info: collected.append(phase))
load_openai()
gc.callbacks.clear()
print(len(collected) < 10, gc.isenabled())
"""


@pytest.mark.soak
@pytest.mark.parametrize(("before", "is_enabled"), [("enable", True), ("disable", False)])
def test_no_garbage_is_looked_for_while_it_is_imported(before, is_enabled):
    command = [sys.executable, "-c", PROGRAM.format(before=before)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == f"True {is_enabled}\n"
