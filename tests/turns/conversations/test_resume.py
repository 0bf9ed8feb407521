"""A conversation goes on where its record ends: exact, valid, and truthful about what was cut."""

import asyncio
import json
import os
import random
import shutil
import tempfile
from pathlib import Path

import pytest

from agent_magics import Agent, Call, FatalError, ScriptedModel, ToolContext, tool
from agent_magics.engine.context.history import INTERRUPTED
from agent_magics.engine.past.restoring import KERNEL_ENDED, NOT_SENT, REDACTED
from agent_magics.protocol.codec import from_json
from agent_magics.protocol.events import (
    Event,
    ItemCompleted,
    ToolCallCompleted,
    TurnStarted,
    Warned,
)
from agent_magics.protocol.items import (
    CALL_TYPES,
    InputImage,
    InputText,
    Reasoning,
    ToolCallOutput,
    UserMessage,
    text_of,
)
from agent_magics.protocol.ops import Compact, Interrupt, QueuePrompt, Steer, new_turn_id
from agent_magics.protocol.records import AdditionsWaiting
from agent_magics.records.places import rollout_folder
from agent_magics.records.reading import EARLIER
from tests.support.models.responses_server import Reply, function_call, message
from tests.support.models.server import ModelServer, chat_events, tool_call
from tests.support.turns import assert_valid, of_kind, outputs, scripted

DOT = InputImage("data:image/png;base64,iVBORw0KGgo=", "low")
REASONING = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "Two looks."}],
    "encrypted_content": "opaque",
}


@tool(mutating=False, parallel=True)
async def look(what: str, *, ctx: ToolContext) -> str | InputImage:
    """Look at something; some of it takes longer, says more, or stops it all."""
    if what == "slow":
        await asyncio.sleep(0.05)
    if what == "picture":
        return DOT
    if what == "steer":
        sessions[ctx.session_id].submit(Steer(turn_id=ctx.turn_id, content="And look left."))
    if what == "stop":
        sessions[ctx.session_id].submit(Interrupt(turn_id=ctx.turn_id))
        await asyncio.Event().wait()
    return f"{what} " * 50


sessions = {}

# What the model says, by turn: calls and words.
TURNS = (
    ((["slow", "quick"], ""), (["picture", "steer"], ""), ([], "Seen, é \u2028 \\.")),
    ((["stop", "quick"], ""),),
    (([], "Short."),),
    (([], "Not a word."),),
    ((["again"], ""), ([], "Done.")),
)


def _responses(number: int, calls: list[str], text: str) -> Reply:
    items = [dict(REASONING, id=f"rs_{number}")] if calls else []
    items += [function_call("look", {"what": w}, f"call_{number}_{w}") for w in calls]
    return Reply([*items, message(text)] if text else items)


def _chat(number: int, calls: list[str], text: str) -> Reply:
    made = [tool_call("look", {"what": w}, f"c{number}{w}", at) for at, w in enumerate(calls)]
    return Reply(events=chat_events(text, made))


@pytest.fixture(params=["responses", "chat"])
def server(request):
    reply = {"responses": _responses, "chat": _chat}[request.param]
    answers = [answer for turn in TURNS for answer in turn]
    script = [reply(number, *answer) for number, answer in enumerate(answers)]
    with ModelServer(**{request.param: [*script, reply(99, [], "Last.")]}) as server:
        server.wire = request.param
        yield server


def options_of(server) -> dict:
    return {
        "base_url": server.base_url,
        "api_key": "none",
        "wire_api": server.wire,
        "approval": "never",
    }


def rich(server, *, shortened: bool = True) -> Agent:
    """Return an agent after a conversation that has everything a conversation can have."""
    agent = Agent("m", [look], **options_of(server))
    sessions[agent.conversation_id] = agent.session
    agent.run_sync((InputText("Look around."), DOT))
    stopped = agent.run_sync("Look and stop.")
    assert stopped.status == "aborted"
    agent.run_sync("Be short.")
    if shortened:
        compact(agent)
        agent.run_sync("Once more.")
    return agent


def compact(agent: Agent) -> None:
    op = Compact(turn_id=new_turn_id())
    agent.foreground().wait_blocking(op, agent.turn_config())


def record_of(agent: Agent) -> Path:
    [path] = rollout_folder().rglob(f"{agent.conversation_id}.jsonl")
    return path


