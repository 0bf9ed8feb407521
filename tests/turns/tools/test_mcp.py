"""Real MCP servers in whole turns: how their tools join, are asked about, and what they give."""

import asyncio
import json
import os
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from agent_magics import Call, FatalError
from agent_magics.approval.rules import ProposedRule, RuleBook
from agent_magics.config_files.places import user_config_file
from agent_magics.models.wires.responses.items import encode_tools
from agent_magics.protocol.events import (
    ApprovalRequested,
    ElicitationRequested,
    McpServerChanged,
    ToolCallCompleted,
    ToolCallUpdated,
)
from agent_magics.protocol.items import InputImage, InputText
from agent_magics.protocol.mcp import McpStatus
from agent_magics.protocol.ops import Answer
from tests.support.mcp.world import World, answers, offered, things, told
from tests.support.turns import assert_valid, of_kind, scripted

SEARCH = Call("mcp__things__search", {"q": "red"})
DELETE = Call("mcp__things__delete", {"name": "one"})


# -- starting --------------------------------------------------------------------------------------


class Late:
    """A server that starts when the test says so."""

    def __init__(self, folder):
        self.pipe = folder / "start"
        os.mkfifo(self.pipe)
        self._held = os.open(self.pipe, os.O_RDWR)  # what is written waits for the reader
        self.servers = {"late": things("--after", str(self.pipe))}

    def begin(self):
        os.write(self._held, b"x")

    def end(self):
        os.close(self._held)

    def then(self, reply):
        """An answer of the model's, before which the server begins to start."""

        def answer(request):
            self.begin()
            return reply

        return answer


@pytest.fixture
def late(tmp_path):
    server = Late(tmp_path)
    yield server
    server.end()


@pytest.mark.soak
def test_a_turn_that_needs_no_server_does_not_wait_for_one(late):
    with scripted("Hello.", "Again.", mcp_servers={**late.servers, "other": things()}) as agent:
        assert agent.run_sync("Hi").text == "Hello."
        assert agent.mcp.states()[0].status is McpStatus.STARTING
        notes = told(agent)
        assert "still starting: late, other." in notes[0]
        agent.run_sync("Hi")
        assert agent.mcp.states()[0].status is McpStatus.STARTING
        assert "late" not in "".join(told(agent)[1:]), "it is told once"


@pytest.mark.soak
def test_its_tools_join_the_same_turn_and_nothing_old_is_rewritten(late):
    calls = [late.then(Call("mcp__late__search", {"q": "red"})), "Done.", "More."]
    with scripted(*calls, mcp_servers=late.servers) as agent:
        result = agent.run_sync("Go.")
        assert (result.text, result.calls[0].output) == ("Done.", "red 0\nred 1\nred 2")
        first, second = offered(agent)
        assert first == ["mcp_call_tool"]
        assert second[: len(first)] == first
        assert "mcp__late__search" in second
        requests = agent._models.given.requests
        before = requests[0].history.items
        assert requests[1].history.items[: len(before)] == before
        assert "late is ready, 12 tools can be called now" in told(agent)[1]
        assert_valid(agent)
        agent.run_sync("Go on.")
        assert requests[2].tools is requests[1].tools, "an unchanged list is encoded once"
        assert len(told(agent)) == 2


@pytest.mark.soak
def test_the_generic_tool_waits_for_a_server_too(late):
    arguments = {"server": "late", "tool": "count", "arguments": {"words": ["a", "b"]}}
    calls = [late.then(Call("mcp_call_tool", arguments)), "Done."]
    with scripted(*calls, mcp_servers=late.servers) as agent:
        calls = agent.run_sync("Go.").calls
        assert [(call.name, call.output) for call in calls] == [
            ("mcp__late__count", "2"),
            ("mcp_call_tool", "2"),
        ]


@pytest.mark.soak
def test_a_search_for_what_is_not_there_yet_waits(late):
    calls = [late.then(Call("tool_search", {"query": "release watch"})), "Done."]
    late.servers["late"]["args"] += ["--many", "50"]
    with scripted(*calls, mcp_servers=late.servers) as agent:
        agent.catalog.budget = 100
        assert "mcp__late__watch_release_" in agent.run_sync("Go.").calls[0].output
        assert any(name.startswith("mcp__late__watch_release") for name in offered(agent)[1])


