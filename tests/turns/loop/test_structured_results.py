"""Results of a type: asked for, checked, mended once, and failed clearly with the text kept."""

import asyncio
import json
from typing import Literal

import pandas as pd
import pytest
from pydantic import BaseModel

from agent_magics import Agent, Call, ScriptedModel, tool
from agent_magics.models.recordings.replay import ReplayModel
from agent_magics.protocol.events import ModelInformed, Warned
from tests.support.models.responses_server import function_call
from tests.support.models.server import ModelServer, Reply, chat_events, tool_call
from tests.support.turns import assert_valid, of_kind, scripted


class Row(BaseModel):
    month: str
    total: int


ROWS = [Row(month="2024-03", total=3)]
GOOD = '{"value": [{"month": "2024-03", "total": 3}]}'
BAD = '{"value": [{"month": "2024-03", "total": "three"}]}'


@tool
def look(month: str) -> int:
    """Look a month up."""
    return 3


def test_tools_run_before_the_answer_which_is_a_value():
    model = ScriptedModel([Call("look", {"month": "2024-03"}), GOOD])
    result = Agent(model, [look], approval="never").run_sync("Go", output=list[Row])
    assert result.status == "completed"
    assert result.value == ROWS
    assert result.text == GOOD
    assert len(result.calls) == 1
    assert all(request.tools for request in model.requests)
    assert all(request.output_schema["type"] == "object" for request in model.requests)
    assert all('"month"' in request.instructions for request in model.requests)


def test_run_gives_a_value_too():
    result = asyncio.run(scripted("7").run("Go", output=int))
    assert result.value == 7


def test_run_sync_gives_one_inside_a_loop():
    async def inside():
        return scripted("7").run_sync("Go", output=int)

    assert asyncio.run(inside()).value == 7


def test_without_a_type_nothing_changes():
    model = ScriptedModel(["7"])
    result = Agent(model, []).run_sync("Go")
    assert result.value is None
    assert model.requests[0].output_schema is None
    assert "schema" not in model.requests[0].instructions


def test_an_answer_that_does_not_fit_is_mended_once():
    model = ScriptedModel([BAD, GOOD])
    agent = Agent(model, [look], approval="never")
    result = agent.run_sync("Go", output=list[Row])
    assert (result.status, result.value) == ("completed", ROWS)
    told = model.requests[1].history.items[-1]
    assert told.role == "developer"
    assert "value[0].total: expected an integer, got 'three' (string)" in told.content
    assert model.requests[1].tools == ()
    assert model.requests[1].output_schema is not None
    [informed] = of_kind(result, ModelInformed)
    assert "list[Row]" in informed.shown
    assert_valid(agent)


def test_one_that_is_not_mended_fails_and_the_text_is_kept():
    result = scripted(BAD, BAD, tools=[look]).run_sync("Go", output=list[Row])
    assert result.status == "failed"
    assert result.value is None
    assert result.text == BAD
    assert "is no list[Row]" in result.error
    assert "value[0].total: expected an integer" in result.error
    assert "\n" not in result.error


def test_after_a_failure_the_conversation_goes_on():
    agent = scripted(BAD, BAD, GOOD, tools=[look])
    agent.run_sync("Go", output=list[Row])
    assert agent.run_sync("Again", output=list[Row]).value == ROWS


def test_what_is_no_type_is_a_failed_run_without_a_request():
    model = ScriptedModel([])
    result = Agent(model, []).run_sync("Go", output="list[Row]")
    assert result.status == "failed"
    assert result.error.startswith("output='list[Row]' is no type")
    assert model.requests == []


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (dict[str, float], '{"a": 1}', {"a": 1.0}),
        (Literal["up", "down"], "up", "up"),
        (Row, '{"month": "m", "total": 1}', Row(month="m", total=1)),
        (str, "words", "words"),
    ],
)
def test_types(kind, text, value):
    assert scripted(text).run_sync("Go", output=kind).value == value


def test_a_frame():
    table = {
        "columns": [{"name": "month", "type": "date"}, {"name": "total", "type": "integer"}],
        "rows": [["2024-03-01", 3], ["2024-04-01", None]],
    }
    frame = scripted(json.dumps(table)).run_sync("Go", output=pd.DataFrame).value
    assert list(frame.columns) == ["month", "total"]
    assert str(frame.dtypes["total"]) == "Int64"
    assert frame["month"].dt.month.tolist() == [3, 4]


def test_a_budget_ends_the_run_without_a_value_and_says_so():
    calls = [Call("look", {"month": "m"})]
    result = scripted(*calls, "Not done.", tools=[look], max_turns=1).run_sync("Go", output=int)
    assert (result.status, result.text, result.value) == ("completed", "Not done.", None)
    assert result.budget == "max_turns=1"
    assert any("no value" in event.message for event in of_kind(result, Warned))


