"""A server that behaves: everything it says arrives, and everything it asks is answered."""

import asyncio
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import agent_magics
from agent_magics.engine.thread import shared_engine
from agent_magics.mcp.client.manager import McpConnectionManager
from agent_magics.mcp.transports.stdio import server_environment
from agent_magics.protocol.errors import FatalError, RespondToModel
from agent_magics.protocol.items import InputImage, InputText
from agent_magics.protocol.mcp import (
    ElicitationAnswer,
    McpBlob,
    McpContents,
    McpServerConfig,
    McpStatus,
)
from tests.support.mcp import PROGRAMS
from tests.support.mcp.good_server import PIXEL
from tests.support.mcp.links import LIMIT, Callbacks, McpWorld, words_of

GOOD = McpServerConfig(
    "good",
    sys.executable,
    (str(PROGRAMS / "good_server.py"),),
    env={"GIVEN": "yes"},
    env_vars=("LENT", "ABSENT"),
    startup_timeout_sec=LIMIT,
    tool_timeout_sec=LIMIT,
)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """One server for all tests that leave it as it was."""
    root = tmp_path_factory.mktemp("workspace")
    environment = {**os.environ, "LENT": "lent", "OPENAI_API_KEY": "sk-secret"}
    with McpWorld(GOOD, environment=environment, roots=(root,)) as made:
        made.root = root
        made.ready()
        yield made


@pytest.mark.soak
def test_what_a_server_says_of_itself(world):
    state = world.state
    assert state.status is McpStatus.READY
    assert (state.instructions, state.version) == ("Be good.", "4.2")
    assert state.has_resources
    assert state.has_prompts
    assert world.manager.states() == (state,)


def test_tools_with_their_hints(world):
    tools = {tool.name: tool for tool in world.run(world.manager.list_all_tools())}
    add = tools["add"]
    assert (add.server, add.title, add.description) == ("good", "Addition", "Add two numbers.")
    assert add.read_only is True
    assert add.destructive is None
    assert add.input_schema["required"] == ["a", "b"]
    assert add.output_schema is not None


def test_a_call(world):
    result = world.call("add", a=1, b=2)
    assert words_of(result) == "3"
    assert result.structured == {"result": 3}
    assert not result.is_error


def test_text_and_structure_both_arrive(world):
    result = world.call("point", x=1, y=2)
    assert result.structured == {"x": 1, "y": 2}
    assert '"x": 1' in words_of(result)


def test_every_kind_of_content(world):
    result = world.call("everything")
    assert result.content == (
        InputText("hello"),
        InputImage(f"data:image/png;base64,{PIXEL}"),
        InputText("[a picture (image/png) whose data is no valid base64 was left out]"),
        InputText("[resource link file:///b.csv] b (7 bytes)"),
        InputText("[resource file:///a.txt]\ninside"),
    )
    assert result.blobs == (
        McpBlob("UklGRg==", "audio/wav"),
        McpBlob("UklGRg==", "application/zip", "file:///a.zip"),
    )
    assert result.structured == {"kind": "all"}


def test_a_failure_is_one(world):
    result = world.call("fail")
    assert result.is_error
    assert "out of soup" in words_of(result)


def test_an_unknown_tool_names_those_there_are(world):
    with pytest.raises(RespondToModel, match="has no tool 'nope'; it has: add, point"):
        world.call("nope")
    with pytest.raises(RespondToModel, match="no MCP server 'nobody'; configured are: good"):
        world.run(world.manager.server("nobody").call_tool("add", {}, Callbacks()))


@pytest.mark.parametrize("value", ["\ud800", float("nan"), {1, 2}])
def test_arguments_that_are_no_json_are_not_sent(world, value):
    with pytest.raises(RespondToModel, match="arguments for 'add' are not valid JSON"):
        world.call("add", a=value, b=1)
    assert words_of(world.call("add", a=1, b=1)) == "2"


@pytest.mark.parametrize(
    ("ask", "given"),
    [
        ("read_resource", ["file:///\ud83d"]),
        ("get_prompt", ["\ud83d", {}]),
        ("get_prompt", ["greet", {"name": "\ud83d"}]),
        ("list_resources", ["\ud83d"]),
    ],
)
def test_a_request_that_is_no_json_is_not_sent(world, ask, given):
    with pytest.raises(RespondToModel, match="not valid JSON: 'utf-8' codec") as told:
        world.run(getattr(world.manager.server("good"), ask)(*given))
    assert str(told.value).encode()
    assert words_of(world.call("add", a=1, b=1)) == "2"


