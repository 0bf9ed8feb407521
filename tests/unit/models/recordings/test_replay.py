"""Playing a recording again, noticing drift, and making a recording from a live client."""

import asyncio
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_magics.models.base import (
    ItemDone,
    ModelRequest,
    Notice,
    ReasoningChunk,
    ResponseDone,
    TextChunk,
)
from agent_magics.models.recordings.format import prompt_key, read_recording, turns_of
from agent_magics.models.recordings.recorder import RecordingModel
from agent_magics.models.recordings.redaction import personal_paths, prompt_hider
from agent_magics.models.recordings.replay import ReplayModel
from agent_magics.models.recordings.scripted import Call, ScriptedModel, SeenHistory
from agent_magics.models.wires.responses.model import ResponsesModel
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import (
    AssistantMessage,
    CustomToolCall,
    FunctionCall,
    LocalShellCall,
    ToolCallOutput,
    Usage,
    UserMessage,
)
from tests.support.models.responses_server import Reply, ResponsesServer, function_call, message

KEY = "key-of-ann-0815"
HEADER = {"format": "agent-magics-recording", "version": 1, "by": "hand"}


def recording(path, *exchanges):
    lines = [HEADER]
    for prompt, number, reply, *outputs in exchanges:
        line = {"prompt": prompt, "number": number, "reply": reply}
        lines.append({**line, "outputs": outputs[0]} if outputs else line)
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


def request_of(prompt, number=1, items=(), conversation="s"):
    return ModelRequest(
        model="m",
        instructions="",
        history=SeenHistory((UserMessage(prompt), *items)),
        tools=(),
        prompt=prompt,
        number=number,
        conversation=conversation,
    )


def ask(model, request):
    async def run():
        try:
            return [event async for event in model.stream(request)]
        finally:
            await model.close()

    return asyncio.run(run())


def text_of_answer(model, request):
    return "".join(e.text for e in ask(model, request) if isinstance(e, TextChunk))


def said(text):
    return [{"text": text}]


LOOK = [{"call": "shell", "arguments": {"command": ["ls"]}}]


def test_an_answer_is_found_by_prompt_and_number(tmp_path):
    path = recording(
        tmp_path / "r.jsonl", ("a", 1, LOOK), ("a", 2, said("A2")), ("b", 1, said("B"))
    )
    model = ReplayModel(path, cwd=tmp_path)
    assert model.source == "recording r.jsonl"
    assert text_of_answer(model, request_of(" b\n")) == "B"
    call, done = ask(model, request_of("a"))
    assert call == ItemDone(FunctionCall("call_1", "shell", '{"command": ["ls"]}'))
    assert done == ResponseDone()
    assert text_of_answer(model, request_of("a", 2)) == "A2"


def test_reasoning_is_shown(tmp_path):
    path = recording(tmp_path / "r.jsonl", ("a", 1, [{"reasoning": "Hm, hm."}, {"text": "A"}]))
    events = ask(ReplayModel(path, cwd=tmp_path), request_of("a"))
    assert events == [
        ReasoningChunk("Hm, hm."),
        TextChunk("A"),
        ItemDone(AssistantMessage("A")),
        ResponseDone(),
    ]


def test_a_prompt_recorded_twice_plays_in_order_and_then_anew(tmp_path):
    path = recording(
        tmp_path / "r.jsonl",
        ("a", 1, said("first 1")),
        ("a", 2, said("first 2")),
        ("b", 1, said("B")),
        ("a", 1, said("second 1")),
    )
    model = ReplayModel(path, cwd=tmp_path)
    assert text_of_answer(model, request_of("a")) == "first 1"
    assert text_of_answer(model, request_of("a", 2)) == "first 2"
    assert text_of_answer(model, request_of("a")) == "second 1"
    with pytest.raises(FatalError, match="has 1 answer to 'a'"):
        ask(model, request_of("a", 2))
    assert text_of_answer(model, request_of("a")) == "first 1"
    assert text_of_answer(model, request_of("a", 2)) == "first 2"


