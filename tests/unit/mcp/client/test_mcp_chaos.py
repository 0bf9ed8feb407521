"""Servers that misbehave: whatever they do, nothing hangs, and the next server is not hurt."""

import asyncio
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic_core import from_json

from agent_magics.engine.thread import shared_engine
from agent_magics.protocol.errors import FatalError, RespondToModel
from agent_magics.protocol.mcp import McpStatus
from tests.support.mcp.links import Callbacks, McpWorld, chaos, ended, pids, words_of

pytestmark = pytest.mark.soak


def pipe(path: Path) -> Path:
    """A pipe that a server writes into: reading it waits for that."""
    os.mkfifo(path)
    return path


def test_a_call_whose_server_dies_is_told_truthfully_and_the_next_one_works(tmp_path):
    with McpWorld(chaos("dies-in-call", tmp_path)) as world:
        with pytest.raises(RespondToModel) as told:
            world.call("echo", words="hello")
        assert "exit code 3" in str(told.value)
        assert "during the call; whether it did its work is unknown" in str(told.value)
        assert "it has been restarted" in str(told.value)
        assert words_of(world.call("echo", words="again")) == "again"
        assert world.state.restarts == 1
        assert len(pids(tmp_path)) == 2


def test_a_later_death_is_mended_as_well(tmp_path):
    with McpWorld(chaos("dies-in-call", tmp_path)) as world:
        for _ in range(2):
            with pytest.raises(RespondToModel, match="it has been restarted"):
                world.call("echo")
            (tmp_path / "died").unlink()
        with pytest.raises(RespondToModel, match="it has been restarted"):
            world.call("echo")
        assert words_of(world.call("echo", words="still there")) == "still there"


def test_a_server_that_dies_again_and_again_is_left_alone(tmp_path):
    with McpWorld(chaos("dies-always", tmp_path)) as world:
        world.ready()
        for _ in range(4):
            with pytest.raises(RespondToModel, match="ended"):
                world.call("echo")
        state = world.until_status(McpStatus.FAILED)
        assert "ended 4 times" in state.message
        assert "exit code 3" in state.message
        assert "%agent mcp restart chaos" in state.message
        with pytest.raises(RespondToModel, match="ended 4 times"):
            world.call("echo")
        world.run(world.manager.server("chaos").restart())
        assert world.ready().status is McpStatus.READY


def test_a_signal_is_named(tmp_path):
    config = chaos("killed-in-call", tmp_path)
    with McpWorld(config) as world, pytest.raises(RespondToModel, match="signal SIGKILL"):
        world.call("echo")


def test_a_server_that_dies_while_nobody_calls_is_started_again(tmp_path):
    with McpWorld(chaos("dies-when-idle", tmp_path)) as world:
        world.until(lambda state: state.restarts == 1 and state.status is McpStatus.READY)
        assert words_of(world.call("echo", words="here")) == "here"
        assert "it ended: exit code 5" in world.manager.server("chaos").log.text()


def test_a_server_that_cannot_be_started_again_is_told_to_the_call(tmp_path):
    mode = chaos("dies-when-started-again", tmp_path)
    with McpWorld(mode) as world:
        world.ready()
        os.kill(pids(tmp_path)[0], 9)
        state = world.until_status(McpStatus.FAILED)
        assert "ended and could not be started: exit code 8" in state.message
        assert state.message.endswith("%agent mcp restart chaos.")


def test_a_closed_stdout_is_an_end(tmp_path):
    with McpWorld(chaos("closes-stdout", tmp_path)) as world:
        with pytest.raises(RespondToModel, match="during the call"):
            world.call("echo")
        assert [ended(pid) for pid in pids(tmp_path)].count(True) == 1


def test_a_start_that_dies_says_what_it_wrote(tmp_path):
    with McpWorld(chaos("dies-at-start", tmp_path)) as world:
        state = world.until_status(McpStatus.FAILED)
        assert "could not be started: exit code 7" in state.message
        assert "no module named soup" in state.message
        with pytest.raises(RespondToModel, match="exit code 7"):
            world.call("echo")