def elsewhere(path: Path, monkeypatch, size: int | None = None) -> str:
    """Put a record, or its beginning, where other conversations are, and return its id.

    That is outside of the workspace, or its settings would not be used.
    """
    monkeypatch.setenv("XDG_STATE_HOME", tempfile.mkdtemp(dir=Path.home()))
    there = rollout_folder() / "2026/01/01" / path.name
    there.parent.mkdir(parents=True, exist_ok=True)
    there.write_bytes(path.read_bytes()[:size])
    there.chmod(0o600)
    return path.stem


def first_body(server, agent: Agent) -> str:
    """Return the first request of one more turn."""
    before = len(server.requests)
    agent.run_sync("Go on.")
    return json.dumps(server.requests[before].body)


@pytest.mark.parametrize("shortened", [False, True])
def test_the_next_request_is_the_one_that_the_unbroken_conversation_makes(
    shortened, server, tmp_path, monkeypatch
):
    with rich(server, shortened=shortened) as agent:
        path = record_of(agent)
        saved = path.read_bytes()
        unbroken = first_body(server, agent)
        assert ("Not a word." if shortened else INTERRUPTED) in unbroken
        kept = tmp_path / path.name
        kept.write_bytes(saved)
        conversation = elsewhere(kept, monkeypatch)
    with Agent.resume(conversation, "m", [look], api_key="none") as resumed:
        assert resumed.conversation_id == conversation
        assert first_body(server, resumed) == unbroken


@pytest.mark.soak
def test_wherever_its_record_is_cut_the_conversation_is_valid_and_has_what_was_shown(
    server, tmp_path, monkeypatch
):
    with rich(server) as agent:
        path = record_of(agent)
    data = path.read_bytes()
    ends = [at + 1 for at, byte in enumerate(data) if byte == 10]
    some = random.Random(14).sample(range(len(data)), 40)
    for size in [*ends, *some]:
        conversation = elsewhere(path, monkeypatch, size)
        if size < ends[0]:  # not even a first line
            with Agent.resume(conversation, "m", [look], api_key="none") as resumed:
                assert not resumed.session.conversation.history.items
            continue
        with Agent.resume(conversation, "m", [look], api_key="none") as resumed:
            assert_valid(resumed)
            assert_shown(data[:size], resumed)
        shutil.rmtree(os.environ["XDG_STATE_HOME"])


def assert_shown(data: bytes, resumed: Agent) -> None:
    """Check that the conversation has what events show that stand in whole lines of a record."""
    nouns = [from_json(json.loads(line)) for line in data.split(b"\n")[:-1]]
    items = resumed.session.conversation.history.items
    answers = {item.call_id: item.output for item in items if isinstance(item, ToolCallOutput)}
    said = [text_of(item.content) for item in items if isinstance(item, UserMessage)]
    numbers = [each.seq for each in nouns if isinstance(each, Event)]
    assert numbers == sorted(numbers)
    notes = resumed.session.conversation.notes
    finished = set()
    for event in nouns:
        match event:
            case AdditionsWaiting(texts=texts):
                assert all((text in said) != (NOT_SENT.format(text) in notes) for text in texts)
            case TurnStarted(prompt=prompt):
                assert prompt in said
            case ItemCompleted(item=item):
                assert item in items
            case ToolCallCompleted(call_id=call_id, output=output):
                finished.add(call_id)
                assert answers[call_id] == output
    for item in items:
        if isinstance(item, CALL_TYPES) and item.call_id not in finished:
            assert answers[item.call_id] in (KERNEL_ENDED, INTERRUPTED)


def test_what_waits_when_the_kernel_is_killed_is_given_back_until_the_next_turn(
    tmp_path, monkeypatch
):
    @tool
    async def add(ctx: ToolContext) -> str:
        """Have the person say more, then look at what a kill at this moment leaves."""
        session = agent.session
        session.submit(Steer(turn_id=ctx.turn_id, content=f"Only March. {TYPED}"))
        for name in ("a", "b"):
            session.submit(QueuePrompt(turn_id=ctx.turn_id, prompt_id=name, content=f"Then {name}"))
        agent.unqueue("a")
        # The engine's thread writes what it was given, in that order.
        await asyncio.wrap_future(session.engine.spawn(asyncio.sleep(0)))
        left.append(record_of(agent).read_bytes())
        return "added"

    left: list[bytes] = []
    with scripted(Call("add"), "Of March.", "Then.", tools=[add]) as agent:
        agent.run_sync("Go.")
        path = record_of(agent)
    assert TYPED not in path.read_text()
    killed = tmp_path / path.name
    killed.write_bytes(left[0])
    conversation = elsewhere(killed, monkeypatch)
    told = [NOT_SENT.format(text) for text in ("Only March. [redacted]", "Then b")]
    for _ in range(2):  # as long as no turn has told it
        with Agent.resume(conversation, ScriptedModel(["Here."]), [add]) as resumed:
            assert resumed.session.conversation.notes == told
    with Agent.resume(conversation, ScriptedModel(["Here."]), [add]) as resumed:
        result = resumed.run_sync("Are you there?")
        assert [event.message for event in of_kind(result, Warned)] == told
    with Agent.resume(conversation, ScriptedModel([]), [add]) as resumed:
        assert resumed.session.conversation.notes == []