def test_progress_and_log_messages_reach_the_desk_of_the_call(world):
    callbacks, other = Callbacks(), Callbacks()
    assert words_of(world.call("work", callbacks)) == "done"
    world.call("add", other, a=1, b=1)
    assert callbacks.progressed == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]
    assert callbacks.logged == [("warning", "worker: half done")]
    assert (other.progressed, other.logged) == ([], [])
    assert "[log, warning: worker: half done]" in world.manager.server("good").log.text()


def test_progress_of_two_calls_reaches_each_its_own(world):
    both = [Callbacks(), Callbacks()]

    async def call_both() -> None:
        calls = (
            world.manager.server("good").call_tool("work", {"steps": count}, callbacks)
            for count, callbacks in zip((2, 5), both, strict=True)
        )
        await asyncio.gather(*calls)

    world.run(call_both())
    assert [len(callbacks.progressed) for callbacks in both] == [2, 5]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (ElicitationAnswer("accept", {"dish": "soup", "count": 2}), "2 x soup"),
        (ElicitationAnswer("decline"), "nothing: decline"),
        (ElicitationAnswer("cancel"), "nothing: cancel"),
    ],
)
def test_a_form_is_put_to_the_desk(world, answer, said):
    callbacks = Callbacks(answer)
    assert words_of(world.call("order", callbacks)) == said
    (question,) = callbacks.asked
    assert (question.server, question.message) == ("good", "What shall it be?")
    assert set(question.schema["properties"]) == {"dish", "count"}


def test_an_address_is_put_to_the_desk(world):
    callbacks = Callbacks(ElicitationAnswer("accept"))
    assert words_of(world.call("visit", callbacks)) == "accept"
    assert callbacks.asked[0].url == "https://example.org/sign"


def test_sampling_goes_through_the_desk_or_not_at_all(world):
    callbacks = Callbacks(words="two")
    assert words_of(world.call("sample", callbacks)) == "two"
    (request,) = callbacks.sampled
    assert request.messages == (("user", "What is 1 + 1?"),)
    assert (request.system, request.max_tokens) == ("Be short.", 10)
    with pytest.raises(RespondToModel, match="The request was refused"):
        world.call("sample", Callbacks())


@pytest.mark.soak
def test_time_for_a_person_is_no_time_of_the_call(tmp_path):
    config = replace(GOOD, tool_timeout_sec=3.0)
    answered = threading.Event()
    with McpWorld(config) as world:
        world.ready()
        callbacks = Callbacks(ElicitationAnswer("accept", {"dish": "soup"}))

        async def think() -> None:
            # Longer than the call may take; an event that never comes is what a person is.
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), 4.0)
            answered.set()

        callbacks.before_answer = think
        assert words_of(world.call("order", callbacks)) == "1 x soup"
    assert answered.is_set()


def test_roots_are_the_workspace(world):
    assert world.call("roots").structured == {"result": [world.root.as_uri()]}


def test_a_server_runs_in_the_workspace_and_leads_its_session(world):
    place = world.call("place").structured
    assert place["cwd"] == str(world.root.resolve())
    assert place["leads"]


def test_the_environment_holds_what_was_given_and_no_key(world):
    found = world.call("environment").structured
    assert (found["GIVEN"], found["LENT"]) == ("yes", "lent")
    assert found["PATH"] == os.environ["PATH"]
    assert "OPENAI_API_KEY" not in found
    assert "XDG_CONFIG_HOME" not in found
    assert "ABSENT" not in found


def test_certificates_are_found_and_keys_are_not():
    source = {"SSL_CERT_FILE": "/ca.pem", "AWS_SECRET_ACCESS_KEY": "k", "LENT": "lent"}
    assert server_environment(replace(GOOD, env={"A": "b"}), source) == {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "SSL_CERT_FILE": "/ca.pem",
        "LENT": "lent",
        "A": "b",
    }


@pytest.mark.soak
def test_a_server_takes_no_module_of_the_workspace(tmp_path):
    """``python -m`` would look there first, also for the modules of the library."""
    (tmp_path / "asyncio.py").write_text("raise SystemExit('the workspace ran')\n")
    program = (sys.executable, ("-m", "tests.support.mcp.good_server"))
    server = McpServerConfig(
        *("good", *program),
        env={"PYTHONPATH": str(PROGRAMS.parents[2])},
        source="/home/me/.config/agent-magics/config.toml, line 1",
        startup_timeout_sec=LIMIT,
    )
    with McpWorld(server, environment=os.environ, roots=(tmp_path,)) as world:
        world.ready()
        assert world.state.status is McpStatus.READY
    own_folder = replace(server, cwd=tmp_path)
    assert "PYTHONSAFEPATH" not in server_environment(own_folder, {}), "the person named it"


