"""A changed configuration: what is configured as before stays, the rest ends or begins."""

import os
from dataclasses import replace

import pytest

from agent_magics.protocol.errors import FatalError, RespondToModel
from agent_magics.protocol.mcp import McpStatus
from tests.support.mcp.links import McpWorld, chaos, ended, pids, words_of


@pytest.fixture
def servers(tmp_path):
    """How four servers are reached, by name; each leaves its process id in a folder of its own."""
    made = {}
    for name in ("kept", "changed", "gone", "new"):
        (tmp_path / name).mkdir()
        made[name] = replace(chaos("plain", tmp_path / name), name=name)
    return made


def test_only_what_is_configured_otherwise_ends(tmp_path, servers):
    kept, changed, gone, new = servers.values()
    with McpWorld(kept, changed, gone) as world:
        for name in ("kept", "changed", "gone"):
            world.ready(name)
        was_open = world.manager.states()[0]
        first = {name: pids(tmp_path / name) for name in ("changed", "gone")}
        seen = len(world.history)
        moved = replace(kept, source="config.toml, line 7")
        world.manager.reconfigure([moved, replace(changed, tool_timeout_sec=39.0), new])
        assert [str(each.status) for each in world.manager.states()] == [
            *("ready", "stopped", "stopped")
        ]
        world.manager.start()
        for name in ("changed", "new"):
            world.ready(name)
        assert world.manager.states()[0] is was_open
        assert words_of(world.call("echo", words="still here")) == "still here"
        assert [len(pids(tmp_path / name)) for name in servers] == [1, 2, 1, 1]
        assert all(ended(pid) for each in first.values() for pid in each), "they end first"
        told = {(each.config.name, each.status) for each in world.history[seen:]}
        assert {name for name, _ in told} == {"changed", "new"}
        assert ("changed", McpStatus.STOPPED) not in told, "of the one that has its place now"
        with pytest.raises(RespondToModel, match="configured are: kept, changed, new"):
            world.ready("gone")


def test_a_server_that_was_never_started_and_one_that_is_starting_leave_too(tmp_path, servers):
    hanging = replace(chaos("hangs", tmp_path / "gone"), name="hanging")
    os.mkfifo(tmp_path / "gone" / "started")
    with McpWorld(servers["kept"]) as world:
        world.manager.reconfigure([servers["kept"], servers["changed"], hanging])
        world.manager.start(["kept", "hanging"])
        (tmp_path / "gone" / "started").read_text()
        world.manager.reconfigure([servers["kept"], servers["new"]])
        world.manager.start()
        world.ready("new")
        assert world.ready("kept").status is McpStatus.READY
        assert not pids(tmp_path / "changed")
        [pid] = pids(tmp_path / "gone")
        assert ended(pid)


def test_two_of_one_name_change_nothing(servers):
    with McpWorld(servers["kept"]) as world:
        before = world.ready()
        with pytest.raises(FatalError, match="Two MCP servers are named 'new'"):
            world.manager.reconfigure([servers["new"], servers["new"]])
        assert world.manager.states() == (before,)


def test_only_servers_that_a_run_has_are_started_and_required(servers):
    required = replace(servers["gone"], required=True, command="no-such-program-4711")
    world = McpWorld(servers["kept"], required)
    world.manager.start(["kept"])
    try:
        world.run(world.manager.require(["kept"]))
        assert world.ready("kept").status is McpStatus.READY
        assert world.manager.states()[1].status is McpStatus.STOPPED
    finally:
        world.run(world.manager.close())