# -- over HTTP ------------------------------------------------------------------------------------


def agent_at(server, wire, tools=(), **options):
    options = {"base_url": server.base_url, "wire_api": wire, "approval": "never", **options}
    return Agent("gpt-5.5", list(tools), **options)


def format_of(body):
    """The schema that a request hands to the server, on either wire."""
    chat = body.get("response_format", {}).get("json_schema")
    return chat or body.get("text", {}).get("format")


@pytest.mark.parametrize("wire", ["responses", "chat"])
def test_a_schema_is_handed_over_in_the_strict_form(wire):
    with ModelServer(responses=[GOOD], chat=[GOOD]) as server, agent_at(server, wire) as agent:
        result = agent.run_sync("Go", output=list[Row])
        [request] = server.requests
    assert result.value == ROWS
    handed = format_of(request.body)
    assert handed["strict"] is True
    assert handed["schema"]["required"] == ["value"]


@pytest.mark.parametrize("wire", ["responses", "chat"])
def test_an_unknown_server_with_tools_gets_the_schema_in_words_and_for_the_mending(wire):
    """Many hold the model to a schema from the first token on: it could call no tool."""
    responses = [Reply([function_call("look", {"month": "m"})]), BAD, GOOD]
    chat = [Reply(events=chat_events(calls=[tool_call("look", {"month": "m"})])), BAD, GOOD]
    with (
        ModelServer(responses=responses, chat=chat) as server,
        agent_at(server, wire, [look]) as agent,
    ):
        result = agent.run_sync("Go", output=list[Row])
        bodies = [request.body for request in server.requests]
    assert result.value == ROWS
    assert len(result.calls) == 1
    assert [format_of(body) is not None for body in bodies] == [False, False, True]
    assert ["tools" in body for body in bodies] == [True, True, False]
    assert all("month" in json.dumps(body) for body in bodies)


def test_a_server_that_wants_tools_after_calls_mends_with_tools_and_without_the_schema():
    called = Reply(events=chat_events(calls=[tool_call("look", {"month": "m"})]))
    refused = Reply(status=400, error="The toolConfig field must be defined when using toolUse")
    with (
        ModelServer(chat=[called, BAD, refused, GOOD]) as server,
        agent_at(server, "chat", [look]) as agent,
    ):
        result = agent.run_sync("Go", output=list[Row])
        bodies = [request.body for request in server.requests]
    assert result.value == ROWS
    assert [format_of(body) is not None for body in bodies] == [False, False, True, False]
    assert ["tools" in body for body in bodies] == [True, True, False, True]


@pytest.mark.parametrize("wire", ["responses", "chat"])
def test_a_server_that_refuses_the_schema_is_asked_without_and_remembered(wire):
    def script(body):
        if format_of(body) is not None:
            return Reply(status=400, error="This response_format type is unavailable now")
        return GOOD

    with ModelServer(responses=script, chat=script) as server, agent_at(server, wire) as agent:
        assert agent.run_sync("Go", output=list[Row]).value == ROWS
        assert agent.run_sync("Again", output=list[Row]).value == ROWS
        handed = [format_of(request.body) is not None for request in server.requests]
    assert handed == [True, False, False]


def test_another_refusal_is_told():
    refused = Reply(status=400, error="temperature is too high")
    with ModelServer(chat=[refused]) as server, agent_at(server, "chat") as agent:
        result = agent.run_sync("Go", output=list[Row])
    assert result.status == "failed"
    assert "temperature" in result.error


@pytest.mark.parametrize("wire", ["responses", "chat"])
def test_a_recorded_run_plays_with_its_mending(wire, tmp_path):
    recording = tmp_path / "x.agent.jsonl"
    with (
        ModelServer(responses=[BAD, GOOD], chat=[BAD, GOOD]) as server,
        agent_at(server, wire, record=recording, cwd=tmp_path) as agent,
    ):
        live = agent.run_sync("Go", output=list[Row])
    played = Agent(ReplayModel(recording, cwd=tmp_path), []).run_sync("Go", output=list[Row])
    assert live.value == played.value == ROWS
    assert played.usage == live.usage
    assert played.cost == live.cost


def test_a_refused_schema_is_no_part_of_the_recording(tmp_path):
    recording = tmp_path / "x.agent.jsonl"

    def script(body):
        if format_of(body) is not None:
            return Reply(status=400, error="This response_format type is unavailable now")
        return GOOD

    with (
        ModelServer(chat=script) as server,
        agent_at(server, "chat", record=recording, cwd=tmp_path) as agent,
    ):
        assert agent.run_sync("Go", output=list[Row]).value == ROWS
    played = Agent(ReplayModel(recording, cwd=tmp_path), []).run_sync("Go", output=list[Row])
    assert played.value == ROWS