@pytest.mark.soak
def test_a_server_that_fails_is_told_once_with_its_reason_and_the_turn_goes_on(tmp_path):
    servers = {"broken": things("--dead"), "mute": things("--mute", startup_timeout_sec=1)}
    calls = [Call("mcp__broken__search", {}), Call("mcp__mute__search", {})]
    world = World(tmp_path, servers)
    with world.agent as agent:
        result = world.play(calls, "Done.", "More.", "Still more.")
        assert result.text == "Done."
        outputs = {call.name: call.output for call in result.calls if not call.success}
        assert "'broken'" in outputs["mcp__broken__search"]
        assert "'mute'" in outputs["mcp__mute__search"]
        world.until(lambda: all(s.status is McpStatus.FAILED for s in agent.mcp.states()))
        for _ in range(2):
            result.events.extend(agent.run_sync("Go on.").events)
        notes = "\n".join(told(agent))
        assert notes.count("The tools of the MCP server broken are not there:") == 1
        assert notes.count("The tools of the MCP server mute are not there:") == 1
        changes = {(e.server, e.status) for e in of_kind(result, McpServerChanged)}
        assert {("broken", "failed"), ("mute", "failed")} <= changes
        assert_valid(agent)


@pytest.mark.soak
def test_a_server_that_is_required_fails_the_run_in_one_sentence():
    servers = {"broken": things("--dead", required=True)}
    with scripted("Never said.", mcp_servers=servers) as agent:
        result = agent.run_sync("Go.")
        assert result.status == "failed"
        assert "'broken'" in result.error and "required" in result.error
        with pytest.raises(FatalError, match="required"):
            agent.call_sync("mcp_call_tool", {"server": "broken"})


@pytest.mark.soak
def test_a_server_that_is_required_is_waited_for():
    with scripted("Done.", mcp_servers={"things": things(required=True)}) as agent:
        agent.run_sync("Go.")
        assert "mcp__things__search" in offered(agent)[0]
        assert told(agent) == [
            'The MCP server things is ready; of itself it says (not the person): "Things are kept '
            'here. Search before you delete."'
        ]


def test_without_servers_there_is_nothing():
    with scripted("Done.") as agent:
        agent.run_sync("Go.")
        assert (agent.mcp, agent.mcp_tools, offered(agent)) == (None, None, [[]])


def test_closing_the_agent_ends_the_servers(late):
    agent = scripted("Done.", mcp_servers=late.servers)
    agent.run_sync("Go.")
    manager = agent.mcp
    agent.close()
    assert manager.states()[0].status is McpStatus.STOPPED


@pytest.mark.parametrize("given", [{"a": {}}, {"a": {"command": "x", "colour": 1}}, ["a"], "a"])
def test_servers_that_cannot_be_are_refused_at_once(given):
    with pytest.raises(FatalError, match="mcp_servers"):
        scripted(mcp_servers=given)


# -- one server for all of these -------------------------------------------------------------------


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with World(tmp_path_factory.mktemp("world"), {"things": things()}) as world:
        yield world


@pytest.mark.parametrize(
    ("policy", "call", "asks"),
    [
        ("untrusted", SEARCH, True),
        ("on-request", SEARCH, False),
        ("on-request", DELETE, True),
        ("on-failure", DELETE, True),
        ("never", DELETE, False),
        ("on-request", Call("mcp__things__count", {"words": []}), True),  # it says nothing
    ],
)
def test_who_is_asked(world, policy, call, asks):
    result = world.play(call, "Done.", approval=policy, on_question=answers("approve"))
    assert bool(of_kind(result, ApprovalRequested)) is asks
    assert result.calls[0].success


def test_the_generic_tool_asks_for_what_it_calls(world):
    call = Call("mcp_call_tool", {"server": "things", "tool": "delete", "arguments": {"name": "x"}})
    result = world.play(call, "Done.", approval="on-request", on_question=answers("deny"))
    assert not any(call.success for call in result.calls)
    asked = of_kind(result, ApprovalRequested)
    assert [question.tool for question in asked] == ["mcp__things__delete"]


