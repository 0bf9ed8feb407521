"""The record of a session: complete, private, written before anything is shown."""

import gc
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from agent_magics import Agent, Call, FatalError, ScriptedModel, ToolContext, tool
from agent_magics.engine.channels.rollout import Rollout
from agent_magics.engine.session import Session
from agent_magics.engine.thread import shared_engine
from agent_magics.protocol.codec import from_json
from agent_magics.protocol.events import (
    Event,
    ReasoningDelta,
    TextDelta,
    ToolCallCompleted,
    TurnCompleted,
    Warned,
)
from agent_magics.protocol.ops import StartTurn, new_turn_id
from agent_magics.protocol.records import ConversationNamed, RecordBegun
from agent_magics.protocol.tools import ToolOutput
from agent_magics.records.retention import remove_old
from tests.support.descriptors import opened
from tests.support.forks import child
from tests.support.turns import kinds, of_kind, outputs, scripted

KEY = "sk-test-0123456789abcdef"


@tool
def note(text: str) -> str:
    """Say it back."""
    return f"noted {text}"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "agent_magics.composition.agent.rollout_folder", lambda: tmp_path / "sessions"
    )
    return tmp_path / "sessions"


def only_file(folder: Path) -> Path:
    [path] = folder.glob("*/*/*/*.jsonl")
    return path


def events_in(record: Path) -> list[Event]:
    lines = record.read_bytes().decode("utf-8").split("\n")
    assert lines.pop() == ""
    read = [from_json(json.loads(line)) for line in lines]
    return [each for each in read if isinstance(each, Event)]


def test_every_event_is_one_line_that_reads_back_equal(folder):
    agent = scripted(Call("note", {"text": "é \u2028 \ud800 \x00"}), "Done.", tools=[note])
    result = agent.run_sync("Go")
    agent.close()
    assert events_in(only_file(folder)) == [
        e for e in result.events if not isinstance(e, (TextDelta, ReasoningDelta))
    ]


def test_only_the_person_can_read_it(folder):
    agent = scripted("Ok.")
    agent.run_sync("Go")
    path = only_file(folder)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) & 0o077 == 0


def test_a_session_that_did_nothing_leaves_no_file(folder):
    scripted("Ok.").close()
    assert not folder.exists()


def test_an_event_is_written_before_it_is_shown(folder):
    unwritten = []

    def show(event):
        if isinstance(event, TextDelta):
            return
        if event.seq not in [each.seq for each in events_in(only_file(folder))]:
            unwritten.append(event)

    agent = scripted(Call("note", {"text": "x"}), "Done.", tools=[note])
    op = StartTurn(turn_id=new_turn_id(), content="Go")
    events = agent.foreground(show=show).wait_blocking(op, agent.turn_config())
    assert len(events) > 5
    assert unwritten == []


def test_runs_and_calls_of_a_session_share_a_file_also_after_close(folder):
    agent = scripted("Ok.", "Ok.", tools=[note])
    agent.run_sync("Go")
    agent.close()
    agent.call_sync("note", {"text": "x"})
    agent.run_sync("Go")
    agent.close()
    numbers = [event.seq for event in events_in(only_file(folder))]
    assert numbers == sorted(numbers)


def test_close_gives_the_file_back(folder):
    agent = scripted("Ok.")
    agent.run_sync("Go")
    path = str(only_file(folder))
    assert path in opened().values()
    agent.close()
    assert path not in opened().values()


def test_a_folder_that_cannot_be_written_warns_once_and_the_run_goes_on(tmp_path, monkeypatch):
    (tmp_path / "taken").write_text("a file stands in the way")
    monkeypatch.setattr("agent_magics.composition.agent.rollout_folder", lambda: tmp_path / "taken")
    agent = scripted(Call("note", {"text": "x"}), "Done.", "Again.", tools=[note])
    result = agent.run_sync("Go")
    assert result.text == "Done."
    [warning] = of_kind(result, Warned)
    assert "not recorded" in warning.message
    assert kinds(result)[-1] == "TurnCompleted"
    assert of_kind(agent.run_sync("Go"), Warned) == []


