"""No server outlives its kernel, however that ends."""

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

import agent_magics
from agent_magics.protocol.mcp import McpStatus
from tests.support.mcp import PROGRAMS
from tests.support.mcp.links import LIMIT, McpWorld, chaos

pytestmark = pytest.mark.needs("machine Linux")


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["hangs-with-child", "stubborn-with-child"])
def test_none_survives_a_killed_kernel(tmp_path, mode):
    os.mkfifo(tmp_path / "started")
    stand_in = str(PROGRAMS / "kernel_stand_in.py")
    chaos_server = str(PROGRAMS / "chaos_server.py")
    kernel = subprocess.Popen(
        [sys.executable, stand_in, chaos_server, mode, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(Path(agent_magics.__file__).parents[1])},
        stdout=subprocess.DEVNULL,
    )
    try:
        (tmp_path / "started").read_text()
        pids = [int(path.stem) for path in tmp_path.glob("*.pid")]
        assert len(pids) == 2
        ends = [os.pidfd_open(pid) for pid in pids]
    finally:
        kernel.kill()
        kernel.wait()
    for end in ends:  # readable when the process has ended
        assert select.select([end], [], [], LIMIT)[0]
        os.close(end)


def test_none_survives_a_closed_manager(tmp_path):
    os.mkfifo(tmp_path / "started")
    with McpWorld(chaos("stubborn-with-child", tmp_path)) as world:
        (tmp_path / "started").read_text()
        pids = [int(path.stem) for path in tmp_path.glob("*.pid")]
        assert len(pids) == 2
        ends = [os.pidfd_open(pid) for pid in pids]
        world.ready()
    assert world.state.status is McpStatus.STOPPED
    for end in ends:
        assert select.select([end], [], [], LIMIT)[0]
        os.close(end)