@pytest.mark.soak
def test_a_lasting_approval_holds_for_all_arguments_until_the_tool_is_described_anew(tmp_path):
    with World(tmp_path, {"things": things()}) as world:
        asked = answers("approve_for_session")
        calls = [Call("mcp__things__delete", {"name": name}) for name in ("a", "b")]
        world.play(*calls, "Done.", approval="on-request", on_question=asked)
        assert len(asked.seen) == 1
        assert "as its server describes it as now" in asked.seen[0].covers["approve_for_session"]

        before = world.agent.mcp.states()[0].tools
        world.play(Call("mcp__things__describe_anew"), "Done.", reset=False)
        world.until(lambda: world.agent.mcp.states()[0].tools is not before)
        world.play(calls[0], "Done.", approval="on-request", on_question=asked, reset=False)
        assert len(asked.seen) == 2
        assert "described otherwise than when you allowed it" in asked.seen[1].reason


def test_an_approval_for_the_project_is_a_rule_that_is_bound_to_the_description(world):
    asked = answers("approve_for_project")
    world.play(DELETE, DELETE, "Done.", approval="on-request", on_question=asked)
    assert len(asked.seen) == 1
    rules = (world.folder / ".agent_magics" / "rules.toml").read_text(encoding="utf-8")
    assert 'permission = "mcp"' in rules and 'pattern = "mcp__things__delete@' in rules
    world.play(DELETE, "Done.", approval="on-request", on_question=asked)
    assert len(asked.seen) == 1, "it holds in the next conversation, too"

    (world.folder / ".agent_magics" / "rules.toml").unlink()
    RuleBook(world.folder).add(ProposedRule("mcp", "mcp__things__delete@0"), "of another one")
    world.play(DELETE, "Done.", approval="on-request", on_question=asked)
    assert "described otherwise" in asked.seen[1].reason
    (world.folder / ".agent_magics" / "rules.toml").unlink()


def test_the_person_may_change_the_arguments(world):
    def answer(question):
        assert json.loads(question.editable) == {"name": "one"}
        return Answer(
            question_id=question.question_id,
            decision="approve",
            edited_arguments='{"name": "another"}',
        )

    result = world.play(DELETE, "Done.", approval="on-request", on_question=answer)
    assert result.calls[0].output.endswith("\ndeleted another")
    assert "The person changed the arguments" in result.calls[0].output


def test_a_rule_forbids_by_name(world):
    folder = world.folder / ".agent_magics"
    folder.mkdir(exist_ok=True)
    rule = '[[rule]]\npermission = "mcp"\npattern = "mcp__things__se*"\ndecision = "forbid"\n'
    (folder / "rules.toml").write_text(rule, encoding="utf-8")
    result = world.play(SEARCH, "Done.")
    (folder / "rules.toml").unlink()
    assert "a rule forbids" in result.calls[0].output


@pytest.mark.parametrize(
    ("mode", "policy", "asks"),
    [("prompt", "on-request", True), ("approve", "untrusted", False), ("prompt", "never", None)],
)
def test_what_the_person_configured_goes_before_the_hints(world, mode, policy, asks):
    handler = world.tools.handler("mcp__things__search")
    config = replace(world.agent.mcp.server("things").config, approval_mode=mode)
    other = type(handler)(handler.card, handler.options.name, config, world.agent.mcp)
    world.tools._now.handlers["mcp__things__search"] = other
    try:
        result = world.play(SEARCH, "Done.", approval=policy, on_question=answers("approve"))
    finally:
        world.tools._now.handlers["mcp__things__search"] = handler
    assert bool(of_kind(result, ApprovalRequested)) is bool(asks)
    assert result.calls[0].success is (asks is not None)


# -- results ---------------------------------------------------------------------------------------


def test_a_long_text_is_cut_and_kept_whole(world):
    call = Call("mcp__things__text", {"characters": 52_000})
    result = world.play(call, Call("read_file", {"path": "@r1", "start_line": 3_999}), "Done.")
    output = result.calls[0].output
    assert len(output) < 10_400
    assert "characters left out" in output
    assert "[@r1: the whole text, 52,000 characters in 4,001 lines;" in output
    assert "line of text" in result.calls[1].output


def test_pictures_are_pictures_and_files_have_names(world):
    result = world.play(Call("mcp__things__picture"), Call("mcp__things__sound"), "Done.")
    picture, sound = (event.output for event in of_kind(result, ToolCallCompleted))
    assert isinstance(picture[0], InputImage)
    assert picture[0].image_url.startswith("data:image/png;base64,")
    assert sound == "[@r1: audio/wav, 104 bytes; it stands for the bytes]"
    assert world.agent.session.conversation.handles.value_of("@r1").startswith(b"RIFF")


def test_a_failure_is_one(world):
    result = world.play(Call("mcp__things__fail"), "Done.")
    assert not result.calls[0].success
    assert "no such thing" in result.calls[0].output


