"""Making recordings: both wires, retries, errors, cut streams; and what must not get into one."""

import asyncio
import json
import os
import socket
from dataclasses import replace

import pytest

from agent_magics.files.locks import open_locked
from agent_magics.models.base import (
    ContextOverflow,
    ItemDone,
    ModelRequest,
    Notice,
    ResponseDone,
    RetryWait,
    TextChunk,
)
from agent_magics.models.provider import open_model
from agent_magics.models.recordings.drift import normalise_text
from agent_magics.models.recordings.format import read_recording, turns_of
from agent_magics.models.recordings.recorder import RecordingModel, digest_of
from agent_magics.models.recordings.redaction import Hider
from agent_magics.models.recordings.replay import ReplayModel
from agent_magics.models.recordings.scripted import ScriptedModel, SeenHistory
from agent_magics.models.retry import RetryPolicy
from agent_magics.models.wires.sse import encode_event
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import (
    AssistantMessage,
    CustomToolCall,
    FunctionCall,
    ToolCallOutput,
    UserMessage,
)
from agent_magics.protocol.tools import ConfiguredToolSpec, FreeformToolSpec, FunctionToolSpec
from tests.support.models.responses_server import Reply, function_call, message
from tests.support.models.server import ModelServer, chat_events, tool_call

WIRES = ("responses", "chat")
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOLS = (
    ConfiguredToolSpec(FunctionToolSpec("f", "Do.", SCHEMA)),
    ConfiguredToolSpec(FreeformToolSpec("patch", "Change.", "lark", "start: x")),
)


async def _at_once(_seconds):
    """Nobody waits."""


QUICK = RetryPolicy(tries=3, wait=_at_once)


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "r.jsonl"


def request_of(prompt="go", number=1, items=(), conversation="s", **more):
    history = SeenHistory((UserMessage(prompt), *items))
    return ModelRequest("m", "", history, TOOLS, prompt, number, conversation, **more)


def ask(model, *requests):
    """Return the events of each request, the last of them an error where there was one."""

    async def one(request):
        events = []
        stream = model.stream(request)
        try:
            while True:
                events.append(await anext(stream))
        except StopAsyncIteration:
            return events
        except FatalError as error:
            return [*events, error]

    async def run():
        answers = [await one(request) for request in requests]
        await model.close()
        return answers

    return asyncio.run(run())


def said(events):
    return "".join(event.text for event in events if isinstance(event, TextChunk))


def items_of(events):
    return [event.item for event in events if isinstance(event, ItemDone)]


def without_ids(item):
    changes = {"call_id": ""} if hasattr(item, "call_id") else {}
    return replace(item, id=None, **changes)


def both(file, script, *requests, wire, retries=QUICK, timeout=20.0, cwd=None):
    """Return what was answered live, and on replay, on one wire."""
    requests = requests or (request_of(),)
    cwd = cwd or file.parent
    with ModelServer(**{wire: script}) as server:
        live = open_model(wire, base_url=server.base_url, retries=retries, timeout=timeout)
        first = ask(RecordingModel(live, file, cwd=cwd), *requests)
    return first, ask(ReplayModel(file, cwd=cwd, strict=True), *requests)


def call_reply(wire):
    call = {"a": 1}
    if wire == "chat":
        patch = tool_call("patch", {"input": "*** Begin"}, "id_2", 1)
        return Reply(events=chat_events("Look.", [tool_call("f", call, "id_1"), patch]))
    custom = {"type": "custom_tool_call", "id": "ct_1", "status": "completed"}
    patch = {**custom, "call_id": "id_2", "name": "patch", "input": "*** Begin"}
    return Reply([message("Look."), function_call("f", call, "id_1"), patch])


# -- what is recorded is played --------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.parametrize("wire", WIRES)
def test_an_answer_with_calls(file, wire):
    (live,), (played,) = both(file, [call_reply(wire)], wire=wire)
    assert said(played) == said(live) == "Look."
    kinds = [AssistantMessage, FunctionCall, CustomToolCall]
    assert [type(item) for item in items_of(live)] == kinds
    assert list(map(without_ids, items_of(played))) == list(map(without_ids, items_of(live)))
    assert played[-1] == live[-1]
    assert isinstance(live[-1], ResponseDone)
    (exchange,) = read_recording(file).exchanges
    assert exchange.answer.wire == wire
    assert exchange.failed == ()


@pytest.mark.parametrize("wire", WIRES)
def test_recording_changes_nothing_about_an_answer(file, wire):
    with ModelServer(**{wire: [call_reply(wire)] * 2}) as server:
        live = open_model(wire, base_url=server.base_url)
        (plain,) = ask(live, request_of())
        (recorded,) = ask(RecordingModel(live, file, cwd=file.parent), request_of())
    assert items_of(recorded) == items_of(plain)
    assert said(recorded) == said(plain)