@pytest.mark.parametrize("mode", ["hangs", "hangs-with-child", "hangs-at-list"])
def test_a_start_that_hangs_is_given_up_with_all_its_processes(tmp_path, mode):
    for limit in (1, 6, 24):  # a machine that is busy may take longer to start Python at all
        with McpWorld(chaos(mode, tmp_path, startup_timeout_sec=float(limit))) as world:
            state = world.until_status(McpStatus.FAILED)
            assert f"not ready within {limit} s (startup_timeout_sec)" in state.message
            assert all(ended(pid) for pid in pids(tmp_path))
        if pids(tmp_path):
            return
    pytest.fail("the server was never started")


def test_a_hanging_server_holds_nobody_else_up(tmp_path):
    good = tmp_path / "good"
    good.mkdir()
    other = chaos("good", good)
    hanging = replace(chaos("hangs", tmp_path), name="hanging")
    with McpWorld(other, hanging) as world:
        assert words_of(world.call("echo", words="quick")) == "quick"
        assert world.manager.states()[1].status is McpStatus.STARTING
        assert world.manager.states()[1].message == ("The MCP server 'hanging' is still starting.")


def test_a_required_server_that_fails_is_for_the_person(tmp_path):
    config = chaos("dies-at-start", tmp_path, required=True, source="config.toml:3")
    with McpWorld(config) as world, pytest.raises(FatalError) as told:
        world.run(world.manager.require())
    assert "required" in str(told.value)
    assert "config.toml:3" in str(told.value)


def test_what_is_no_message_is_logged_and_harmless(tmp_path):
    with McpWorld(chaos("noise", tmp_path)) as world:
        assert words_of(world.call("echo", words="heard")) == "heard"
        log = world.manager.server("chaos").log.text()
        assert "stdout, no message of the protocol: Listening on port 3000..." in log
        assert "{not json}" in log


@pytest.mark.parametrize("mode", ["bytewise", "floods-stdout", "floods-stderr"])
def test_however_a_server_writes_the_answer_arrives(tmp_path, mode):
    with McpWorld(chaos(mode, tmp_path)) as world:
        assert words_of(world.call("echo", words="here")) == "here"


def test_a_flood_of_stderr_is_kept_in_part_and_counted(tmp_path):
    with McpWorld(chaos("floods-stderr", tmp_path)) as world:
        world.ready()
        log = world.manager.server("chaos").log.text()
    assert len(log) < 300_000
    assert log.rstrip().endswith("the end")
    dropped = int(log.split()[0].strip("[").replace(",", ""))
    assert dropped + len(log.partition("\n")[2]) == len("begin\nthe end\n") + 6 * 3_000_000


def test_a_flood_of_log_messages_is_passed_on_in_part(tmp_path):
    callbacks = Callbacks()
    with McpWorld(chaos("notifies-much", tmp_path)) as world:
        assert words_of(world.call("echo", callbacks, words="here")) == "here"
    assert 1 <= len(callbacks.logged) < 5_000


def test_answers_to_nothing_and_second_answers_are_ignored(tmp_path):
    with McpWorld(chaos("unknown-id", tmp_path)) as world:
        assert words_of(world.call("echo", words="mine")) == "mine"
        assert (
            "an answer to request 987654, which waits for none"
            in world.manager.server("chaos").log.text()
        )
    with McpWorld(chaos("two-answers", tmp_path)) as world:
        assert words_of(world.call("echo")) == "first"
        assert words_of(world.call("echo")) == "first"
        assert "which waits for none" in world.manager.server("chaos").log.text()


def test_a_message_that_is_too_long_is_told(tmp_path):
    with McpWorld(chaos("long-message", tmp_path)) as world:
        with pytest.raises(RespondToModel, match=r"the answer has 73,\d+,\d+ bytes"):
            world.call("echo")
        assert "was thrown away" in world.manager.server("chaos").log.text()
        assert world.state.status is McpStatus.READY


def test_an_answer_that_is_no_json_is_told_at_once(tmp_path):
    config = chaos("broken-answer", tmp_path)
    with McpWorld(config) as world, pytest.raises(RespondToModel, match="not valid JSON-RPC"):
        world.call("echo")


