"""Whatever stands where the kernel reads a file by itself: no wait, no memory, one sentence."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.files.hostile import FILES, READERS

SECONDS = 4.0  # of the processor; at most 1 s, which measuring memory and a busy machine double
MEGABYTES = 64


def test_there_are_enough_of_them():
    assert len(FILES) * sum(map(len, READERS.values())) >= 200


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Return what came of each reader; one program makes the imports for all of them."""
    home = str(tmp_path_factory.mktemp("hostile"))
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.files.hostile", home],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "HOME": home},
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.returncode == 0, done.stderr
    return dict(map(ast.literal_eval, done.stdout.splitlines()))


@pytest.mark.soak
@pytest.mark.parametrize("reader", READERS)
def test_a_hostile_file_costs_neither_time_nor_memory(reader, told):
    rows = told[reader]
    assert len(rows) == len(FILES) * len(READERS[reader]), rows
    for kind, _, seconds, megabytes, told in rows:
        assert seconds < SECONDS, (kind, seconds)
        assert megabytes < MEGABYTES, (kind, megabytes)
        assert not told.startswith("BUG"), (kind, told)
        assert "\n" not in told, (kind, told)
        assert len(told) < 500, (kind, told)