@pytest.mark.parametrize("wire", WIRES)
def test_a_request_that_was_repeated(file, wire):
    busy = Reply(status=429, error="slow down", headers=[("retry-after-ms", "250")])
    (live,), (played,) = both(file, [busy, busy, "Hello."], wire=wire)
    waits = [event for event in played if isinstance(event, RetryWait)]
    assert [wait.attempt for wait in waits] == [1, 2]
    assert [wait.delay for wait in waits] == [0.25, 0.25]
    assert len([event for event in live if isinstance(event, RetryWait)]) == 2
    assert said(played) == "Hello."
    (exchange,) = read_recording(file).exchanges
    assert [(each.status, each.headers) for each in exchange.failed] == [
        (429, {"retry-after-ms": "250"})
    ] * 2
    assert "slow down" in exchange.failed[0].body


@pytest.mark.parametrize("wire", WIRES)
def test_a_stream_that_was_cut_and_came_again(file, wire):
    cut = Reply("One two three four.", cut_after=4)
    script = [cut, "One two three four."]
    if wire == "chat":
        script[0] = Reply(events=chat_events("One two three four."), cut_after=4)
    (live,), (played,) = both(file, script, wire=wire)
    assert said(played) == said(live) == "One two three four."
    assert len([event for event in played if isinstance(event, RetryWait)]) == 1
    (exchange,) = read_recording(file).exchanges
    assert len(exchange.failed) == 1
    assert exchange.failed[0].ended in ("cut", "error")


@pytest.mark.parametrize("wire", WIRES)
def test_a_stream_that_stayed_cut(file, wire):
    events = chat_events("One two three.") if wire == "chat" else None
    cut = Reply("One two three.", events=events, cut_after=4)
    (live,), (played,) = both(file, [cut], wire=wire)
    assert said(played) == said(live) != ""
    assert "cut off in the middle" in str(played[-1])
    assert str(played[-1]).startswith("As recorded in r.jsonl, line 2: ")


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (401, "Incorrect API key provided", "refused the API key (401)"),
        (404, "The model `m` does not exist", "does not know the model 'm'"),
        (400, "Unknown parameter", "rejected the request to 'm' (400): Unknown parameter"),
        (503, "overloaded", "status 503"),
    ],
)
def test_an_error(file, wire, status, error, words):
    (live,), (played,) = both(file, [Reply(status=status, error=error)], wire=wire)
    assert words in str(live[-1])
    assert words in str(played[-1])
    assert str(played[-1]).startswith("As recorded in r.jsonl, line 2: ")
    assert len(played) == len(live)


@pytest.mark.parametrize("wire", WIRES)
def test_a_conversation_that_was_too_long(file, wire):
    too_long = Reply(status=400, error="maximum context length is 8 tokens")
    script = [too_long, "A summary.", "Go on."]
    asked = [request_of("a", 2), request_of("[summary] a", 1), request_of("a", 2)]
    live, played = both(file, script, *asked, wire=wire)
    assert [type(events[-1]) for events in live] == [ContextOverflow, ResponseDone, ResponseDone]
    assert [type(events[-1]) for events in played] == [type(events[-1]) for events in live]
    assert list(map(said, played)) == ["", "A summary.", "Go on."]


def test_an_error_inside_of_a_stream(file):
    error = {"code": "content_policy", "message": "Not that."}
    events = [
        encode_event("response.output_text.delta", {"delta": "I can"}),
        encode_event("response.failed", {"response": {"status": "failed", "error": error}}),
    ]
    (live,), (played,) = both(file, [Reply(events=events)], wire="responses")
    assert said(played) == "I can"
    assert str(played[-1]) == f"As recorded in r.jsonl, line 2: {live[-1]}"


def test_an_answer_in_which_nothing_came(file):
    reply = Reply("Hello there.", pause_after=2)
    once = RetryPolicy(tries=1)
    with ModelServer(responses=[reply]) as server:
        live_model = open_model("responses", base_url=server.base_url, retries=once, timeout=1.0)
        (live,) = ask(RecordingModel(live_model, file, cwd=file.parent), request_of())
        assert server.dropped.wait(20), "the server has noticed, and has closed its end"
    (played,) = ask(ReplayModel(file, cwd=file.parent), request_of())
    assert "nothing came" in str(live[-1])
    assert "nothing came" in str(played[-1])
    assert read_recording(file).exchanges[0].answer.ended == "silent"