def test_a_turn_that_was_stopped_is_played_only_where_its_prompt_has_no_other(tmp_path):
    stopped, whole = [("a", 1, LOOK), ("a", 2, LOOK)], [("a", 1, LOOK), ("a", 2, said("A"))]
    path = recording(tmp_path / "r.jsonl", *stopped, *whole, *stopped)
    model = ReplayModel(path, cwd=tmp_path)
    for _ in "123":
        ask(model, request_of("a"))
        assert text_of_answer(model, request_of("a", 2)) == "A"
    model = ReplayModel(recording(path, *stopped), cwd=tmp_path)
    ask(model, request_of("a"))
    assert text_of_answer(model, request_of("a", 2)) == ""
    with pytest.raises(FatalError, match="has 2 answers to 'a'"):
        ask(model, request_of("a", 3))


def test_two_conversations_do_not_disturb_each_other(tmp_path):
    path = recording(
        tmp_path / "r.jsonl",
        ("a", 1, said("x1")),
        ("a", 2, said("x2")),
        ("a", 1, said("y1")),
        ("a", 2, said("y2")),
    )
    model = ReplayModel(path, cwd=tmp_path)
    answers = [
        text_of_answer(model, request_of("a", number, conversation=conversation))
        for number, conversation in [(1, "left"), (1, "right"), (2, "left"), (2, "right")]
    ]
    assert answers == ["x1", "y1", "x2", "y2"]


def test_calls_of_a_cell_that_is_run_again_have_new_ids(tmp_path):
    path = recording(tmp_path / "r.jsonl", ("a", 1, LOOK * 2))
    model = ReplayModel(path, cwd=tmp_path)
    ids = [event.item.call_id for _ in "12" for event in ask(model, request_of("a"))[:-1]]
    assert ids == ["call_1", "call_2", "call_3", "call_4"]


def test_an_unknown_prompt_names_the_nearest_and_the_ways_out(tmp_path):
    path = recording(tmp_path / "r.jsonl", ("Plot sales by month", 1, []), ("Hello", 1, []))
    with pytest.raises(FatalError) as caught:
        ask(ReplayModel(path, cwd=tmp_path), request_of("Plot sales by week"))
    message_text = str(caught.value)
    for part in ("'Plot sales by week'", str(path), "'Plot sales by month'", "OPENAI_BASE_URL"):
        assert part in message_text
    empty = recording(tmp_path / "e.jsonl")
    with pytest.raises(FatalError, match="has no prompts"):
        ask(ReplayModel(empty, cwd=tmp_path), request_of("x"))


def test_of_long_prompts_the_place_that_differs_is_named(tmp_path):
    same = "Read all files below this folder and count the words in them. " * 3
    path = recording(tmp_path / "r.jsonl", (f"{same}Be brief.", 1, []), ("Hello", 1, []))
    with pytest.raises(FatalError) as caught:
        ask(ReplayModel(path, cwd=tmp_path), request_of(f"{same}Be long."))
    assert "Be brief.'" in str(caught.value)
    assert "Be long.'" in str(caught.value)


def test_cells_may_be_run_in_any_order_and_again(tmp_path):
    names = "abc"
    path = recording(tmp_path / "r.jsonl", *((name, 1, said(name.upper())) for name in names))
    model = ReplayModel(path, cwd=tmp_path)
    order = "cabbac"
    assert "".join(text_of_answer(model, request_of(name)) for name in order) == order.upper()


def test_a_number_that_is_asked_for_again_plays_what_was_recorded_again(tmp_path):
    answers = [("a", 1, LOOK), ("a", 2, said("first")), ("a", 2, said("second"))]
    model = ReplayModel(recording(tmp_path / "r.jsonl", *answers), cwd=tmp_path)
    ask(model, request_of("a"))
    played = [text_of_answer(model, request_of("a", 2)) for _ in "123"]
    assert played == ["first", "second", "second"]


def test_a_file_that_has_changed_is_read_again_at_the_next_prompt(tmp_path):
    path = recording(tmp_path / "r.jsonl", ("a", 1, LOOK), ("a", 2, said("old")))
    model = ReplayModel(path, cwd=tmp_path)
    ask(model, request_of("a"))
    recording(path, ("a", 1, said("new answer")))
    assert text_of_answer(model, request_of("a", 2)) == "old"
    assert text_of_answer(model, request_of("a")) == "new answer"
    path.unlink()
    with pytest.raises(FatalError, match="Cannot read the recording"):
        ask(model, request_of("a"))


def test_what_of_a_file_is_not_read_is_told_once(tmp_path):
    path = recording(tmp_path / "r.jsonl", ("a", 1, said("A")))
    path.write_text(path.read_text(encoding="utf-8") + '\n{"prompt": "b', encoding="utf-8")
    model = ReplayModel(path, cwd=tmp_path)
    notice, *_ = ask(model, request_of("a"))
    assert "line 3, the last, breaks off in the middle and was left out" in notice.message
    assert not any(isinstance(event, Notice) for event in ask(model, request_of("a")))