def test_resources(world):
    listed = world.run(world.manager.server("good").list_resources())
    assert {each.uri: each.mime_type for each in listed.items} == {
        "memo://one": "text/plain",
        "memo://picture": "image/png",
    }
    assert listed.next_cursor == ""
    templates = world.run(world.manager.server("good").list_resource_templates())
    assert [each.uri for each in templates.items] == ["memo://{name}/page"]
    read = world.manager.server("good").read_resource
    assert world.run(read("memo://one")) == (
        McpContents("memo://one", "text/plain", text="remember"),
    )
    assert world.run(read("memo://picture")) == (
        McpContents("memo://picture", "image/png", blob=PIXEL),
    )
    assert world.run(read("memo://bob/page"))[0].text == "page of bob"
    with pytest.raises(RespondToModel, match="refused the resource memo://nothing"):
        world.run(read("memo://nothing"))


def test_prompts(world):
    (prompt,) = world.run(world.manager.server("good").list_prompts())
    assert (prompt.name, prompt.arguments) == ("greet", (("name", "", True),))
    messages = world.run(world.manager.server("good").get_prompt("greet", {"name": "Ada"}))
    assert messages == (("user", (InputText("Greet Ada."),)),)


@pytest.mark.soak
def test_enabled_and_disabled_tools():
    config = replace(GOOD, enabled_tools=("add", "fail"), disabled_tools=("fail",))
    with McpWorld(config) as world:
        assert [tool.name for tool in world.ready().tools] == ["add"]
        with pytest.raises(RespondToModel, match="has no tool 'fail'"):
            world.call("fail")


@pytest.mark.soak
def test_a_server_is_disabled_and_enabled(tmp_path):
    with McpWorld(replace(GOOD, enabled=False)) as world:
        assert world.state.status is McpStatus.DISABLED
        with pytest.raises(RespondToModel, match="is disabled"):
            world.call("add", a=1, b=2)
        world.run(world.manager.server("good").enable())
        assert words_of(world.call("add", a=1, b=2)) == "3"
        world.run(world.manager.server("good").disable())
        assert world.state.status is McpStatus.DISABLED
        assert world.state.tools == ()


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("what", ["restart", "disable"])
def test_what_was_begun_with_a_server_is_done_also_where_the_wait_is_interrupted(what, steps):
    with McpWorld(GOOD) as world:
        world.ready()
        server = world.manager.server("good")

        async def interrupt():
            changing = asyncio.create_task(server.standing.change())
            doing = asyncio.create_task(getattr(server, what)())
            for _ in range(steps):
                await asyncio.sleep(0)
            doing.cancel()
            await changing
            assert doing.cancelled()

        world.run(interrupt())
        if what == "disable":
            assert world.state.status is McpStatus.DISABLED
        else:
            assert words_of(world.call("add", a=1, b=2)) == "3"


def test_a_program_that_is_not_there():
    with McpWorld(
        McpServerConfig("none", "no-such-program-4711", startup_timeout_sec=LIMIT)
    ) as world:
        state = world.until_status(McpStatus.FAILED)
    assert "could not be started: Command not found: 'no-such-program-4711'" in state.message


def test_two_servers_of_one_name_are_refused():
    with pytest.raises(FatalError, match="Two MCP servers are named 'good'"):
        McpConnectionManager([GOOD, GOOD], spawn=shared_engine().spawn, environment={})


def test_nothing_is_imported_until_a_server_starts():
    code = (
        "import sys, agent_magics.mcp.client;"
        "print([n for n in ('mcp', 'mcp_types', 'httpx2', 'pydantic') if n in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=_root()
    )
    assert ran.stdout.strip() == "[]"


def _root() -> Path:
    return Path(agent_magics.__file__).parents[1]


class Modern(McpWorld):
    """A world whose server is spoken to as servers of 2026 are."""

    def __enter__(self):
        self.manager._servers[self.name]._handshake = "auto"
        return super().__enter__()


@pytest.fixture(scope="module")
def modern():
    with Modern(GOOD) as made:
        made.ready()
        yield made


@pytest.mark.soak
def test_the_protocol_of_2026(modern):
    assert modern.manager._servers["good"]._link._client.protocol_version == "2026-07-28"
    callbacks = Callbacks()
    assert words_of(modern.call("work", callbacks)) == "done"
    assert len(callbacks.progressed) == 3
    assert callbacks.logged == [("warning", "worker: half done")]
    assert (
        modern.run(modern.manager.server("good").read_resource("memo://one"))[0].text == "remember"
    )


@pytest.mark.soak
def test_a_question_ends_with_its_call(world):
    asked, gone = threading.Event(), threading.Event()
    callbacks = Callbacks()

    async def never() -> None:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()

    callbacks.before_answer = never

    async def call_and_cancel() -> None:
        call = asyncio.ensure_future(world.manager.server("good").call_tool("order", {}, callbacks))
        await asyncio.to_thread(asked.wait, LIMIT)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    world.run(call_and_cancel())
    assert gone.wait(LIMIT)