def test_a_connection_that_is_not_accepted_in_time(file):
    once = RetryPolicy(tries=1)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        with socket.create_connection(full.getsockname()):  # its queue holds no second one
            live_model = open_model(
                "responses", base_url=f"http://127.0.0.1:{port}/v1", retries=once, timeout=0.3
            )
            (live,) = ask(RecordingModel(live_model, file, cwd=file.parent), request_of())
    (played,) = ask(ReplayModel(file, cwd=file.parent), request_of())
    assert "Cannot connect" in str(live[-1])
    assert "Cannot connect" in str(played[-1])
    assert read_recording(file).exchanges[0].answer.ended == "unreachable"


def test_no_connection(file):
    with socket.socket() as deaf:  # bound, so that nobody else listens there, and not listening
        deaf.bind(("127.0.0.1", 0))
        port = deaf.getsockname()[1]
        live = open_model("responses", base_url=f"http://127.0.0.1:{port}/v1", retries=QUICK)
        (events,) = ask(RecordingModel(live, file, cwd=file.parent), request_of())
    (played,) = ask(ReplayModel(file, cwd=file.parent), request_of())
    assert "Cannot connect" in str(events[-1])
    assert str(played[-1]).endswith("Cannot connect to the recorded server. It was asked 3 times.")
    assert len([event for event in played if isinstance(event, RetryWait)]) == 2
    assert str(port) not in file.read_text(encoding="utf-8")


def test_looking_for_the_wire_is_no_part_of_an_answer(file):
    with ModelServer(chat=["Hello."]) as server:
        live = open_model("auto", base_url=server.base_url)
        ask(RecordingModel(live, file, cwd=file.parent), request_of())
    (exchange,) = read_recording(file).exchanges
    assert (exchange.answer.wire, exchange.failed) == ("chat", ())


def test_without_a_key_nothing_is_recorded(file):
    live = open_model("responses", base_url="https://api.example.org/v1")
    (events,) = ask(RecordingModel(live, file, cwd=file.parent), request_of())
    assert "No API key" in str(events[-1])
    assert read_recording(file).exchanges == ()


def test_an_error_is_only_played_where_the_prompt_has_no_answer(file):
    replies = [Reply(status=401, error="no"), "Hello."]
    _, played = both(file, replies, request_of(), request_of(), wire="responses")
    assert [said(events) for events in played] == ["Hello.", "Hello."]


class PlainModel:
    """A client that knows nothing of captures."""

    source = "mine"

    async def stream(self, request):
        yield TextChunk("Hel")
        yield TextChunk("lo.")
        yield ItemDone(AssistantMessage("Hello."))
        yield ItemDone(FunctionCall("c", "f", "{}"))
        yield ResponseDone()

    async def close(self):
        pass


def test_any_client_can_be_recorded(file):
    (live,) = ask(RecordingModel(PlainModel(), file, cwd=file.parent), request_of())
    (played,) = ask(ReplayModel(file, cwd=file.parent), request_of())
    assert said(played) == said(live) == "Hello."
    assert items_of(played)[1] == FunctionCall("call_1", "f", "{}")


def test_a_file_that_cannot_be_written_is_told_before_anything_is_asked(tmp_path):
    live = ScriptedModel(["Hello."])
    (events,) = ask(RecordingModel(live, tmp_path, cwd=tmp_path), request_of())
    assert "Cannot write the recording" in str(events[-1])
    assert live.requests == []


def test_while_another_kernel_holds_the_file_all_else_goes_on(file):
    async def run():
        held = open_locked(file)
        stream = RecordingModel(ScriptedModel(["Hello."]), file, cwd=file.parent).stream(
            request_of()
        )
        first = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)  # begins it; a loop that stood still would never close the file
        os.close(held)
        return [await first, *[event async for event in stream]]

    assert said(asyncio.run(run())) == "Hello."


def test_a_file_that_is_no_recording_stays_as_it_is_however_often_one_asks(file):
    live = ScriptedModel(["Hello."])
    file.write_text("my notes\nof today")
    for events in ask(RecordingModel(live, file, cwd=file.parent), request_of(), request_of()):
        assert "line 1: not JSON" in str(events[-1])
    assert live.requests == [] and file.read_text() == "my notes\nof today"


# -- turns -----------------------------------------------------------------------------------------


def test_agents_that_ask_the_same_at_once_have_their_own_turns(file):
    def recorder(*answers):
        return RecordingModel(ScriptedModel(answers), file, cwd=file.parent)

    left, right = recorder("l1", "l2"), recorder("r1", "r2")
    for number in (1, 2):
        for name, model in (("left", left), ("right", right)):
            ask(model, request_of("a", number, conversation=name))
    turns = turns_of(read_recording(file).exchanges)
    assert [[each.number for each in turn.exchanges] for turn in turns] == [[1, 2], [1, 2]]
    replay = ReplayModel(file, cwd=file.parent)
    played = ask(replay, *(request_of("a", n, conversation=c) for n in (1, 2) for c in "xy"))
    assert list(map(said, played)) == ["l1", "r1", "l2", "r2"]