def test_what_the_model_was_to_be_told_next_is_told_once_after_a_kill(tmp_path):
    write = Call("write_file", {"path": "a.txt", "content": "1"})
    with scripted(write, "Written.", "Seen.", tools=["write_file"], cwd=str(tmp_path)) as agent:
        agent.run_sync("Write.")
        agent.undo()
        agent.session.conversation.history.settle()
        path = record_of(agent)
        killed = path.read_bytes()
        agent.run_sync("Go on.")
        unbroken = items_of(agent, UserMessage)
    assert [each.role for each in unbroken] == ["user", "developer", "user"]
    path.write_bytes(killed)
    for more in (0, 0, 1, 2):  # as long as no request has told it
        with Agent.resume(path.stem, ScriptedModel(["Seen."] * 2)) as resumed:
            for _ in range(min(more, 1)):
                resumed.run_sync("Go on.")
            told = items_of(resumed, UserMessage)
        assert told[: len(unbroken)] == unbroken[: len(told)]
        assert [each.role for each in told].count("developer") == min(more, 1)


def test_events_of_a_resumed_conversation_are_numbered_on():
    with scripted("One.") as agent:
        agent.run_sync("1")
        path = record_of(agent)
    with Agent.resume(path.stem, ScriptedModel(["Two."])) as resumed:
        resumed.run_sync("2")
    numbers = [json.loads(line).get("seq") for line in path.read_bytes().splitlines()]
    numbers = [number for number in numbers if number is not None]
    assert numbers == sorted(set(numbers))


def test_it_can_be_resumed_before_anything_has_happened(monkeypatch, tmp_path):
    agent = scripted("Hello.")
    conversation = elsewhere(record_of(agent), monkeypatch)
    with Agent.resume(conversation, ScriptedModel(["Hello."])) as resumed:
        assert resumed.config.approval == "never"
        assert resumed.run_sync("Hi.").text == "Hello."


def test_settings_that_are_given_win_and_what_was_not_recorded_is_said():
    with scripted("Ok.", tools=[look, "read_file"], max_turns=3, on_question=print) as agent:
        conversation = agent.conversation_id
    with Agent.resume(conversation, ScriptedModel(["Ok."]), max_turns=5) as resumed:
        assert (resumed.config.max_turns, resumed.settings.tools) == (5, ["read_file"])
        [warned] = of_kind(resumed.run_sync("Go."), Warned)
        assert warned.message.endswith("give them again: on_question, tools.")


def test_two_do_not_write_one_conversation():
    with scripted("Ok.") as agent:
        agent.run_sync("Go.")
        with pytest.raises(FatalError, match="open in another kernel"):
            Agent.resume(agent.conversation_id, ScriptedModel([]))
    with Agent.resume(agent.conversation_id[:6], ScriptedModel([])) as resumed:
        assert resumed.conversation_id == agent.conversation_id


@pytest.mark.parametrize("bad", ["", "../../x", "abc", "f" * 33, "abcdef"])
def test_an_id_that_leads_nowhere_is_one_sentence(bad):
    with pytest.raises(FatalError, match=r"id|no record"):
        Agent.resume(bad)


def test_a_record_that_others_may_write_is_not_used():
    with scripted("Ok.") as agent:
        path = record_of(agent)
    path.chmod(0o620)
    with pytest.raises(FatalError, match="others than you"):
        Agent.resume(agent.session.conversation.id)


def test_a_reset_begins_another_conversation_and_the_first_can_be_resumed():
    with scripted("One.", "Two.") as agent:
        first = agent.conversation_id
        agent.run_sync("1")
        agent.reset()
        agent.run_sync("2")
        assert agent.conversation_id != first
    with Agent.resume(first, ScriptedModel([])) as resumed:
        assert [text_of(item.content) for item in items_of(resumed, UserMessage)] == ["1"]