@pytest.mark.soak
def test_an_agent_that_is_dropped_gives_its_file_back(folder):
    agent = scripted("Ok.")
    agent.run_sync("Go")
    path = str(only_file(folder))
    assert path in opened().values()
    del agent
    # The engine's loop drops the last event it has shown when it shows the next one.
    scripted("Ok.").run_sync("Go")
    gc.collect()
    assert path not in opened().values()


def test_the_key_that_is_not_used_and_the_model_object_s_are_taken_out_too(monkeypatch):
    used, unused, held = KEY, f"{KEY}-in-the-environment", "sk-held-by-the-model"

    class Holding(ScriptedModel):
        def secrets(self):
            return (held,)

    @tool
    def leak() -> str:
        """Print every key."""
        return f"{used} {unused} {held}"

    monkeypatch.setenv("OPENAI_API_KEY", unused)
    agent = Agent(Holding([]), [leak], approval="never", api_key=used)
    assert agent.call_sync("leak").text == "[redacted] [redacted] [redacted]"


def test_keys_reach_neither_outputs_nor_details_nor_the_record(folder):
    @tool(parallel=True)
    def leak(ctx: ToolContext) -> ToolOutput:
        """Print the key everywhere."""
        ctx.update(title=f"title {KEY}", metadata={"deep": [{KEY: f"x{KEY}y"}]})
        return ToolOutput(f"the key is {KEY}", details={"output": f"{KEY}!", "list": [KEY]})

    model = ScriptedModel([Call("leak", {}), f"The key is {KEY}."])
    agent = Agent(model, [leak], approval="never", api_key=KEY)
    result = agent.run_sync("Go")
    agent.close()
    assert outputs(agent)[0][1] == "the key is [redacted]"
    [completed] = of_kind(result, ToolCallCompleted)
    assert completed.details == {"output": "[redacted]!", "list": ["[redacted]"]}
    assert KEY not in repr(result.events)
    assert KEY not in only_file(folder).read_text()
    assert KEY not in repr(agent.call_sync("leak"))


def test_no_key_of_a_long_result_is_recorded_in_a_turn_or_outside(folder):
    @tool
    def leak() -> str:
        """Say the key, after much else."""
        return f"{'x' * 20_000} {KEY} {'y' * 20_000}"

    agent = Agent(ScriptedModel([Call("leak", {}), "Ok."]), [leak], approval="never", api_key=KEY)
    assert agent.call_sync("leak").success
    agent.run_sync("Leak it.")
    agent.session.conversation.handles.keep(f"kept by a cell: {'z' * 20_000} {KEY}")
    agent.close()
    text = only_file(folder).read_text()
    assert KEY not in text and "x" * 20_000 in text


def test_a_key_in_a_command_s_output_is_not_shown_either(folder):
    agent = Agent(
        ScriptedModel([Call("shell", {"command": ["echo", KEY]}), "Ok."]),
        ["shell"],
        approval="never",
        sandbox="danger-full-access",
        api_key=KEY,
    )
    result = agent.run_sync("Go")
    agent.close()
    assert result.calls[0].success
    assert "[redacted]" in result.calls[0].output
    assert KEY not in repr(result.events)
    assert KEY not in only_file(folder).read_text()


def test_a_key_in_an_error_is_taken_out(folder):
    class Refusing:
        source = "script"

        async def stream(self, request):
            raise FatalError(f"The key {KEY} is wrong.")
            yield

        async def close(self):
            pass

    result = Agent(Refusing(), [], api_key=KEY).run_sync("Go")
    assert result.error == "The key [API key] is wrong."


def test_a_key_in_a_traceback_is_not_logged(caplog: pytest.LogCaptureFixture):
    class Broken(ScriptedModel):
        async def stream(self, request):
            raise ZeroDivisionError(f"with {KEY}")
            yield

    Agent(Broken([]), [], api_key=KEY).run_sync("Go")
    assert "ZeroDivisionError: with [redacted]" in caplog.text
    assert KEY not in caplog.text