def test_a_cell_that_is_run_again_is_another_turn(file):
    recorder = RecordingModel(ScriptedModel(["1", "2"]), file, cwd=file.parent)
    ask(recorder, request_of("a"), request_of("a"))
    assert len(turns_of(read_recording(file).exchanges)) == 2


# -- the digest ------------------------------------------------------------------------------------


def digest(home="/home/ann", **changes):
    local = {"instructions": f"In {home}.", "model": f"{home}/m.gguf", **changes}
    request = replace(request_of(f"look into {home}/x"), **local)
    hider = Hider([(home, "home")])
    return digest_of(request, [normalise_text("took 3 s")], hider)


def test_the_digest_is_the_same_on_any_machine():
    assert digest() == digest(home="/Users/bob")
    assert len(digest()) == 16


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "other"},
        {"tools": TOOLS[:1]},
        {"prompt": "look elsewhere"},
        {"number": 2},
        {"output_schema": SCHEMA},
    ],
)
def test_the_digest_is_another_where_another_thing_is_asked(changes):
    assert digest(**changes) != digest()


# -- what must not get into a file -----------------------------------------------------------------

CANARIES = {
    "argument": "canary-argument-0123456789",
    "environment": "canary-environment-0123456789",
    "other": "canary-openrouter-0123456789",
    "query": "canary-query-0123456789",
    "shape": "sk-canary" + "Ab12" * 8,
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("failing", [False, True])
def test_no_key_and_no_personal_path_gets_into_a_recording(tmp_path, monkeypatch, wire, failing):
    home = tmp_path / "home" / "canary-ann"
    work = home / "canary-project"
    work.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("OPENAI_API_KEY", CANARIES["environment"])
    monkeypatch.setenv("OPENROUTER_API_KEY", CANARIES["other"])
    personal = [*CANARIES.values(), f"{work}/a.py", f"{home}/b.py", f"-I{work}/c", f"D{home}"]
    text = "I saw " + " and ".join(personal) + "."
    call = {"a": text}
    if failing:
        headers = [("retry-after-ms", "1"), ("x-canary", CANARIES["argument"])]
        script = [Reply(status=500, error=text, headers=headers)] * 3
    elif wire == "chat":
        script = [Reply(events=chat_events(text, [tool_call("f", call)]))]
    else:
        script = [Reply([message(text), function_call("f", call)])]
    items = [FunctionCall("c0", "f", "{}"), ToolCallOutput("c0", text)]
    name = f"{home}/models/qwen.gguf"  # as local servers name theirs
    request = replace(request_of(text, 2, items), instructions=text, model=name)
    file = tmp_path / "r.jsonl"
    with ModelServer(**{wire: script}) as server:
        address = f"{server.base_url}?api-version=2026-11-01&key={CANARIES['query']}"
        live = open_model(wire, api_key=CANARIES["argument"], base_url=address, retries=QUICK)
        (events,) = ask(RecordingModel(live, file, cwd=work), request)
        port = server.base_url.rpartition(":")[2].partition("/")[0]
    written = file.read_text(encoding="utf-8")
    recording = read_recording(file)
    (exchange,) = recording.exchanges
    assert recording.header.model == exchange.model == "{home}/models/qwen.gguf"
    assert "{cwd}/a.py" in exchange.prompt
    assert exchange.outputs is not None
    assert "canary" not in written
    assert f":{port}" not in written
    if failing:
        assert exchange.answer.status == 500
        assert "{cwd}/a.py" in exchange.answer.body
    else:
        (notice,) = (event for event in events if isinstance(event, Notice))
        assert "A key stood in what was recorded; in r.jsonl it is [API key]." in notice.message
        assert said(events) == text  # the person still sees what was said
        hidden = exchange.answer.sse
        assert "{home}" in hidden  # "/b.py" is in the next piece, if the folder has a space


@pytest.mark.soak
def test_no_key_of_a_cut_stream_gets_into_a_recording(file, monkeypatch):
    key = CANARIES["environment"]
    monkeypatch.setenv("OPENAI_API_KEY", key)
    events = [encode_event("response.output_text.delta", {"delta": letter}) for letter in key]
    both(file, [Reply(events=events)], wire="responses")
    assert json.loads(file.read_text(encoding="utf-8").splitlines()[1])["ended"] == "error"
    assert key not in "".join(
        json.loads(line[6:])["delta"]
        for line in read_recording(file).exchanges[0].answer.sse.splitlines()
        if line.startswith("data: ")
    )