def test_arguments_that_do_not_fit_are_told_and_kept_results_go_in(world):
    missing = Call("mcp__things__search", {"limit": 1})
    broken = Call("mcp__things__search", '{"q": ')
    kept = Call("mcp__things__text", {"characters": 26_000})
    counted = Call("mcp__things__count", {"words": ["@r1", "b"]})
    result = world.play(missing, broken, kept, counted, "Done.")
    assert "Missing: q. Its parameters are: q, limit." in result.calls[0].output
    assert "no JSON object" in result.calls[1].output
    assert result.calls[3].output == "2"


def test_news_and_log_messages_of_a_call_are_shown(world):
    result = world.play(Call("mcp__things__work"), "Done.")
    news = of_kind(result, ToolCallUpdated)
    assert (news[-1].title, news[-1].progress) == ("step 3", 1.0)
    done = of_kind(result, ToolCallCompleted)[-1]
    assert done.output == "worked"
    assert done.details == {"server": "things", "log": "info: began"}


@pytest.mark.soak
def test_of_a_storm_of_progress_some_is_shown(world):
    result = world.play(Call("mcp__things__work", {"storm": 3_000}), "Done.")
    news = of_kind(result, ToolCallUpdated)
    assert of_kind(result, ToolCallCompleted)[-1].output == "worked"
    assert 1 <= len(news) < 1_500
    assert all(len(event.title) <= 500 for event in news)


@pytest.mark.parametrize(
    ("decision", "content", "said"),
    [
        ("approve", '{"colour": "red"}', "accept red"),
        ("deny", None, "decline"),
        ("abort", None, "cancel"),
        ("approve", "[1]", "decline"),
    ],
)
def test_a_question_of_the_server_is_put_to_the_person(world, decision, content, said):
    def answer(question):
        return Answer(question_id=question.question_id, decision=decision, edited_arguments=content)

    result = world.play(Call("mcp__things__ask"), "Done.", on_question=answer)
    (question,) = of_kind(result, ElicitationRequested)
    assert (question.server, question.message) == ("things", "Which colour?")
    assert question.schema["properties"]["colour"]["type"] == "string"
    assert result.calls[0].output == said


def test_our_model_answers_a_server_only_where_it_may_and_the_person_says_yes(world):
    think = Call("mcp__things__think")
    assert world.play(think, "Done.").calls[0].output.startswith("refused")
    asked = answers("approve")
    features = {"mcp_sampling": True}
    result = world.play(think, "Four.", "Done.", features=features, on_question=asked)
    assert result.calls[0].output == "it says Four."
    assert "What is 2 + 2?" in asked.seen[0].arguments
    assert asked.seen[0].scopes == (), "it is asked each time"
    assert result.text == "Done."
    assert_valid(world.agent)
    for answer in ("deny", SimpleNamespace(decision="approve", edited_text="What is 3 + 3?")):
        refused = world.play(think, "Done.", features=features, on_question=answers(answer))
        assert refused.calls[0].output.startswith("refused")
    stopped = world.play(think, "Done.", features=features, on_question=answers("abort"))
    assert (stopped.status, stopped.text) == ("aborted", "")


def test_a_call_that_is_cancelled_is_told_to_the_server_and_the_next_one_works(world):
    async def main():
        asked = asyncio.Event()

        async def answer(question):
            asked.set()
            await asyncio.Event().wait()

        world.script(Call("mcp__things__ask"), on_question=answer)
        running = asyncio.create_task(world.agent.run("Go."))
        await asked.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    assert_valid(world.agent)
    assert world.play(SEARCH, "Done.").calls[0].success


# -- resources -------------------------------------------------------------------------------------


def test_resources_are_listed_and_read(world):
    result = world.play(
        Call("list_mcp_resources"),
        Call("list_mcp_resource_templates", {"server": "things"}),
        Call("read_mcp_resource", {"server": "things", "uri": "things://all"}),
        Call("mcp_read_resource", {"server": "things", "uri": "things://red"}),
        Call("list_mcp_resources", {"server": "nobody"}),
        Call("list_mcp_resources", {"cursor": "2"}),
        "Done.",
    )
    outputs = [call.output for call in result.calls]
    assert outputs[0].startswith("things: things://all (text/plain)")
    assert "things: things://{name} (text/plain)" in outputs[1]
    assert outputs[2] == "things://all (text/plain):\none\ntwo"
    assert "the thing red" in outputs[3]
    assert outputs[4] == "There is no MCP server named 'nobody'; there are: things."
    assert "it belongs to one server" in outputs[5]


