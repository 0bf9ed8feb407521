"""No server outlives its kernel, however that ends."""

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest
from mcp_links import DRIVERS, LIMIT, McpWorld, chaos

import agent_magics
from agent_magics.protocol.mcp import McpStatus

pytestmark = pytest.mark.skipif(
    not hasattr(os, "pidfd_open"), reason="only Linux tells of the end of processes not one's own"
)


@pytest.mark.parametrize("mode", ["hangs-with-child", "stubborn-with-child"])
def test_none_survives_a_killed_kernel(tmp_path, mode):
    os.mkfifo(tmp_path / "started")
    stand_in = str(DRIVERS / "mcp_kernel_stand_in.py")
    chaos_server = str(DRIVERS / "mcp_chaos_server.py")
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