def items_of(agent: Agent, kind) -> list:
    return [each for each in agent.session.conversation.history.items if isinstance(each, kind)]


def test_a_damaged_line_ends_what_is_used_and_the_rest_is_set_aside():
    with scripted("One.", "Two.") as agent:
        agent.run_sync("1")
        size = record_of(agent).stat().st_size
        agent.run_sync("2")
        path = record_of(agent)
    data = path.read_bytes()
    path.write_bytes(data[:size] + b"\0" * 50 + data[size + 50 :])
    with Agent.resume(path.stem, ScriptedModel(["Three."])) as resumed:
        [note] = resumed.session.conversation.notes
        assert "is damaged" in note
        resumed.run_sync("3")
    assert path.read_bytes().startswith(data[:size])
    assert path.with_name(path.name + ".damaged").read_bytes()[50:] == data[size + 50 :]
    with Agent.resume(path.stem, ScriptedModel([])) as resumed:
        assert [text_of(item.content) for item in items_of(resumed, UserMessage)] == ["1", "3"]


def test_a_record_of_a_newer_version_is_one_sentence():
    with scripted("Ok.") as agent:
        path = record_of(agent)
    path.write_bytes(path.read_bytes().replace(b'"version":2', b'"version":3'))
    with pytest.raises(FatalError, match="a newer version of agent-magics has written"):
        Agent.resume(path.stem)


TYPED, GIVEN = "sk-typed-0123456789abcdefgh", "sk-given-0123456789abcdefgh"


# Servers whose programs may be given a key.
SERVERS = {
    "mcp_servers": {"one": {"command": "true", "env": {"TOKEN": "of-a-server"}, "enabled": False}},
    "language_servers": {"python": {"command": "true", "env": {"TOKEN": "of-a-server"}}},
}


@pytest.mark.parametrize("name", SERVERS)
def test_what_servers_are_given_is_not_recorded_and_that_is_said(name):
    with scripted("Ok.", **{name: SERVERS[name]}) as agent:
        path = record_of(agent)
    assert "of-a-server" not in path.read_text()
    with Agent.resume(path.stem, ScriptedModel(["Ok."])) as resumed:
        [warned] = of_kind(resumed.run_sync("Go."), Warned)
        assert warned.message.endswith(f"give them again: {name}.")


def test_keys_are_not_recorded_and_the_model_is_sent_the_words_without_them():
    model = ScriptedModel([Call("look", {"what": TYPED}), f"{TYPED} {GIVEN}"])
    with Agent(
        model, [look], approval="never", api_key=GIVEN, instructions=f"Use {GIVEN}"
    ) as agent:
        conversation = agent.conversation_id
        agent.run_sync(f"Use {TYPED} and {GIVEN}.")
        path = record_of(agent)
    recorded = path.read_text()
    assert TYPED not in recorded and GIVEN not in recorded
    with Agent.resume(conversation, ScriptedModel(["Ok."])) as resumed:
        [prompt] = items_of(resumed, UserMessage)
        assert prompt.content == "Use [redacted] and [redacted]."
        assert REDACTED in [w.message for w in of_kind(resumed.run_sync("Go."), Warned)]


OLD = Path(__file__).parents[2] / "support/corpora/records"


@pytest.mark.parametrize("version", [1, 2])
def test_records_of_each_version_are_read(version, monkeypatch, tmp_path):
    [path] = (OLD / f"version{version}").glob("*.jsonl")
    conversation = elsewhere(path, monkeypatch)
    with Agent.resume(conversation, ScriptedModel(["Ok."]), [look], cwd=tmp_path) as resumed:
        assert_valid(resumed)
        prompts = [text_of(item.content) for item in items_of(resumed, UserMessage)]
        assert prompts[0].startswith("Look around.")
        assert len(outputs(resumed)) == 7
        assert len(items_of(resumed, Reasoning)) == 4
        assert (EARLIER in resumed.session.conversation.notes) == (version == 1)
        resumed.run_sync("Go on.")
    with Agent.resume(conversation, ScriptedModel(["Ok."]), [look], cwd=tmp_path) as again:
        said = [text_of(item.content) for item in items_of(again, UserMessage)]
        assert said == [*prompts, "Go on."]