# -- many tools ------------------------------------------------------------------------------------


@pytest.mark.soak
def test_two_hundred_tools_cost_at_most_600_tokens_and_are_found(tmp_path):
    servers = {"hub": things("--many", "200", required=True)}
    calls = [Call("tool_search", {"query": "watch a release", "limit": 2}), "Done."]
    with scripted(*calls, tools=["read_file"], mcp_servers=servers) as agent:
        result = agent.run_sync("Go.")
        assert offered(agent)[0] == [
            "read_file",
            "mcp_call_tool",
            "list_mcp_resources",
            "list_mcp_resource_templates",
            "read_mcp_resource",
            "tool_search",
        ]
        tools = agent._models.given.requests[0].tools
        # Four bytes of this JSON are a token, or a little more.
        assert len(encode_tools(tools)) - len(encode_tools(tools[:1])) <= 600 * 4
        described = tools[-1].spec.description
        assert "212 named mcp__hub__…" in described and "create_issue_0" in described
        assert "watch_release" in result.calls[0].output
        found = [name for name in offered(agent)[1] if name.startswith("mcp__hub__")]
        assert len(found) == 2
        agent.session.registrations.hide(found[0])
        assert f"no tool named {found[0]!r}" in agent.call_sync(found[0]).text


def test_a_tool_of_the_person_s_keeps_its_name(world):
    world.tools.reserve(["mcp__things__search"])
    try:
        (name,) = (n for n in world.tools.names if n.startswith("mcp__things__search"))
        assert name.startswith("mcp__things__search_")
        assert world.tools.handler("mcp__things__search") is None
    finally:
        world.tools.reserve([])


def test_a_tool_of_a_server_can_be_taken_away(world):
    world.agent.unregister("mcp__things__search")
    world.play("Done.")
    assert "mcp__things__search" not in offered(world.agent)[-1]
    assert "mcp__things__delete" in offered(world.agent)[-1]
    assert not world.agent.call_sync("mcp__things__search", {"q": "red"}).success
    world.agent.session.registrations.show("mcp__things__search")
    assert world.agent.call_sync("mcp__things__search", {"q": "red"}).success
    with pytest.raises(FatalError, match="has no tool named 'mcp__things__none'"):
        world.agent.unregister("mcp__things__none")


def test_a_tool_of_a_server_that_is_still_starting_can_be_taken_away(late):
    with scripted("Hello.", mcp_servers=late.servers) as agent:
        agent.run_sync("Hi")
        agent.unregister("mcp__late__search")
        with pytest.raises(FatalError, match="has no tool named 'mcp__other__search'"):
            agent.unregister("mcp__other__search")


@pytest.mark.soak
def test_hooks_see_the_call_and_change_it(world):
    class Watcher:
        def before_tool(self, invocation):
            seen.append((invocation.tool, invocation.arguments))
            return {"q": "blue", "limit": 1}

    seen = []
    with scripted(SEARCH, "Done.", hooks=[Watcher()], mcp_servers={"things": things()}) as agent:
        output = agent.run_sync("Go.").calls[0].output
    assert seen == [("mcp__things__search", {"q": "red"})]
    assert output.endswith("\nblue 0")


def test_a_name_that_no_provider_takes_becomes_one(world):
    result = world.play(Call("mcp__things__with_dots_and_spaces"), "Done.")
    assert result.calls[0].output == "dotted"


# -- tools by name ---------------------------------------------------------------------------------


@pytest.mark.soak
def test_tools_that_are_named_are_there_alone_and_a_call_waits_for_their_server(late):
    names = ["read_file", "mcp__late__se*", "mcp__late__count"]
    calls = [
        late.then(Call("mcp__late__search", {"q": "red"})),
        Call("mcp__late__delete", {"name": "one"}),
        Call("mcp_call_tool", {"server": "late", "tool": "delete", "arguments": {"name": "one"}}),
        Call("mcp_call_tool", {"server": "other", "tool": "search"}),
    ]
    servers = {**late.servers, "other": things("--dead", required=True)}
    with scripted(*calls, "Done.", tools=names, mcp_servers=servers) as agent:
        result = agent.run_sync("Go.")
        outputs = [call.output for call in result.calls]
        first, second, *_ = offered(agent)
        assert first == ["read_file", "mcp_call_tool"]
        assert second == [*first, "mcp__late__search", "mcp__late__count"]
        assert outputs[0] == "red 0\nred 1\nred 2"
        assert "no tool named 'mcp__late__delete'" in outputs[1]
        assert "late has no tool named 'delete'. Its tools:\nsearch(" in outputs[2]
        assert "no MCP server named 'other'; there are: late." in outputs[3]
        assert agent.mcp.states()[1].status is McpStatus.STOPPED, "nobody asked for it"
        assert "late is ready, 2 tools can be called now" in told(agent)[1]