@pytest.mark.parametrize("name", ["", "gone", "\0", "a" * 300])
def test_what_is_no_file_is_told_in_one_sentence(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FatalError, match="Cannot read the recording"):
        ReplayModel(name, cwd=tmp_path)


@pytest.mark.parametrize(
    "sse", ["", "by hand", "data: {\n\n", "event: response.output_text.delta\ndata: 5\n\n"]
)
def test_an_answer_that_was_spoilt_by_hand_is_named(tmp_path, sse):
    lines = [HEADER, {"prompt": "a", "number": 1, "sse": sse}]
    path = tmp_path / "r.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    with pytest.raises(FatalError) as caught:
        ask(ReplayModel(path, cwd=tmp_path), request_of("a"))
    assert "The answer in the recording r.jsonl, line 2, cannot be played" in str(caught.value)
    assert "%agent recording rerecord next" in str(caught.value)


def test_placeholders_become_this_machines_paths(tmp_path):
    folder = tmp_path / 'a "quoted" name'
    folder.mkdir()
    reply = [
        {"text": "In {cwd}, not {literal:cwd}."},
        {"call": "f", "arguments": {"p": "{cwd}/x"}},
        {"custom": "p", "input": "{cwd}/y"},
    ]
    path = recording(tmp_path / "r.jsonl", ("a", 1, reply))
    events = ask(ReplayModel(path, cwd=folder), request_of("a"))
    text, *items = events[:-1]
    spoken, call, custom = (event.item for event in items)
    assert text == TextChunk(f"In {folder}, not {{cwd}}.")
    assert spoken == AssistantMessage(text.text)
    assert json.loads(call.arguments) == {"p": f"{folder}/x"}
    assert custom == CustomToolCall("call_2", "p", f"{folder}/y")


def test_a_slow_replay_comes_in_pieces(tmp_path):
    path = recording(tmp_path / "r.jsonl", ("a", 1, said("one two three")))
    events = ask(ReplayModel(path, cwd=tmp_path, delay=0.001), request_of("a"))
    texts = [event.text for event in events if isinstance(event, TextChunk)]
    assert len(texts) > 1
    assert "".join(texts) == "one two three"


# -- drift ---------------------------------------------------------------------------------------

CALL = FunctionCall("call_1", "shell", "{}")


def drift_of(tmp_path, recorded, *sent, strict=False):
    path = recording(tmp_path / "r.jsonl", ("a", 1, LOOK), ("a", 2, said("ok"), recorded))
    model = ReplayModel(path, cwd=tmp_path, strict=strict)
    outputs = [ToolCallOutput("call_1", text) for text in sent]
    ask(model, request_of("a"))
    older = ToolCallOutput("call_0", "of an earlier turn")
    return ask(model, request_of("a", 2, [older, CALL, *outputs]))


def test_outputs_as_recorded_are_no_drift(tmp_path):
    output = f"{tmp_path}/a.py took 0.31 seconds\n"
    events = drift_of(tmp_path, ["{cwd}/a.py took 12 s"], output, strict=True)
    assert events[0] == TextChunk("ok")


def test_other_outputs_are_told_first(tmp_path):
    notice, *rest = drift_of(tmp_path, ["same\nold"], "same\nnew")
    assert isinstance(notice, Notice)
    assert "`shell` (call_1)" in notice.message
    assert notice.message.endswith("\n-old\n+new")
    assert rest[0] == TextChunk("ok")


def test_every_call_that_differs_is_told(tmp_path):
    items = [FunctionCall(f"call_{n}", name, "{}") for n, name in enumerate("xyz")]
    items += [ToolCallOutput(f"call_{n}", text) for n, text in enumerate(["1", "2", "3"])]
    answers = [("a", 1, LOOK), ("a", 2, said("ok"), ["1", "two", "three"])]
    model = ReplayModel(recording(tmp_path / "r.jsonl", *answers), cwd=tmp_path)
    ask(model, request_of("a"))
    notice = ask(model, request_of("a", 2, items))[0]
    assert notice.message == (
        "The output of `y` (call_1) differs from the recording r.jsonl:\n-two\n+2\n"
        "The output of `z` (call_2) differs from the recording r.jsonl:\n-three\n+3"
    )