def _records(folder, days):
    """Make a record on each of some days, given in days since the epoch."""
    for day in days:
        path = folder / f"2024/01/{day}/one.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text("{}\n")
        os.utime(path, (day * 86_400 + 43_200,) * 2)


def test_the_records_of_the_newest_days_of_work_are_kept(tmp_path):
    _records(tmp_path, range(100, 200, 2))
    remove_old(tmp_path, days=30)
    assert sorted(int(path.parent.name) for path in tmp_path.glob("*/*/*/*")) == [
        *range(140, 200, 2)
    ]
    assert len([*tmp_path.glob("*/*/*")]) == 30, "a day's folder that is empty goes too"


@pytest.mark.parametrize("jump", [31, 3650, -3650])
def test_a_clock_that_is_wrong_removes_no_more_than_another_day_would(tmp_path, jump):
    _records(tmp_path, [100, 101, 102, 102 + jump])
    remove_old(tmp_path, days=30)
    assert len([*tmp_path.glob("*/*/*/*")]) == 4


FULL_DISK = """
import json, resource, signal, sys
from agent_magics import Agent, Call, ScriptedModel, tool
from agent_magics.records.places import rollout_folder
from agent_magics.protocol.events import Warned

@tool
def note(text: str) -> str:
    "Say it back."
    return text * 50

script = [Call("note", {"text": "x" * 20}), "Ok."] * 12
agent = Agent(ScriptedModel(script), [note], approval="never")
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
warned = []
for number in range(12):
    if number == 2:
        [record] = rollout_folder().glob("*/*/*/*.jsonl")
        resource.setrlimit(resource.RLIMIT_FSIZE, (record.stat().st_size + 300, hard))
    if number == 5:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    result = agent.run_sync(f"turn {number}")
    assert result.text == "Ok.", result
    warned += [event.message for event in result.events if isinstance(event, Warned)]
agent.close()
print(json.dumps([str(record), warned]))
"""


@pytest.mark.soak
def test_a_full_disk_leaves_whole_lines_is_told_once_and_ends_by_itself(tmp_path):
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    record, warned = json.loads(done.stdout)
    [told] = warned
    assert "not recorded" in told
    assert "File too large" in told
    events = events_in(Path(record))
    turns = {event.turn_id for event in events if isinstance(event, TurnCompleted)}
    assert len(turns) == 9, "those before it was full, and those after"
    [gap] = [e for e in events if isinstance(e, Warned) and "are missing here" in e.message]
    at = events.index(gap)
    assert events[at + 1].seq - gap.seq > int(gap.message.split()[0]) - 1
    assert events[at - 1].seq == gap.seq - 1


def test_a_session_may_do_without_a_record():
    session = Session(shared_engine(), "quiet", None)
    session.close()


def test_a_rollout_of_deltas_alone_makes_no_file(tmp_path):
    begun = RecordBegun(conversation="id", agent="a")
    rollout = Rollout(tmp_path / "sessions" / "id.jsonl", lambda: begun)
    rollout.write([TextDelta(text="a")])
    assert not (tmp_path / "sessions").exists()


def test_a_closed_rollout_is_free_also_while_a_child_is_being_started(tmp_path):
    begun = RecordBegun(conversation="id", agent="a")
    first, second = (Rollout(tmp_path / "id.jsonl", lambda: begun) for _ in range(2))
    first.begin()
    with child(signal.pause):  # has the file open, and its lock, until it executes a program
        first.close()
        second.begin()
    second.close()


def test_a_record_that_is_opened_is_not_among_those_that_make_room(tmp_path):
    path = tmp_path / "2025/01/01/0123.jsonl"
    begun = RecordBegun(conversation="0123", agent="a")
    Rollout(path, lambda: begun).write([ConversationNamed(name="old")])
    before = path.read_bytes()
    gc.collect()  # the first one is closed
    again = Rollout(path, lambda: begun, lambda: remove_old(tmp_path, most=0))
    again.begin()
    again.close()
    assert path.read_bytes() == before