def test_a_name_that_means_nothing_is_told_with_those_near_it(world):
    assert world.tools.select(["mcp"]) is world.tools
    chosen = world.tools.select(["mcp__things__text"])
    assert chosen is world.tools.select(["mcp__things__text"])
    assert chosen.names == ("mcp_call_tool", "mcp__things__text")
    with pytest.raises(FatalError, match="named 'mcp__things__serch'; near: mcp__things__search"):
        world.tools.select(["mcp__things__serch"])
    with pytest.raises(FatalError, match=r"Did you mean things\? The servers are: things\."):
        world.tools.select(["mcp__thing__search"])
    with pytest.raises(FatalError, match="no tool named 'mcp__x__y': there are no MCP servers"):
        scripted(tools=["mcp__x__y"])


def test_the_word_for_all_takes_in_the_servers_of_files(tmp_path):
    config = user_config_file()
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text('[mcp_servers.mine]\ncommand = "x"\nenabled = false\n', encoding="utf-8")
    given = {"given": {"command": "x", "enabled": False}}
    try:
        for names, there in (("mcp", ["given", "mine"]), ("read_file", ["given"])):
            with scripted(tools=[names], mcp_servers=given, cwd=tmp_path) as agent:
                assert [state.config.name for state in agent.mcp.states()] == there
    finally:
        config.unlink()


# -- functions by hand -----------------------------------------------------------------------------


def test_the_tools_are_functions(world):
    mcp = world.agent.mcp_tools
    assert dir(mcp) == ["things"]
    assert {"search", "with_dots_and_spaces"} <= set(dir(mcp.things))
    assert mcp.things.search("red", limit=1) == ["red 0"]
    assert mcp.things.count(words=["a", "b"]) == 2
    assert mcp["things"]["with.dots and spaces"]() == "dotted"
    assert asyncio.run(mcp.things.search.aio(q="blue", limit=1)) == ["blue 0"]
    assert mcp.things.picture().startswith(b"\x89PNG")
    assert str(mcp.things.search.__signature__) == "(q: str, limit: int = 10) -> list[str]"
    assert mcp.things.search.__doc__.startswith("Find things by words.")


def test_what_a_server_asks_is_put_to_whoever_called_by_hand(world):
    def answer(question):
        seen.append((question.server, question.message, threading.current_thread()))
        return {"colour": "red"}

    seen = []
    things = world.agent.mcp_tools.things
    world.script(on_question=answer)
    assert things.ask() == "accept red"
    assert asyncio.run(things.ask.aio()) == "accept red"
    assert seen == [("things", "Which colour?", threading.main_thread())] * 2
    world.script(on_question=lambda question: 1 / 0)
    with pytest.raises(RuntimeError):
        things.ask()
    world.script()
    assert things.ask() == "decline"


def test_functions_say_what_is_wrong(world):
    mcp = world.agent.mcp_tools
    with pytest.raises(RuntimeError, match="no such thing"):
        mcp.things.fail()
    with pytest.raises(TypeError, match="missing a required argument: 'q'"):
        mcp.things.search()
    with pytest.raises(AttributeError, match="there are: things"):
        _ = mcp.nobody
    with pytest.raises(AttributeError, match="things has no tool named 'nothing'"):
        _ = mcp.things.nothing
    with pytest.raises(KeyError, match="no MCP server named 'x'"):
        _ = mcp["x"]
    assert repr(mcp) == "MCP servers:\n  things: ready"
    assert "search(q: str, limit: int = 10) -> list[str]" in repr(mcp.things)


def test_an_output_goes_into_the_record_as_json(world):
    result = world.play(SEARCH, "Done.")
    assert json.dumps([str(event) for event in result.events])
    assert of_kind(result, ToolCallCompleted)[0].output == InputText("red 0\nred 1\nred 2").text