def test_other_line_ends_are_told_in_words(tmp_path):
    notice = drift_of(tmp_path, ["a\r\nb"], "a\nb")[0]
    assert notice.message.endswith("(only in its line ends)")


def test_a_long_difference_is_shown_short(tmp_path):
    lines = "\n".join(f"line {n} " + "x" * 500 for n in range(100))
    notice = drift_of(tmp_path, [lines], "nothing")[0]
    assert len(notice.message) < 1000
    assert notice.message.endswith("…")


def test_another_number_of_outputs_is_drift(tmp_path):
    notice = drift_of(tmp_path, ["x"])[0]
    assert "sent 0 tool outputs, recorded are 1" in notice.message


def test_drift_is_an_error_when_strict(tmp_path):
    with pytest.raises(FatalError, match="differs from the recording"):
        drift_of(tmp_path, ["old"], "new", strict=True)


# -- recording -----------------------------------------------------------------------------------


def test_what_was_recorded_plays_again_elsewhere(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    file = tmp_path / "rec" / "r.jsonl"
    live = ScriptedModel(
        [[Call("f", {"p": f"{here}/x"}), CustomToolCall("c9", "p", "{cwd}")], f"Done in {here}."]
    )
    model = RecordingModel(live, file, cwd=here)
    prompt = f"look into {here}"
    calls = [event.item for event in ask(model, request_of(prompt))[:-1]]
    outputs = [ToolCallOutput(call.call_id, f"{here}/x in 0.5 s") for call in calls]
    ask(model, request_of(prompt, 2, [*calls, *outputs]))

    assert str(tmp_path) not in file.read_text(encoding="utf-8")
    header = read_recording(file).header
    assert (header.model, header.note) == ("m", "")
    assert header.by.startswith("agent-magics ")

    replay = ReplayModel(file, cwd=there, strict=True)
    prompt = f"look into {there}"
    played = [event.item for event in ask(replay, request_of(prompt))[:-1]]
    assert json.loads(played[0].arguments) == {"p": f"{there}/x"}
    assert played[1].input == "{cwd}"
    outputs = [ToolCallOutput(call.call_id, f"{there}/x in 7 s") for call in played]
    answer = text_of_answer(replay, request_of(prompt, 2, [*played, *outputs]))
    assert answer == f"Done in {there}."


def test_recording_goes_on_in_the_same_file(tmp_path):
    file = tmp_path / "r.jsonl"
    for prompt in ("a", "b"):
        ask(RecordingModel(ScriptedModel([prompt.upper()]), file, cwd=tmp_path), request_of(prompt))
    replay = ReplayModel(file, cwd=tmp_path)
    assert [text_of_answer(replay, request_of(prompt)) for prompt in "ba"] == ["B", "A"]


def test_a_live_answer_is_recorded_over_http(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    file = tmp_path / "r.jsonl"
    reply = Reply([message("Hello."), function_call("f", {"a": 1}, "call_xyz")])
    with ResponsesServer([reply]) as server:
        live = ResponsesModel(base_url=server.base_url)
        events = ask(RecordingModel(live, file, cwd=tmp_path), request_of("hi"))
    again = ask(ReplayModel(file, cwd=tmp_path), request_of("hi"))
    assert again[-1] == events[-1] == ResponseDone(Usage(10, 5, 4, 2))
    assert again[1].item.text == "Hello."
    assert again[2].item == FunctionCall("call_1", "f", '{"a": 1}')


def test_a_failed_answer_is_not_recorded(tmp_path):
    file = tmp_path / "r.jsonl"
    model = RecordingModel(ScriptedModel([]), file, cwd=tmp_path)
    with pytest.raises(FatalError, match="0 answers"):
        ask(model, request_of("a"))
    assert read_recording(file).exchanges == ()


def test_native_shell_calls_are_made_this_machines(tmp_path):
    file = tmp_path / "r.jsonl"
    shell = LocalShellCall("c", ("ls", str(tmp_path)), str(tmp_path), 5, "ls_1")
    ask(RecordingModel(ScriptedModel([shell]), file, cwd=tmp_path), request_of("a"))
    played = ask(ReplayModel(file, cwd="/elsewhere"), request_of("a"))[0].item
    assert played == LocalShellCall("call_1", ("ls", "/elsewhere"), "/elsewhere", 5)


def test_ids_of_sessions_are_those_of_this_run(tmp_path):
    start = FunctionCall("call_1", "exec_command", '{"cmd": "python"}')
    began = ToolCallOutput("call_1", "Session 40001 is running.")
    answer = Call("write_stdin", {"session_id": 40001, "chars": "40001 + 1\n"})
    live = ScriptedModel([[answer]])
    recorder = RecordingModel(live, tmp_path / "r.jsonl", cwd=tmp_path)
    ask(recorder, request_of("go", 1, (start, began)))
    written = (tmp_path / "r.jsonl").read_text(encoding="utf-8")
    assert "40001" not in written and "{session1}" in written

    again = ReplayModel(tmp_path / "r.jsonl", cwd=tmp_path, strict=True)
    now = ToolCallOutput("call_1", "Session 7313 is running.")
    events = ask(again, request_of("go", 1, (start, now)))
    (call,) = (event.item for event in events if isinstance(event, ItemDone))
    assert json.loads(call.arguments) == {"session_id": 7313, "chars": "7313 + 1\n"}


PLACES = ("/", "/root", "/home/bob", "/home/bob/w", "/tmp")
OF_PATHS = st.lists(
    st.sampled_from(("{home}/x", "{cwd}/y", "{tmp}/z", "{home}", "{{cwd}}", "x{{tmp}}y", "~")),
    max_size=5,
).map(" ".join)


def placed(text, home, cwd, tmp):
    return text.format(home=home, cwd=cwd, tmp=tmp).replace("//", "/")


@given(OF_PATHS, st.tuples(*[st.sampled_from(PLACES)] * 3))
def test_a_recording_plays_wherever_home_workspace_and_temporary_folder_lie(text, there):
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:

        def requests_at(home, cwd, tmp):
            patch.setenv("HOME", home)
            patch.setattr("tempfile.tempdir", tmp)
            here = placed(text, home, cwd, tmp)
            sent = ToolCallOutput("call_1", here)
            return here, Path(cwd), [request_of(here), request_of(here, 2, (CALL, sent))]

        file = Path(folder, "r.jsonl")
        here, cwd, requests = requests_at("/home/ann", "/srv/work", "/var/tmp")
        recorder = RecordingModel(ScriptedModel([[Call("f", {"a": here})], here]), file, cwd=cwd)
        for request in requests:
            ask(recorder, request)
        here, cwd, requests = requests_at(*there)
        replay = ReplayModel(file, cwd=cwd, strict=True)
        call, said_last = (ask(replay, request)[-2].item for request in requests)
        assert json.loads(call.arguments) == {"a": here}
        assert said_last.text == here


PERSONAL_BITS = st.lists(
    st.sampled_from(("40001", "7313", "{home}", "/p/", "sk-" + "a1B2" * 8, " session ", KEY, "  ")),
    max_size=6,
).map("".join)


@given(PERSONAL_BITS)
@example(f"{KEY}sk-{'a1B2' * 8}")
def test_a_recorded_prompt_is_found_whatever_stands_in_it(prompt):
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", KEY)
        file, cwd = Path(folder, "r.jsonl"), Path(folder)
        prompt = prompt.replace("/p/", f" {cwd}/")
        began = ToolCallOutput("call_1", "Session 40001 is running.")
        requests = [request_of(prompt), request_of(prompt, 2, (CALL, began))]
        recorder = RecordingModel(ScriptedModel(["A1", "A2"]), file, cwd=cwd)
        for request in requests:
            ask(recorder, request)
        replay = ReplayModel(file, cwd=cwd, strict=True)
        assert [text_of_answer(replay, request) for request in requests] == ["A1", "A2"]
        (turn,) = turns_of(read_recording(file).exchanges)
        assert turn.prompt == prompt_key(prompt_hider(personal_paths(cwd))(prompt))


def test_a_hand_written_recording_names_sessions_by_number(tmp_path):
    call = {"call": "write_stdin", "arguments": {"session_id": "{session2}"}}
    model = ReplayModel(recording(tmp_path / "r.jsonl", ("go", 1, [call])), cwd=tmp_path)
    outputs = [ToolCallOutput("a", f"Session {number} is running.") for number in (5001, 6002)]
    events = ask(model, request_of("go", 1, outputs))
    (call,) = (event.item for event in events if isinstance(event, ItemDone))
    assert call.arguments == '{"session_id": "6002"}'
