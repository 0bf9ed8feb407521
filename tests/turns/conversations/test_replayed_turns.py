"""Whole turns recorded in one place and played in another, with real tools and several agents."""

import json
import threading
from pathlib import Path

import pytest

from agent_magics import Agent, Call, ScriptedModel
from agent_magics.models.recordings.format import read_recording
from agent_magics.protocol.events import ModelRetry, Warned
from tests.support.models.responses_server import Reply, function_call
from tests.support.models.server import ModelServer
from tests.support.turns import of_kind, outputs

VOLATILE = "pwd; date; date -u +%FT%TZ; echo $$ | sed 's/^/pid /'; mktemp -u; ls -l here.txt"


def folder(path, name):
    place = path / name
    place.mkdir()
    (place / "here.txt").write_text("here\n", encoding="utf-8")
    return place


def agent_in(place, model=None, **options):
    return Agent(model, ["shell_command", "read_file"], cwd=place, approval="never", **options)


@pytest.mark.parametrize("prompt", ["Look.", "Look into {place}."])
def test_a_turn_plays_in_another_folder_and_time_zone_under_strict(tmp_path, monkeypatch, prompt):
    here, there = folder(tmp_path, "here"), folder(tmp_path, "there")
    file = tmp_path / "r.agent.jsonl"
    command = Call("shell_command", {"command": f"cd {here}; {VOLATILE}"})
    script = [[command, Call("read_file", {"path": f"{here}/here.txt"})], f"It is {here}."]
    with agent_in(here, ScriptedModel(script), record=file) as agent:
        recorded = agent.run_sync(prompt.format(place=here))
    assert recorded.text == f"It is {here}."
    assert str(tmp_path) not in file.read_text(encoding="utf-8")
    monkeypatch.setenv("TZ", "<+0545>-5:45")
    with agent_in(there, replay=file, replay_strict=True) as agent:
        played = agent.run_sync(prompt.format(place=there))
        assert played.status == "completed", played.error
        assert played.text == f"It is {there}."
        assert of_kind(played, Warned) == []
        assert [call.success for call in played.calls] == [True, True]
        assert str(there) in str(outputs(agent)[0])


def test_a_recording_in_the_home_is_named_with_a_tilde(tmp_path):
    with agent_in(tmp_path, ScriptedModel(["Hello."]), record="~/r.agent.jsonl") as agent:
        agent.run_sync("Hi.")
    assert Path("~/r.agent.jsonl").expanduser().is_file()
    with agent_in(tmp_path, replay="~/r.agent.jsonl") as agent:
        assert agent.run_sync("Hi.").text == "Hello."


def test_a_number_that_a_file_calls_a_session_is_a_number(tmp_path):
    place, file = folder(tmp_path, "here"), tmp_path / "r.agent.jsonl"
    (place / "here.txt").write_text("Session 20240: 15 talks\nSession 20250 is running.\n")
    said = "20240 had 15 talks, 20250 goes on."
    script = [Call("read_file", {"path": "here.txt"}), said]
    with agent_in(place, ScriptedModel(script), record=file) as agent:
        agent.run_sync("How many talks had 20240?")
    assert "{session" not in file.read_text(encoding="utf-8")
    with agent_in(place, replay=file, replay_strict=True) as agent:
        played = agent.run_sync("How many talks had 20240?")
    assert (played.status, played.text) == ("completed", said), played.error


def test_drift_is_shown_and_strict_makes_it_an_error(tmp_path):
    place = folder(tmp_path, "here")
    file = tmp_path / "r.agent.jsonl"
    script = [Call("shell_command", {"command": "cat here.txt"}), "Done."]
    with agent_in(place, ScriptedModel(script), record=file) as agent:
        agent.run_sync("Look.")
    (place / "here.txt").write_text("changed\n", encoding="utf-8")
    with agent_in(place, replay=file) as agent:
        played = agent.run_sync("Look.")
    (warning,) = of_kind(played, Warned)
    assert warning.message.endswith("-here\n+changed")
    assert "`shell_command`" in warning.message
    assert played.text == "Done."
    with agent_in(place, replay=file, replay_strict=True) as agent:
        played = agent.run_sync("Look.")
    assert played.status == "failed"
    assert "-here\n+changed" in played.error


@pytest.mark.soak
def test_agents_that_record_to_one_file_at_once(tmp_path):
    place = folder(tmp_path, "here")
    file = tmp_path / "r.agent.jsonl"
    names = [f"agent{number}" for number in range(4)]
    results = {}

    def record(name):
        command = Call("shell_command", {"command": f"echo {name}"})
        model = ScriptedModel([command, command, f"I am {name}."])
        with agent_in(place, model, record=file, name=name) as agent:
            results[name] = agent.run_sync("Who are you?")

    threads = [threading.Thread(target=record, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {result.text for result in results.values()} == {f"I am {name}." for name in names}
    assert read_recording(file).notice == ""
    with agent_in(place, replay=file, replay_strict=True) as agent:
        played = [agent.run_sync("Who are you?") for _ in names]
    assert all(result.status == "completed" for result in played), [r.error for r in played]
    assert {result.text for result in played} == {f"I am {name}." for name in names}


def test_a_repeated_request_is_seen_on_replay_but_not_waited_for(tmp_path):
    file = tmp_path / "r.agent.jsonl"
    busy = Reply(status=503, error="busy", headers=[("retry-after-ms", "10")])
    replies = [busy, Reply([function_call("list_dir", {"path": "."})]), busy, "Done."]
    with ModelServer(responses=replies) as server:
        options = {"base_url": server.base_url, "wire_api": "responses"}
        with Agent(None, ["list_dir"], cwd=tmp_path, record=file, **options) as agent:
            live = agent.run_sync("Look.")
    lines = file.read_text(encoding="utf-8").splitlines()
    slow = [json.loads(line) for line in lines]
    for exchange in slow[1:]:
        exchange["failed"][0]["headers"] = {"retry-after": "100"}  # nobody could wait for that
        exchange.pop("outputs")
    file.write_text("\n".join(map(json.dumps, slow)), encoding="utf-8")
    with Agent(None, ["list_dir"], cwd=tmp_path, replay=file) as agent:
        played = agent.run_sync("Look.")
    assert (live.text, played.text) == ("Done.", "Done.")
    assert len(of_kind(live, ModelRetry)) == len(of_kind(played, ModelRetry)) == 2