def test_an_answer_of_the_wrong_form_is_told(tmp_path):
    config = chaos("wrong-answer", tmp_path)
    with McpWorld(config) as world, pytest.raises(RespondToModel, match="no result"):
        world.call("echo")


@pytest.mark.parametrize(
    "words", ["the disk is full", "Connection closed", "Session terminated"], ids=str.split
)
def test_an_error_of_the_servers_own_is_not_taken_for_its_end(tmp_path, words):
    with McpWorld(chaos("own-error", tmp_path)) as world:
        with pytest.raises(RespondToModel, match=f"refused the tool 'echo': {words} \\(error"):
            world.call("echo", words=words)
        assert world.state.status is McpStatus.READY
        assert world.state.restarts == 0


def test_a_huge_schema_leaves_its_tool_out_and_no_other(tmp_path):
    with McpWorld(chaos("huge-schema", tmp_path)) as world:
        state = world.ready()
        assert [tool.name for tool in state.tools] == ["echo"]
        assert dict(state.left_out) == {"huge": "its description and schemas have more than 256 KB"}
        assert words_of(world.call("echo", words="small")) == "small"
        with pytest.raises(RespondToModel, match="cannot be used: its description and schemas"):
            world.call("huge")


def test_odd_schemas_leave_their_tools_out_with_a_reason(tmp_path):
    with McpWorld(chaos("odd-schemas", tmp_path)) as world:
        state = world.ready()
    assert [tool.name for tool in state.tools] == ["recursive", "echo"]
    reasons = dict(state.left_out)
    assert reasons["endless"].startswith("its schema refers to itself without end ($ref #/$defs/")
    assert reasons["deep"] == "its schema is nested more than 64 deep"
    assert reasons["echo"] == "another one of the same name comes before it"
    assert "not printable" in reasons["two\nlines"]


def test_a_malformed_tool_is_left_out_alone(tmp_path):
    with McpWorld(chaos("malformed-tools", tmp_path)) as world:
        state = world.ready()
        assert [tool.name for tool in state.tools] == ["echo"]
        assert words_of(world.call("echo", words="small")) == "small"
        reasons = dict(state.left_out)
        assert set(reasons) == {
            *("bare", "wrong", "described", "hinted"),
            *("number 3 in its list", "number 4 in its list"),
        }
        assert reasons["bare"] == "it is not as the protocol wants it (inputSchema: Field required)"
        assert "(inputSchema.properties: " in reasons["wrong"]
        assert "the tool 'bare' is left out: it is not" in world.manager.server("chaos").log.text()
        with pytest.raises(RespondToModel, match="cannot be used: it is not as the protocol"):
            world.call("bare")


def test_a_listing_that_is_none_is_told(tmp_path):
    with (
        McpWorld(chaos("no-list", tmp_path)) as world,
        pytest.raises(RespondToModel, match="tools/list: the server's answer is not as the"),
    ):
        world.ready()


@pytest.mark.parametrize(
    ("mode", "count", "note"),
    [
        ("endless-pages", 1, "comes back to where it was"),
        ("many-pages", 100, "more than 100 pages"),
    ],
)
def test_a_list_without_end_is_cut(tmp_path, mode, count, note):
    with McpWorld(chaos(mode, tmp_path)) as world:
        assert len(world.ready().tools) == count
        assert note in world.manager.server("chaos").log.text()


def test_changed_tools_are_listed_again_and_told(tmp_path):
    with McpWorld(chaos("changing", tmp_path)) as world:
        assert [tool.name for tool in world.ready().tools] == ["echo", "cue"]
        world.call("cue")
        state = world.until(lambda state: len(state.tools) == 2 and state.tools[1].name == "new")
        assert state.status is McpStatus.READY
        assert words_of(world.call("new", words="found")) == "found"


def test_a_call_that_takes_too_long_is_cancelled_and_told(tmp_path):
    cancelled = pipe(tmp_path / "cancelled")
    with McpWorld(chaos("never-answers", tmp_path, tool_timeout_sec=2.0)) as world:
        with pytest.raises(RespondToModel, match=r"did not answer within 2 s \(tool_timeout_sec\)"):
            world.call("echo")
        assert json.loads(cancelled.read_text())["requestId"]
        assert world.state.status is McpStatus.READY


def test_progress_does_not_extend_a_call(tmp_path):
    for limit in (1, 10):  # the second for a machine that is busy
        callbacks = Callbacks()
        config = chaos("progress-for-ever", tmp_path, tool_timeout_sec=float(limit))
        with McpWorld(config) as world:
            world.ready()
            with pytest.raises(RespondToModel, match=f"did not answer within {limit} s"):
                world.call("echo", callbacks)
        if callbacks.progressed:
            return
    pytest.fail("no progress was told")


def test_progress_that_is_no_float_ends_no_connection(tmp_path):
    callbacks = Callbacks()
    with McpWorld(chaos("progress-beyond-floats", tmp_path)) as world:
        assert words_of(world.call("echo", callbacks, words="here")) == "here"
        assert world.state.restarts == 0
    assert callbacks.progressed == [(1, None, "")]


def test_a_cancelled_call_is_cancelled_at_the_server(tmp_path):
    called, cancelled = pipe(tmp_path / "called"), pipe(tmp_path / "cancelled")
    with McpWorld(chaos("never-answers", tmp_path)) as world:
        world.ready()

        async def call_and_cancel() -> None:
            call = asyncio.ensure_future(
                world.manager.server("chaos").call_tool("echo", {}, Callbacks())
            )
            await asyncio.to_thread(called.read_text)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

        world.run(call_and_cancel())
        assert json.loads(cancelled.read_text())["requestId"]
        assert world.state.status is McpStatus.READY


def test_a_server_that_ignores_everything_is_killed(tmp_path):
    with McpWorld(chaos("stubborn", tmp_path)) as world:
        world.ready()
    assert world.state.status is McpStatus.STOPPED
    assert all(ended(pid) for pid in pids(tmp_path))


@pytest.mark.parametrize("mode", ["refuses-handshake", "odd-version"])
def test_a_server_of_another_protocol_is_told(tmp_path, mode):
    with McpWorld(chaos(mode, tmp_path)) as world:
        state = world.until_status(McpStatus.FAILED)
        assert "could not be started" in state.message


def test_a_server_without_tools_is_ready(tmp_path):
    with McpWorld(chaos("no-tools", tmp_path)) as world:
        assert world.ready().tools == ()
        with pytest.raises(RespondToModel, match="has no resources"):
            world.run(world.manager.server("chaos").list_resources())
        with pytest.raises(RespondToModel, match="has no tool 'echo'; it has: none"):
            world.call("echo")


def test_a_secret_is_in_no_log_and_no_message(tmp_path):
    config = chaos("tells-secret", tmp_path, env={"SERVICE_KEY": "sesame-4711"})
    with McpWorld(config) as world:
        world.ready()
        assert "the key is [redacted]" in world.manager.server("chaos").log.text()
        assert world.manager.secrets() == ("sesame-4711",)
        assert "sesame" not in repr(world.state)


def test_ending_during_a_start_ends_the_program(tmp_path):
    started = pipe(tmp_path / "started")
    with McpWorld(chaos("hangs", tmp_path)) as world:
        started.read_text()
    assert world.state.status is McpStatus.STOPPED
    assert all(ended(pid) for pid in pids(tmp_path))


def test_more_tools_than_anybody_has_do_not_hold_the_loop(tmp_path):
    """In seconds of the loop's own thread, against those that reading the bytes takes."""
    tool = {"name": "t", "inputSchema": {"properties": {"a": {"type": "string"}}}}
    data = json.dumps([tool] * 50_000).encode()
    start = time.thread_time()
    from_json(data)
    once = time.thread_time() - start
    held = []

    async def watch():
        last = time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            last, before = time.thread_time(), last
            held.append(last - before)

    watching = shared_engine().spawn(watch())
    try:
        with McpWorld(chaos("many-tools", tmp_path)) as world:
            state = world.ready()
    finally:
        watching.cancel()
    assert len(state.tools) == 1000
    assert state.left_out == (("49,001 more tools", "the server has more than 1000 tools"),)
    assert max(held) < 12 * once + 1  # seconds; 3.6 where all of them are read
